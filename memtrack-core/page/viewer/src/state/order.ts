// Rows by address. The tables are in the order of allocation, but the map needs the order of addresses. Sorting the live rows
// at every step would cost more than the step itself, so all rows are ranked once.

import type {Elements} from '../types.ts';

export interface AddressOrder {
  /** Rows by address, then by allocation. */
  readonly rows: Uint32Array;
  /** The index of each row in `rows`. */
  readonly rank: Uint32Array;
}

/** Ranks all rows by their 64-bit addresses, with a radix sort over 16-bit digits that skips digits shared by all rows. */
export function address_order(elements: Elements): AddressOrder {
  const n = elements.count;
  let rows = new Uint32Array(n), other = new Uint32Array(n);
  for (let i = 0; i < n; i++) rows[i] = i;
  const counts = new Uint32Array(65537);
  for (let digit = 0; digit < 4; digit++) {
    const half = digit < 2 ? elements.address_low : elements.address_high, shift = (digit & 1) * 16;
    counts.fill(0);
    for (let i = 0; i < n; i++) counts[((half[i]! >>> shift) & 0xffff) + 1]!++;
    if (n === 0 || counts[((half[0]! >>> shift) & 0xffff) + 1] === n) continue;
    for (let d = 0; d < 65536; d++) counts[d + 1]! += counts[d]!;
    for (let i = 0; i < n; i++) {
      const row = rows[i]!;
      other[counts[(half[row]! >>> shift) & 0xffff]!++] = row;
    }
    [rows, other] = [other, rows];
  }
  for (let i = 0; i < n; i++) other[rows[i]!] = i;
  return {rows, rank: other};
}

/** Returns the rows in the order of their ends. */
export function end_order(elements: Elements, events: number): Uint32Array {
  const n = elements.count, end = elements.end;
  // Most tables have about as many rows as events: a counting sort over events is one pass.
  const counts = new Uint32Array(events + 3), rows = new Uint32Array(n);
  for (let i = 0; i < n; i++) counts[Math.max(0, Math.min(events, end[i]!)) + 2]!++;
  for (let e = 0; e <= events; e++) counts[e + 2]! += counts[e + 1]!;
  for (let i = 0; i < n; i++) rows[counts[Math.max(0, Math.min(events, end[i]!)) + 1]!++] = i;
  return rows;
}

/** Returns the first index in `rows` whose value is at least `value`; `rows` are sorted by `values`. */
export function first_at_least(rows: Uint32Array, values: ArrayLike<number>, value: number): number {
  let low = 0, high = rows.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (values[rows[middle]!]! < value) low = middle + 1; else high = middle;
  }
  return low;
}

/** Returns the first index in sorted `values` whose value is at least `value`. */
export function lower_bound(values: ArrayLike<number>, value: number, low = 0, high = values.length): number {
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (values[middle]! < value) low = middle + 1; else high = middle;
  }
  return low;
}

/** Addresses as distances from one origin: exact in a double if the memory of a device spans less than 2^53 bytes. */
export class Origin {
  constructor(readonly high: number, readonly low: number) {}

  /** Returns the lowest address of the tables. */
  static of(...tables: {elements: Elements; order: AddressOrder}[]): Origin {
    let best: Origin | null = null;
    for (const {elements, order} of tables) {
      if (elements.count === 0) continue;
      const row = order.rows[0]!, high = elements.address_high[row]!, low = elements.address_low[row]!;
      if (!best || high < best.high || (high === best.high && low < best.low)) best = new Origin(high, low);
    }
    return best ?? new Origin(0, 0);
  }

  distance(elements: Elements, row: number): number {
    return (elements.address_high[row]! - this.high) * 0x1_0000_0000 + (elements.address_low[row]! - this.low);
  }

  /** Returns the address at a distance from the origin. */
  address(distance: number): bigint {
    return (BigInt(this.high) << 32n) + BigInt(this.low) + BigInt(Math.round(distance));
  }
}
