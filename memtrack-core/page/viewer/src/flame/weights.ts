// Sums of a selection by stack or by scope: the step from blocks, of which there are many, to stacks, of which there are few.

import type {Elements, Events} from '../types.ts';

export interface Weights {
  /** Per stack or scope. */
  readonly bytes: Float64Array;
  readonly blocks: Float64Array;
  /** The part of it that search and filter let through. */
  readonly matched_bytes: Float64Array;
  readonly matched_blocks: Float64Array;
}

/** Where a block was allocated, as a scope; 0 for none and for blocks from before the first event. */
export function scope_of(blocks: Elements, events: Events, row: number): number {
  const start = blocks.start[row]!;
  return start >= 0 && start < events.count ? events.scope[start]! : 0;
}

/** Sums rows by `key`, which is below `keys`. */
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
