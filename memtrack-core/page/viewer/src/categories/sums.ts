// The bytes of each layer of a stack after each event. A layer is stored as its changes, whose number depends on the blocks
// that begin and end, not on the number of layers.

import type {Elements} from '../types.ts';

/** A layer's bytes: `level[i]` from `event[i]` on, and 0 before the first. Events increase. */
export interface Series {
  readonly event: Int32Array;
  readonly level: Float64Array;
}

/** Returns the sums by layer of the rows marked in `only` (null: all), in one pass over the events. */
export function series_of(blocks: Elements, layer: Uint8Array, layers: number, only: Uint8Array | null): Series[] {
  const {count, start, end, size} = blocks, events = blocks.total.length - 1;
  // Rows are in the order of their starts; a counting sort puts them into the order of their ends.
  const at = new Int32Array(events + 2), room = new Int32Array(layers + 1);
  for (let row = 0; row < count; row++) {
    if (only && !only[row]) continue;
    room[layer[row]! + 1]! += end[row]! < events ? 2 : 1;
    if (end[row]! < events) at[end[row]! + 2]!++;
  }
  for (let l = 1; l <= layers; l++) room[l]! += room[l - 1]!;
  for (let e = 1; e < at.length; e++) at[e]! += at[e - 1]!;
  const ending = new Uint32Array(at[events + 1]!);
  // `at[e + 1]` is the next index for rows that end with `e`; after the loop it is the first index for `e + 1`.
  for (let row = 0; row < count; row++) if (!(only && !only[row]) && end[row]! < events) ending[at[end[row]! + 1]!++] = row;
  const event = new Int32Array(room[layers]!), level = new Float64Array(room[layers]!), next = room.slice();
  const change = (l: number, now: number, by: number): void => {
    const n = next[l]!, first = room[l]!;
    if (n > first && event[n - 1] === now) level[n - 1]! += by;
    else {
      event[n] = now;
      level[n] = (n > first ? level[n - 1]! : 0) + by;
      next[l] = n + 1;
    }
  };
  for (let now = -1, row = 0, ended = 0; now < events; now++) {
    for (; row < count && start[row] === now; row++) if (!only || only[row]) change(layer[row]!, now, size[row]!);
    for (; ended < ending.length && end[ending[ended]!] === now; ended++) change(layer[ending[ended]!]!, now, -size[ending[ended]!]!);
  }
  return Array.from({length: layers}, (_, l) => ({event: event.subarray(room[l], next[l]), level: level.subarray(room[l], next[l])}));
}

/** Returns a layer's bytes after an event. */
export function level_after({event, level}: Series, now: number): number {
  let low = 0, high = event.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (event[middle]! <= now) low = middle + 1;
    else high = middle;
  }
  return low ? level[low - 1]! : 0;
}

/** Returns the largest sum of several layers, and the first event after which the sum is reached. */
export function peak_of(layers: readonly Series[]): {event: number; bytes: number} {
  const at = layers.map(() => 0);
  let bytes = 0, event = -1, sum = 0;
  for (;;) {
    let now = Infinity;
    layers.forEach((l, i) => { if (at[i]! < l.event.length) now = Math.min(now, l.event[at[i]!]!); });
    if (now === Infinity) return {event, bytes};
    layers.forEach((l, i) => {
      if (l.event[at[i]!] !== now) return;
      sum += l.level[at[i]!]! - (at[i]! ? l.level[at[i]! - 1]! : 0);
      at[i]!++;
    });
    if (sum > bytes) [bytes, event] = [sum, now];
  }
}
