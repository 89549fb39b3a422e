// The largest groups of a selection.

import type {Device, Events, Texts} from '../types.ts';
import {escaped} from '../search/query.ts';
import {scope_path} from '../search/match.ts';
import {short_name} from './names.ts';
import {noise_frames, user_frames} from './noise.ts';
import {scope_of, weigh} from './weights.ts';

export type GroupBy = 'stack' | 'function' | 'scope' | 'category';

export interface BlockGroup {
  readonly title: string;
  /** File and line, or the callers. */
  readonly location: string;
  readonly bytes: number;
  readonly blocks: number;
  /** The query that finds this group's blocks; null: there is none (no stack, no scope). */
  readonly query: string | null;
}

/** Returns the largest groups of `rows`, at most `most`, and the number of all groups. */
export function group_rows(rows: Uint32Array, by: GroupBy, device: Device, events: Events | null, texts: Texts, most: number): {groups: BlockGroup[]; count: number} {
  const {blocks} = device, stacks = Math.max(1, texts.stack_from.length - 1);
  switch (by) {
    case 'stack': return largest(rows, blocks.size, stacks, row => blocks.stack[row]!, most, key => stack_title(texts, key));
    case 'function': {
      const names = user_functions(texts, user_frames(texts));
      return largest(rows, blocks.size, texts.strings + 1, row => names[blocks.stack[row]!]!, most, key => key === 0 ? NO_STACK : function_title(texts, key - 1));
    }
    case 'scope': return largest(rows, blocks.size, Math.max(1, texts.scope_name.length), row => events ? scope_of(blocks, events, row) : 0, most, key => scope_title(texts, key));
    case 'category': return largest(rows, blocks.size, 256, row => blocks.category[row]!, most, key => key === 0 ? {title: '(no category)', location: '', query: 'category:^$'}
      : {title: device.head.categories[key - 1] ?? `category ${key}`, location: '', query: `category:^${escaped(device.head.categories[key - 1] ?? '')}$`});
  }
}

type Title = Pick<BlockGroup, 'title' | 'location' | 'query'>;

const NO_STACK: Title = {title: '(no stack recorded)', location: '', query: null};

function largest(rows: Uint32Array, size: Float64Array, keys: number, key: (row: number) => number, most: number, title: (key: number) => Title): {groups: BlockGroup[]; count: number} {
  const {bytes, blocks} = weigh(rows, size, keys, key, null), used: number[] = [];
  for (let k = 0; k < keys; k++) if (blocks[k]! > 0) used.push(k);
  used.sort((a, b) => bytes[b]! - bytes[a]! || blocks[b]! - blocks[a]! || a - b);
  return {groups: used.slice(0, most).map(k => ({...title(k), bytes: bytes[k]!, blocks: blocks[k]!})), count: used.length};
}

function location_of(texts: Texts, frame: number): string {
  const file = texts.string(texts.frame_file[frame]!);
  return file === '' || file === '??' ? '' : `${file}:${texts.frame_line[frame]}`;
}

/** Returns the title of a stack: its innermost user frame, and the callers that distinguish it. */
function stack_title(texts: Texts, stack: number): Title {
  const user_frame = user_frames(texts)[stack]!;
  if (user_frame === 0) return {...NO_STACK, query: stack === 0 ? 'stack:0' : `stack:${stack}`};
  const frame = user_frame - 1, callers: string[] = [], noise = noise_frames(texts);
  const from = texts.stack_from[stack]!, to = texts.stack_from[stack + 1]!;
  let i = from;
  while (i < to && texts.stack_frames[i] !== frame) i++;
  for (i++; i < to && callers.length < 3; i++) if (!noise[texts.stack_frames[i]!]) callers.push(short_name(texts.string(texts.frame_name[texts.stack_frames[i]!]!)));
  return {title: short_name(texts.string(texts.frame_name[frame]!)) || '(no name)', location: [location_of(texts, frame), ...callers].filter(Boolean).join(' ← '), query: `stack:${stack}`};
}

/** Returns, for each stack, 1 + the string number of the name of its innermost user frame; 0: none. */
function user_functions(texts: Texts, frames: Uint32Array): Uint32Array { return frames.map(frame => frame === 0 ? 0 : 1 + texts.frame_name[frame - 1]!); }

function function_title(texts: Texts, name: number): Title {
  const text = texts.string(name);
  return {title: text || '(no name)', location: '', query: text === '' ? null : `in:^${escaped(text)}$`};
}

function scope_title(texts: Texts, scope: number): Title {
  if (scope === 0) return {title: '(outside any operator or module)', location: '', query: null};
  const path = scope_path(texts, scope);
  return {title: texts.string(texts.scope_name[scope]!), location: path, query: `scope:^${escaped(path)}$`};
}
