// The flame graph: blocks that are live after the selected event, or were allocated in the selected range, by stack.

import './flame.css';
import type {App, Device, Events, Hit, State, Texts, View} from '../types.ts';
import {h, set_text} from '../dom.ts';
import {bytes as size_text, count as count_text, exact_bytes as exact_size, plural, share as share_text, visible} from '../format.ts';
import {frame_text} from '../search/match.ts';
import {read_query} from '../search/query.ts';
import {peak_event} from '../search/results.ts';
import {draw_tree, NodePositions, ROW, type Look} from './draw.ts';
import {short_name} from './names.ts';
import {selected_rows, window_events, type What} from './selection.ts';
import {build_tree, frame_keys, NO_FRAMES, scope_keys, type Keys, type MergeBy, type Tree} from './tree.ts';
import {scope_of, weigh} from './weights.ts';

/** Creates the view. */
export function flame_view(app: App): View { return new FlameView(app); }

interface Made {
  readonly key: string;
  readonly passing: Uint8Array | null;
  readonly device: Device;
  readonly tree: Tree;
  readonly keys: Keys;
  readonly bytes: number;
  readonly blocks: number;
}

class FlameView implements View {
  readonly element: HTMLElement;
  private readonly what: HTMLSelectElement;
  private readonly by: HTMLSelectElement;
  private readonly weight: HTMLSelectElement;
  private readonly fold: HTMLInputElement;
  private readonly invert: HTMLInputElement;
  private readonly title: HTMLElement;
  private readonly crumb: HTMLElement;
  private readonly empty: HTMLElement;
  private readonly scroller: HTMLElement;
  private readonly spacer: HTMLElement;
  private readonly canvas: HTMLCanvasElement;
  private readonly announcement: HTMLElement;
  private made: Made | null = null;
  private focus = 0;
  private selected: number | null = null;
  private callers_of: number | null = null;
  private look: Look | null = null;
  private readonly looks = new Map<number, string>();
  private found: Uint8Array | null = null;
  private found_query = '';
  private turn = 0;

  constructor(private readonly app: App) {
    const rebuild = (): void => { this.focus = 0; this.selected = null; void this.show(this.app.state); };
    const choice = (label: string, values: [string, string][]): HTMLSelectElement => h('select', {'aria-label': label, onchange: () => { this.callers_of = null; rebuild(); }},
      ...values.map(([value, text]) => h('option', {value}, text)));
    this.what = choice('Counted blocks', [['peak', 'live at the peak'], ['live', 'live after the event'], ['window', 'allocated in the range']]);
    this.weight = choice('Width shows', [['bytes', 'bytes'], ['blocks', 'blocks']]);
    this.by = choice('Frames are merged by', [['function', 'function'], ['location', 'file and line'], ['scope', 'operator and module']]);
    this.fold = h('input', {type: 'checkbox', onchange: rebuild});
    this.fold.checked = true;
    this.invert = h('input', {type: 'checkbox', onchange: () => { this.callers_of = null; rebuild(); }});
    this.title = h('div', {class: 'fl-title', role: 'status'});
    this.crumb = h('div', {class: 'fl-crumb'});
    this.canvas = h('canvas', {class: 'fl-canvas'});
    this.spacer = h('div', {class: 'fl-spacer'});
    this.empty = h('p', {class: 'fl-empty'});
    this.announcement = h('div', {class: 'visually-hidden', 'aria-live': 'polite'});
    this.scroller = h('div', {class: 'fl-scroll', tabindex: 0, role: 'application', 'aria-label': 'Flame graph. Arrow keys move, Enter zooms in, Escape zooms out, i shows the callers of the selected function.',
      onscroll: () => this.draw(), onpointermove: (e: PointerEvent) => this.move(e), onpointerleave: () => app.detail(null), onclick: (e: MouseEvent) => this.click(e)},
    h('div', {class: 'fl-sheet'}, this.canvas), this.spacer);
    this.element = h('section', {class: 'flame-view', 'aria-label': 'Flame graph'},
      h('div', {class: 'fl-head'}, this.what, h('label', {}, 'by ', this.weight), h('label', {}, 'merged by ', this.by),
        h('label', {class: 'fl-check', title: 'Hide frames of the interpreter, of dispatchers and of the runtime'}, this.fold, 'fold internal frames'),
        h('label', {class: 'fl-check', title: 'Innermost frames on top, their callers below'}, this.invert, 'inverted'), this.title),
      this.crumb, this.empty, this.scroller, this.announcement);
    new ResizeObserver(() => { if (!this.element.hidden) this.resize(); }).observe(this.element);
  }

  async show(state: State, changed?: Set<keyof State>): Promise<void> {
    const turn = ++this.turn, device = this.app.devices[state.device];
    if (!device) return;
    // A page opens with the peak; after the user has chosen an event, the graph shows that event.
    if (changed?.has('event') && (this.made || state.event !== device.head.events - 1)) this.what.value = 'live';
    const texts = await this.app.texts(device), by = this.by.value as MergeBy;
    const events = by === 'scope' ? await device.events() : null;
    if (turn !== this.turn) return;
    this.make(device, state, texts, events);
    this.find(state.query, texts, by);
    this.draw();
  }

  private event_of(device: Device, state: State): number { return this.what.value === 'peak' ? peak_event(device) : state.event; }

  private make(device: Device, state: State, texts: Texts, events: Events | null): void {
    const what = this.what.value as What, by = this.by.value as MergeBy, weight = this.weight.value as 'bytes' | 'blocks';
    const range = what === 'window' ? window_events(device, state) : [this.event_of(device, state)];
    const key = [device.index, what, range, by, weight, this.fold.checked, this.invert.checked, this.callers_of, state.hide].join(' ');
    if (this.made?.key === key && this.made.passing === this.app.passing) return;
    const passing = this.app.passing, {blocks} = device;
    let rows = selected_rows(device, state, what);
    if (passing && state.hide) rows = rows.filter(row => passing[row] === 1);
    const weights = by === 'scope' ? weigh(rows, blocks.size, texts.scope_name.length || 1, row => scope_of(blocks, events!, row), passing)
      : weigh(rows, blocks.size, Math.max(1, texts.stack_from.length - 1), row => blocks.stack[row]!, passing);
    const keys = by === 'scope' ? scope_keys(texts) : frame_keys(texts, by);
    const tree = build_tree(texts, weights, keys, {by, weight, fold: this.fold.checked, inverted: this.invert.checked, callers_of: this.callers_of});
    const path = this.made && this.made.device === device ? this.path() : [];
    let bytes = 0;
    for (const row of rows) bytes += blocks.size[row]!;
    this.made = {key, passing, device, tree, keys, bytes, blocks: rows.length};
    this.look = null;
    this.follow(path);
  }

  /** Returns the keys from the root to the focus, so that the zoom can be kept for another event. */
  private path(): number[] {
    const {tree} = this.made!, keys: number[] = [];
    for (let at = this.focus; at > 0; at = tree.parent[at]!) keys.unshift(tree.key[at]!);
    return keys;
  }

  private follow(path: readonly number[]): void {
    const {tree} = this.made!;
    let node = 0;
    for (const key of path) {
      let c = tree.first_child[node]!;
      while (c >= 0 && tree.key[c] !== key) c = tree.next[c]!;
      if (c < 0) break;
      node = c;
    }
    this.focus = node;
    this.selected = null;
  }

  private find(query: string, texts: Texts, by: MergeBy): void {
    const key = `${by} ${query}`;
    if (key === this.found_query) return;
    this.found_query = key;
    const read = read_query(query);
    this.found = null;
    if (read.kind !== 'pattern' || by === 'scope' || !['any', 'frame', 'in'].includes(read.field)) return;
    // A function that is in several files matches if one of its frames does.
    const keys = this.made!.keys.of_frame, found = new Uint8Array(Math.max(texts.strings, keys.length));
    for (let f = 0; f < keys.length; f++) if (!found[keys[f]!] && read.pattern.test(frame_text(texts, f))) found[keys[f]!] = 1;
    this.found = found;
  }

  private text(node: number): string {
    const {tree, keys} = this.made!;
    if (node === 0) return this.callers_of === null ? 'all' : 'callers';
    const key = tree.key[node]!;
    return key === NO_FRAMES ? this.by.value === 'scope' ? '(outside any operator or module)' : '(no stack recorded)' : visible(keys.text(key));
  }

  private theme(): Look {
    if (this.look) return this.look;
    const style = getComputedStyle(this.element), value = (name: string): string => style.getPropertyValue(name).trim();
    const {tree, keys} = this.made!, lightness = value('--fl-lightness'), saturation = value('--fl-saturation');
    this.looks.clear();
    return this.look = {
      text: node => short_name(this.text(node)),
      fill: node => {
        if (node === 0) return value('--fl-root');
        const key = tree.key[node]!;
        let color = this.looks.get(key);
        if (!color) {
          const group = key === NO_FRAMES ? '' : keys.group(key);
          this.looks.set(key, color = group === '' ? value('--fl-root') : `hsl(${hue_of(group)} ${saturation} ${lightness})`);
        }
        return color;
      },
      faint: value('--fl-faint'), ink: value('--fl-ink'), line: value('--fl-ink'), accent: value('--fl-accent'),
      found: node => node > 0 && this.found?.[tree.key[node]!] === 1,
    };
  }

  private positions(): NodePositions { return new NodePositions(this.made!.tree, this.focus, Math.max(10, this.scroller.clientWidth)); }

  private draw(): void {
    if (!this.made || this.scroller.clientHeight === 0) return;
    this.element.classList.toggle('dark', this.app.dark);
    const {tree, bytes, blocks, device} = this.made, room = this.scroller.clientHeight, width = this.scroller.clientWidth;
    const nothing = tree.value[0] === 0;
    this.empty.hidden = !nothing;
    set_text(this.empty, this.what.value !== 'window' ? 'No block is live after this event.' : 'Nothing was allocated in this range of the axis.');
    this.spacer.style.height = `${(tree.deepest + 1) * ROW + 4}px`;
    const about = device.head.estimated ? 'about ' : '', event = this.event_of(device, this.app.state);
    set_text(this.title, `${about}${size_text(bytes)} in ${plural(blocks, 'block')} ${this.what.value !== 'window' ? event < 0 ? 'before the first event' : `after event ${count_text(event)}` : 'allocated in the range'}`
      + (tree.matched[0]! < tree.value[0]! ? `, of which ${this.amount(tree.matched[0]!)} (${share_text(tree.matched[0]!, tree.value[0]!)}) match` : '')
      + (tree.folded > 0 ? `; ${plural(tree.folded, 'frame')} folded` : ''));
    this.crumbs();
    const ratio = devicePixelRatio || 1, w = Math.round(width * ratio), h = Math.round(room * ratio);
    if (this.canvas.width !== w || this.canvas.height !== h) {
      this.canvas.width = w; this.canvas.height = h;
      this.canvas.style.width = `${width}px`;
      this.canvas.style.height = `${room}px`;
    }
    const context = this.canvas.getContext('2d')!;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, room);
    if (!nothing) draw_tree(context, tree, this.positions(), this.theme(), this.scroller.scrollTop, room, this.selected);
  }

  private crumbs(): void {
    const {tree} = this.made!, parts: HTMLElement[] = [];
    const part = (text: string, act: () => void): void => { parts.push(h('button', {class: 'fl-part', type: 'button', onclick: act}, text.length > 48 ? text.slice(0, 47) + '…' : text)); };
    if (this.callers_of !== null) part(`callers of ${short_name(visible(this.made!.keys.text(this.callers_of)))} ×`, () => this.callers(null));
    for (let at = this.focus; at > 0; at = tree.parent[at]!) { const node = at; part(short_name(this.text(node)), () => this.zoom(node)); }
    // This part is always present, so that zooming does not shift the graph under the pointer.
    part('all', () => this.zoom(0));
    parts.reverse();
    this.crumb.replaceChildren(...parts);
  }

  private amount(value: number): string { return this.weight.value === 'bytes' ? size_text(value) : plural(value, 'block'); }

  private lines(node: number): string[] {
    const {tree} = this.made!, value = tree.value[node]!, exact = this.weight.value === 'bytes' ? exact_size(value) : plural(value, 'block');
    const lines = [this.text(node), `${exact}, ${share_text(value, tree.value[0]!)} of all${this.focus > 0 ? `, ${share_text(value, tree.value[this.focus]!)} of the zoomed frame` : ''}`];
    if (tree.self[node]! > 0 && tree.first_child[node]! >= 0) lines.push(`${this.amount(tree.self[node]!)} of it allocated by this frame itself`);
    if (tree.matched[node]! < value) lines.push(`${this.amount(tree.matched[node]!)} (${share_text(tree.matched[node]!, value)}) of it matches the search and filter`);
    return lines;
  }

  private node_at(x: number, y: number): number | null {
    const box = this.scroller.getBoundingClientRect();
    if (!this.made || x < box.left || x >= box.left + this.scroller.clientWidth || y < box.top || y >= box.bottom) return null;
    return this.positions().at(x - box.left, Math.floor((y - box.top + this.scroller.scrollTop) / ROW));
  }

  private move(event: PointerEvent): void {
    const node = this.node_at(event.clientX, event.clientY);
    this.canvas.style.cursor = node === null ? '' : 'pointer';
    this.app.detail(node === null ? null : {kind: 'text', lines: this.lines(node)});
  }

  private click(event: MouseEvent): void {
    const node = this.node_at(event.clientX, event.clientY);
    if (node === null) return;
    this.select(node);
    this.zoom(node);
  }

  private zoom(node: number): void {
    this.focus = node;
    if (this.selected === null || !this.positions().of(this.selected)) this.selected = node;
    this.draw();
  }

  private select(node: number): void {
    this.selected = node;
    const top = this.made!.tree.depth[node]! * ROW, {scrollTop, clientHeight} = this.scroller;
    if (top < scrollTop) this.scroller.scrollTop = top;
    else if (top + ROW > scrollTop + clientHeight) this.scroller.scrollTop = top + ROW - clientHeight;
    const lines = this.lines(node);
    this.app.detail({kind: 'text', lines}, true);
    set_text(this.announcement, lines.join('. '));
    this.draw();
  }

  /** Shows only stacks that contain a function, from the function outwards to its callers; null: all stacks. */
  private callers(key: number | null): void {
    this.callers_of = key;
    this.focus = 0;
    this.selected = null;
    void this.show(this.app.state);
  }

  /** Redraws after a change of the theme. */
  restyle(): void {
    this.element.classList.toggle('dark', this.app.dark);
    this.resize();
  }

  resize(): void {
    this.look = null;
    this.draw();
  }

  key(event: KeyboardEvent): boolean {
    if (!this.made || event.ctrlKey || event.metaKey || event.altKey) return false;
    const {tree} = this.made, at = this.selected ?? this.focus;
    const to = (node: number): boolean => {
      if (node >= 0) { if (!this.positions().of(node)) this.focus = tree.parent[node]! < 0 ? 0 : tree.parent[node]!; this.select(node); }
      return true;
    };
    switch (event.key) {
      case 'ArrowDown': return to(this.selected === null ? at : tree.first_child[at]!);
      case 'ArrowUp': return to(tree.parent[at]!);
      case 'ArrowRight': return to(tree.next[at]!);
      case 'ArrowLeft': {
        let before = -1;
        for (let c = at === 0 ? -1 : tree.first_child[tree.parent[at]!]!; c >= 0 && c !== at; c = tree.next[c]!) before = c;
        return to(before);
      }
      case 'Enter': this.zoom(at); return true;
      case 'i':
        if (this.selected === null || this.selected === 0 || tree.key[this.selected] === NO_FRAMES) return false;
        this.callers(tree.key[this.selected]!);
        return true;
      case 'Escape': return this.unpin();
    }
    return false;
  }

  /** Handles Escape: zooms out one step, before the page unpins the block. */
  unpin(): boolean {
    if (!this.made) return false;
    if (this.focus > 0) { this.zoom(this.made.tree.parent[this.focus]!); return true; }
    if (this.callers_of !== null) { this.callers(null); return true; }
    return false;
  }

  hit(x: number, y: number): Hit | null {
    const node = this.node_at(x, y);
    if (node === null || !this.made) return null;
    return {kind: 'band', name: this.text(node), size: this.made.tree.value[node]!, event: this.event_of(this.made.device, this.app.state)};
  }
}

/** Returns a hue for a text. The hue is the same on every page. */
function hue_of(text: string): number {
  let hash = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193);
  return (Math.imul(hash, 0x9e3779b1) >>> 8) % 360;
}
