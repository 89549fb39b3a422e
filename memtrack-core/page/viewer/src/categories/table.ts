// The table beside the picture: bytes of each category at the peak and at the selected moment. It is also the legend:
// a click on a name hides or shows its band, `only` hides all others.

import {h, set_text} from '../dom.ts';
import {bytes as size_text, exact_bytes, share as share_text, visible} from '../format.ts';
import {css_of} from '../timeline/rgb.ts';
import type {Band} from './names.ts';

/** A column of the table: a heading, and the bytes of each band; null: the band is hidden. */
export interface Moment {
  readonly title: string;
  readonly when: string;
  readonly bytes: readonly (number | null)[];
}

interface Row {
  element: HTMLElement;
  toggle: HTMLButtonElement;
  only: HTMLButtonElement;
  cells: HTMLElement[];
}

/** The table. */
export class CategoryTable {
  readonly element: HTMLElement;
  private readonly heads: HTMLElement[];
  private readonly whens: HTMLElement[];
  private readonly body = h('tbody');
  private readonly sums: HTMLElement[];
  private readonly all: HTMLButtonElement;
  private rows: Row[] = [];

  /** The handlers get the index of a band; `all` shows every band. */
  constructor(private readonly handlers: {toggle(band: number): void; only(band: number): void; all(): void; point(band: number | null): void}) {
    const cells = (): HTMLElement[] => Array.from({length: 4}, () => h('td', {}));
    this.heads = [h('span'), h('span')];
    this.whens = [h('small'), h('small')];
    this.sums = cells();
    this.all = h('button', {type: 'button', class: 'link cat-all', onclick: () => handlers.all()}, 'show all categories');
    this.element = h('aside', {class: 'cat-side', 'aria-label': 'Bytes by category', tabindex: '0'},
      h('table', {class: 'cat-table'},
        h('thead', {}, h('tr', {}, h('th', {scope: 'col'}, 'Category'), ...this.heads.map((head, i) => h('th', {scope: 'col', colspan: 2}, head, h('br'), this.whens[i]!)))),
        this.body,
        h('tfoot', {}, h('tr', {}, h('th', {scope: 'row'}, 'Total'), ...this.sums))),
      this.all);
  }

  /** Creates a row for each band, in the order of the picture from the top. */
  rebuild(bands: readonly Band[], dark: boolean): void {
    this.rows = bands.map((band, index) => {
      const key = h('i', {'aria-hidden': 'true'});
      key.style.background = css_of(dark ? band.dark : band.light);
      const name = visible(band.name);
      const toggle = h('button', {type: 'button', class: 'cat-name', onclick: () => this.handlers.toggle(index)}, key, h('span', {}, name));
      const only = h('button', {type: 'button', class: 'cat-only', 'aria-label': `only ${name}`, title: `Show ${name} alone`, onclick: () => this.handlers.only(index)}, 'only');
      const cells = Array.from({length: 4}, (_, i) => h('td', {class: i % 2 ? 'cat-share' : ''}));
      const element = h('tr', {onmouseenter: () => this.handlers.point(index), onmouseleave: () => this.handlers.point(null)}, h('th', {scope: 'row'}, h('div', {}, toggle, only)), ...cells);
      return {element, toggle, only, cells};
    });
    this.body.replaceChildren(...this.rows.map(row => row.element).reverse());
  }

  /** Marks the visible bands. */
  shown(on: readonly boolean[]): void {
    const alone = on.filter(Boolean).length === 1 && on.length > 1;
    this.rows.forEach(({element, toggle, only}, i) => {
      toggle.setAttribute('aria-pressed', String(on[i]));
      toggle.title = on[i] ? 'Visible. Click to hide.' : 'Hidden. Click to show.';
      element.classList.toggle('off', !on[i]);
      only.setAttribute('aria-pressed', String(alone && on[i]!));
    });
    this.all.hidden = on.every(Boolean);
  }

  /** Fills column 0 (the peak) or 1 (the moment that is selected or at the pointer). */
  fill(column: 0 | 1, {title, when, bytes}: Moment, mark: string): void {
    const sum = bytes.reduce((a: number, b) => a + (b ?? 0), 0);
    set_text(this.heads[column]!, title);
    set_text(this.whens[column]!, when);
    const put = (cells: HTMLElement[], value: number | null): void => {
      const [size, share] = [cells[2 * column]!, cells[2 * column + 1]!];
      set_text(size, value === null ? '–' : mark + size_text(value));
      size.title = value === null ? 'hidden' : mark + exact_bytes(value);
      set_text(share, value ? share_text(value, sum) : '');
    };
    this.rows.forEach(({cells}, i) => put(cells, bytes[i] ?? null));
    put(this.sums, sum);
  }

  /** Marks the band that is chosen or at the pointer. */
  point(band: number | null): void {
    this.rows.forEach(({element}, i) => element.classList.toggle('pointed', i === band));
  }
}
