// Builds tables directly, without encoding, for tests of algorithms on them.

import type {Device, DeviceHead, Elements, Events, Texts} from '../src/types.ts';
import {NONE} from '../src/types.ts';
import {totals} from '../src/data/elements.ts';
import {device_head} from './encode.ts';
import {random} from './synthetic.ts';

export interface Row {
  start: number;
  end: number;
  size: number;
  address: number | bigint;
  pending?: number;
  stack?: number;
  stream?: number;
  pool?: number;
  category?: number;
  flags?: number;
  notes?: number[];
  final?: number;
}

/** Returns a table of rows, sorted by `start`. */
export function elements(rows: Row[], events: number): Elements {
  const sorted = [...rows].sort((a, b) => a.start - b.start), pick = (f: (r: Row) => number): number[] => sorted.map(f);
  const start = Int32Array.from(pick(r => r.start)), end = Int32Array.from(pick(r => r.end)), size = Float64Array.from(pick(r => r.size));
  return {
    count: sorted.length, start, end, size, pending: Int32Array.from(pick(r => r.pending ?? 0x7fffffff)), stack: Uint32Array.from(pick(r => r.stack ?? 0)),
    address_low: Uint32Array.from(pick(r => Number(BigInt(r.address) & 0xffffffffn))), address_high: Uint32Array.from(pick(r => Number(BigInt(r.address) >> 32n))),
    stream: Uint16Array.from(pick(r => r.stream ?? 0)), pool: Uint16Array.from(pick(r => r.pool ?? 0)), category: Uint8Array.from(pick(r => r.category ?? 0)),
    flags: Uint8Array.from(pick(r => r.flags ?? 0)), total: totals(start, end, size, events),
    final_bytes: new Map(sorted.flatMap((r, i) => r.final === undefined ? [] : [[i, r.final] as const])), notes: new Map(sorted.flatMap((r, i) => r.notes ? [[i, r.notes] as const] : [])),
  };
}

/** Returns the rows that are live after an event, by a scan of all rows. */
export function live_naively(table: Elements, event: number): number[] {
  return Array.from({length: table.count}, (_, row) => row).filter(row => table.start[row]! <= event && event < table.end[row]!);
}

/** Returns a device with two tables. */
export function device(blocks: Elements, events: number, some: Partial<DeviceHead> = {}, segments = elements([], events), scope: number[] = []): Device & {table: Events} {
  const head = device_head({events, blocks: blocks.count, segments: segments.count, sections: {texts: 0, blocks: 1, events: 2, segments: 3, bands: 4}, ...some});
  const rows_by_event = (of: Elements): Uint32Array => {
    const out = new Uint32Array(events).fill(NONE);
    for (let row = 0; row < of.count; row++) for (const e of [of.start[row]!, of.end[row]!, of.pending[row]!]) if (e >= 0 && e < events) out[e] = row;
    return out;
  };
  const table: Events = {count: events, action: new Uint8Array(events), time: new Float64Array(0), axis: new Float64Array(0), stack: new Uint32Array(events),
    scope: Uint32Array.from({length: events}, (_, e) => scope[e] ?? 0), thread: new Uint16Array(events), threads: [''], block: rows_by_event(blocks), segment: rows_by_event(segments), odd: new Map()};
  return {head, index: 0, blocks, clock: null, table, load: async () => {}, events: async () => table, segments: async () => segments,
    bands: async () => { throw new Error('no bands here'); }, live_after: (of, event) => Uint32Array.from(live_naively(of, event))};
}

/** Returns texts from stacks of frames `function@file:line`, innermost first (stack 0 is empty), and scopes [parent, name]. */
export function texts(stacks: string[][], scopes: [number, string][] = [], more: string[] = []): Texts {
  const strings = [''], string = (text: string): number => strings.includes(text) ? strings.indexOf(text) : strings.push(text) - 1;
  const frames: string[] = [];
  const lists = [[], ...stacks].map(stack => stack.map(f => frames.includes(f) ? frames.indexOf(f) : frames.push(f) - 1));
  const part = (f: string): RegExpExecArray => /^(.*)@(.*):(\d+)$/.exec(f)!;
  const frame_name = Uint32Array.from(frames, f => string(part(f)[1]!)), frame_file = Uint32Array.from(frames, f => string(part(f)[2]!));
  const names = [0, ...scopes.map(s => string(s[1]))];
  more.forEach(string);
  const stack_from = new Uint32Array(lists.length + 1);
  lists.forEach((l, i) => { stack_from[i + 1] = stack_from[i]! + l.length; });
  return {string: id => strings[id] ?? '', strings: strings.length, frame_name, frame_file, frame_line: Float64Array.from(frames, f => Number(part(f)[3])),
    frame_noise: new Uint8Array(frames.length), stack_from, stack_skip: new Uint32Array(lists.length), stack_line: new Uint32Array(lists.length), stack_frames: Uint32Array.from(lists.flat()), scope_parent: Uint32Array.from([0, ...scopes.map(s => s[0])]), scope_name: Uint32Array.from(names),
    scope_kind: new Uint8Array(names.length)};
}

/**
 * Returns random blocks whose addresses do not overlap while live: `slots` slots of 4 KiB from `base`. Some are never freed, some
 * become pending, and several begin or end at the same event.
 */
export function random_rows(seed: number, events: number, slots: number, base = 0x7f00_0000_0000, stacks = 5): Row[] {
  const rng = random(seed), rows: Row[] = [];
  for (let slot = 0; slot < slots; slot++) {
    let at = rng() < 0.3 ? -1 : Math.floor(rng() * events * 0.3);
    while (at < events) {
      const end = rng() < 0.1 ? events : Math.min(events, at + 1 + Math.floor(rng() * events * 0.3));
      const life = end - at, pends = at >= 0 && life > 2 && rng() < 0.3;
      rows.push({start: at, end, size: 1 + Math.floor(rng() * 4096), address: base + slot * 4096, stack: Math.floor(rng() * (stacks + 1)), stream: Math.floor(rng() * 3),
        pool: Math.floor(rng() * 3), category: Math.floor(rng() * 3), ...pends && {pending: at + 1 + Math.floor(rng() * (life - 1))}});
      at = end + Math.floor(rng() * events * 0.1);
    }
  }
  return rows;
}
