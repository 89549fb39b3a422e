// The map of memory: segments and blocks after an event, on a canvas.

import type {App, Elements, Hit} from '../types.ts';
import {h, set_text} from '../dom.ts';
import {find_at, find_distance, find_row, type At} from './items.ts';
import {rounding_after, type Group, type Layout} from './layout.ts';
import type {BlockColors} from './colors.ts';
import type {StateModel} from './model.ts';
import {bytes as size_text, exact_bytes as exact_size, hex, plural, without_middle} from '../format.ts';
import {mix, Painter, parse_color, type Colors, type Scene} from './paint.ts';
import {fitting_bytes, Rows, type Strip} from './rows.ts';
import {VirtualScroll} from './virtual.ts';

/** The maximum length of a name in the legend. */
const NAME_LENGTH = 34;
/** Pixels left of the rows (for their titles), right of them, and between rows. */
const GUTTER = 104, MARGIN = 8, ROW_GAP = 5;
/** The minimum height of a row, and the maximum distance of rows. */
const MIN_HEIGHT = 17, MAX_PITCH = 46;

export interface MapData {
  readonly model: StateModel;
  readonly event: number;
  readonly layout: Layout;
  readonly colors: BlockColors;
  readonly passing: Uint8Array | null;
  /** The row of the block or piece of a segment that the event concerns. */
  readonly touched: {row: number; table: 'block' | 'segment'} | null;
  /** The pinned block. */
  readonly pinned: number | null;
}

interface Found { strip: Strip; at: At; offset: number }

export class MemoryMap {
  readonly element: HTMLElement;
  private readonly scroller: HTMLElement;
  private readonly spacer: HTMLElement;
  private readonly base: HTMLCanvasElement;
  private readonly over: HTMLCanvasElement;
  private readonly scale: HTMLElement;
  private readonly note: HTMLElement;
  private readonly color_legend: HTMLElement;
  private legend: unknown = null;
  private image: ImageData | null = null;
  private painter: Painter | null = null;
  private data: MapData | null = null;
  private rows: Rows | null = null;
  private scroll = new VirtualScroll(0, MIN_HEIGHT + ROW_GAP);
  private pitch = MIN_HEIGHT + ROW_GAP;
  private row_bytes = 0;
  /** Whether the user chose the scale, which then stays. */
  private chosen = false;
  private colors: Colors | null = null;
  private text_color = '#000';
  private hover: {x: number; y: number} | null = null;
  private shown_for: StateModel | null = null;

  constructor(private readonly app: App) {
    this.base = h('canvas', {class: 'map-base'});
    this.over = h('canvas', {class: 'map-over'});
    this.spacer = h('div', {class: 'map-spacer'});
    const sheet = h('div', {class: 'map-sheet'}, this.base, this.over);
    this.scroller = h('div', {class: 'map-scroll', tabindex: 0, role: 'img', 'aria-label': 'Segments and blocks',
      onscroll: () => { this.scroller_top = this.scroller.scrollTop; this.scroll.scrolled(this.scroller_top); this.draw(); },
      onwheel: (event: WheelEvent) => this.wheel(event),
      onpointermove: (event: PointerEvent) => this.move(event),
      onpointerleave: () => this.leave(),
      onclick: (event: MouseEvent) => this.click(event)}, sheet, this.spacer);
    this.scale = h('span', {class: 'map-scale'});
    this.note = h('p', {class: 'map-note', role: 'status'});
    const button = (text: string, label: string, act: () => void): HTMLElement =>
      h('button', {class: 'map-button', type: 'button', title: label, 'aria-label': label, onclick: act}, text);
    const bar = h('div', {class: 'map-bar'}, button('−', 'More bytes on a row (−)', () => this.zoom(-1)),
      button('+', 'Fewer bytes on a row (+)', () => this.zoom(1)), button('fit', 'Fit all rows (0)', () => this.fit()), this.scale,
      h('span', {class: 'map-legend'}, key('k-block', 'block'), key('k-free', 'free'), key('k-round', 'rounding'), key('k-pending', 'pending free'),
        key('k-touched', 'this event')));
    this.color_legend = h('ul', {class: 'legend map-color-legend', 'aria-label': 'Colours'});
    this.element = h('div', {class: 'map'}, bar, this.color_legend, this.note, this.scroller);
    // The size of the scroller also changes when the note above it appears or disappears.
    new ResizeObserver(() => this.resize()).observe(this.scroller);
  }

  set(data: MapData): void {
    this.data = data;
    if (this.shown_for !== data.model) { this.shown_for = data.model; this.chosen = false; this.row_bytes = 0; this.scroll.top = 0; }
    const {classes} = data.model, {totals, groups} = data.layout;
    this.element.classList.toggle('packed', classes);
    set_text(this.note, groups.length === 0 ? 'Nothing is reserved and no block is live after this event.'
      : classes ? 'The file has no segments of this device (a heap has none): blocks are grouped by size and packed by address; gaps between them are not shown.'
      : totals.outside_blocks > 0 ? `${plural(totals.outside_blocks, 'block')} (${size_text(totals.outside)}) ${totals.outside_blocks === 1 ? 'is' : 'are'} in no segment of the file: shown last, packed by address.`
      : '');
    this.note.hidden = this.note.textContent === '';
    this.show_legend(data.colors);
    this.scroller.setAttribute('aria-label', `Segments and blocks: ${size_text(totals.allocated)} allocated in ${plural(totals.blocks, 'block')}, ${size_text(totals.reserved)} reserved in ${plural(totals.segments, 'segment')}`);
    this.lay_out();
  }

  /** Shows the legend of the colours, if they have one. */
  private show_legend({palette}: BlockColors): void {
    if (this.legend === palette) return;
    this.legend = palette;
    this.color_legend.hidden = palette.legend.length === 0;
    this.color_legend.replaceChildren(...palette.legend.map(({color, name, bytes}) => {
      const swatch = h('i', {'aria-hidden': 'true'});
      swatch.style.background = palette.css[color]!;
      return h('li', {title: `${name}: ${exact_size(bytes)} at the peak`}, swatch, h('span', {}, without_middle(name, NAME_LENGTH)), h('small', {}, size_text(bytes)));
    }));
  }

  /** Redraws after a change of the theme or the size. */
  resize(): void {
    this.colors = null;
    this.wide = this.scroller.clientWidth;
    this.high = this.scroller.clientHeight;
    this.lay_out();
  }

  /** Cached size and scrollTop of the scroller: reading them makes the browser lay out the page. */
  private wide = 0;
  private high = 0;
  private scroller_top = 0;

  private get width(): number { return Math.max(50, this.wide - GUTTER - MARGIN); }

  private lay_out(): void {
    if (!this.data || this.high === 0) return;
    const {groups} = this.data.layout, width = this.width, room = this.high, fits = Math.max(1, Math.floor(room / (MIN_HEIGHT + ROW_GAP)));
    let rows = this.row_bytes > 0 ? new Rows(groups, this.row_bytes, width) : null;
    // The scale changes only when necessary: a map that is rescaled at every segment is hard to follow.
    // A few blocks need only a few rows.
    const {blocks, segments} = this.data.layout.totals, wanted = Math.min(fits, Math.max(6, Math.ceil(blocks / 8), Math.ceil(segments / 3)));
    if (!this.chosen && (!rows || rows.count > fits || rows.count * 3 < wanted)) {
      this.row_bytes = fitting_bytes(groups, width, wanted);
      rows = new Rows(groups, this.row_bytes, width);
    }
    this.rows = rows!;
    this.pitch = Math.max(MIN_HEIGHT + ROW_GAP, Math.min(MAX_PITCH, Math.floor((room - 6) / Math.max(1, this.rows.count))));
    const top = this.scroll.top / this.scroll.row_height;
    if (this.scroll.row_height !== this.pitch) {
      this.scroll = new VirtualScroll(0, this.pitch);
      this.scroll.resize(this.rows.count, room);
      this.scroll.to(top * this.pitch);
    } else this.scroll.resize(this.rows.count, room);
    this.spacer.style.height = `${this.scroll.element_height}px`;
    set_text(this.scale, `a full row is ${size_text(this.row_bytes)}`);
    this.apply_scroll();
  }

  private apply_scroll(): void {
    const top = this.scroll.scroll_top;
    if (Math.abs(this.scroller_top - top) >= 1) this.scroller.scrollTop = this.scroller_top = top;
    this.draw();
  }

  /** Halves (`by` is 1) or doubles (-1) the bytes per row, and keeps the memory at `y` in place. */
  zoom(by: 1 | -1, y = this.high / 2): void {
    if (!this.rows || !this.data) return;
    const next = this.row_bytes / 2 ** by, most = 2 ** 52;
    if (next < 4096 || next > most || (by < 0 && this.rows.count <= this.data.layout.groups.length / 64 + 1)) return;
    const row = Math.floor((this.scroll.top + y) / this.pitch), kept = this.rows.strips(row, row + 1)[0];
    this.chosen = true;
    this.row_bytes = next;
    this.lay_out();
    if (kept && this.rows) this.scroll.to(this.rows.row_of(kept.group, (kept.from + kept.to) / 2) * this.pitch - y);
    this.apply_scroll();
  }

  /** Resets the scale so that all rows fit. */
  fit(): void {
    this.chosen = false;
    this.row_bytes = 0;
    this.lay_out();
  }

  private wheel(event: WheelEvent): void {
    if (event.deltaY === 0) return;
    event.preventDefault();
    if (event.ctrlKey || event.metaKey) {
      this.zoom(event.deltaY < 0 ? 1 : -1, event.clientY - this.scroller.getBoundingClientRect().top);
      return;
    }
    this.scroll.to(this.scroll.top + event.deltaY * (event.deltaMode === 1 ? this.pitch : 1));
    this.apply_scroll();
  }

  private theme(): Colors {
    if (this.colors) return this.colors;
    const style = getComputedStyle(this.element), value = (name: string): number => parse_color(style.getPropertyValue(name));
    this.text_color = style.getPropertyValue('--map-text').trim();
    return this.colors = {back: value('--map-back'), free: value('--map-free'), free_mark: value('--map-free-mark'), rounding: value('--map-rounding'),
      rounding_mark: value('--map-rounding-mark'), pending_mark: value('--map-pending-mark'), border: value('--map-border')};
  }

  private draw(): void {
    const {data, rows} = this, room = this.high;
    if (!data || !rows || room === 0) return;
    const ratio = devicePixelRatio || 1, w = Math.round(this.wide * ratio), h = Math.round(room * ratio);
    const context = this.base.getContext('2d', {alpha: false})!;
    if (this.base.width !== w || this.base.height !== h || !this.image) {
      for (const canvas of [this.base, this.over]) {
        canvas.width = w; canvas.height = h;
        canvas.style.width = `${this.wide}px`;
        canvas.style.height = `${room}px`;
      }
      this.image = context.createImageData(w, h);
      this.painter = new Painter(new Uint32Array(this.image.data.buffer), w, h);
    }
    const colors = this.theme(), elements = data.model.device.blocks;
    const scene: Scene = {layout: data.layout, elements, event: data.event, events: data.model.device.head.events, color: data.colors.of,
      passing: data.passing, colors};
    this.painter!.clear(colors);
    const strips = this.visible();
    for (const strip of strips) {
      const top = this.top_of(strip.row);
      this.painter!.strip(scene, strip, GUTTER * ratio, Math.round(top * ratio), Math.round((top + this.pitch - ROW_GAP) * ratio), ratio);
    }
    context.putImageData(this.image, 0, 0);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.gutter(context, strips);
    this.labels(context, strips, elements);
    context.setTransform(1, 0, 0, 1, 0, 0);
    this.outline();
  }

  private visible(): Strip[] {
    const [from, to] = this.scroll.visible();
    return this.rows!.strips(from, to);
  }

  private top_of(row: number): number { return row * this.pitch - this.scroll.top + 3; }

  /** Draws the titles left of the rows. */
  private gutter(context: CanvasRenderingContext2D, strips: readonly Strip[]): void {
    context.font = '11px ui-sans-serif, system-ui, sans-serif';
    context.textAlign = 'right';
    context.textBaseline = 'middle';
    context.fillStyle = this.text_color;
    for (let i = 0; i < strips.length;) {
      const strip = strips[i]!;
      let n = i + 1;
      while (n < strips.length && strips[n]!.row === strip.row) n++;
      const y = this.top_of(strip.row) + (this.pitch - ROW_GAP) / 2;
      context.globalAlpha = strip.from > 0 ? 0.6 : 1;
      context.fillText(strip.from > 0 ? `+ ${size_text(strip.from)}` : this.title(strip.group, strips[n - 1]!.group, n - i), GUTTER - 8, y, GUTTER - 12);
      i = n;
    }
    context.globalAlpha = 1;
  }

  private title(group: Group, last: Group, groups: number): string {
    if (group.kind === 'outside') return 'no segment';
    if (group.kind === 'class') return group.id === 0 ? `< ${size_text(256)}` : `≥ ${size_text(group.id).replace('.0 ', ' ')}`;
    return groups === 1 ? size_text(group.bytes) : `${groups} × ${last.bytes === group.bytes ? '' : '≤ '}${size_text(group.bytes)}`;
  }

  /** Draws the sizes of blocks that have room for them. */
  private labels(context: CanvasRenderingContext2D, strips: readonly Strip[], elements: Elements): void {
    if (this.pitch < 16) return;
    context.textAlign = 'left';
    const {layout, colors, passing, event} = this.data!, color = colors.of;
    let remaining = 200;
    for (const strip of strips) {
      const scale = strip.width / (strip.to - strip.from || 1), group = strip.group, least = 62 / scale;
      // A strip may have thousands of blocks, of which only few are wide enough.
      if (strip.width < 62) continue;
      for (let i = Math.max(group.first, this.first_item(group, strip.from)); i < group.last && remaining > 0; i++) {
        const offset = layout.offsets[i]!;
        if (offset >= strip.to) break;
        const row = layout.items[i]!, bytes = elements.size[row]!;
        if (bytes < least) continue;
        const a = Math.max(offset, strip.from), b = Math.min(offset + bytes, strip.to, group.bytes);
        if ((b - a) < least || (offset < strip.from && strip.from > 0)) continue;
        remaining--;
        const fill = passing && passing[row] === 0 ? mix(color(row), this.colors!.free, 0.85) : color(row);
        const text = size_text(bytes), x = GUTTER + strip.x + (a - strip.from) * scale + 5, y = this.top_of(strip.row) + (this.pitch - ROW_GAP) / 2;
        if (elements.pending[row]! <= event) {
          // Text over hatching is unreadable.
          context.fillStyle = css(fill);
          context.fillRect(x - 2, y - 7, context.measureText(text).width + 4, 14);
        }
        context.fillStyle = light(fill) ? '#000b' : '#fffd';
        context.fillText(text, x, y);
      }
    }
  }

  private first_item(group: Group, offset: number): number {
    let low = group.first, high = group.last;
    const {offsets} = this.data!.layout;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (offsets[middle]! < offset) low = middle + 1; else high = middle;
    }
    return low;
  }

  /** Outlines the item at the pointer, the pinned block, and the memory that the event concerns. */
  private outline(): void {
    const context = this.over.getContext('2d')!, ratio = devicePixelRatio || 1, data = this.data!;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, this.over.width, this.over.height);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const found = this.hover && this.find(this.hover.x, this.hover.y);
    if (found) {
      const {layout} = data, at = found.at;
      if (at.kind === 'free') this.frame(context, found.strip.group, at.from, at.to, 'hover');
      else {
        const where = find_row(layout, at.row);
        if (where) this.frame(context, where.group, where.offset, where.offset + data.model.device.blocks.size[at.row]!, 'hover');
      }
    }
    if (data.pinned !== null) {
      const where = find_row(data.layout, data.pinned);
      if (where) this.frame(context, where.group, where.offset, where.offset + data.model.device.blocks.size[data.pinned]!, 'pinned');
    }
    const touched = this.touched();
    if (touched) this.frame(context, touched.group, touched.from, touched.to, touched.gone ? 'gone' : 'touched');
  }

  private touched(): {group: Group; from: number; to: number; gone: boolean} | null {
    const {touched, layout, model} = this.data!;
    if (!touched) return null;
    const table = touched.table === 'block' ? model.device.blocks : model.segments, size = table.size[touched.row]!;
    const live = touched.table === 'block' ? find_row(layout, touched.row) : null;
    if (live) return {group: live.group, from: live.offset, to: live.offset + size, gone: false};
    if (model.classes) return null;
    const where = find_distance(layout, model.origin.distance(table, touched.row));
    const gone = touched.table === 'block' || table.end[touched.row]! <= this.data!.event;
    return where && {group: where.group, from: where.offset, to: Math.min(where.group.bytes, where.offset + size), gone};
  }

  private frame(context: CanvasRenderingContext2D, group: Group, from: number, to: number, kind: 'hover' | 'pinned' | 'touched' | 'gone'): void {
    const style = getComputedStyle(this.element), accent = style.getPropertyValue('--map-accent'), dark = style.getPropertyValue('--map-outline'), pinned = style.getPropertyValue('--map-pinned');
    for (const strip of this.visible()) {
      if (strip.group !== group || strip.to <= from || strip.from >= to && to > from) continue;
      const scale = strip.width / (strip.to - strip.from || 1), wide = Math.max(4, (Math.min(to, strip.to) - Math.max(from, strip.from)) * scale);
      const x = GUTTER + strip.x + Math.max(0, from - strip.from) * scale, y = this.top_of(strip.row), h = this.pitch - ROW_GAP;
      context.setLineDash(kind === 'gone' ? [4, 3] : []);
      if (kind === 'hover') { context.lineWidth = 1.5; context.strokeStyle = dark; context.strokeRect(x + 0.5, y + 0.5, wide - 1, h - 1); continue; }
      context.lineWidth = 4; context.strokeStyle = dark; context.strokeRect(x, y, wide, h);
      context.setLineDash(kind === 'gone' ? [4, 3] : []);
      context.lineWidth = 2; context.strokeStyle = kind === 'pinned' ? pinned : accent; context.strokeRect(x, y, wide, h);
    }
    context.setLineDash([]);
  }

  /** Scrolls to a block, or to the memory that the event concerns, unless it is visible. */
  reveal(block: number | null): void {
    if (!this.data || !this.rows) return;
    const pinned = block === null ? null : find_row(this.data.layout, block), touched = this.touched();
    const group = pinned?.group ?? touched?.group, from = pinned?.offset ?? touched?.from;
    if (!group) return;
    const row = this.rows.row_of(group, from!), before = this.scroll.top;
    this.scroll.reveal(row);
    if (before !== this.scroll.top) this.apply_scroll();
  }

  private rounding = (row: number, gap: number): number => {
    const {device} = this.data!.model, {size, final_bytes, end} = device.blocks;
    return rounding_after(row, gap, size, final_bytes, end, device.head.events);
  };

  /** Returns the item at a point of the scroller. */
  private find(x: number, y: number): Found | null {
    const {data, rows} = this;
    if (!data || !rows) return null;
    const row = this.scroll.row_at(y);
    if (row === null) return null;
    const inner = y - this.top_of(row);
    if (inner < 0 || inner >= this.pitch - ROW_GAP) return null;
    const px = x - GUTTER;
    const strip = rows.strips(row, row + 1).find(s => px >= s.x && px < s.x + Math.max(1, s.width));
    if (!strip) return null;
    const bytes_per_pixel = (strip.to - strip.from) / strip.width, offset = Math.min(strip.to - 1, strip.from + (px - strip.x) * bytes_per_pixel);
    const at = find_at(data.layout, strip.group, offset, bytes_per_pixel / 2, data.model.device.blocks.size,
      strip.group.kind === 'segment' ? this.rounding : () => 0);
    return {strip, at, offset};
  }

  private move(event: PointerEvent): void {
    const box = this.scroller.getBoundingClientRect();
    this.hover = {x: event.clientX - box.left, y: event.clientY - box.top};
    this.outline();
    const found = this.find(this.hover.x, this.hover.y);
    if (!found) this.app.detail(null);
    else this.show_detail(found, false);
  }

  private show_detail(found: Found, pinned: boolean): void {
    const {layout, model} = this.data!, {at, strip} = found;
    if (at.kind === 'block' || at.kind === 'rounding') {
      if (at.kind === 'block' || pinned) { this.app.detail({kind: 'block', row: at.row}, pinned); return; }
      this.app.detail({kind: 'text', lines: [`Rounding: ${size_text(at.bytes)} allocated beyond the requested size of the block before it`]}, pinned);
      return;
    }
    const lines = [`Free: ${size_text(at.to - at.from)}`];
    if (strip.group.kind === 'segment') {
      const segment = layout.segments[strip.group.id]!, from = model.origin.address(segment.from + at.from);
      lines[0] += ` at 0x${from.toString(16)}`;
      lines.push(`In the ${segment.expandable ? 'expandable ' : ''}segment 0x${model.origin.address(segment.from).toString(16)} of ${size_text(strip.group.bytes)}`
        + `, stream ${model.device.head.streams[segment.stream] ?? '?'}${segment.pieces > 1 ? `, ${plural(segment.pieces, 'piece')}` : ''}`
        + `, ${plural(strip.group.last - strip.group.first, 'block')}`);
      if (pinned) { this.app.detail({kind: 'segment', row: segment.row}, true); return; }
    }
    this.app.detail({kind: 'text', lines}, pinned);
  }

  private leave(): void {
    this.hover = null;
    if (this.data && this.rows) this.outline();
    this.app.detail(null);
  }

  private click(event: MouseEvent): void {
    const box = this.scroller.getBoundingClientRect(), found = this.find(event.clientX - box.left, event.clientY - box.top);
    if (!found) return;
    if (found.at.kind !== 'free') void this.app.show({block: found.at.row}).then(() => this.show_detail(found, true));
    else this.show_detail(found, true);
  }

  /** Returns the item at a point of the window. */
  hit(x: number, y: number): Hit | null {
    const box = this.scroller.getBoundingClientRect();
    if (!this.data || x < box.left || x >= box.right || y < box.top || y >= box.bottom) return null;
    const found = this.find(x - box.left, y - box.top), {event, model, layout} = this.data;
    if (!found) return {kind: 'nothing', event};
    const {at, strip} = found, blocks = model.device.blocks;
    if (at.kind === 'block') {
      return {kind: 'block', row: at.row, address: hex(blocks.address_high[at.row]!, blocks.address_low[at.row]!), size: blocks.size[at.row]!,
        pending: blocks.pending[at.row]! <= event, event};
    }
    if (at.kind === 'rounding') return {kind: 'free', size: at.bytes, name: 'rounding', event};
    const segment = strip.group.kind === 'segment' ? layout.segments[strip.group.id]! : null;
    return {kind: 'free', size: at.to - at.from, event, ...segment && {row: segment.row, address: '0x' + model.origin.address(segment.from + at.from).toString(16)}};
  }
}

function css(color: number): string { return `rgb(${color & 255} ${color >> 8 & 255} ${color >> 16 & 255})`; }

function light(color: number): boolean { return (color & 255) * 0.3 + (color >> 8 & 255) * 0.59 + (color >> 16 & 255) * 0.11 > 140; }

function key(cls: string, text: string): HTMLElement { return h('span', {class: 'map-key'}, h('i', {class: cls, 'aria-hidden': 'true'}), text); }
