// Sums of a selection by stack or by scope, which reduce many blocks to a few stacks.

import type {Elements, Events} from '../types.ts';

export interface Weights {
  /** Per stack or scope. */
  readonly bytes: Float64Array;
  readonly blocks: Float64Array;
  /** The part that matches search and filter. */
  readonly matched_bytes: Float64Array;
  readonly matched_blocks: Float64Array;
}

/** Returns the scope in which a block was allocated; 0: outside of scopes, or before the first event. */
export function scope_of(blocks: Elements, events: Events, row: number): number {
  const start = blocks.start[row]!;
  return start >= 0 && start < events.count ? events.scope[start]! : 0;
}

/** Sums rows by `key`, which is less than `keys`. */
export function weigh(rows: Uint32Array, size: Float64Array, keys: number, key: (row: number) => number, passing: Uint8Array | null): Weights {
  const weights: Weights = {bytes: new Float64Array(keys), blocks: new Float64Array(keys), matched_bytes: new Float64Array(keys), matched_blocks: new Float64Array(keys)};
  for (const row of rows) {
    const k = key(row), bytes = size[row]!;
    weights.bytes[k]! += bytes;
    weights.blocks[k]!++;
    if (passing && !passing[row]) continue;
    weights.matched_bytes[k]! += bytes;
    weights.matched_blocks[k]!++;
  }
  return weights;
}
