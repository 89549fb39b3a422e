// The table of events, and its column of times, which the first picture needs earlier than the rest.

import {NONE, type Elements, type Events} from '../types.ts';
import {Reader} from './columns.ts';

/** Decodes the times in a section `events`; null: the section has none. */
export function decode_times(bytes: Uint8Array, columns: Map<string, number>): Float64Array | null {
  if (!columns.has('time')) return null;
  const reader = new Reader(bytes);
  reader.u8(columns.get('action')!);
  return reader.delta(columns.get('time')!);
}

/**
 * Returns the times, made non-decreasing. An axis needs an order, and events of other threads may be recorded a little late.
 */
export function nondecreasing(time: Float64Array): Float64Array {
  const axis = time.slice();
  for (let i = 1; i < axis.length; i++) if (axis[i]! < axis[i - 1]!) axis[i] = axis[i - 1]!;
  return axis;
}

/** Decodes section `events`. The block of an event is the one that starts, becomes pending, or ends there. */
export function decode_events(bytes: Uint8Array, columns: Map<string, number>, blocks: Elements, segments: Elements, clock: Float64Array | null): Events {
  const reader = new Reader(bytes);
  const count = columns.get('action')!;
  const action = reader.u8(count).slice();
  const time = columns.has('time') ? reader.delta(count) : new Float64Array(0);
  const stack = reader.varint32(count), scope = reader.varint32(count);
  const thread = reader.varint_into(new Uint16Array(count));
  const names = reader.text(columns.get('threads')!), threads: string[] = [];
  for (let i = 0; i < names.count; i++) threads.push(names.get(i));
  const n = columns.get('odd_event') ?? 0, odd: Events['odd'] = new Map();
  const events = reader.delta32(n), {low, high} = reader.delta64(n), sizes = reader.varint(n), texts = reader.varint32(n);
  for (let i = 0; i < n; i++)
    odd.set(events[i]!, {address: (BigInt(high[i]!) << 32n) | BigInt(low[i]!), size: sizes[i]!, text: texts[i]!});
  return {
    count, action, time, axis: clock ?? new Float64Array(0), stack, scope, thread, threads,
    block: rows_by_event(blocks, count), segment: rows_by_event(segments, count), odd,
  };
}

function rows_by_event(elements: Elements, events: number): Uint32Array {
  const out = new Uint32Array(events).fill(NONE), {start, end, pending} = elements;
  for (let row = 0; row < elements.count; row++) {
    if (start[row]! >= 0) out[start[row]!] = row;
    if (end[row]! < events) out[end[row]!] = row;
    if (pending[row]! >= 0 && pending[row]! < events && pending[row]! < end[row]!) out[pending[row]!] = row;
  }
  return out;
}
