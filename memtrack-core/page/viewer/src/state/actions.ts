// Formats events for the list.

import type {Device, Elements, Events, Texts} from '../types.ts';
import {NONE} from '../types.ts';
import {bytes as size_text, hex, visible} from '../format.ts';

/** Names of actions, by number. */
export const ACTIONS = ['alloc', 'free', 'free_requested', 'free_completed', 'segment_alloc', 'segment_free', 'segment_map',
  'segment_unmap', 'oom', 'snapshot', 'annotate', 'other'];

/** The flag of a block that represents several blocks. */
const ESTIMATE = 4;

/** The value for an unknown number of free bytes on a device. */
export const FREE_UNKNOWN = 2n ** 64n - 1n;

const OOM = 8, ANNOTATE = 10, OTHER = 11;

/** Returns whether an action is on a segment. */
export function is_of_segment(action: number): boolean { return action >= 4 && action <= 7; }

export interface EventText {
  readonly action: string;
  readonly address: string;
  readonly size: string;
  readonly bytes: number;
  readonly stream: number | null;
}

/** Returns the address of an event in two halves; null: none. */
export function event_address(device: Device, events: Events, segments: Elements, event: number): {high: number; low: number} | null {
  const action = events.action[event]!;
  if (action >= OOM) return null;
  const odd = events.odd.get(event);
  if (odd) return {high: Number(odd.address >> 32n & 0xffffffffn), low: Number(odd.address & 0xffffffffn)};
  const table = is_of_segment(action) ? segments : device.blocks, row = is_of_segment(action) ? events.segment[event]! : events.block[event]!;
  return row === NONE ? null : {high: table.address_high[row]!, low: table.address_low[row]!};
}

/** Returns the texts of an event in the list. */
export function event_text(device: Device, events: Events, segments: Elements, texts: Texts | null, event: number): EventText {
  const action = events.action[event]!, odd = events.odd.get(event);
  const table = is_of_segment(action) ? segments : device.blocks, row = is_of_segment(action) ? events.segment[event]! : events.block[event]!;
  const text = odd && texts ? visible(texts.string(odd.text)) : '';
  if (action === OOM && odd) {
    // The size is the requested size, and the address column shows the free bytes of the device.
    const free = odd.address !== FREE_UNKNOWN ? `${size_text(Number(odd.address))} free` : '';
    return {action: 'oom', address: free, size: odd.size > 0 ? size_text(odd.size) : '', bytes: odd.size, stream: null};
  }
  if (action === ANNOTATE) return {action: 'annotate', address: text, size: '', bytes: 0, stream: null};
  const address = event_address(device, events, segments, event);
  const bytes = odd ? odd.size : row === NONE ? 0 : table.size[row]!;
  const about = row !== NONE && table.flags[row]! & ESTIMATE ? 'about ' : '';
  const name = action === OTHER && text ? text : ACTIONS[action] ?? 'other';
  return {action: name, address: address ? hex(address.high, address.low) : '', size: address || bytes ? about + size_text(bytes) : '',
    bytes, stream: row === NONE ? null : table.stream[row]!};
}
