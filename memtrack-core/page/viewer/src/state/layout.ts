// The layout of the state after an event: groups of blocks at offsets. A group is a segment, or holds blocks that are in no
// segment.

import {size_class} from './classes.ts';
import type {LiveSet} from './live.ts';
import type {Origin} from './order.ts';
import {containing_segment, type Segment} from './segments.ts';

/** The smallest block of a caching allocator: a smaller gap is not a free block but the rounding of the previous block. */
const MIN_BLOCK = 512;

export interface Group {
  /** `outside`: blocks in no known segment; `class`: blocks of a heap with similar sizes. Both are packed without gaps. */
  readonly kind: 'segment' | 'outside' | 'class';
  /** Index into the list of segments, or lower bound of a class. */
  readonly id: number;
  bytes: number;
  /** The range of the group's blocks, as indices into `items` and `offsets`. */
  first: number;
  last: number;
}

/** Sums over the whole state, exact unless noted. */
export interface Totals {
  blocks: number;
  allocated: number;
  pending_blocks: number;
  pending: number;
  segments: number;
  reserved: number;
  /** Gaps in segments that are large enough for a free block. */
  free: number;
  free_pieces: number;
  largest_free: number;
  /** Allocated minus requested bytes, as far as both are known. */
  rounding: number;
  outside_blocks: number;
  outside: number;
  /** Whether the rounding of all blocks is known: if not, a part of `free` is rounding. */
  exact: boolean;
}

export interface Layout {
  /** Groups in the order of the map. */
  readonly groups: readonly Group[];
  readonly segments: readonly Segment[];
  /** Rows of blocks, group by group, by address. */
  readonly items: Uint32Array;
  /** Offset of each block in its group, in bytes. */
  readonly offsets: Float64Array;
  readonly totals: Totals;
}

/** Returns the indices of segments, the largest first, then by address. */
export function by_size(segments: readonly Segment[]): number[] {
  return segments.map((_, i) => i).sort((a, b) =>
    (segments[b]!.to - segments[b]!.from) - (segments[a]!.to - segments[a]!.from) || segments[a]!.from - segments[b]!.from);
}

/** Assigns the live blocks to segments; `order` is `by_size(segments)`. With `classes` there are no segments. */
export function lay_out(blocks: LiveSet, segments: readonly Segment[], order: readonly number[], origin: Origin, event: number,
  events: number, classes: boolean): Layout {
  const {elements, count} = blocks, {size, pending, end, final_bytes} = elements;
  const totals: Totals = {blocks: count, allocated: 0, pending_blocks: 0, pending: 0, segments: segments.length, reserved: 0, free: 0,
    free_pieces: 0, largest_free: 0, rounding: 0, outside_blocks: 0, outside: 0, exact: true};
  const groups: Group[] = order.map(id => ({kind: 'segment', id, bytes: segments[id]!.to - segments[id]!.from, first: 0, last: 0}));
  for (const group of groups) totals.reserved += group.bytes;
  const group_of_segment = new Int32Array(segments.length);
  order.forEach((id, i) => { group_of_segment[id] = i; });

  // The group of each block, and the number of blocks of each group.
  const of = new Int32Array(count), counts = new Uint32Array(groups.length + 64), at = new Float64Array(count);
  const extra = new Map<number, number>();
  const extra_group = (kind: 'outside' | 'class', id: number): number => {
    let found = extra.get(id);
    if (found === undefined) {
      found = groups.length;
      extra.set(id, found);
      groups.push({kind, id, bytes: 0, first: 0, last: 0});
    }
    return found;
  };
  let hint = -1;
  for (let i = 0; i < count; i++) {
    const row = blocks.row(i), bytes = size[row]!;
    totals.allocated += bytes;
    if (pending[row]! <= event) { totals.pending += bytes; totals.pending_blocks++; }
    if (end[row]! < events) totals.exact = false;
    let group: number;
    if (classes) group = extra_group('class', size_class(bytes));
    else {
      const distance = origin.distance(elements, row);
      while (hint + 1 < segments.length && segments[hint + 1]!.from <= distance) hint++;
      const segment = containing_segment(segments, hint, distance);
      if (segment >= 0) {
        group = group_of_segment[segment]!;
        at[i] = distance - segments[segment]!.from;
      } else {
        group = extra_group('outside', 0);
        totals.outside += bytes;
        totals.outside_blocks++;
      }
    }
    of[i] = group;
    counts[group]!++;
  }
  let sum = 0;
  const cursor = new Uint32Array(groups.length);
  groups.forEach((group, g) => {
    group.first = cursor[g] = sum;
    sum += counts[g]!;
    group.last = sum;
  });
  const items = new Uint32Array(count), offsets = new Float64Array(count);
  for (let i = 0; i < count; i++) {
    const g = of[i]!, group = groups[g]!, to = cursor[g]!++, row = blocks.row(i);
    items[to] = row;
    if (group.kind === 'segment') offsets[to] = at[i]!;
    else {
      offsets[to] = group.bytes;
      group.bytes += size[row]!;
    }
  }
  for (const group of groups) {
    if (group.kind === 'segment') count_free(group, items, offsets, size, final_bytes, end, events, totals);
  }
  groups.sort((a, b) => rank(a) - rank(b) || (a.kind === 'class' ? b.id - a.id : 0));
  return {groups, segments, items, offsets, totals};
}

function rank(group: Group): number { return group.kind === 'segment' ? 0 : group.kind === 'class' ? 1 : 2; }

/** Returns the bytes of the gap after a block that are the block's rounding. */
export function rounding_after(row: number, gap: number, size: Float64Array, final_bytes: Map<number, number>, end: Int32Array, events: number): number {
  if (end[row]! >= events) {
    const final = final_bytes.get(row);
    return final === undefined ? 0 : Math.max(0, Math.min(gap, final - size[row]!));
  }
  return gap < MIN_BLOCK ? gap : 0;
}

function count_free(group: Group, items: Uint32Array, offsets: Float64Array, size: Float64Array, final_bytes: Map<number, number>,
  end: Int32Array, events: number, totals: Totals): void {
  let covered = 0;
  const gap = (bytes: number): void => {
    if (bytes <= 0) return;
    totals.free += bytes;
    totals.free_pieces++;
    if (bytes > totals.largest_free) totals.largest_free = bytes;
  };
  for (let i = group.first; i < group.last; i++) {
    const row = items[i]!, offset = offsets[i]!;
    gap(offset - covered);
    const after = Math.min(group.bytes, offset + size[row]!);
    const next = i + 1 < group.last ? Math.min(offsets[i + 1]!, group.bytes) : group.bytes;
    const rounding = after < next ? rounding_after(row, next - after, size, final_bytes, end, events) : 0;
    totals.rounding += rounding;
    covered = Math.max(covered, after + rounding);
  }
  gap(group.bytes - covered);
}
