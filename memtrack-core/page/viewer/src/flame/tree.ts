// The tree of a flame graph: stacks merged from their outermost frames inwards.

import type {Texts} from '../types.ts';
import {noise_frames} from './noise.ts';
import type {Weights} from './weights.ts';

export type MergeBy = 'function' | 'location' | 'scope';

export interface TreeOptions {
  readonly by: MergeBy;
  readonly weight: 'bytes' | 'blocks';
  /** Whether to omit internal frames. */
  readonly fold: boolean;
  /** Whether the innermost frames come first. */
  readonly inverted: boolean;
  /** If set, only stacks that contain this key are included, from the key outwards. */
  readonly callers_of: number | null;
}

/** Key of the node of stacks without frames, and of blocks without a scope. */
export const NO_FRAMES = 0xfffffffe;

/** Nodes, parents before their children; node 0 is the root. */
export interface Tree {
  readonly count: number;
  readonly parent: Int32Array;
  readonly key: Uint32Array;
  readonly depth: Uint16Array;
  readonly value: Float64Array;
  /** The part of `value` that matches search and filter. */
  readonly matched: Float64Array;
  /** The value of the node itself, without its children. */
  readonly self: Float64Array;
  /** The left edge, in units of `value`. */
  readonly x: Float64Array;
  readonly first_child: Int32Array;
  /** The next sibling, smaller or equal; -1: none. */
  readonly next: Int32Array;
  readonly deepest: number;
  /** The number of frames that were left out, summed over stacks. */
  readonly folded: number;
}

/** Keys by which frames are merged: a key for each frame, and the text and the file of a key. */
export interface Keys {
  readonly of_frame: Uint32Array;
  text(key: number): string;
  /** Returns the group that determines a key's colour: the file or, if unknown, the namespace. Empty: neither is known. */
  group(key: number): string;
}

/** Returns keys of frames by their function, or by file and line. */
export function frame_keys(texts: Texts, by: 'function' | 'location'): Keys {
  const n = texts.frame_name.length;
  if (by === 'function') {
    const files = new Map<number, number>();
    for (let f = n - 1; f >= 0; f--) files.set(texts.frame_name[f]!, texts.frame_file[f]!);
    return {of_frame: texts.frame_name, text: key => texts.string(key) || '(no name)', group: key => group_of(texts.string(files.get(key) ?? 0), texts.string(key))};
  }
  const of_frame = new Uint32Array(n), known = new Map<string, number>();
  for (let f = 0; f < n; f++) {
    // Frames of binaries have an offset instead of a line, and often only the function is informative.
    const location = `${texts.frame_file[f]} ${texts.frame_line[f]}`, found = known.get(location);
    if (found === undefined) known.set(location, f);
    of_frame[f] = found ?? f;
  }
  return {of_frame, text: key => `${texts.string(texts.frame_file[key]!) || '(no file)'}:${texts.frame_line[key]}  ${texts.string(texts.frame_name[key]!)}`,
    group: key => group_of(texts.string(texts.frame_file[key]!), texts.string(texts.frame_name[key]!))};
}

/** Returns keys of scopes: their names. */
export function scope_keys(texts: Texts): Keys {
  return {of_frame: texts.scope_name, text: key => texts.string(key), group: key => texts.string(key)};
}

function group_of(file: string, name: string): string { return file !== '' && file !== '??' ? file : /^[\w ]+(?=::)/.exec(name)?.[0] ?? ''; }

/** Builds the tree. `weights` are per scope if `by` is scope, or else per stack. */
export function build_tree(texts: Texts, weights: Weights, keys: Keys, options: TreeOptions): Tree {
  const parent = [-1], key = [0], depth = [0], self = [0], self_matched = [0];
  const known = new Map<number, number>(), span = 0x1_0000_0000;
  const child = (node: number, k: number): number => {
    const id = node * span + k;
    let found = known.get(id);
    if (found === undefined) {
      found = parent.length;
      known.set(id, found);
      parent.push(node); key.push(k); depth.push(depth[node]! + 1); self.push(0); self_matched.push(0);
    }
    return found;
  };
  const values = options.weight === 'bytes' ? weights.bytes : weights.blocks;
  const matched = options.weight === 'bytes' ? weights.matched_bytes : weights.matched_blocks;
  const noise = options.fold && options.by !== 'scope' ? noise_frames(texts) : null;
  let folded = 0;
  const path: number[] = [];
  for (let s = 0; s < values.length; s++) {
    if (weights.blocks[s] === 0) continue;
    path.length = 0;
    if (options.by === 'scope') for (let at = s; at !== 0 && path.length < 1000; at = texts.scope_parent[at]!) path.push(keys.of_frame[at]!);
    else folded += frame_path(texts, s, keys, noise, path);
    if (path.length === 0) path.push(NO_FRAMES);
    // `path` is innermost first.
    if (options.callers_of !== null) {
      const at = path.lastIndexOf(options.callers_of);
      if (at < 0) continue;
      path.splice(0, at);
    }
    let node = 0;
    if (options.inverted || options.callers_of !== null) for (const k of path) node = child(node, k);
    else for (let i = path.length - 1; i >= 0; i--) node = child(node, path[i]!);
    self[node]! += values[s]!;
    self_matched[node]! += matched[s]!;
  }
  return finish(parent, key, depth, self, self_matched, folded);
}

/**
 * Appends a stack's keys to `path`, innermost first, and returns the number of omitted frames. If all frames of a stack are
 * internal, none is omitted.
 */
function frame_path(texts: Texts, stack: number, keys: Keys, noise: Uint8Array | null, path: number[]): number {
  const from = texts.stack_from[stack]!, to = texts.stack_from[stack + 1]!;
  for (let i = noise ? from + texts.stack_skip[stack]! : from; i < to; i++) if (!noise || !noise[texts.stack_frames[i]!]) path.push(keys.of_frame[texts.stack_frames[i]!]!);
  if (path.length === 0) for (let i = from; i < to; i++) path.push(keys.of_frame[texts.stack_frames[i]!]!);
  return to - from - path.length;
}

function finish(parent: number[], key: number[], depth: number[], self: number[], self_matched: number[], folded: number): Tree {
  const n = parent.length, value = Float64Array.from(self), matched = Float64Array.from(self_matched);
  for (let i = n - 1; i > 0; i--) { value[parent[i]!]! += value[i]!; matched[parent[i]!]! += matched[i]!; }
  const first_child = new Int32Array(n).fill(-1), next = new Int32Array(n).fill(-1), x = new Float64Array(n);
  // Prepending nodes to their siblings from the smallest to the largest sorts siblings largest first.
  const order = Uint32Array.from({length: n - 1}, (_, i) => i + 1).sort((a, b) => value[a]! - value[b]! || b - a);
  for (const node of order) {
    next[node] = first_child[parent[node]!]!;
    first_child[parent[node]!] = node;
  }
  let deepest = 0;
  const stack = [0];
  while (stack.length > 0) {
    const node = stack.pop()!;
    deepest = Math.max(deepest, depth[node]!);
    let at = x[node]!;
    for (let c = first_child[node]!; c >= 0; c = next[c]!) {
      x[c] = at;
      at += value[c]!;
      stack.push(c);
    }
  }
  return {count: n, parent: Int32Array.from(parent), key: Uint32Array.from(key), depth: Uint16Array.from(depth), value, matched,
    self: Float64Array.from(self), x, first_child, next, deepest, folded};
}
