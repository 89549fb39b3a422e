// The filter as chips, each with a button that removes it.

import type {DeviceHead, Filter} from '../types.ts';
import {bytes as size_text, count as count_text, visible} from '../format.ts';

export interface Chip {
  readonly text: string;
  /** The filter without the chip's condition. */
  readonly without: Filter;
}

/** Returns the names of a column's values in a filter; `first` is the name of the value 0, if 0 is not an index into `names`. */
export function value_names(names: readonly string[], first: string | null): string[] {
  return (first === null ? [] : [first]).concat(names).map(visible);
}

/** Returns a chip for each condition. */
export function chips_of(filter: Filter, head: DeviceHead): Chip[] {
  const chips: Chip[] = [];
  const range = (low: keyof Filter, high: keyof Filter, name: string, text: (n: number) => string): void => {
    const a = filter[low] as number | undefined, b = filter[high] as number | undefined;
    if (a === undefined && b === undefined) return;
    const words = a === undefined ? `≤ ${text(b!)}` : b === undefined ? `≥ ${text(a)}` : a === b ? text(a) : `${text(a)} to ${text(b)}`;
    chips.push({text: `${name} ${words}`, without: without(filter, low, high)});
  };
  range('min_bytes', 'max_bytes', 'size', size_text);
  range('min_life', 'max_life', 'lifetime', n => `${count_text(n)} ${n === 1 ? 'event' : 'events'}`);
  const list = (key: 'streams' | 'pools' | 'categories', name: string, names: readonly string[]): void => {
    const indices = filter[key];
    if (!indices) return;
    const text = indices.length === 0 ? 'none' : indices.length <= 3 ? indices.map(p => names[p] ?? `#${p}`).join(', ') : `${indices.length} of ${names.length}`;
    chips.push({text: `${name} ${text}`, without: without(filter, key)});
  };
  list('streams', 'stream', value_names(head.streams, null));
  list('pools', 'pool', value_names(head.pools, 'unknown'));
  list('categories', 'category', value_names(head.categories, 'none'));
  if (filter.kept) chips.push({text: 'live at the end', without: without(filter, 'kept')});
  return chips;
}

function without(filter: Filter, ...keys: (keyof Filter)[]): Filter {
  const rest = {...filter};
  for (const key of keys) delete rest[key];
  return rest;
}
