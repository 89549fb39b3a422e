// Facts about the file: its name, its times, its devices.

import type {DeviceHead, Head} from '../types.ts';
import {count as count_text, exact_bytes as exact_size, plural, words_of_since} from '../format.ts';

export type Fact = [name: string, value: string];

/** Returns the facts about the file as a whole. */
export function file_facts(head: Head): Fact[] {
  const facts: Fact[] = [['file', head.name]];
  if (head.has_time) facts.push([head.since === 'start' ? 'recording began' : words_of_since(head.since), moment(head.start_us)]);
  else facts.push(['times', 'the file has none: the axis counts events']);
  facts.push(['devices', count_text(head.devices.length)], ['page written by', `memtrack ${head.memtrack}`]);
  return facts;
}

/** Formats a moment in UTC, to the microsecond. */
export function moment(us: number): string {
  const date = new Date(us / 1000);
  if (Number.isNaN(date.getTime())) return `${us} µs after 1970`;
  const micro = String(((us % 1000) + 1000) % 1000).padStart(3, '0').slice(0, 3);
  return `${date.toISOString().replace('T', ' ').replace('Z', micro)} UTC`;
}

/** Returns the facts about a device. */
export function device_facts(head: DeviceHead): Fact[] {
  const kinds = {device: 'device memory', heap: 'host heap', mapped: 'mapped memory', pinned: 'pinned host memory'};
  const facts: Fact[] = [['kind', kinds[head.kind]], ['events', count_text(head.events)], ['blocks', count_text(head.blocks)], ['segments', count_text(head.segments)]];
  if (head.capacity_bytes !== null) facts.push(['capacity', exact_size(head.capacity_bytes)]);
  if (head.streams.length > 0) facts.push(['streams', head.streams.length <= 6 ? head.streams.join(', ') : count_text(head.streams.length)]);
  if (head.pools.length > 0) facts.push(['pools', head.pools.length <= 6 ? head.pools.join(', ') : count_text(head.pools.length)]);
  if (head.categories.length > 0) facts.push(['categories', head.categories.join(', ')]);
  if (head.ooms.length > 0) facts.push(['out of memory', plural(head.ooms.length, 'time')]);
  if (head.markers.length > 0) facts.push(['markers', plural(head.markers.length, 'marker')]);
  if (head.estimated) facts.push(['estimates', 'small blocks were sampled: each represents several, and sizes are estimates']);
  return facts;
}
