// The bar with search and filter, which all views share.

import './search.css';
import type {App, Device, Filter, SearchBar, State} from '../types.ts';
import {NONE} from '../types.ts';
import {h, set_text} from '../dom.ts';
import {bytes as size_text, count as count_text, plural, share as share_text} from '../format.ts';
import {chips_of} from './chips.ts';
import {apply_filter, is_empty} from './filter.ts';
import {match} from './match.ts';
import {FilterPanel} from './panel.ts';
import {read_query, type Query} from './query.ts';
import {count_live, count_marks, next_mark, peak_event} from './results.ts';

/** The time from the last key to the start of the search, in milliseconds. */
const DEBOUNCE_MS = 150;

/** Creates the bar. */
export function search_bar(app: App): Bar { return new Bar(app); }

export class Bar implements SearchBar {
  readonly element: HTMLElement;
  private readonly input: HTMLInputElement;
  private readonly status: HTMLElement;
  private readonly chips: HTMLElement;
  private readonly position: HTMLElement;
  private readonly hide: HTMLInputElement;
  private readonly steps: HTMLElement;
  private readonly panel: FilterPanel;
  private readonly open: HTMLButtonElement;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private job: {wanted: boolean} = {wanted: false};
  private cached: {device: Device; query: string; marks: Uint8Array | null} | null = null;
  private result: {device: Device; query: string; filter: string; marks: Uint8Array | null; count: number} | null = null;
  private counted = '';

  constructor(private readonly app: App) {
    this.input = h('input', {class: 'sb-input', type: 'search', role: 'searchbox', 'aria-label': 'Search: a regular expression or an address', spellcheck: 'false',
      autocomplete: 'off', placeholder: 'Search functions, files, operators, categories, addresses  ( / )',
      title: 'A regular expression, case-insensitive unless it has capitals; 0x… is an address.\nPrefixes limit the search: in: (innermost function of the program)  frame:  scope:  category:  pool:  stream:  note:  stack:N\nEnter: next match. Shift+Enter: previous.',
      oninput: () => this.typed(), onkeydown: (event: KeyboardEvent) => this.key(event)});
    this.status = h('span', {class: 'sb-status', role: 'status', 'aria-live': 'polite'});
    this.position = h('span', {class: 'sb-place'});
    const step = (text: string, label: string, by: 1 | -1): HTMLElement =>
      h('button', {class: 'sb-step', type: 'button', 'aria-label': label, title: label, onclick: () => void this.step(by)}, text);
    this.steps = h('span', {class: 'sb-steps'}, step('‹', 'Previous match (N)', -1), this.position, step('›', 'Next match (n)', 1));
    this.hide = h('input', {type: 'checkbox', onchange: () => void app.show({hide: this.hide.checked})});
    this.panel = new FilterPanel(filter => this.set_filter(filter));
    this.panel.element.hidden = true;
    this.open = h('button', {class: 'sb-filter', type: 'button', 'aria-expanded': 'false', onclick: () => this.toggle()}, 'Filter');
    this.chips = h('span', {class: 'sb-chips'});
    const hide_label = h('label', {class: 'sb-hide', title: 'Hide the other blocks instead of dimming them'}, this.hide, 'hide others');
    this.element = h('div', {class: 'search-bar', role: 'search', onkeydown: (event: KeyboardEvent) => this.escape(event)},
      this.input, this.open, this.chips, this.status, this.steps, hide_label, this.panel.element);
    document.addEventListener('keydown', event => this.global_key(event));
    document.addEventListener('pointerdown', event => {
      if (!this.panel.element.hidden && !this.element.contains(event.target as Node)) this.toggle(false);
    });
  }

  focus(): void {
    this.input.focus();
    this.input.select();
  }

  /** The last result of `passing`; null: all blocks. */
  get marks(): Uint8Array | null { return this.result?.marks ?? null; }

  async passing(state: State, device: Device): Promise<Uint8Array | null> {
    if (document.activeElement !== this.input || this.input.value.trim() === '') this.input.value = state.query;
    this.hide.checked = state.hide;
    this.show_filter(state, device);
    const query = read_query(state.query), filter = JSON.stringify(state.filter);
    this.input.setAttribute('aria-invalid', String(query.kind === 'invalid'));
    if (this.result?.device !== device || this.result.query !== state.query || this.result.filter !== filter) {
      const marks = await this.matches(query, state.query, device);
      if (marks === false) return this.marks;
      const filtered = apply_filter(state.filter, device.blocks, marks && !is_empty(state.filter) ? marks.slice() : marks);
      this.result = {device, query: state.query, filter, marks: filtered, count: filtered ? count_marks(filtered) : device.blocks.count};
      this.counted = '';
    }
    this.show_counts(query, state, device);
    return this.result.marks;
  }

  /** Returns the marks of the query alone, cached while only the filter changes; false: a later query replaced this one. */
  private async matches(query: Query, text: string, device: Device): Promise<Uint8Array | null | false> {
    this.job.wanted = false;
    if (query.kind === 'all' || query.kind === 'invalid') return null;
    if (this.cached?.device === device && this.cached.query === text) return this.cached.marks;
    const job = this.job = {wanted: true};
    set_text(this.status, 'searching …');
    const [events, texts] = await Promise.all([device.events(), this.app.texts(device)]);
    if (!job.wanted) return false;
    const marks = await match(query, {device, events, texts}, job);
    if (marks !== false) this.cached = {device, query: text, marks};
    return marks;
  }

  private show_counts(query: Query, state: State, device: Device): void {
    const marks = this.result!.marks;
    this.steps.hidden = marks === null;
    (this.hide.parentElement as HTMLElement).hidden = marks === null;
    this.status.classList.toggle('invalid', query.kind === 'invalid');
    if (query.kind === 'invalid') { set_text(this.status, query.message); return; }
    if (!marks) { set_text(this.status, ''); return; }
    const key = `${state.event}`;
    if (this.counted !== key) {
      this.counted = key;
      const r = count_live(device, marks, state.event), blocks = this.result!.count, about = device.head.estimated ? 'about ' : '';
      const when = state.event < 0 ? 'before the first event' : state.event === peak_event(device) ? 'at the peak' : `after event ${count_text(state.event)}`;
      set_text(this.status, blocks === 0 ? 'No block matches.' : `${plural(blocks, 'block')} ${blocks === 1 ? 'matches' : 'match'}; ${when}${when.startsWith('after') ? ',' : ''} ${r.live === 0 ? 'none is live'
        : `${count_text(r.live)} ${r.live === 1 ? 'is' : 'are'} live with ${about}${size_text(r.live_bytes)} (${share_text(r.live_bytes, r.all_live_bytes)})`}`);
      this.status.dataset.blocks = String(blocks);
      this.status.dataset.live = String(r.live);
      this.status.dataset.liveBytes = String(r.live_bytes);
    }
    const total = Number(this.status.dataset.blocks), row = state.block;
    set_text(this.position, total === 0 ? '0 / 0' : `${row !== null && marks[row] ? count_text(count_marks(marks, row)) : '–'} / ${count_text(total)}`);
  }

  private typed(): void {
    clearTimeout(this.timer);
    this.job.wanted = false;
    this.timer = setTimeout(() => void this.app.show({query: this.input.value.trim()}), DEBOUNCE_MS);
  }

  private async commit(): Promise<void> {
    clearTimeout(this.timer);
    const query = this.input.value.trim();
    if (query !== this.app.state.query) await this.app.show({query});
  }

  /** Selects the next or the previous match, and the event of its allocation. */
  async step(by: 1 | -1): Promise<void> {
    await this.commit();
    const marks = this.marks, device = this.app.devices[this.app.state.device]!;
    if (!marks) return;
    const row = next_mark(marks, this.app.state.block, by);
    if (row !== null) await this.app.show({block: row, event: device.blocks.start[row]!});
  }

  /** Selects the next event with an address, and wraps around at the end. */
  private async next_event(value: bigint, by: 1 | -1): Promise<void> {
    await this.commit();
    const device = this.app.devices[this.app.state.device]!, events = await device.events(), segments = await device.segments();
    const high = Number(value >> 32n), low = Number(value & 0xffffffffn), n = events.count;
    const has = (table: {address_high: Uint32Array; address_low: Uint32Array}, row: number): boolean =>
      row !== NONE && table.address_high[row] === high && table.address_low[row] === low;
    // The first Enter selects the first event with the address, and each later Enter the next one.
    const again = this.jumped === `${device.index} ${value}`;
    for (let i = 1; i <= n; i++) {
      const event = again ? (((this.app.state.event + by * i) % n) + n) % n : i - 1;
      if (!has(device.blocks, events.block[event]!) && !has(segments, events.segment[event]!) && events.odd.get(event)?.address !== value) continue;
      this.jumped = `${device.index} ${value}`;
      await this.app.show({event, ...events.block[event] !== NONE && {block: events.block[event]!}});
      return;
    }
    // No event has the address: select a block that contains it, if there is one.
    await this.step(by);
  }

  private jumped = '';

  private key(event: KeyboardEvent): void {
    event.stopPropagation();
    if (event.key === 'Enter') {
      event.preventDefault();
      const by = event.shiftKey ? -1 : 1, query = read_query(this.input.value);
      void (query.kind === 'address' ? this.next_event(query.value, by) : this.step(by));
    } else if (event.key === 'Escape') {
      event.preventDefault();
      if (this.input.value === '') this.input.blur();
      else { this.input.value = ''; void this.commit(); }
    }
  }

  private escape(event: KeyboardEvent): void {
    if (event.key === 'Escape' && !this.panel.element.hidden) {
      this.toggle(false);
      this.open.focus();
      event.stopPropagation();
    }
  }

  private global_key(event: KeyboardEvent): void {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || !this.marks) return;
    const target = event.target as HTMLElement;
    if (target.closest?.('input:not([type=checkbox]), textarea, select, dialog')) return;
    if (event.key === 'n' || event.key === 'N') {
      event.preventDefault();
      void this.step(event.key === 'n' ? 1 : -1);
    }
  }

  private toggle(open = this.panel.element.hidden): void {
    this.panel.element.hidden = !open;
    this.open.setAttribute('aria-expanded', String(open));
    if (!open) return;
    this.panel.show(this.app.state.filter, this.app.devices[this.app.state.device]!);
    this.panel.element.querySelector('input')?.focus();
  }

  private set_filter(filter: Filter): void { void this.app.show({filter}); }

  private show_filter(state: State, device: Device): void {
    if (!this.panel.element.hidden) this.panel.show(state.filter, device);
    const chips = chips_of(state.filter, device.head);
    this.open.classList.toggle('on', chips.length > 0);
    const key = chips.map(c => c.text).join('\n');
    if (this.chips.dataset.key === key) return;
    this.chips.dataset.key = key;
    this.chips.replaceChildren(...chips.map(chip => h('span', {class: 'chip'}, h('span', {class: 'chip-text'}, chip.text),
      h('button', {class: 'chip-x', type: 'button', 'aria-label': `Remove the filter ${chip.text}`, onclick: () => this.set_filter(chip.without)}, '×'))));
  }
}
