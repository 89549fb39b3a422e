// Results of a search: counts, live bytes, and the next match.

import type {Device} from '../types.ts';

export interface Results {
  /** The number and bytes of marked blocks that are live after the event, and the bytes of all live blocks. */
  readonly live: number;
  readonly live_bytes: number;
  readonly all_live_bytes: number;
}

/** Returns the number of marked rows up to and including `last`. */
export function count_marks(marks: Uint8Array, last = marks.length - 1): number {
  let count = 0;
  for (let i = 0; i <= last; i++) count += marks[i]!;
  return count;
}

/** Counts the blocks that are live after an event, and the marked ones among them. */
export function count_live(device: Device, marks: Uint8Array, event: number): Results {
  const {blocks} = device;
  let live = 0, live_bytes = 0, all_live_bytes = 0;
  for (const row of device.live_after(blocks, event)) {
    all_live_bytes += blocks.size[row]!;
    if (marks[row]) { live++; live_bytes += blocks.size[row]!; }
  }
  return {live, live_bytes, all_live_bytes};
}

const peaks = new WeakMap<Device, number>();

/** Returns the first event after which the most bytes are live; cached. */
export function peak_event(device: Device): number {
  let best = peaks.get(device);
  if (best !== undefined) return best;
  const {total} = device.blocks;
  best = 0;
  for (let i = 1; i < total.length; i++) if (total[i]! > total[best]!) best = i;
  peaks.set(device, best -= 1);
  return best;
}

/** Returns the marked row after (1) or before (-1) a row, wrapping around; null: none is marked. */
export function next_mark(marks: Uint8Array, row: number | null, by: 1 | -1): number | null {
  const n = marks.length;
  let at = row ?? (by > 0 ? -1 : n);
  for (let i = 0; i < n; i++) {
    at = ((at + by) % n + n) % n;
    if (marks[at]) return at;
  }
  return null;
}
