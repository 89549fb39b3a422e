// Places groups on rows of equal width: small groups share a row, to scale, and long ones continue on the next row.

import type {Group} from './layout.ts';

/** Pixels between two groups on a row, and the minimum width of a group. */
const GAP = 3, MIN_WIDTH = 2;

/** A visible part of a group on a row. */
export interface Strip {
  readonly group: Group;
  readonly row: number;
  /** Pixels from the left of the rows. */
  readonly x: number;
  readonly width: number;
  /** The range of the group's bytes. */
  readonly from: number;
  readonly to: number;
}

export class Rows {
  /** First row of each group, and its position on that row. */
  private readonly row: Float64Array;
  private readonly x: Float64Array;
  /** Last row of each group, non-decreasing. */
  private readonly last: Float64Array;
  readonly count: number;

  /** `row_bytes`: bytes of a full row of `width` pixels. */
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

  private pixels(bytes: number): number { return Math.max(MIN_WIDTH, bytes / this.row_bytes * this.width); }

  /** Returns the bytes per pixel within a group. */
  scale(group: Group): number { return group.bytes / this.row_bytes * this.width < MIN_WIDTH ? group.bytes / MIN_WIDTH : this.row_bytes / this.width; }

  /** Returns the strips of rows `from` to `to` (exclusive), in order. */
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

  /** Returns the row of a byte of a group. */
  row_of(group: Group, offset: number): number {
    const i = this.groups.indexOf(group);
    if (i < 0) return 0;
    return this.row[i]! === this.last[i]! ? this.row[i]! : Math.min(this.last[i]!, this.row[i]! + Math.floor(offset / this.row_bytes));
  }
}

/** The maximum bytes of a full row, in multiples of the largest group: with more, no group is large enough to be visible. */
const MAX_ROW_GROUPS = 64;

/** Returns the smallest power of two of bytes per row with which the groups fit into `rows` rows; if none does, one that is close. */
export function fitting_bytes(groups: readonly Group[], width: number, rows: number): number {
  let largest = 4096, total = 0;
  for (const group of groups) {
    largest = Math.max(largest, group.bytes);
    total += group.bytes;
  }
  const whole = 2 ** Math.ceil(Math.log2(largest)), fits = (bytes: number): boolean => new Rows(groups, bytes, width).count <= rows;
  let bytes = whole;
  // If the bytes would fit four times, gaps and minimum widths take the space, and a larger scale does not help.
  while (!fits(bytes) && bytes < whole * MAX_ROW_GROUPS && total / bytes > rows / 4) bytes *= 2;
  while (bytes > 4096 && fits(bytes / 2)) bytes /= 2;
  return bytes;
}
