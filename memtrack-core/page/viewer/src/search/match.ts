// Finds the blocks that match a query. Every distinct text is tested once; blocks are then marked by the indices of their stacks,
// scopes and so on: a million blocks have a few thousand stacks.

import type {Device, Events, Texts} from '../types.ts';
import {user_frames} from '../flame/noise.ts';
import {hex} from '../format.ts';
import type {Field, Query} from './query.ts';
import {in_slices, type Job} from './slices.ts';

const CHUNK = 1 << 14;

/** The searched tables. */
export interface Searched {
  readonly device: Device;
  readonly events: Events;
  readonly texts: Texts;
}

/** Returns the text of a frame for patterns: `^` and `$` match at each line. */
export function frame_text(texts: Texts, frame: number): string {
  const name = texts.string(texts.frame_name[frame]!), location = `${texts.string(texts.frame_file[frame]!)}:${texts.frame_line[frame]}`;
  return `${name}\n${location}\n${name} ${location}`;
}

/** Returns the names of a scope and its ancestors, outermost first. */
export function scope_path(texts: Texts, scope: number): string {
  const names: string[] = [];
  for (let s = scope, depth = 0; s !== 0 && depth < 1000; s = texts.scope_parent[s]!, depth++) names.push(texts.string(texts.scope_name[s]!));
  return names.reverse().join('/');
}

/** Returns one byte per block: 1 where the query matches. Null: every block (no query). `false`: the search was cancelled. */
export async function match(query: Query, searched: Searched, job: Job): Promise<Uint8Array | null | false> {
  const {device} = searched, {blocks} = device;
  switch (query.kind) {
    case 'all': return null;
    case 'invalid': return new Uint8Array(blocks.count);
    case 'stack': {
      const marks = new Uint8Array(blocks.count);
      for (let row = 0; row < blocks.count; row++) if (blocks.stack[row] === query.stack) marks[row] = 1;
      return marks;
    }
    case 'address': return match_address(query, searched, job);
    case 'pattern': return match_pattern(query, searched, job);
  }
}

async function match_address(query: {digits: string; value: bigint}, {device}: Searched, job: Job): Promise<Uint8Array | false> {
  const {blocks} = device, marks = new Uint8Array(blocks.count);
  const prefix = '0x' + query.digits, high = Number(query.value >> 32n), low = Number(query.value & 0xffffffffn);
  const done = await in_slices(blocks.count, CHUNK, job, (from, to) => {
    for (let row = from; row < to; row++) {
      const into = (high - blocks.address_high[row]!) * 0x1_0000_0000 + (low - blocks.address_low[row]!);
      if (into === 0 || (into > 0 && into < blocks.size[row]!)) marks[row] = 1;
      else if (hex(blocks.address_high[row]!, blocks.address_low[row]!).startsWith(prefix)) marks[row] = 1;
    }
  });
  return done && marks;
}

async function match_pattern(query: {field: Field; pattern: RegExp; addresses: boolean}, searched: Searched, job: Job): Promise<Uint8Array | false> {
  const {device, events, texts} = searched, {blocks} = device, {field, pattern} = query;
  const on = (...fields: Field[]): boolean => field === 'any' || fields.includes(field);
  const stacks = on('frame', 'in') ? await match_stacks(texts, pattern, field === 'in', job) : null;
  if (stacks === false) return false;
  const scopes = on('scope') ? await match_scopes(texts, pattern, job) : null;
  if (scopes === false) return false;
  const names = (list: readonly string[], before: string, without = 0): Uint8Array | null => {
    const marks = Uint8Array.from([without, ...list.map(name => Number(pattern.test(before + name)))]);
    return marks.includes(1) ? marks : null;
  };
  const pools = on('pool') ? names(device.head.pools, '') : null, categories = on('category') ? names(device.head.categories, '', field === 'category' ? Number(pattern.test('')) : 0) : null;
  const streams = on('stream') && device.head.streams.length > 0 ? names(device.head.streams, field === 'stream' ? '' : 'stream ') : null;
  const marks = new Uint8Array(blocks.count);
  const done = await in_slices(blocks.count, CHUNK, job, (from, to) => {
    for (let row = from; row < to; row++) {
      const start = blocks.start[row]!;
      if ((stacks && stacks[blocks.stack[row]!]) || (scopes && start >= 0 && scopes[events.scope[start]!])
        || (pools && pools[blocks.pool[row]!]) || (categories && categories[blocks.category[row]!]) || (streams && streams[blocks.stream[row]! + 1])
        || (query.addresses && pattern.test(hex(blocks.address_high[row]!, blocks.address_low[row]!)))) marks[row] = 1;
    }
  });
  if (!done) return false;
  if (on('note')) {
    const known = new Map<number, boolean>();
    for (const [row, notes] of blocks.notes) {
      for (const note of notes) {
        let matches = known.get(note);
        if (matches === undefined) known.set(note, matches = pattern.test(texts.string(note)));
        if (matches) marks[row] = 1;
      }
    }
  }
  return marks;
}

/** Marks the frames whose function or location matches. */
export async function match_frames(texts: Texts, pattern: RegExp, job: Job): Promise<Uint8Array | false> {
  const marks = new Uint8Array(texts.frame_name.length);
  const done = await in_slices(marks.length, 1024, job, (from, to) => {
    for (let f = from; f < to; f++) if (pattern.test(frame_text(texts, f))) marks[f] = 1;
  });
  return done && marks;
}

async function match_stacks(texts: Texts, pattern: RegExp, innermost: boolean, job: Job): Promise<Uint8Array | false> {
  const frames = await match_frames(texts, pattern, job);
  if (!frames) return false;
  const {stack_from, stack_frames} = texts, marks = new Uint8Array(stack_from.length - 1);
  if (innermost) {
    const user = user_frames(texts);
    for (let s = 0; s < marks.length; s++) if (user[s]! > 0 && frames[user[s]! - 1]) marks[s] = 1;
  } else for (let s = 0; s < marks.length; s++) {
    for (let i = stack_from[s]!; i < stack_from[s + 1]!; i++) if (frames[stack_frames[i]!]) { marks[s] = 1; break; }
  }
  return marks;
}

async function match_scopes(texts: Texts, pattern: RegExp, job: Job): Promise<Uint8Array | false> {
  const marks = new Uint8Array(texts.scope_name.length);
  const done = await in_slices(marks.length, 1024, job, (from, to) => {
    for (let s = Math.max(1, from); s < to; s++) {
      if (pattern.test(`${texts.string(texts.scope_name[s]!)}\n${scope_path(texts, s)}`)) marks[s] = 1;
    }
  });
  return done && marks;
}
