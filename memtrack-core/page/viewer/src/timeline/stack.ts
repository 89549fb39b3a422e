// The stack: all rows, or private pools as envelopes with their blocks inside.

import type {Elements} from '../types.ts';
import {totals} from '../data/elements.ts';
import {Peaks} from './pyramid.ts';

/** The high-water mark of a pool: after `event[i]` it is `high[i]`. The first entry may be from before the first event. */
export interface Envelope {
  readonly pool: number;
  readonly event: Int32Array;
  readonly high: Float64Array;
}

/** Rows in layers. Layer 0 is at the bottom and has no envelope. */
export interface Stack {
  readonly elements: Elements;
  /** The layer of each row; null: all are in layer 0. */
  readonly layer: Uint16Array | null;
  /** The envelopes of the layers from 1 on. */
  readonly envelopes: readonly Envelope[];
  /** The drawn rows; null: all. */
  readonly only: Uint8Array | null;
  /** Height after each event: `total[e + 1]`; `total[0]` is before the first. */
  readonly total: Float64Array;
  readonly peaks: Peaks;
  readonly peak: number;
}

function new_stack(elements: Elements, layer: Uint16Array | null, envelopes: readonly Envelope[], only: Uint8Array | null, total: Float64Array): Stack {
  const peaks = new Peaks(total);
  return {elements, layer, envelopes, only, total, peaks, peak: total[peaks.top(0, total.length - 1)]!};
}

/** Returns a stack of all rows, or of those marked in `only`, in their order. */
export function plain_stack(elements: Elements, only: Uint8Array | null = null): Stack {
  return new_stack(elements, null, [], only, only ? totals(elements.start, elements.end, elements.size, elements.total.length - 1, only) : elements.total);
}

/**
 * Returns a stack with the default pool and unknown pools at the bottom, then an envelope for each private pool. An envelope
 * has the largest size so far of the pool's segments or its blocks, because a private pool returns no memory to other pools.
 */
export function pool_stack(blocks: Elements, segments: Elements | null, is_private: (pool: number) => boolean, only: Uint8Array | null = null): Stack {
  const events = blocks.total.length - 1;
  const pools = [...new Set([...blocks.pool, ...(segments?.pool ?? [])])].filter(p => p > 0 && is_private(p - 1)).sort((a, b) => a - b);
  const layer_of = new Map(pools.map((pool, i) => [pool, i + 1]));
  const layer = new Uint16Array(blocks.count);
  for (let row = 0; row < layer.length; row++) layer[row] = layer_of.get(blocks.pool[row]!) ?? 0;
  const total = totals(blocks.start, blocks.end, blocks.size, events, layer.map(l => (l === 0 ? 1 : 0)) as unknown as Uint8Array);
  const envelopes = pools.map(pool => envelope(pool, events, [blocks, ...(segments ? [segments] : [])]));
  for (const {event, high} of envelopes) {
    let level = 0, next = 0;
    for (let i = 0; i <= events; i++) {
      if (next < event.length && event[next]! < i) level = high[next++]!;
      total[i]! += level;
    }
  }
  return new_stack(blocks, layer, envelopes, only, total);
}

function envelope(pool: number, events: number, tables: Elements[]): Envelope {
  // Changes of the pool's size, as (event, bytes) per table; a pool has few of a device's rows.
  const event: number[] = [], high: number[] = [];
  const steps = tables.map(t => {
    const list: [number, number][] = [];
    for (let row = 0; row < t.count; row++) {
      if (t.pool[row] !== pool) continue;
      list.push([t.start[row]!, t.size[row]!]);
      if (t.end[row]! < events) list.push([t.end[row]!, -t.size[row]!]);
    }
    return list.sort((a, b) => a[0] - b[0]);
  });
  const at = steps.map(() => 0), sum = steps.map(() => 0);
  let most = 0;
  for (;;) {
    const now = Math.min(...steps.map((s, k) => s[at[k]!]?.[0] ?? Infinity));
    if (now === Infinity) break;
    steps.forEach((s, k) => {
      while (s[at[k]!]?.[0] === now) sum[k]! += s[at[k]!++]![1];
    });
    const level = Math.max(...sum);
    if (level > most) {
      event.push(now);
      high.push(most = level);
    }
  }
  return {pool, event: Int32Array.from(event), high: Float64Array.from(high)};
}
