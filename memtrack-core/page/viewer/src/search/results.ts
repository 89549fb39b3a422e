// What a search found: how many, how much of it is live, and the way from one to the next.

import type {Device} from '../types.ts';

export interface Results {
  /** Blocks that match, of all. */
  readonly blocks: number;
  readonly bytes_ever: number;
  /** Those of them that are live after the event, with their bytes, and the bytes of all that is live. */
  readonly live: number;
  readonly live_bytes: number;
  readonly all_live_bytes: number;
}

/** Counts marked blocks, and those live after an event. */
export function count_results(device: Device, marks: Uint8Array, event: number): Results {
  const {blocks} = device;
  let count = 0, bytes_ever = 0, live = 0, live_bytes = 0, all = 0;
  for (let row = 0; row < blocks.count; row++) if (marks[row]) { count++; bytes_ever += blocks.size[row]!; }
  for (const row of device.live_after(blocks, event)) {
    all += blocks.size[row]!;
    if (marks[row]) { live++; live_bytes += blocks.size[row]!; }
  }
  return {blocks: count, bytes_ever, live, live_bytes, all_live_bytes: all};
}

/** The event after which most is live; the first of several. */
export function peak_event(device: Device): number {
  const {total} = device.blocks;
  let best = 0;
  for (let i = 1; i < total.length; i++) if (total[i]! > total[best]!) best = i;
  return best - 1;
}

/** The marked row after (1) or before (-1) a row, around the ends; null if none is marked. */
export function next_mark(marks: Uint8Array, row: number | null, by: 1 | -1): number | null {
  const n = marks.length;
  let at = row ?? (by > 0 ? -1 : n);
  for (let i = 0; i < n; i++) {
    at = ((at + by) % n + n) % n;
    if (marks[at]) return at;
  }
  return null;
}

/** How many rows are marked up to and with a row. */
export function place_of_mark(marks: Uint8Array, row: number): number {
  let place = 0;
  for (let i = 0; i <= row; i++) place += marks[i]!;
  return place;
}
