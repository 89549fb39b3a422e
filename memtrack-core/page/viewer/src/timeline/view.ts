// The stacked timeline: blocks, blocks with the envelopes of private pools, or segments.

import type {Detail, Hit, State} from '../types.ts';
import type {Page} from '../app.ts';
import {fill, h} from '../dom.ts';
import {ESTIMATED, INFERRED, bytes, exact_bytes, hex, visible, without_middle} from '../format.ts';
import {Frame, LayoutEngine, type Window} from './frame.ts';
import {outline, type Inks, type Area} from './marks.ts';
import {paint, type Looks} from './paint.ts';
import {colors_of, live_at_peak} from './palette.ts';
import {Plot} from './plot.ts';
import {plain_stack, pool_stack} from './stack.ts';

type Kind = 'timeline' | 'pools' | 'segments';

const DESCRIBED: Record<Kind, string> = {
  timeline: 'Active memory: blocks stacked over time',
  pools: 'Active memory with the envelopes of private pools',
  segments: 'Reserved memory: segments stacked over time',
};

/** The maximum length of a name in the legend. */
const NAME_LENGTH = 42;

/** A timeline. */
export class Timeline extends Plot {
  protected readonly with_reserved: boolean;
  protected readonly needs_segments: boolean;
  private readonly layout_engine = new LayoutEngine();
  private frame: Frame | null = null;
  private looks: Omit<Looks, 'passing'> | null = null;
  private hover: number | null = null;

  constructor(page: Page, private readonly kind: Kind) {
    super(page, kind);
    this.with_reserved = kind === 'timeline';
    this.needs_segments = kind !== 'timeline';
  }

  protected reset(): void {
    this.looks = this.hover = null;
  }

  protected prepare(state: State, changed: Set<keyof State>): void {
    if (!this.stack || changed.has('query') || changed.has('filter') || changed.has('hide')) this.restack(state);
    if (!this.looks || changed.has('color')) this.recolor(state);
  }

  private restack(state: State): void {
    const device = this.page.device, only = state.hide && this.kind !== 'segments' ? this.page.passing : null;
    if (this.kind === 'segments') this.stack = plain_stack(this.segments!);
    else if (this.kind === 'pools') this.stack = pool_stack(device.blocks, this.segments, pool => !/^default/i.test(device.head.pools[pool] ?? ''), only);
    else this.stack = plain_stack(device.blocks, only);
    this.frame = new Frame(this.stack);
  }

  private recolor(state: State): void {
    const rows = this.stack!.elements;
    // Segments have no category, and no stack in many files.
    const by = this.kind !== 'segments' || (state.color !== 'category' && state.color !== 'stack') ? state.color : rows.stack.some(s => s > 0) ? 'stack' : 'size';
    const {device} = this.page;
    this.looks = {...colors_of(rows, by, device.head, this.page.dark, live_at_peak(device, rows), this.texts), layer: this.stack!.layer, start: rows.start};
  }

  protected fill_pixels(window: Window): void {
    const {device, passing} = this.page;
    this.layout_engine.lay_out(this.frame!, this.stack!, this.axis, window, event => device.live_after(this.stack!.elements, event));
    paint(this.frame!, this.pixels, {...this.looks!, passing: this.kind === 'segments' ? null : passing});
  }

  protected draw_marks(area: Area, inks: Inks): void {
    const pinned = this.kind === 'segments' ? this.pinned_segment : this.page.state.block;
    if (pinned !== null) outline(area, this.frame!, pinned, this.ratio, [inks.ink, inks.back], this.page.dark ? 'rgb(255 255 255 / .22)' : 'rgb(0 0 0 / .18)');
    if (this.hover !== null && this.hover !== pinned) outline(area, this.frame!, this.hover, this.ratio, [inks.ink, inks.back], null);
  }

  /** Updates the line above the picture: the legend, and the thread of the bands. */
  protected describe(): void {
    if (!this.looks) return;
    const {palette} = this.looks, {device} = this.page, parts: (Node | string)[] = [];
    if (device.head.estimated) parts.push(h('span', {class: 'note'}, ESTIMATED));
    if (palette.legend.length) {
      const about = device.head.estimated ? 'about ' : '', inferred = this.page.state.color === 'category' && device.head.inferred && this.kind !== 'segments';
      const keys = palette.legend.map(({color, name, bytes: size}) => {
        const key = h('i');
        key.style.background = palette.css[color]!;
        return h('li', {title: `${name}: ${about}${exact_bytes(size)} at the peak`}, key, h('span', {}, without_middle(name, NAME_LENGTH)), h('small', {}, about + bytes(size)));
      });
      parts.push(h('ul', {class: 'legend', 'aria-label': 'Colours and their bytes at the peak'},
        inferred && h('li', {class: 'inferred', title: INFERRED}, 'inferred:'), ...keys));
    }
    if (this.kind === 'pools' && !this.stack!.envelopes.length) parts.push(h('span', {class: 'note'}, 'This device used no private pools: all blocks are in the default pool.'));
    if (this.kind === 'segments' && !this.stack!.elements.count) parts.push(h('span', {class: 'note'}, device.head.kind === 'device' ? 'No segments were recorded on this device.' : 'The heap of a process has no segments; the timeline shows its blocks.'));
    const threads = this.thread_choice();
    if (threads) parts.push(threads);
    fill(this.bar, ...parts);
    this.bar.hidden = parts.length === 0;
    const what = `${DESCRIBED[this.kind]} of ${device.head.name}; at most ${bytes(this.stack!.peak)}. Arrow keys move, plus and minus zoom, j and k step through the blocks.`;
    this.stage.setAttribute('aria-label', what);
  }

  // ------------------------------------------------------------------ the pointer

  private pinned_segment: number | null = null;

  /** Returns the row, the event and the envelope at a point of the window. */
  private under(x: number, y: number): {row: number | null; event: number; slack: number} | null {
    const at = this.inside(x, y), {frame} = this;
    if (!at || !frame || !frame.spans) return null;
    const {bottom, top, height} = frame.window;
    const span = frame.span_at(Math.floor(at.x * this.ratio)), event = frame.span_event[span]!;
    // Use the middle of the pixel, because the picture has no finer resolution.
    const value = bottom + ((height - Math.floor(at.y * this.ratio) - 0.5) / height) * (top - bottom);
    const found = frame.member_at(frame.span_sample[span]!, value);
    if (!found) return {row: null, event, slack: -1};
    return found.row >= 0 ? {row: found.row, event, slack: -1} : {row: null, event, slack: -2 - found.row};
  }

  protected hit_picture(x: number, y: number): Hit | null {
    const found = this.under(x, y);
    if (!found) return null;
    const {row, event, slack} = found, rows = this.stack!.elements;
    if (row === null) return slack >= 0 ? {kind: 'free', event, name: this.page.device.head.pools[this.stack!.envelopes[slack]!.pool - 1] ?? ''} : {kind: 'nothing', event};
    return {kind: this.kind === 'segments' ? 'segment' : 'block', row, event, address: hex(rows.address_high[row]!, rows.address_low[row]!), size: rows.size[row]!,
      pending: rows.pending[row]! <= event && rows.pending[row]! < rows.end[row]!};
  }

  private detail_of(row: number): Detail {
    return {kind: this.kind === 'segments' ? 'segment' : 'block', row};
  }

  protected hovered(event: MouseEvent): void {
    if (this.gesture && event.buttons) return;
    const found = this.under(event.clientX, event.clientY);
    if (!found) return;
    const {row, slack} = found;
    if (slack >= 0) {
      const {pool} = this.stack!.envelopes[slack]!, {high} = this.stack!.envelopes[slack]!;
      this.page.detail({kind: 'text', lines: [visible(this.page.device.head.pools[pool - 1] ?? 'private pool'), 'Reserved by this private pool and not used by a block at this moment. A private pool returns no memory to other pools, so its envelope never shrinks.',
        `Its largest size is ${bytes(high.at(-1)!)}.`]});
    } else if (row !== null) this.page.detail(this.detail_of(row));
    else this.page.detail(null);
    if (row === this.hover) return;
    this.hover = row;
    void this.request(false);
  }

  protected pointer_left(): void {
    this.page.detail(null);
    if (this.hover === null) return;
    this.hover = null;
    void this.request(false);
  }

  protected clicked(event: MouseEvent): void {
    // d3-zoom suppresses the click that ends a drag.
    const found = this.under(event.clientX, event.clientY);
    if (!found) return;
    const x = event.clientX - this.picture.getBoundingClientRect().left, {from, to} = this.ranges();
    // The column may represent many events. The block is live after the drawn event, but perhaps not after the exact event.
    const exact = this.axis.event_at(from + ((to - from) * x) / this.width), rows = this.stack!.elements;
    if (this.kind === 'segments') {
      this.pinned_segment = found.row;
      this.page.detail(found.row === null ? null : this.detail_of(found.row), true);
      void this.page.show({event: found.event});
      void this.request(false);
    } else if (found.row !== null) {
      const live = rows.start[found.row]! <= exact && exact < rows.end[found.row]!;
      void this.page.show({block: found.row, event: live ? exact : found.event});
    } else void this.page.show({block: null, event: exact});
  }

  // ------------------------------------------------------------------ keys

  override key(event: KeyboardEvent): boolean {
    switch (event.key) {
      case 'j': case 'k': this.walk(event.key === 'k' ? 1 : -1); return true;
      case 'z': this.zoom_to_block(); return true;
      default: return super.key(event);
    }
  }

  /** Pins the block above or below the pinned one, as they are stacked after the selected event. */
  private walk(by: number): void {
    const {state, device, passing} = this.page, rows = this.stack!.elements;
    const live = [...device.live_after(rows, state.event)].filter(row => !passing || this.kind === 'segments' || passing[row]);
    if (!live.length) return;
    const pinned = this.kind === 'segments' ? this.pinned_segment : state.block;
    const at = pinned === null ? -1 : live.indexOf(pinned);
    const next = live[at < 0 ? (by > 0 ? 0 : live.length - 1) : Math.max(0, Math.min(live.length - 1, at + by))]!;
    if (this.kind === 'segments') {
      this.pinned_segment = next;
      this.page.detail(this.detail_of(next), true);
      void this.request(false);
    } else void this.page.show({block: next});
  }

  /** Zooms to the lifetime of the pinned block. */
  private zoom_to_block(): void {
    const row = this.kind === 'segments' ? this.pinned_segment : this.page.state.block;
    if (row === null) return;
    const rows = this.stack!.elements, from = this.axis.at(rows.start[row]!), to = this.axis.at(rows.end[row]!);
    const room = Math.max((to - from) * 0.15, this.axis.min_span);
    this.move({...this.ranges(), from: from - room, to: to + room});
  }

  /** Handles Escape: unpins the segment. */
  unpin(): boolean {
    if (this.pinned_segment === null) return false;
    this.pinned_segment = null;
    this.page.detail(null, true);
    void this.request(false);
    return true;
  }
}
