// Groups on rows of one width: small ones beside each other, to scale, and what is longer than a row goes on in the next.

import type {Group} from './layout.ts';

/** Pixels between two groups on a row, and the least width of one. */
const GAP = 3, LEAST = 2;

/** A visible part of a group on a row. */
export interface Strip {
  readonly group: Group;
  readonly row: number;
  /** Pixels from the left of the rows. */
  readonly x: number;
  readonly width: number;
  /** Bytes of the group. */
  readonly from: number;
  readonly to: number;
}

export class Rows {
  /** First row of each group, and how many it fills. */
  private readonly row: Float64Array;
  private readonly x: Float64Array;
  /** Last row of each group: never falls. */
  private readonly last: Float64Array;
  readonly count: number;

  /** `row_bytes`: how many bytes a full row of `width` pixels stands for. */
  constructor(readonly groups: readonly Group[], readonly row_bytes: number, readonly width: number) {
    const n = groups.length;
    this.row = new Float64Array(n);
    this.x = new Float64Array(n);
    this.last = new Float64Array(n);
    let row = 0, x = 0;
    for (let i = 0; i < n; i++) {
      const group = groups[i]!, wide = this.pixels(group.bytes), alone = group.kind !== 'segment' || wide > width;
      if (x > 0 && (alone || x + wide > width || groups[i - 1]!.kind !== group.kind)) { row++; x = 0; }
      this.row[i] = row;
      this.x[i] = x;
      if (wide > width) {
        row += Math.ceil(group.bytes / row_bytes) - 1;
        this.last[i] = row;
        row++;
        x = 0;
      } else {
        this.last[i] = row;
        x += wide + GAP;
        if (alone) { row++; x = 0; }
      }
    }
    this.count = n === 0 ? 0 : this.last[n - 1]! + 1;
  }

  private pixels(bytes: number): number { return Math.max(LEAST, bytes / this.row_bytes * this.width); }

  /** Bytes per pixel within a group. */
  scale(group: Group): number { return group.bytes / this.row_bytes * this.width < LEAST ? group.bytes / LEAST : this.row_bytes / this.width; }

  /** The strips of rows `from` to `to` (exclusive), in order. */
  strips(from: number, to: number): Strip[] {
    let low = 0, high = this.groups.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (this.last[middle]! < from) low = middle + 1; else high = middle;
    }
    const strips: Strip[] = [];
    for (let i = low; i < this.groups.length && this.row[i]! < to; i++) {
      const first = this.row[i]!, last = this.last[i]!;
      for (let row = Math.max(first, from); row <= Math.min(last, to - 1); row++) strips.push(this.strip(i, row));
    }
    return strips;
  }

  private strip(i: number, row: number): Strip {
    const group = this.groups[i]!, first = this.row[i]!;
    if (this.last[i] === first) return {group, row, x: this.x[i]!, width: this.pixels(group.bytes), from: 0, to: group.bytes};
    const from = (row - first) * this.row_bytes, to = Math.min(group.bytes, from + this.row_bytes);
    return {group, row, x: 0, width: Math.max(1, (to - from) / this.row_bytes * this.width), from, to};
  }

  /** The row where a byte of a group is. */
  row_of(group: Group, offset: number): number {
    const i = this.groups.indexOf(group);
    if (i < 0) return 0;
    return this.row[i]! === this.last[i]! ? this.row[i]! : Math.min(this.last[i]!, this.row[i]! + Math.floor(offset / this.row_bytes));
  }
}

/** The most that a full row stands for, in multiples of the largest group: beyond, nothing is large enough to be seen. */
const COARSEST = 64;

/** The smallest power of two of bytes on a row with which the groups need no more than `rows` rows; if none does, one that is not far from it. */
export function fitting_bytes(groups: readonly Group[], width: number, rows: number): number {
  let largest = 4096, total = 0;
  for (const group of groups) {
    largest = Math.max(largest, group.bytes);
    total += group.bytes;
  }
  const whole = 2 ** Math.ceil(Math.log2(largest)), fits = (bytes: number): boolean => new Rows(groups, bytes, width).count <= rows;
  let bytes = whole;
  // What is still too much when the bytes would fit four times are gaps and least widths, against which no scale helps.
  while (!fits(bytes) && bytes < whole * COARSEST && total / bytes > rows / 4) bytes *= 2;
  while (bytes > 4096 && fits(bytes / 2)) bytes /= 2;
  return bytes;
}
