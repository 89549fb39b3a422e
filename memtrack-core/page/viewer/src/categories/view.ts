// Memory by category over time: one band for each, in PyTorch's order and colours.

import './categories.css';
import type {Hit, State} from '../types.ts';
import type {Page} from '../app.ts';
import {fill, h} from '../dom.ts';
import {ESTIMATED, INFERRED, bytes, count, exact_bytes, share, time, visible} from '../format.ts';
import type {Window} from '../timeline/frame.ts';
import type {Labels} from '../timeline/labels.ts';
import type {Inks, Area} from '../timeline/marks.ts';
import {paint} from '../timeline/paint.ts';
import {background, band_palette, type Palette} from '../timeline/palette.ts';
import {Plot} from '../timeline/plot.ts';
import {plain_stack} from '../timeline/stack.ts';
import {band_label, draw_name, draw_peak, draw_pointer, outline_band, name_position} from './marks.ts';
import {bands_of, type Band} from './names.ts';
import {BandPicture} from './picture.ts';
import {level_after, peak_of, series_of} from './sums.ts';
import {CategoryTable} from './table.ts';

/** The text of the view for a device without categories. */
const NONE = 'This device has no categories. Categories come from PyTorch’s memory profiles, and from operator traces with “memtrack timeline”.';

/** The position of the pointer. */
interface Pointed {
  x: number;
  y: number;
  event: number;
  band: number | null;
}

/** The view. */
export class CategoryView extends Plot {
  protected readonly with_reserved = true;
  protected readonly needs_segments = false;
  private readonly title = h('h2', {class: 'cat-title'});
  private readonly table: CategoryTable;
  private readonly body: HTMLElement;
  private readonly none = h('p', {class: 'cat-none', hidden: true}, NONE);
  private known: Band[] | null = null;
  private on: boolean[] = [];
  private bands_shown: BandPicture | null = null;
  private palette: Palette | null = null;
  private color_of = new Uint8Array(0);
  /** Whether any band has a pale part. */
  private has_pale = false;
  private names_at: ({x: number; y: number} | null)[] = [];
  private pointed: Pointed | null = null;
  /** The band that was chosen with the keyboard. */
  private chosen: number | null = null;
  private band_peaks = new Map<number, {event: number; bytes: number}>();

  constructor(page: Page) {
    super(page, 'categories');
    this.table = new CategoryTable({
      toggle: band => this.toggle(band), only: band => this.only(band), all: () => this.show_only(null), point: band => this.point_out(band),
    });
    const main = h('div', {class: 'cat-main'}, this.title, ...this.element.children);
    this.body = h('div', {class: 'cat-body'}, main, this.table.element);
    fill(this.element, this.none, this.body);
  }

  // ------------------------------------------------------------------ the stack

  protected reset(): void {
    this.known = this.bands_shown = this.pointed = this.chosen = null;
  }

  protected prepare(state: State, changed: Set<keyof State>): void {
    const {head} = this.page.device, other = !this.known;
    this.none.hidden = head.categories.length > 0;
    this.body.hidden = !this.none.hidden;
    this.known ??= bands_of(head.categories).filter(band => band.values[0] !== 0 || this.page.device.blocks.category.includes(0));
    if (other || changed.has('color')) {
      this.palette = band_palette(this.known.map(band => (this.page.dark ? band.dark : band.light)), this.page.dark);
      this.table.rebuild(this.known, this.page.dark);
    }
    if (other || !this.stack || changed.has('query') || changed.has('filter') || changed.has('hide')) this.restack(state);
    else if (changed.has('color')) this.update_texts();
    if (changed.has('event')) this.update_moment();
  }

  private restack(state: State): void {
    const {blocks} = this.page.device, {passing} = this.page, bands = this.known!, wanted = state.filter.categories;
    this.on = bands.map(band => !wanted || band.values.some(value => wanted.includes(value)));
    const band_of = new Uint8Array(256), shown = new Uint8Array(256).fill(wanted ? 0 : 1);
    bands.forEach((band, i) => band.values.forEach(value => { band_of[value] = i; }));
    for (const value of wanted ?? []) shown[value] = 1;
    this.has_pale = false;
    // Blocks that do not match search and filter are either hidden, if the user chose that, or a paler part of their band.
    const layer = new Uint8Array(blocks.count), visible_rows = wanted || (passing && state.hide) ? new Uint8Array(blocks.count) : null;
    for (let row = 0; row < blocks.count; row++) {
      const value = blocks.category[row]!, pale = passing !== null && !passing[row] && shown[value]! > 0;
      layer[row] = 2 * band_of[value]! + (pale ? 1 : 0);
      if (visible_rows) visible_rows[row] = shown[value] && !(pale && state.hide) ? 1 : 0;
      this.has_pale ||= pale && !state.hide;
    }
    this.stack = plain_stack(blocks, visible_rows);
    this.bands_shown = new BandPicture(this.stack, series_of(blocks, layer, 2 * bands.length, visible_rows));
    this.color_of = Uint8Array.from({length: 2 * bands.length}, (_, l) => l >> 1);
    this.band_peaks.clear();
    this.pointed = null;
    if (this.chosen !== null && !this.on[this.chosen]) this.chosen = null;
    this.update_texts();
  }

  /** Returns the bytes of each band after an event; null: the band is hidden. */
  private bytes_after(event: number): (number | null)[] {
    const {series} = this.bands_shown!;
    return this.known!.map((_, i) => (this.on[i] ? level_after(series[2 * i]!, event) + level_after(series[2 * i + 1]!, event) : null));
  }

  private get peak_event(): number {
    const {peaks, total} = this.stack!;
    return peaks.top(0, total.length - 1) - 1;
  }

  private get mark(): string {
    return this.page.device.head.estimated ? 'about ' : '';
  }

  private when(event: number): string {
    const {clock} = this.page.device;
    return event < 0 ? 'before the first event' : `event ${count(event)}${clock ? `, ${time(clock[event]!)}` : ''}`;
  }

  // ------------------------------------------------------------------ texts

  /** Updates the title and the table. */
  private update_texts(): void {
    const {device} = this.page, {total} = device.blocks, all = this.on.every(Boolean) && this.stack!.total === total;
    let peak = this.stack!.peak;
    const parts: (Node | string)[] = [];
    if (!all) {
      peak = 0;
      for (const value of total) if (value > peak) peak = value;
      parts.push(h('span', {}, `Peak of visible blocks: ${this.mark}${exact_bytes(this.stack!.peak)}`));
    }
    const inferred = device.head.inferred && h('span', {class: 'note inferred', title: INFERRED}, 'Categories are inferred: the file has none');
    fill(this.title, h('span', {}, `Peak allocated: ${this.mark}${exact_bytes(peak)}`), ...parts, this.reserved && h('span', {class: 'note'}, `Peak reserved: ${exact_bytes(this.segments!.total[this.reserved.top(0, this.segments!.total.length - 1)]!)}`), inferred);
    this.table.shown(this.on);
    this.table.fill(0, {title: all ? 'At the peak' : 'Visible peak', when: this.when(this.peak_event), bytes: this.bytes_after(this.peak_event)}, this.mark);
    this.update_moment();
  }

  /** Updates the column of the table that shows the selected moment. */
  private update_moment(): void {
    if (!this.bands_shown) return;
    const selected = this.page.state.event, event = this.pointed?.event ?? selected;
    const title = this.pointed ? 'Pointed at' : selected === this.page.device.head.events - 1 ? 'At the end' : 'Selected';
    this.table.fill(1, {title, when: this.when(event), bytes: this.bytes_after(event)}, this.mark);
    this.table.point(this.pointed ? this.pointed.band : this.chosen);
  }

  /** Returns the details of a band at a moment. */
  private lines(band: number, event: number): string[] {
    const after = this.bytes_after(event), size = after[band] ?? 0, sum = after.reduce((a: number, b) => a + (b ?? 0), 0), {series} = this.bands_shown!;
    let most = this.band_peaks.get(band);
    if (!most) this.band_peaks.set(band, most = peak_of([series[2 * band]!, series[2 * band + 1]!]));
    return [visible(this.known![band]!.name), `${this.mark}${exact_bytes(size)}, ${share(size, sum)} of ${this.mark}${bytes(sum)}`,
      event < 0 ? 'before the first event' : `after ${this.when(event)}`, `At most ${this.mark}${exact_bytes(most.bytes)}, ${most.event < 0 ? 'before the first event' : `after ${this.when(most.event)}`}.`,
      this.page.state.query === this.known![band]!.query ? 'The search shows its blocks. Click to clear the search.' : 'Click to find its blocks.'];
  }

  protected describe(): void {
    const parts: (Node | string)[] = [], threads = this.thread_choice();
    if (this.page.device.head.estimated) parts.push(h('span', {class: 'note'}, ESTIMATED));
    if (threads) parts.push(threads);
    fill(this.bar, ...parts);
    this.bar.hidden = parts.length === 0;
    this.update_texts();
    const at_peak = this.bytes_after(this.peak_event), made_of = this.known!.flatMap((band, i) => (at_peak[i] ? [`${visible(band.name)} ${share(at_peak[i]!, this.stack!.peak)}`] : []));
    this.stage.setAttribute('aria-label', `Allocated memory of ${visible(this.page.device.head.name)} by category, stacked over time; at most ${bytes(this.stack!.peak)}: ${made_of.join(', ')}. Arrow keys move, plus and minus zoom, p goes to the peak, j and k choose a category, Enter finds its blocks.`);
  }

  // ------------------------------------------------------------------ drawing

  protected fill_pixels(window: Window): void {
    const picture = this.bands_shown!, bands = this.known!, layers = 2 * bands.length;
    picture.lay_out(this.axis, window);
    paint(picture.frame, this.pixels, {of: this.color_of, palette: this.palette!, passing: Uint8Array.from({length: layers}, (_, l) => 1 - (l & 1)), layer: null, start: new Int32Array(layers).fill(-2)});
    const area = this.area(), {context} = area;
    context.font = this.inks().font;
    this.names_at = bands.map((band, i) => (this.on[i]
      ? name_position(picture, i, context.measureText(visible(band.name)).width, s => picture.frame.sample_x[s]! / this.ratio, area.y, this.height) : null));
  }

  protected override draw_names(area: Area, inks: Inks, labels: Labels): void {
    const {dark} = this.page;
    area.context.font = inks.font;
    this.known!.forEach((band, i) => {
      const at = this.names_at[i];
      // A partly pale band has no single background colour.
      if (at) draw_name(area, labels, band.name, at, this.has_pale ? background(dark) : dark ? band.dark : band.light);
    });
  }

  protected draw_marks(area: Area, inks: Inks, labels: Labels): void {
    const picture = this.bands_shown!, bands = this.known!;
    if (this.stack!.peak > 0) {
      const event = this.peak_event, {axis} = this;
      // The state after an event lasts until the next one.
      draw_peak(area, inks, labels, area.x(axis.clock || event < 0 ? axis.at(event) : event + 0.5), this.stack!.peak, this.mark);
    }
    const band = this.pointed?.band ?? this.chosen;
    if (band !== null) outline_band(area, picture, band, this.ratio, inks);
    const {pointed} = this;
    if (pointed && pointed.x >= 0) {
      const now = this.bytes_after(pointed.event), sum = now.reduce((a: number, b) => a + (b ?? 0), 0);
      draw_pointer(area, inks, labels, pointed, pointed.band === null ? band_label('total', sum, this.mark) : `${band_label(bands[pointed.band]!.name, now[pointed.band]!, this.mark)} of ${this.mark}${bytes(sum)}`);
    }
  }

  // ------------------------------------------------------------------ the pointer

  private under(x: number, y: number): Pointed | null {
    const at = this.inside(x, y), picture = this.bands_shown;
    if (!at || !picture?.frame.spans) return null;
    const {frame} = picture, {bottom, top, height} = frame.window, sample = frame.span_at(Math.floor(at.x * this.ratio));
    // Use the middle of the pixel, because the picture has no finer resolution.
    const layer = picture.layer_at(sample, bottom + ((height - Math.floor(at.y * this.ratio) - 0.5) / height) * (top - bottom));
    return {...at, event: frame.span_event[sample]!, band: layer === null ? null : layer >> 1};
  }

  protected hit_picture(x: number, y: number): Hit | null {
    const found = this.under(x, y);
    if (!found) return null;
    if (found.band === null) return {kind: 'nothing', event: found.event};
    return {kind: 'category', name: this.known![found.band]!.name, size: this.bytes_after(found.event)[found.band]!, event: found.event};
  }

  protected hovered(event: MouseEvent): void {
    if (this.gesture && event.buttons) return;
    const found = this.under(event.clientX, event.clientY);
    if (!found) return;
    this.pointed = found;
    this.page.detail(found.band === null ? null : {kind: 'text', lines: this.lines(found.band, found.event)});
    this.update_moment();
    void this.request(false);
  }

  protected pointer_left(): void {
    this.page.detail(null);
    if (!this.pointed) return;
    this.pointed = null;
    this.update_moment();
    void this.request(false);
  }

  /** Shows the band of the table's row at the pointer; null: none. */
  private point_out(band: number | null): void {
    if (band === null || !this.on[band]) return this.pointer_left();
    this.pointed = {x: -1, y: -1, event: this.page.state.event, band};
    this.table.point(band);
    this.page.detail({kind: 'text', lines: this.lines(band, this.page.state.event)});
    void this.request(false);
  }

  protected clicked(event: MouseEvent): void {
    const found = this.under(event.clientX, event.clientY);
    if (!found) return;
    const x = event.clientX - this.picture.getBoundingClientRect().left, {from, to} = this.ranges();
    // The column may represent many events. The clicked band exists after the drawn event, but perhaps not after the exact
    // event.
    const exact = this.axis.event_at(from + ((to - from) * x) / this.width);
    if (found.band === null) void this.page.show({event: exact});
    else void this.find(found.band, this.bytes_after(exact)[found.band] ? exact : found.event);
  }

  /** Searches for the blocks of a band. If the page already shows that search, clears it. */
  private async find(band: number, event: number): Promise<void> {
    const {query} = this.known![band]!;
    await this.page.show({event, query: this.page.state.query === query ? '' : query});
    this.page.detail({kind: 'text', lines: this.lines(band, event)}, true);
  }

  // ------------------------------------------------------------------ visible bands

  /** Shows only bands with these values of the column; null: all. Sets the page's filter, so that other views follow. */
  private show_only(values: number[] | null): void {
    const {categories: _, ...rest} = this.page.state.filter;
    void this.page.show({filter: values ? {...rest, categories: values} : rest, top: 0, bottom: 0});
  }

  private values_of(on: (band: number) => boolean): number[] {
    return this.known!.flatMap((band, i) => (on(i) ? band.values : [])).sort((a, b) => a - b);
  }

  private toggle(band: number): void {
    const on = this.on.map((was, i) => (i === band ? !was : was));
    // When the last band is hidden, show all bands again.
    this.show_only(on.every(Boolean) || !on.some(Boolean) ? null : this.values_of(i => on[i]!));
  }

  private only(band: number): void {
    this.show_only(this.on.every((was, i) => was === (i === band)) ? null : this.values_of(i => i === band));
  }

  // ------------------------------------------------------------------ keys

  override key(event: KeyboardEvent): boolean {
    if (this.body.hidden) return false;
    switch (event.key) {
      case 'j': case 'k': this.walk(event.key === 'k' ? 1 : -1); return true;
      case 'Enter':
        if (this.chosen === null) return false;
        void this.find(this.chosen, this.page.state.event);
        return true;
      default: return super.key(event);
    }
  }

  /** Chooses the next visible band above or below. */
  private walk(by: number): void {
    const visible_bands = this.on.flatMap((on, i) => (on ? [i] : [])), at = this.chosen === null ? -1 : visible_bands.indexOf(this.chosen);
    if (!visible_bands.length) return;
    this.chosen = visible_bands[at < 0 ? (by > 0 ? 0 : visible_bands.length - 1) : Math.max(0, Math.min(visible_bands.length - 1, at + by))]!;
    this.pointed = null;
    this.update_moment();
    this.page.detail({kind: 'text', lines: this.lines(this.chosen, this.page.state.event)}, true);
    void this.request(false);
  }

  /** Handles Escape: clears the chosen band. */
  unpin(): boolean {
    if (this.chosen === null) return false;
    this.chosen = null;
    this.update_moment();
    this.page.detail(null, true);
    void this.request(false);
    return true;
  }
}
