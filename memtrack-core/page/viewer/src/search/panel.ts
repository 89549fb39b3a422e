// The panel that edits the filter.

import type {Device, Filter} from '../types.ts';
import {h} from '../dom.ts';
import {count as count_text} from '../format.ts';
import {value_names} from './chips.ts';
import {counts_of, read_count, read_size} from './filter.ts';

type Listed = 'streams' | 'pools' | 'categories';

/** The maximum length of a list of values. */
const MAX_VALUES = 200;

export class FilterPanel {
  readonly element: HTMLElement;
  private readonly fields: {input: HTMLInputElement; key: 'min_bytes' | 'max_bytes' | 'min_life' | 'max_life'; size: boolean}[] = [];
  private readonly lists: HTMLElement;
  private boxes: {box: HTMLInputElement; key: Listed; index: number}[] = [];
  private made_for: Device | null = null;
  private filter: Filter = {};
  private readonly kept: HTMLInputElement;

  constructor(private readonly change: (filter: Filter) => void) {
    const field = (key: 'min_bytes' | 'max_bytes' | 'min_life' | 'max_life', label: string, hint: string): HTMLElement => {
      const size = key.endsWith('bytes');
      const input = h('input', {class: 'fp-input', type: 'text', size: 9, placeholder: hint, 'aria-label': label, spellcheck: 'false', onchange: () => this.read()});
      this.fields.push({input, key, size});
      return input;
    };
    this.lists = h('div', {class: 'fp-lists'});
    this.kept = h('input', {type: 'checkbox', onchange: () => this.keep(this.kept.checked)});
    this.element = h('div', {class: 'filter-panel', role: 'group', 'aria-label': 'Filter'},
      h('div', {class: 'fp-ranges'},
        h('div', {class: 'fp-range'}, h('span', {class: 'fp-name'}, 'Size'), field('min_bytes', 'Smallest size', 'from'), ' to ', field('max_bytes', 'Largest size', 'e.g. 1.5 MiB')),
        h('div', {class: 'fp-range'}, h('span', {class: 'fp-name'}, 'Lifetime'), field('min_life', 'Shortest lifetime in events', 'from'), ' to ',
          field('max_life', 'Longest lifetime in events', 'events'), ' events'),
        h('label', {class: 'fp-range'}, this.kept, ' only blocks that are live at the end')),
      this.lists);
  }

  /** Shows a filter of a device. */
  show(filter: Filter, device: Device): void {
    this.filter = filter;
    for (const {input, key, size} of this.fields) {
      const value = filter[key];
      if (document.activeElement !== input) input.value = value === undefined ? '' : size ? short_size(value) : String(value);
      input.setCustomValidity('');
    }
    this.kept.checked = filter.kept === true;
    if (this.made_for !== device) this.make(device);
    for (const {box, key, index} of this.boxes) box.checked = !filter[key] || filter[key].includes(index);
  }

  private make(device: Device): void {
    this.made_for = device;
    this.boxes = [];
    const {head, blocks} = device;
    this.lists.replaceChildren(...([['categories', 'Category', value_names(head.categories, 'none'), blocks.category],
      ['streams', 'Stream', value_names(head.streams, null), blocks.stream], ['pools', 'Pool', value_names(head.pools, 'unknown'), blocks.pool]] as const)
      .flatMap(([key, title, names, column]) => {
        const counts = counts_of(column, names.length), used = names.map((_, index) => index).filter(index => counts[index]! > 0);
        return used.length < 2 ? [] : [this.list(key, title, names, counts, used)];
      }));
  }

  private list(key: Listed, title: string, names: readonly string[], counts: Uint32Array, used: number[]): HTMLElement {
    used.sort((a, b) => counts[b]! - counts[a]!);
    const all = h('button', {class: 'fp-all', type: 'button', onclick: () => this.set(key, undefined)}, 'all');
    const items = used.slice(0, MAX_VALUES).map(index => {
      const box = h('input', {type: 'checkbox', onchange: () => this.tick(key, index, box.checked, used)});
      this.boxes.push({box, key, index});
      const only = h('button', {class: 'fp-only', type: 'button', 'aria-label': `only ${names[index]}`, onclick: () => this.set(key, [index])}, 'only');
      return h('div', {class: 'fp-item'}, h('label', {}, box, h('span', {class: 'fp-text', title: names[index]!}, names[index]!), h('span', {class: 'fp-count'}, count_text(counts[index]!))), only);
    });
    if (used.length > MAX_VALUES) items.push(h('div', {class: 'fp-more'}, `and ${count_text(used.length - MAX_VALUES)} with fewer blocks: search for pool:… or stream:…`));
    return h('fieldset', {class: 'fp-list'}, h('legend', {}, title, ' ', all), h('div', {class: 'fp-items'}, ...items));
  }

  private tick(key: Listed, index: number, on: boolean, used: readonly number[]): void {
    const now = new Set(this.filter[key] ?? used);
    if (on) now.add(index); else now.delete(index);
    this.set(key, now.size === used.length ? undefined : [...now].sort((a, b) => a - b));
  }

  private set(key: Listed, indices: number[] | undefined): void {
    const filter = {...this.filter};
    if (indices) filter[key] = indices; else delete filter[key];
    this.change(filter);
  }

  private keep(only: boolean): void {
    const filter = {...this.filter};
    if (only) filter.kept = true; else delete filter.kept;
    this.change(filter);
  }

  private read(): void {
    const filter = {...this.filter};
    for (const {input, key, size} of this.fields) {
      const value = size ? read_size(input.value) : read_count(input.value);
      input.setCustomValidity(value === null ? size ? 'A size is a number with a unit: 512, 64 KiB, 1.5 GiB' : 'A lifetime is a whole number of events' : '');
      if (value === null) { input.reportValidity(); return; }
      if (value === undefined) delete filter[key]; else filter[key] = value;
    }
    this.change(filter);
  }
}

/** Formats a size so that `read_size` parses it exactly, with a unit where the size is a multiple of it. */
function short_size(bytes: number): string {
  for (const [unit, size] of [['GiB', 2 ** 30], ['MiB', 2 ** 20], ['KiB', 1024]] as const) if (bytes >= size && bytes % size === 0) return `${bytes / size} ${unit}`;
  return String(bytes);
}
