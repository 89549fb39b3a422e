// Events as the list shows them.

import type {Device, Elements, Events, Texts} from '../types.ts';
import {NONE} from '../types.ts';
import {bytes as size_text, hex, visible} from '../format.ts';

/** Names of actions, by number. */
export const ACTIONS = ['alloc', 'free', 'free_requested', 'free_completed', 'segment_alloc', 'segment_free', 'segment_map',
  'segment_unmap', 'oom', 'snapshot', 'annotate', 'other'];

/** Flag of a block that stands for others. */
const ESTIMATE = 4;

/** In place of what a device had free: nobody says. */
export const FREE_UNKNOWN = 2n ** 64n - 1n;

const OOM = 8, ANNOTATE = 10, OTHER = 11;

/** Whether an action concerns a segment. */
export function of_segment(action: number): boolean { return action >= 4 && action <= 7; }

export interface EventText {
  readonly action: string;
  readonly address: string;
  readonly size: string;
  readonly bytes: number;
  readonly stream: number | null;
}

/** Address (two halves) of an event, or null. */
export function event_address(device: Device, events: Events, segments: Elements, event: number): {high: number; low: number} | null {
  const action = events.action[event]!;
  if (action >= OOM) return null;
  const odd = events.odd.get(event);
  if (odd) return {high: Number(odd.address >> 32n & 0xffffffffn), low: Number(odd.address & 0xffffffffn)};
  const table = of_segment(action) ? segments : device.blocks, row = of_segment(action) ? events.segment[event]! : events.block[event]!;
  return row === NONE ? null : {high: table.address_high[row]!, low: table.address_low[row]!};
}

/** What the list says of an event. */
export function event_text(device: Device, events: Events, segments: Elements, texts: Texts | null, event: number): EventText {
  const action = events.action[event]!, odd = events.odd.get(event);
  const table = of_segment(action) ? segments : device.blocks, row = of_segment(action) ? events.segment[event]! : events.block[event]!;
  const words = odd && texts ? visible(texts.string(odd.text)) : '';
  if (action === OOM && odd) {
    // The size is what was asked for; in place of an address stands what the device still had.
    const free = odd.address !== FREE_UNKNOWN ? `${size_text(Number(odd.address))} free` : '';
    return {action: 'oom', address: free, size: odd.size > 0 ? size_text(odd.size) : '', bytes: odd.size, stream: null};
  }
  if (action === ANNOTATE) return {action: 'annotate', address: words, size: '', bytes: 0, stream: null};
  const address = event_address(device, events, segments, event);
  const bytes = odd ? odd.size : row === NONE ? 0 : table.size[row]!;
  const about = row !== NONE && table.flags[row]! & ESTIMATE ? 'about ' : '';
  const name = action === OTHER && words ? words : ACTIONS[action] ?? 'other';
  return {action: name, address: address ? hex(address.high, address.low) : '', size: address || bytes ? about + size_text(bytes) : '',
    bytes, stream: row === NONE ? null : table.stream[row]!};
}
