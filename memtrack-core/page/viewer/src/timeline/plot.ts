// A picture over time with its surroundings: axes, the window with its gestures and keys, bands of scopes, the minimap,
// lines for reserved memory and the selected event. The views that extend it fill the picture.

import type {Bands, Elements, Hit, State, Texts, View} from '../types.ts';
import type {Page} from '../app.ts';
import {css_color, h} from '../dom.ts';
import {bytes, count, time, visible} from '../format.ts';
import type {Axis} from './axis.ts';
import type {Window} from './frame.ts';
import {listen, type Ranges} from './gestures.ts';
import {extent, Lanes} from './lanes.ts';
import {Labels} from './labels.ts';
import {draw_cursor, draw_level, draw_mark_label, draw_marks_of, draw_reserved, mark_at, marks_of, type Inks, type Mark, type Area} from './marks.ts';
import {Minimap} from './minimap.ts';
import {Peaks} from './pyramid.ts';
import {draw_along, draw_bytes} from './scales.ts';
import type {Stack} from './stack.ts';

const SVG = 'http://www.w3.org/2000/svg';
/**
 * During a gesture, a frame slower than `SLOW_MS` makes the next frames coarser, and a frame faster than `FAST_MS` makes them
 * finer.
 */
const SLOW_MS = 20, FAST_MS = 7;
/**
 * If there are at most this many segments, they are decoded before the first picture, so that its scale does not change later.
 */
const MAX_EAGER_SEGMENTS = 50_000;

interface Frames {
  count: number;
  worst_ms: number;
}

/** Frames that pictures over time drew since the last query. */
export const painted: Frames = {count: 0, worst_ms: 0};

/** A picture over time. */
export abstract class Plot implements View {
  readonly element: HTMLElement;
  protected readonly bar = h('div', {class: 'bar'});
  private readonly lane_canvas = h('canvas', {class: 'lanes', 'aria-hidden': 'true'});
  private readonly plot: HTMLElement;
  protected readonly picture = h('canvas', {class: 'picture', 'aria-hidden': 'true'});
  private readonly overlay = h('canvas', {class: 'overlay', 'aria-hidden': 'true'});
  protected readonly stage: HTMLElement;
  private readonly svg = document.createElementNS(SVG, 'svg');
  private readonly bytes_axis = document.createElementNS(SVG, 'g');
  private readonly along_axis = document.createElementNS(SVG, 'g');
  private readonly shared = document.createElementNS(SVG, 'text');
  private readonly minimap = new Minimap((from, to) => void this.page.show({from, to}));
  private image: ImageData | null = null;
  protected pixels = new Uint32Array(0);

  protected stack: Stack | null = null;
  protected segments: Elements | null = null;
  protected reserved: Peaks | null = null;
  protected bands: Bands | null = null;
  private lanes: Lanes | null = null;
  private thread = -1;
  private threads: string[] = [];
  protected texts: Texts | null = null;
  protected axis!: Axis;
  private marks: Mark[] = [];
  /** The mark at the pointer. */
  private pointed_mark: Mark | null = null;
  /** The labels of the last picture. */
  protected labels: Labels | null = null;

  protected ratio = 1;
  protected width = 0;
  protected height = 0;
  private coarse = 1;
  protected gesture = false;
  private refine = 0;
  private waiting: {picture: boolean; done: (() => void)[]} | null = null;

  /** `kind` is a class of the element. */
  constructor(protected readonly page: Page, kind: string) {
    this.stage = h('div', {class: 'stage', tabindex: '0', role: 'img'}, this.picture, this.overlay);
    this.svg.setAttribute('class', 'axes');
    this.svg.setAttribute('aria-hidden', 'true');
    this.bytes_axis.setAttribute('class', 'axis bytes');
    this.along_axis.setAttribute('class', 'axis along');
    this.shared.setAttribute('class', 'shared');
    this.svg.append(this.bytes_axis, this.along_axis, this.shared);
    this.plot = h('div', {class: 'plot'}, this.svg, this.stage);
    this.element = h('section', {class: `timeline ${kind}`}, this.bar, this.lane_canvas, this.plot, this.minimap.element);
    listen(this.stage, {
      ranges: () => this.ranges(),
      size: () => ({width: this.width, height: this.height}),
      moved: to => this.move(to),
      busy: on => this.busy(on),
    });
    this.stage.addEventListener('mousemove', event => {
      if (!this.mark_hovered(event)) this.hovered(event);
    });
    this.stage.addEventListener('mouseleave', () => {
      this.clear_mark();
      this.pointer_left();
    });
    this.stage.addEventListener('click', event => this.clicked(event));
    this.lane_canvas.addEventListener('mousemove', event => this.band_hovered(event));
    this.lane_canvas.addEventListener('mouseleave', () => this.pointer_left());
    this.lane_canvas.addEventListener('click', event => this.band_clicked(event));
    new ResizeObserver(() => {
      if (this.stage.clientWidth !== this.width || this.stage.clientHeight !== this.height) this.resize();
    }).observe(this.stage);
  }

  // ------------------------------------------------------------------ for views to implement

  /** Whether a line shows reserved memory. */
  protected abstract readonly with_reserved: boolean;
  /** Whether the picture needs the segments. */
  protected abstract readonly needs_segments: boolean;
  /** Clears the state of the previous device. */
  protected abstract reset(): void;
  /** Creates the stack and its colours if `changed` affects them or they do not exist yet. */
  protected abstract prepare(state: State, changed: Set<keyof State>): void;
  /** Fills the pixels of a window. */
  protected abstract fill_pixels(window: Window): void;
  /** Draws over the picture, below the common lines. */
  protected draw_names(_area: Area, _inks: Inks, _labels: Labels): void { /* Blocks have no names. */ }
  /** Draws over the common lines. */
  protected abstract draw_marks(area: Area, inks: Inks, labels: Labels): void;
  /** Updates the line above the picture, and the picture's accessible name. */
  protected abstract describe(): void;
  protected abstract hovered(event: MouseEvent): void;
  protected abstract pointer_left(): void;
  protected abstract clicked(event: MouseEvent): void;
  /** Returns the item of the picture at a point of the window. */
  protected abstract hit_picture(x: number, y: number): Hit | null;

  // ------------------------------------------------------------------ the state

  async show(state: State, changed: Set<keyof State>): Promise<void> {
    const device = this.page.device;
    if (changed.has('device') || !this.stack) {
      this.stack = this.reserved = this.bands = this.lanes = this.segments = null;
      this.thread = -1;
      this.texts = null;
      this.pointed_mark = null;
      this.marks = marks_of(device.head);
      this.reset();
      if (this.needs_segments || device.head.segments <= MAX_EAGER_SEGMENTS) this.segments = await device.segments();
      void this.load_rest();
    }
    // Colouring by line of code needs the texts.
    const texts = state.color === 'stack' ? await this.page.texts(device) : null;
    if (device !== this.page.device) return;
    this.texts ??= texts;
    this.axis = this.page.axis;
    this.prepare(state, changed);
    if (!this.reserved && this.segments) this.find_reserved_peaks();
    if (!this.width) this.measure();
    if (changed.has('query') || changed.has('filter') || changed.has('color') || changed.has('device') || changed.has('hide')) this.describe();
    if ((['device', 'axis', 'query', 'filter', 'hide', 'view'] as const).some(c => changed.has(c))) this.draw_minimap();
    const picture = [...changed].some(c => c !== 'event' && c !== 'block');
    await this.request(picture);
  }

  resize(): void {
    this.measure();
    if (this.stack && this.width > 1) {
      this.draw_minimap();
      void this.request(true);
    }
  }

  /** Redraws after a change of the theme. */
  restyle(): void {
    this.cached_inks = null;
    if (!this.stack) return;
    this.prepare(this.page.state, new Set(['color']));
    this.describe();
    this.resize();
  }

  /** Prepares the line of reserved memory. Segments that only span the addresses of a profile are not reserved memory. */
  private find_reserved_peaks(): void {
    if (this.with_reserved && this.page.device.head.reserved && this.segments!.count) this.reserved = new Peaks(this.segments!.total);
  }

  /** Loads the tables that the first picture does not need: bands, and segments if there are many. */
  private async load_rest(): Promise<void> {
    const device = this.page.device;
    try {
      if (!this.segments) {
        const segments = await device.segments();
        if (device !== this.page.device) return;
        this.segments = segments;
        this.find_reserved_peaks();
        this.describe();
        void this.request(true);
      }
      const bands = await device.bands();
      if (bands.count) {
        const texts = await this.page.texts(device), used = new Map<number, number>();
        for (const thread of bands.thread) used.set(thread, (used.get(thread) ?? 0) + 1);
        const threads = used.size > 1 ? (await device.events()).threads : [];
        if (device !== this.page.device) return;
        this.bands = bands;
        this.texts = texts;
        this.threads = threads;
        this.choose_thread([...used].sort((a, b) => b[1] - a[1])[0]![0]);
      }
    } catch (error) {
      this.page.report(error);
    }
  }

  private choose_thread(thread: number): void {
    this.thread = thread;
    this.lanes = new Lanes(this.bands!, thread);
    this.lane_canvas.style.height = `${this.lanes.height}px`;
    this.describe();
    this.resize();
  }

  /** Creates the selector of the thread whose bands are shown; null: there is only one. */
  protected thread_choice(): HTMLElement | null {
    if (!this.bands || new Set(this.bands.thread).size < 2) return null;
    const threads = [...new Set(this.bands.thread)].sort((a, b) => a - b);
    const choice = h('select', {onchange: () => this.choose_thread(Number(choice.value))},
      ...threads.map(t => h('option', {value: t, selected: t === this.thread}, visible(this.threads[t] || 'thread not known'))));
    return h('label', {class: 'threads'}, 'bands of ', choice);
  }

  // ------------------------------------------------------------------ the window

  /** The maximum top of the window: above the peak, and above capacity or reserved memory if they are near. */
  get max_top(): number {
    const {peak} = this.stack!, high = (peak || 1) * 1.04;
    let top = high;
    const reserved = this.reserved && this.segments ? this.segments.total[this.reserved.top(0, this.segments.total.length - 1)]! : 0;
    for (const level of [reserved, this.stack!.elements === this.segments ? this.page.device.head.capacity_bytes ?? 0 : 0]) if (level > top && level < peak * 1.7) top = level * 1.04;
    return top;
  }

  ranges(): Ranges {
    const {from, to, bottom, top} = this.page.state;
    return {from, to, bottom, top: top > bottom ? top : this.max_top};
  }

  protected move(to: Ranges): void {
    const {axis} = this, now = this.ranges();
    let {from, to: end, bottom, top} = to;
    const span = Math.min(axis.to - axis.from, Math.max(axis.min_span, end - from));
    if (span !== end - from) {
      // Keep the middle of the requested range, or the current one if the span cannot change.
      const middle = now.to - now.from === span ? (now.from + now.to) / 2 : (from + end) / 2;
      from = middle - span / 2;
    }
    from = Math.max(axis.from, Math.min(axis.to - span, from));
    end = from + span;
    const max_top = this.max_top, height = Math.min(max_top, Math.max(64, top - bottom));
    bottom = Math.max(0, Math.min(max_top - height, bottom));
    top = bottom + height >= max_top && bottom === 0 ? 0 : bottom + height;
    void this.page.show({from, to: end, bottom, top});
  }

  private busy(on: boolean): void {
    this.gesture = on;
    clearTimeout(this.refine);
    if (!on && this.coarse > 1) {
      this.refine = window.setTimeout(() => {
        this.coarse = 1;
        void this.request(true);
      }, 60);
    }
  }

  // ------------------------------------------------------------------ drawing

  private measure(): void {
    this.width = this.stage.clientWidth;
    this.height = this.stage.clientHeight;
    this.ratio = devicePixelRatio || 1;
    const w = Math.max(1, Math.round(this.width * this.ratio)), high = Math.max(1, Math.round(this.height * this.ratio));
    for (const canvas of [this.picture, this.overlay]) {
      if (canvas.width !== w || canvas.height !== high) {
        canvas.width = w;
        canvas.height = high;
      }
    }
    this.lane_canvas.width = w;
    this.lane_canvas.height = Math.round((this.lanes?.height ?? 0) * this.ratio);
    if (!this.image || this.image.width !== w || this.image.height !== high) {
      this.image = new ImageData(w, high);
      this.pixels = new Uint32Array(this.image.data.buffer);
    }
    this.along_axis.setAttribute('transform', `translate(0,${this.height})`);
    this.shared.setAttribute('x', '-8');
    this.shared.setAttribute('y', String(this.height + 18));
  }

  /** Draws before the next frame. */
  protected request(picture: boolean): Promise<void> {
    return new Promise(done => {
      if (this.waiting) {
        this.waiting.picture ||= picture;
        this.waiting.done.push(done);
        return;
      }
      this.waiting = {picture, done: [done]};
      // A page in the background has no frames, but is drawn too.
      if (document.hidden) setTimeout(() => this.flush(), 0);
      else requestAnimationFrame(() => this.flush());
    });
  }

  private flush(): void {
    const {picture, done} = this.waiting!;
    this.waiting = null;
    try {
      if (this.stack && !this.element.hidden) this.draw(picture);
    } catch (error) {
      this.page.report(error);
    }
    for (const d of done) d();
  }

  private draw(picture: boolean): void {
    const before = performance.now();
    if (!this.width) this.measure();
    if (this.width < 2 || this.height < 2) return;
    if (picture) {
      const {from, to, bottom, top} = this.ranges();
      this.fill_pixels({from, to, bottom, top, width: this.image!.width, height: this.image!.height, coarse: this.coarse});
      this.picture.getContext('2d')!.putImageData(this.image!, 0, 0);
      draw_bytes(this.bytes_axis, this.height, this.width, bottom, top);
      draw_along(this.along_axis, this.shared, this.width, from, to, !!this.axis.clock);
      this.minimap.window(from, to);
      this.draw_lanes();
    }
    this.draw_overlay();
    const took = performance.now() - before;
    if (picture) {
      painted.count++;
      painted.worst_ms = Math.max(painted.worst_ms, took);
      if (this.gesture) this.coarse = took > SLOW_MS ? Math.min(4, this.coarse * 2) : took < FAST_MS ? Math.max(1, this.coarse / 2) : this.coarse;
    }
  }

  /** Cached colours: reading them from the style is slow, and they change only with the theme. */
  private cached_inks: (Inks & {bands: string[]}) | null = null;
  protected inks(): Inks & {bands: string[]} {
    return this.cached_inks ??= {bands: ['--band-0', '--band-1', '--band-2', '--band-3'].map(css_color), ink: css_color('--ink'), back: css_color('--back'), accent: css_color('--accent'), alarm: css_color('--alarm'), muted: css_color('--muted'),
      reserved: css_color('--reserved'), font: `11px ${css_color('--sans')}`};
  }

  protected area(): Area {
    const {from, to, bottom, top} = this.ranges(), {width, height} = this;
    return {context: this.overlay.getContext('2d')!, width, height,
      x: v => ((v - from) / (to - from)) * width, y: v => height - ((v - bottom) / (top - bottom)) * height};
  }

  private draw_overlay(): void {
    const area = this.area(), {context} = area, inks = this.inks(), {head} = this.page.device, {state} = this.page, {from, to} = this.ranges();
    const labels = this.labels = new Labels(context, this.width, this.height);
    context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    context.clearRect(0, 0, this.width, this.height);
    context.font = inks.font;
    this.draw_names(area, inks, labels);
    if (this.reserved) draw_reserved(area, inks, labels, this.axis, from, to, this.segments!.total, this.reserved);
    if (head.capacity_bytes) draw_level(area, inks, labels, head.capacity_bytes, 'capacity');
    draw_marks_of(area, inks, labels, this.marks, this.axis);
    if (state.event >= 0 && state.event < head.events - 1) draw_cursor(area, inks, labels, this.axis, state.event, this.stack!.total[state.event + 1]!);
    this.draw_marks(area, inks, labels);
    if (this.pointed_mark) draw_mark_label(area, inks, labels, this.axis, this.pointed_mark);
    context.font = inks.font;
    labels.settle();
  }

  /** Returns the labels of the picture, in pixels of the window. */
  label_boxes(): {text: string; x: number; y: number; width: number; height: number}[] {
    const box = this.picture.getBoundingClientRect();
    return (this.labels?.placed ?? []).map(label => ({...label, x: label.x + box.left, y: label.y + box.top}));
  }

  private draw_lanes(): void {
    if (!this.lanes) return;
    const context = this.lane_canvas.getContext('2d')!, {from, to} = this.ranges();
    context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    context.clearRect(0, 0, this.width, this.lanes.height);
    const {ink, bands, font} = this.inks();
    this.lanes.draw(context, this.width, this.axis, from, to, this.texts, ink, bands, font);
  }

  private draw_minimap(): void {
    if (!this.stack || !this.width) return;
    this.minimap.draw(this.stack, this.axis, {area: css_color('--area'), line: css_color('--muted'), alarm: css_color('--alarm')}, this.page.device.head.ooms);
    const {from, to} = this.ranges();
    this.minimap.window(from, to);
  }

  // ------------------------------------------------------------------ the pointer

  protected inside(x: number, y: number): {x: number; y: number} | null {
    const box = this.picture.getBoundingClientRect();
    const at = {x: x - box.left, y: y - box.top};
    return at.x >= 0 && at.y >= 0 && at.x < box.width && at.y < box.height ? at : null;
  }

  /** Shows the marker at the pointer, whether or not it has a label; returns false if there is none. */
  private mark_hovered(event: MouseEvent): boolean {
    const at = this.gesture && event.buttons ? null : this.inside(event.clientX, event.clientY);
    const found = at && this.marks.length ? mark_at(this.marks, this.axis, this.area().x, at) : null;
    if (!found) {
      this.clear_mark();
      return false;
    }
    if (found === this.pointed_mark) return true;
    this.pointer_left();
    this.pointed_mark = found;
    const {clock} = this.page.device;
    this.page.detail({kind: 'text', lines: [found.whole, `before event ${count(found.event)}${clock ? `, ${time(clock[found.event]!)}` : ''}`, `${bytes(this.stack!.total[found.event]!)} live at that moment`]});
    void this.request(false);
    return true;
  }

  private clear_mark(): void {
    if (!this.pointed_mark) return;
    this.pointed_mark = null;
    this.page.detail(null);
    void this.request(false);
  }

  hit(x: number, y: number): Hit | null {
    const band = this.band_at(x, y);
    if (band !== null) return {kind: 'band', name: this.texts!.string(this.bands!.name[band]!), event: this.bands!.from[band]!};
    return this.hit_picture(x, y);
  }

  private band_at(x: number, y: number): number | null {
    if (!this.lanes) return null;
    const box = this.lane_canvas.getBoundingClientRect();
    if (x < box.left || x >= box.right || y < box.top || y >= box.bottom) return null;
    const {from, to} = this.ranges(), px = (to - from) / this.width;
    return this.lanes.at(from + (x - box.left) * px, y - box.top, this.axis, px);
  }

  private band_hovered(event: MouseEvent): void {
    const band = this.band_at(event.clientX, event.clientY);
    if (band === null) return this.page.detail(null);
    const {total} = this.stack!, from = this.bands!.from[band]!, to = this.bands!.to[band]!;
    this.page.detail({kind: 'text', lines: [visible(this.texts!.string(this.bands!.name[band]!)), `events ${count(from)} to ${count(to)}`,
      `${bytes(total[from]!)} live before, ${bytes(total[this.stack!.peaks.top(from, to + 1)]!)} at its peak, ${bytes(total[to + 1]!)} after`]});
  }

  private band_clicked(event: MouseEvent): void {
    const band = this.band_at(event.clientX, event.clientY);
    if (band === null) return;
    const [from, to] = extent(this.bands!, band, this.axis), room = (to - from) * 0.04;
    this.move({...this.ranges(), from: from - room, to: to + room});
  }

  // ------------------------------------------------------------------ keys

  key(event: KeyboardEvent): boolean {
    const {state} = this.page, now = this.ranges(), span = now.to - now.from, high = now.top - now.bottom;
    const zoom = (f: number) => {
      // Zoom around the selected event if it is visible, or else around the middle.
      const at = this.axis.at(state.event), middle = at > now.from && at < now.to ? at : (now.from + now.to) / 2;
      this.move({...now, from: middle - (middle - now.from) * f, to: middle + (now.to - middle) * f});
    };
    const scale_bytes = (f: number) => this.move({...now, top: now.bottom + high * f});
    switch (event.key) {
      case 'ArrowLeft': this.move({...now, from: now.from - span / 8, to: now.to - span / 8}); break;
      case 'ArrowRight': this.move({...now, from: now.from + span / 8, to: now.to + span / 8}); break;
      case 'ArrowUp': this.move({...now, bottom: now.bottom + high / 8, top: now.top + high / 8}); break;
      case 'ArrowDown': this.move({...now, bottom: now.bottom - high / 8, top: now.top - high / 8}); break;
      case '+': case '=': event.altKey ? scale_bytes(1 / 1.5) : zoom(1 / 1.5); break;
      case '-': event.altKey ? scale_bytes(1.5) : zoom(1.5); break;
      case '}': scale_bytes(1 / 1.5); break;
      case '{': scale_bytes(1.5); break;
      case '0': void this.page.show({from: this.axis.from, to: this.axis.to, bottom: 0, top: 0}); break;
      case 'f': this.fit(); break;
      case 'p': void this.page.go_to(this.stack!.peaks.top(0, this.stack!.total.length - 1) - 1); break;
      case 'o': {
        const {ooms} = this.page.device.head;
        if (!ooms.length) return false;
        void this.page.go_to(ooms.find(e => e > state.event) ?? ooms[0]!);
        break;
      }
      case '.': void this.page.go_to(Math.min(this.axis.events - 1, state.event + 1)); break;
      case ',': void this.page.go_to(Math.max(-1, state.event - 1)); break;
      default: return false;
    }
    return true;
  }

  /** Scales bytes to the peak in the window. */
  private fit(): void {
    const {from, to} = this.ranges(), {peaks, total} = this.stack!;
    const first = this.axis.before(from), high = total[peaks.top(first, Math.max(first, this.axis.before(to)))]!;
    this.move({from, to, bottom: 0, top: Math.max(64, high * 1.06)});
  }
}
