// The filter by size, lifetime, stream, pool and category.

import type {Elements, Filter} from '../types.ts';

/** Returns whether every block matches a filter. */
export function is_empty(filter: Filter): boolean {
  return filter.min_bytes === undefined && filter.max_bytes === undefined && filter.min_life === undefined && filter.max_life === undefined
    && !filter.streams && !filter.pools && !filter.categories && !filter.kept;
}

/**
 * Clears the marks of rows that do not match the filter. If `marks` is null, all rows are marked. Streams are indices into the
 * device's list; pools and categories are as in the columns (0: unknown pool, no category). A block that is live at the end
 * counts as freed at the end.
 */
export function apply_filter(filter: Filter, blocks: Elements, marks: Uint8Array | null): Uint8Array | null {
  if (is_empty(filter)) return marks;
  const out = marks ?? new Uint8Array(blocks.count).fill(1);
  const {size, start, end} = blocks, low = filter.min_bytes ?? 0, high = filter.max_bytes ?? Infinity;
  const short = filter.min_life ?? 0, long = filter.max_life ?? Infinity;
  const streams = set(filter.streams), pools = set(filter.pools), categories = set(filter.categories);
  const last = filter.kept ? blocks.total.length - 1 : 0;
  for (let row = 0; row < blocks.count; row++) {
    const life = end[row]! - start[row]!;
    if (size[row]! < low || size[row]! > high || life < short || life > long || end[row]! < last || (streams && !streams[blocks.stream[row]!])
      || (pools && !pools[blocks.pool[row]!]) || (categories && !categories[blocks.category[row]!])) out[row] = 0;
  }
  return out;
}

function set(indices: readonly number[] | undefined): Uint8Array | null {
  if (!indices) return null;
  const marks = new Uint8Array(65536);
  for (const index of indices) marks[index] = 1;
  return marks;
}

/** Returns the number of blocks with each value of a column. */
export function counts_of(column: ArrayLike<number>, values: number): Uint32Array {
  const counts = new Uint32Array(values);
  for (let row = 0; row < column.length; row++) if (column[row]! < values) counts[column[row]!]!++;
  return counts;
}

/** Parses a size: `512`, `1.5 MiB`, `2g`, `64 kb` (1 kb is 1024 bytes). Undefined: empty. Null: not a size. */
export function read_size(text: string): number | undefined | null {
  const t = text.trim().toLowerCase().replace(/[,_\s]/g, '');
  if (t === '') return undefined;
  const m = /^(\d+(?:\.\d+)?|\.\d+)([kmgtp]?)(?:i?b|bytes?)?$/.exec(t);
  return m ? Math.round(Number(m[1]) * 1024 ** ' kmgtp'.indexOf(m[2] || ' ')) : null;
}

/** Parses a number of events. Undefined: empty. Null: not a number. */
export function read_count(text: string): number | undefined | null {
  const t = text.trim().replace(/[,_\s]/g, '');
  return t === '' ? undefined : /^\d+$/.test(t) ? Number(t) : null;
}
