// The page: holds the state, and passes changes to the header, the panel and the views.

import type {App, Detail, Device, Head, SearchBar, Show, State, Texts, View, ViewName} from './types.ts';
import {h} from './dom.ts';
import type {LazyDevice} from './data/device.ts';
import {Axis} from './timeline/axis.ts';
import {Panel} from './shell/panel.ts';
import {Header} from './shell/header.ts';
import {Glance} from './shell/glance.ts';
import {Help} from './shell/help.ts';
import {Side} from './shell/side.ts';
import {fragment_of, shown_by} from './shell/fragment.ts';
import {search_bar, view_of} from './views.ts';

/** The whole page. */
export class Page implements App {
  state: State;
  passing: Uint8Array | null = null;
  axis: Axis = new Axis(0, null);
  readonly element = h('div', {class: 'page'});
  private readonly stage = h('div', {class: 'views'});
  private readonly alarm = h('div', {class: 'alarm', role: 'alert', hidden: true});
  private readonly views = new Map<ViewName, View>();
  private readonly axes = new Map<string, Axis>();
  private readonly panel: Panel;
  private readonly side: Side;
  private readonly header: Header;
  private readonly glance: Glance;
  private readonly help = new Help();
  private readonly search: SearchBar | null;
  private loading: Promise<void> | null = null;
  /** Whether the first picture was requested. */
  started = false;
  private address = 0;

  constructor(readonly head: Head, readonly devices: LazyDevice[], private readonly load_texts: (section: number) => Promise<Texts>) {
    const device = Math.max(0, devices.findIndex(d => d.head.events || d.head.blocks));
    this.state = {
      view: head.view, device, axis: head.has_time ? 'time' : 'step', from: 0, to: 0, bottom: 0, top: 0,
      event: (devices[device]?.head.events ?? 0) - 1, block: null, query: '', filter: head.kept ? {kept: true} : {}, color: this.default_color(device), hide: head.kept,
    };
    this.panel = new Panel(this);
    this.side = new Side(this, this.panel.element);
    this.header = new Header(this, this.help);
    this.glance = new Glance(this);
    this.search = search_bar(this);
    this.element.append(this.header.element, this.glance.element, this.alarm, ...(this.search ? [this.search.element] : []),
      h('div', {class: 'body'}, this.stage, this.side.element), this.help.element);
    document.addEventListener('keydown', event => this.key(event));
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.restyle());
    addEventListener('hashchange', () => {
      if (location.hash.slice(1) !== fragment_of(this)) void this.show(this.linked());
    });
  }

  get device(): Device {
    return this.devices[this.state.device]!;
  }

  get view(): View | undefined {
    return this.views.get(this.state.view);
  }

  /** Whether the page has the dark theme. */
  get dark(): boolean {
    const chosen = document.documentElement.dataset.theme;
    return chosen ? chosen === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
  }

  texts(device: Device = this.device): Promise<Texts> {
    return this.load_texts(device.head.sections.texts);
  }

  /** Draws the first picture, from the URL's fragment. */
  start(): Promise<void> {
    return this.show(this.linked());
  }

  /** Returns the change that the URL requests. A device that the file does not have is ignored. */
  private linked(): Show {
    const {device, ...rest} = shown_by(location.hash);
    return this.devices.some(d => d.head.name === device) ? {device, ...rest} : rest;
  }

  show(change: Show): Promise<void> {
    const device = this.device_of(change.device);
    if (!this.loading && this.started && device === this.state.device) return this.apply(change, device);
    const load: Promise<void> = (this.loading ?? Promise.resolve()).catch(() => {}).then(async () => {
      await this.devices[this.device_of(change.device)]!.load();
      await this.apply(change, this.device_of(change.device));
    });
    this.loading = load;
    const finish = () => {
      if (this.loading === load) this.loading = null;
    };
    load.then(finish, finish);
    load.catch(error => this.report(error));
    return load;
  }

  /** Selects an event in the current view. */
  go_to(event: number): Promise<void> {
    return this.show({event});
  }

  detail(what: Detail | null, pinned = false): void {
    this.panel.show(what, pinned);
  }

  /** Shows an error on the page. */
  report(error: unknown): void {
    const text = error instanceof Error ? error.message : String(error);
    this.alarm.textContent = `This page cannot show all of the file: ${text}.`;
    this.alarm.hidden = false;
    if (!(error instanceof Error) || error.name !== 'Error') console.error(error);
  }

  /** Returns the axis of a device. */
  axis_of(device: Device, kind: State['axis']): Axis {
    const key = `${device.index} ${kind}`;
    let axis = this.axes.get(key);
    if (!axis) this.axes.set(key, axis = new Axis(device.head.events, kind === 'time' ? device.clock : null));
    return axis;
  }

  /** Returns the index of a device in `devices`, by name or index; undefined: the current one. */
  device_of(device: string | number | undefined): number {
    if (device === undefined) return this.state.device;
    const index = typeof device === 'number' ? device : this.devices.findIndex(d => d.head.name === device);
    if (!this.devices[index]) throw new RangeError(`this file has no device ${JSON.stringify(device)}; it has ${this.devices.map(d => JSON.stringify(d.head.name)).join(', ')}`);
    return index;
  }

  /** Redraws the views after a change of the theme. */
  restyle(): void {
    for (const view of this.views.values()) {
      if ('restyle' in view) (view as {restyle(): void}).restyle();
      else view.resize();
    }
  }

  private default_color(device: number): State['color'] {
    return this.devices[device]?.head.color ?? 'stack';
  }

  private async apply(change: Show, device: number): Promise<void> {
    const before = this.state, first = !this.started;
    const next: State = {...before};
    for (const key of Object.keys(change) as (keyof Show)[]) if (key !== 'device' && change[key] !== undefined) (next as unknown as Record<string, unknown>)[key] = change[key];
    next.device = device;
    if (!this.head.has_time) next.axis = 'step';
    const tables = this.device, other = device !== before.device || first;
    const now = other ? this.devices[device]! : tables, events = now.head.events;
    const axis = this.axis_of(now, next.axis);
    if (other) {
      // All devices share one clock. Choosing another device keeps the time range, so that devices can be compared.
      const same_time = !first && next.axis === 'time' && before.axis === 'time' && axis.clock !== null;
      const whole = !same_time || (before.from <= this.axis.from && before.to >= this.axis.to) || before.to <= axis.from || before.from >= axis.to;
      next.from = change.from ?? (whole ? axis.from : before.from);
      next.to = change.to ?? (whole ? axis.to : before.to);
      next.bottom = change.bottom ?? 0;
      next.top = change.top ?? 0;
      const then = same_time && before.event < this.axis.events - 1 ? axis.event_at(this.axis.at(before.event)) : events - 1;
      next.event = change.event ?? then;
      next.block = change.block ?? null;
      next.filter = change.filter ?? (first ? next.filter : without_indices(next.filter));
      if (!change.color && next.color === 'category' && !now.head.categories.length) next.color = 'stack';
    } else if (next.axis !== before.axis) {
      // Keep the same events in the picture.
      next.from = change.from ?? axis.at(this.axis.before(before.from) - (before.from <= this.axis.from ? 1 : 0));
      next.to = change.to ?? (before.to >= this.axis.to ? axis.to : axis.at(this.axis.before(before.to)));
    }
    next.event = Math.max(-1, Math.min(events - 1, Math.round(next.event)));
    if (next.block !== null && !(next.block >= 0 && next.block < now.blocks.count)) next.block = null;
    // Another view stacks other bytes, so it starts with the full range.
    if (next.view !== before.view && change.top === undefined) next.bottom = next.top = 0;
    if (change.event !== undefined && change.from === undefined && change.to === undefined) this.scroll_to_event(next, axis);
    this.clamp(next, axis);
    this.state = next;
    this.axis = axis;
    const changed = new Set<keyof State>();
    for (const key of Object.keys(next) as (keyof State)[]) if (first || !same(next[key], before[key])) changed.add(key);
    if (other) changed.add('device');
    if ((['device', 'query', 'filter', 'event', 'block', 'hide'] as const).some(c => changed.has(c))) await this.update_passing();
    this.draw_shell(changed);
    this.started = true;
    let view = this.views.get(next.view);
    if (!view) {
      this.views.set(next.view, view = view_of(next.view, this));
      this.stage.append(view.element);
    }
    for (const [name, v] of this.views) v.element.hidden = name !== next.view;
    const {all, drawn} = this.changes_for(next.view, changed);
    try {
      await view.show(next, all);
      drawn();
      await this.side.show(next);
    } catch (error) {
      this.report(error);
    }
  }

  /** Changes that hidden views have not drawn yet. */
  private readonly undrawn = new Map<ViewName, Set<keyof State>>();
  /** Returns the changes since a view was last drawn, and records this change for the other views. */
  private changes_for(name: ViewName, changed: Set<keyof State>): {all: Set<keyof State>; drawn(): void} {
    for (const other of this.views.keys()) {
      if (other === name) continue;
      const list = this.undrawn.get(other) ?? new Set();
      changed.forEach(c => list.add(c));
      this.undrawn.set(other, list);
    }
    const undrawn = this.undrawn.get(name);
    const all = undrawn ? new Set([...undrawn, ...changed]) : this.opened.has(name) ? changed : new Set(Object.keys(this.state) as (keyof State)[]);
    this.opened.add(name);
    return {all, drawn: () => void this.undrawn.delete(name)};
  }
  private readonly opened = new Set<ViewName>();

  private async update_passing(): Promise<void> {
    const {query, filter} = this.state;
    try {
      this.passing = this.search && (query || Object.keys(filter).length) ? await this.search.passing(this.state, this.device) : null;
      if (this.search && !query && !Object.keys(filter).length) await this.search.passing(this.state, this.device);
    } catch (error) {
      this.passing = null;
      this.report(error);
    }
  }

  /** Moves the window so that it contains the selected event. */
  private scroll_to_event(state: State, axis: Axis): void {
    const at = axis.at(state.event), span = state.to - state.from;
    if (at >= state.from && at <= state.to) return;
    state.from = at - span / 2;
    state.to = at + span / 2;
  }

  /** Limits the window to the axis. */
  private clamp(state: State, axis: Axis): void {
    let {from, to} = state;
    if (!(to > from) || !Number.isFinite(from) || !Number.isFinite(to)) [from, to] = [axis.from, axis.to];
    const span = Math.min(to - from, axis.to - axis.from);
    state.from = Math.max(axis.from, Math.min(axis.to - span, from));
    state.to = state.from + span;
  }

  private draw_shell(changed: Set<keyof State>): void {
    this.header.show(this.state, changed);
    if (changed.has('device')) this.glance.show();
    if (changed.has('block') || changed.has('event') || changed.has('device')) this.panel.pin();
    clearTimeout(this.address);
    this.address = window.setTimeout(() => {
      try {
        history.replaceState(null, '', '#' + fragment_of(this));
      } catch {
        // Browsers limit how often the URL may change; the next change updates it.
      }
    }, 250);
  }

  private key(event: KeyboardEvent): void {
    const target = event.target as HTMLElement;
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || this.help.element.open) return;
    if (target.matches?.('input, textarea, select, [contenteditable]')) {
      if (event.key === 'Escape') target.blur();
      return;
    }
    // A focused button handles Enter and space itself.
    if (target.matches?.('button, summary, a') && (event.key === 'Enter' || event.key === ' ')) return;
    if (this.page_key(event) || this.view?.key(event)) event.preventDefault();
  }

  private page_key(event: KeyboardEvent): boolean {
    if (!event.altKey && this.header.tab(event.key)) return true;
    switch (event.key) {
      case '?': this.help.open(); return true;
      case '/': this.search?.focus(); return !!this.search;
      case 'a': if (this.head.has_time) void this.show({axis: this.state.axis === 'time' ? 'step' : 'time'}); return true;
      case 'c': void this.header.copy(); return true;
      case 't': this.header.theme(); return true;
      case 'd': this.side.next(); return true;
      case 'Escape': {
        const view = this.view as View & {unpin?(): boolean} | undefined;
        if (view?.unpin?.()) return true;
        if (this.state.block === null) this.panel.reset();
        void this.show(this.state.block === null ? {event: this.device.head.events - 1, from: this.state.from, to: this.state.to} : {block: null});
        return true;
      }
      default: return false;
    }
  }
}

function same(a: unknown, b: unknown): boolean {
  return a === b || (typeof a === 'object' && JSON.stringify(a) === JSON.stringify(b));
}

/** Removes streams, pools and categories from a filter, because they are indices into the lists of one device. */
function without_indices(filter: State['filter']): State['filter'] {
  const {streams: _s, pools: _p, categories: _c, ...rest} = filter;
  return rest;
}
