// The blocks of a flame graph or a list of groups.

import type {Device, State} from '../types.ts';
import {peak_event} from '../search/results.ts';
import {lower_bound} from '../state/order.ts';

/** Blocks that are live after the selected event or at the peak, or were allocated in the selected range of the axis. */
export type What = 'live' | 'peak' | 'window';

/** Returns the first and the last event of the selected range. */
export function window_events(device: Device, state: Pick<State, 'axis' | 'from' | 'to'>): [number, number] {
  const last = device.head.events - 1;
  if (state.axis === 'step' || !device.clock) return [Math.max(-1, Math.ceil(state.from)), Math.min(last, Math.floor(state.to))];
  return [lower_bound(device.clock, state.from), upper_bound(device.clock, state.to) - 1];
}

function upper_bound(values: Float64Array, value: number): number {
  let low = 0, high = values.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (values[middle]! <= value) low = middle + 1; else high = middle;
  }
  return low;
}

/** Returns the rows of the selection. */
export function selected_rows(device: Device, state: Pick<State, 'axis' | 'from' | 'to' | 'event'>, what: What): Uint32Array {
  const {blocks} = device;
  if (what !== 'window') return device.live_after(blocks, what === 'peak' ? peak_event(device) : state.event);
  const [from, to] = window_events(device, state);
  // Blocks are in the order of their allocation, so blocks that were allocated in a range of events are consecutive.
  const first = lower_bound(blocks.start, from, 0, blocks.count), last = lower_bound(blocks.start, to + 1, 0, blocks.count);
  return Uint32Array.from({length: Math.max(0, last - first)}, (_, i) => first + i);
}
