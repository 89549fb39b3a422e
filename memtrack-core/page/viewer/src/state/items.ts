// Finds blocks in a layout.

import type {Layout, Group} from './layout.ts';

/** Returns the index of a group's last item that begins at or before `offset`, or `group.first - 1` if none does. */
export function item_at(layout: Layout, group: Group, offset: number): number {
  let low = group.first, high = group.last;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (layout.offsets[middle]! <= offset) low = middle + 1; else high = middle;
  }
  return low - 1;
}

/** Returns the group and offset of a block; null: it is not in the layout. */
export function find_row(layout: Layout, row: number): {group: Group; offset: number} | null {
  const at = layout.items.indexOf(row);
  if (at < 0) return null;
  const group = layout.groups.find(g => g.first <= at && at < g.last);
  return group ? {group, offset: layout.offsets[at]!} : null;
}

/** Returns the segment and offset of an address; null: no segment contains it. */
export function find_distance(layout: Layout, distance: number): {group: Group; offset: number} | null {
  for (const group of layout.groups) {
    if (group.kind !== 'segment') continue;
    const segment = layout.segments[group.id]!;
    if (segment.from <= distance && distance < segment.to) return {group, offset: distance - segment.from};
  }
  return null;
}

/** The item at a byte of a group: a block, its rounding, or free memory with its bounds. */
export type At = {kind: 'block'; row: number} | {kind: 'rounding'; row: number; bytes: number} | {kind: 'free'; from: number; to: number};

/** Returns the item at a byte of a group. `slack` is half a pixel in bytes: a block smaller than a pixel is found within it. */
export function find_at(layout: Layout, group: Group, offset: number, slack: number, size: Float64Array,
  rounding: (row: number, gap: number) => number): At {
  const at = item_at(layout, group, offset);
  // Overlapping blocks (lost frees) end in any order: check a few earlier ones too.
  for (let i = at; i >= group.first && i > at - 8; i--) {
    const row = layout.items[i]!;
    if (layout.offsets[i]! + size[row]! > offset) return {kind: 'block', row};
  }
  if (slack > 0) {
    if (at >= group.first) {
      const row = layout.items[at]!;
      if (layout.offsets[at]! + size[row]! > offset - slack && size[row]! < 2 * slack) return {kind: 'block', row};
    }
    if (at + 1 < group.last && layout.offsets[at + 1]! < offset + slack && size[layout.items[at + 1]!]! < 2 * slack) {
      return {kind: 'block', row: layout.items[at + 1]!};
    }
  }
  const to = at + 1 < group.last ? Math.min(layout.offsets[at + 1]!, group.bytes) : group.bytes;
  let from = 0;
  if (at >= group.first) {
    const row = layout.items[at]!;
    from = layout.offsets[at]! + size[row]!;
    const round = rounding(row, to - from);
    if (offset < from + round) return {kind: 'rounding', row, bytes: round};
    from += round;
  }
  return {kind: 'free', from, to};
}
