// Blocks and pieces of segments: decoding, sums of live bytes, and the live rows after an event.

import type {Elements, Notes} from '../types.ts';
import {Reader} from './columns.ts';

const NEVER = 0x7fffffff;

/** Decodes section `blocks` or `segments` of a device with this number of events. */
export function decode_elements(bytes: Uint8Array, columns: Map<string, number>, events: number): Elements {
  const reader = new Reader(bytes);
  const count = columns.get('start') ?? 0;
  const start = reader.delta32(count);
  const end = new Int32Array(count), pending = new Int32Array(count).fill(NEVER);
  const life = reader.varint32(count);
  for (let row = 0; row < count; row++) end[row] = life[row] === 0 ? events : start[row]! + life[row]!;
  if (columns.has('pending')) {
    const after = reader.varint32(count);
    for (let row = 0; row < count; row++) if (after[row] !== 0) pending[row] = start[row]! + after[row]! - 1;
  }
  const size = reader.varint(count);
  const stack = reader.varint32(count);
  const {low, high} = reader.delta64(count);
  const stream = reader.varint_into(new Uint16Array(count));
  const pool = reader.varint_into(new Uint16Array(count));
  const category = columns.has('category') ? reader.varint_into(new Uint8Array(count)) : new Uint8Array(count);
  const flags = reader.varint_into(new Uint8Array(count));
  const final_bytes = new Map<number, number>(), noted = columns.get('note_block') ?? 0;
  const notes = new NoteColumns(reader.delta32(noted), reader.varint32(noted));
  if (columns.has('final_block')) {
    const n = columns.get('final_block')!, rows = reader.delta32(n), sizes = reader.varint(n);
    for (let i = 0; i < n; i++) final_bytes.set(rows[i]!, sizes[i]!);
  }
  return {
    count, start, end, pending, size, stack, address_low: low, address_high: high, stream, pool, category, flags,
    total: totals(start, end, size, events), final_bytes, notes,
  };
}

/** Notes as columns. Nearly every block may have a note, so objects are created only on request. */
class NoteColumns implements Notes {
  constructor(private readonly rows: Int32Array, private readonly texts: Uint32Array) {}

  get(row: number): number[] | undefined {
    const {rows, texts} = this;
    let low = 0, high = rows.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (rows[middle]! < row) low = middle + 1;
      else high = middle;
    }
    let to = low;
    while (to < rows.length && rows[to] === row) to++;
    return to > low ? [...texts.subarray(low, to)] : undefined;
  }

  *[Symbol.iterator](): Generator<[number, number[]]> {
    const {rows, texts} = this;
    for (let from = 0; from < rows.length;) {
      let to = from + 1;
      while (to < rows.length && rows[to] === rows[from]) to++;
      yield [rows[from]!, [...texts.subarray(from, to)]];
      from = to;
    }
  }
}

/** Returns the live bytes before the first event and after each, of the rows marked in `only` (null: all). */
export function totals(start: Int32Array, end: Int32Array, size: Float64Array, events: number, only: Uint8Array | null = null): Float64Array {
  const total = new Float64Array(events + 1);
  for (let row = 0; row < size.length; row++) {
    if (only && !only[row]) continue;
    total[start[row]! + 1]! += size[row]!;
    if (end[row]! < events) total[end[row]! + 1]! -= size[row]!;
  }
  for (let i = 1; i <= events; i++) total[i]! += total[i - 1]!;
  return total;
}

/** Returns the first row that starts after an event. */
export function rows_until(start: Int32Array, event: number): number {
  let low = 0, high = start.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (start[middle]! <= event) low = middle + 1;
    else high = middle;
  }
  return low;
}

/**
 * Checkpoints from which the live rows after any event are found. Each is a list of live rows. The distance from a list to the
 * next is at least the length of the list, so that all lists together are no longer than the trace.
 */
export class Checkpoints {
  private readonly events: number[] = [-1];
  private readonly lists: Uint32Array[];
  private readonly scratch: Uint32Array;

  constructor(private readonly elements: Elements, private readonly last_event: number) {
    this.scratch = new Uint32Array(elements.count);
    this.lists = [this.step(new Uint32Array(0), -2, -1)];
  }

  /**
   * Returns the rows that are live after an event, in increasing order. The time is proportional to one checkpoint plus the
   * rows that began since then.
   */
  live_after(event: number): Uint32Array {
    event = Math.max(-1, Math.min(event, this.last_event));
    this.extend_to(event);
    let low = 0, high = this.events.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >>> 1;
      if (this.events[middle]! <= event) low = middle;
      else high = middle - 1;
    }
    return this.step(this.lists[low]!, this.events[low]!, event);
  }

  /** Creates the checkpoints up to an event. */
  private extend_to(event: number): void {
    for (;;) {
      const from = this.events.at(-1)!, list = this.lists.at(-1)!;
      const next = from + Math.max(4096, list.length);
      if (next > event) return;
      this.lists.push(this.step(list, from, next));
      this.events.push(next);
    }
  }

  private step(live: Uint32Array, from: number, to: number): Uint32Array {
    const {start, end} = this.elements, out = this.scratch;
    let n = 0;
    for (const row of live) if (end[row]! > to) out[n++] = row;
    const last = rows_until(start, to);
    for (let row = rows_until(start, from); row < last; row++) if (end[row]! > to) out[n++] = row;
    return out.slice(0, n);
  }
}
