// The allocator state history: the events, and the memory after each.

import './state.css';
import type {App, Device, Elements, Events, Hit, State, Texts, View} from '../types.ts';
import {NONE} from '../types.ts';
import {is_of_segment} from './actions.ts';
import {block_colors} from './colors.ts';
import {h, set_text} from '../dom.ts';
import {peak_event} from '../search/results.ts';
import {EventList} from './list.ts';
import {MemoryMap} from './map.ts';
import {StateModel} from './model.ts';
import {bytes as size_text, count as count_text, exact_bytes as exact_size, plural, share as share_text} from '../format.ts';
import type {Totals} from './layout.ts';

type Listed = 'all' | 'segments' | 'address' | 'matches';

/** Creates the view. */
export function state_view(app: App): View { return new StateView(app); }

class StateView implements View {
  readonly element: HTMLElement;
  private readonly list: EventList;
  private readonly map: MemoryMap;
  private readonly input: HTMLInputElement;
  private readonly of: HTMLElement;
  private readonly numbers = new Map<string, HTMLElement>();
  private readonly listed: HTMLSelectElement;
  private readonly listed_note: HTMLElement;
  private readonly models = new Map<Device, StateModel>();
  private loaded: {device: Device; events: Events; segments: Elements; texts: Texts} | null = null;
  private list_key = '';
  private turn = 0;
  private pinned: number | null = null;

  constructor(private readonly app: App) {
    this.list = new EventList(app);
    this.map = new MemoryMap(app);
    this.input = h('input', {class: 'st-goto', type: 'text', inputmode: 'numeric', 'aria-label': 'Number of the event (key g)', title: 'Go to an event by its number (key g)', size: 9, spellcheck: 'false',
      onchange: () => this.go_to(), onkeydown: (event: KeyboardEvent) => this.input_key(event)});
    this.of = h('span', {class: 'st-of'});
    this.listed = h('select', {class: 'st-listed', 'aria-label': 'Listed events', onchange: () => { this.list_key = ''; void this.show(this.app.state); }},
      ...([['all', 'all events'], ['segments', 'segment events'], ['address', 'this address'], ['matches', 'search matches']] as const)
        .map(([value, text]) => h('option', {value}, text)));
    this.listed_note = h('span', {class: 'st-listed-note', role: 'status'});
    const head = h('div', {class: 'st-head'}, h('label', {class: 'st-event'}, 'After event ', this.input, this.of), ...['allocated', 'pending', 'reserved', 'free', 'largest']
      .map(name => {
        const value = h('b', {class: 'st-value'});
        this.numbers.set(name, value);
        return h('span', {class: `st-number st-${name}`}, h('span', {class: 'st-name'}, TITLES[name]!), value);
      }));
    this.element = h('section', {class: 'state-view', 'aria-label': 'Allocator state history'}, head,
      h('div', {class: 'st-body'}, h('div', {class: 'st-left'}, h('div', {class: 'st-tools'}, 'List ', this.listed, this.listed_note), this.list.element), this.map.element));
  }

  async show(state: State, changed?: Set<keyof State>): Promise<void> {
    const turn = ++this.turn, device = this.app.devices[state.device];
    if (!device) return;
    if (this.loaded?.device !== device) {
      const [events, segments, texts] = await Promise.all([device.events(), device.segments(), this.app.texts(device)]);
      if (turn !== this.turn) return;
      this.loaded = {device, events, segments, texts};
      this.list_key = '';
    }
    // The size of a hidden view may have changed.
    if (!changed || changed.has('view')) this.resize();
    this.draw(state);
  }

  private model(): StateModel {
    const {device, segments} = this.loaded!;
    let model = this.models.get(device);
    if (!model) {
      // The ranks of a device take about 20 bytes per block, so only the current device has them.
      this.models.clear();
      this.models.set(device, model = new StateModel(device, segments));
    }
    return model;
  }

  private draw(state: State): void {
    this.element.classList.toggle('dark', this.app.dark);
    const {device, events} = this.loaded!, event = Math.max(-1, Math.min(events.count - 1, state.event));
    const model = this.model(), layout = model.at(event);
    this.input.value = event.toString();
    set_text(this.of, events.count === 0 ? ' (the trace has no events)' : ` of ${count_text(events.count)} (−1 to ${count_text(events.count - 1)})`);
    // Do this before the list scrolls. The number of lines of totals changes the list's height, and the list's observer misses
    // two changes in one frame that cancel each other, although the browser has already scrolled by the height in between.
    this.show_totals(layout.totals, model.classes, device);
    this.fill_list(state, event);
    this.list.select(event);
    this.map.set({model, event, layout, colors: block_colors(device, state.color, this.app.dark, this.loaded!.texts), passing: this.app.passing,
      touched: this.touched(event), pinned: state.block});
    // Reveal a newly pinned block, or else the memory that the event concerns.
    this.map.reveal(state.block !== this.pinned ? state.block : null);
    this.pinned = state.block;
  }

  private touched(event: number): {row: number; table: 'block' | 'segment'} | null {
    if (event < 0) return null;
    const {events} = this.loaded!;
    if (is_of_segment(events.action[event]!)) return events.segment[event] === NONE ? null : {row: events.segment[event]!, table: 'segment'};
    return events.block[event] === NONE ? null : {row: events.block[event]!, table: 'block'};
  }

  private show_totals(totals: Totals, classes: boolean, device: Device): void {
    const put = (name: string, text: string, title: string): void => {
      const value = this.numbers.get(name)!;
      set_text(value, text);
      value.parentElement!.title = title;
      value.parentElement!.hidden = text === '';
    };
    // Sizes of a sampled heap are estimates; unknown rounding counts as free.
    const about = device.head.estimated ? 'about ' : '', free = about || !totals.exact ? 'about ' : '';
    put('allocated', `${about}${size_text(totals.allocated)} in ${plural(totals.blocks, 'block')}`, exact_size(totals.allocated));
    put('pending', totals.pending_blocks ? `${size_text(totals.pending)} in ${plural(totals.pending_blocks, 'block')}` : '', `${exact_size(totals.pending)}, part of the allocated bytes`);
    put('reserved', classes ? '' : `${size_text(totals.reserved)} in ${plural(totals.segments, 'segment')}`, exact_size(totals.reserved));
    put('free', classes ? '' : `${free}${size_text(totals.free)} in ${plural(totals.free_pieces, 'piece')} (${share_text(totals.free, totals.reserved)})`,
      `${exact_size(totals.free)}${totals.rounding ? `; known rounding: ${exact_size(totals.rounding)}` : ''}${free ? '. Before the end of the trace, unknown rounding of blocks counts as free' : ''}`);
    put('largest', classes || !totals.free_pieces ? '' : `${free}${size_text(totals.largest_free)}`, exact_size(totals.largest_free));
  }

  private fill_list(state: State, event: number): void {
    const listed = this.listed.value as Listed, {device, events, segments, texts} = this.loaded!;
    const address = listed === 'address' ? this.address_key(state, event) : '';
    const key = `${state.device} ${listed} ${address}`;
    if (key === this.list_key && (listed !== 'matches' || this.list_passing === this.app.passing)) return;
    this.list_key = key;
    this.list_passing = this.app.passing;
    const only = listed === 'all' ? null : this.select(listed, address);
    set_text(this.listed_note, only ? plural(only.length, 'event') : '');
    this.list.set({device, events, segments, texts, only});
  }

  private list_passing: Uint8Array | null = null;
  private list_address = '';

  /** Returns the address of the list "this address": that of the pinned block, or of the event when the list was created. */
  private address_key(state: State, event: number): string {
    const {device, events, segments} = this.loaded!;
    if (this.list_key.startsWith(`${state.device} address `) && this.list_address) return this.list_address;
    const touched = this.touched(event);
    const table = touched?.table === 'segment' && state.block === null ? segments : device.blocks, row = state.block ?? touched?.row;
    return this.list_address = row === undefined || events.count === 0 ? '' : `${table.address_high[row]} ${table.address_low[row]}`;
  }

  private select(listed: Listed, address: string): Uint32Array {
    const {events, device, segments} = this.loaded!, found: number[] = [], passing = this.app.passing;
    const [high, low] = address.split(' ').map(Number) as [number, number], blocks = device.blocks;
    for (let e = 0; e < events.count; e++) {
      const block = events.block[e]!, piece = events.segment[e]!;
      const take = listed === 'segments' ? is_of_segment(events.action[e]!)
        : listed === 'matches' ? block !== NONE && (!passing || passing[block] === 1)
        : address !== '' && ((block !== NONE && blocks.address_high[block] === high && blocks.address_low[block] === low)
          || (piece !== NONE && segments.address_high[piece] === high && segments.address_low[piece] === low));
      if (take) found.push(e);
    }
    return Uint32Array.from(found);
  }

  private go_to(): void {
    const text = this.input.value.replace(/[,\s]/g, '').replace('−', '-');
    if (!/^-?\d+$/.test(text) || !this.loaded) return;
    void this.app.show({event: Math.max(-1, Math.min(this.loaded.events.count - 1, Number(text)))});
  }

  private input_key(event: KeyboardEvent): void {
    if (event.key === 'Enter') { this.go_to(); this.input.blur(); event.preventDefault(); }
    else if (event.key === 'Escape') { this.input.value = String(this.app.state.event); this.input.blur(); }
    event.stopPropagation();
  }

  resize(): void {
    this.list.resize();
    this.map.resize();
  }

  /** Redraws after a change of the theme. */
  restyle(): void {
    this.element.classList.toggle('dark', this.app.dark);
    if (this.loaded && !this.element.hidden) this.draw(this.app.state);
    this.map.resize();
  }

  key(event: KeyboardEvent): boolean {
    if (!this.loaded || event.ctrlKey || event.metaKey || event.altKey) return false;
    const index = this.list.index_of(this.app.state.event), last = this.list.length - 1;
    const listed = index <= last && this.list.event_at(index) === this.app.state.event;
    const go = (to: number): boolean => {
      if (last >= 0) void this.app.show({event: this.list.event_at(Math.max(0, Math.min(last, to)))});
      return true;
    };
    switch (event.key) {
      case 'ArrowDown': return go(listed ? index + 1 : index);
      case 'ArrowUp': return go(index - 1);
      case 'PageDown': return go(index + this.list.page);
      case 'PageUp': return go(index - this.list.page);
      case 'Home': return go(0);
      case 'End': return go(last);
      case 'p': void this.app.show({event: peak_event(this.loaded.device)}); return true;
      case 'o': {
        const {ooms} = this.loaded.device.head, next = ooms.find(e => e > this.app.state.event) ?? ooms[0];
        if (next !== undefined) void this.app.show({event: next});
        return next !== undefined;
      }
      case 'j': return this.neighbour(1);
      case 'k': return this.neighbour(-1);
      case '+': case '=': this.map.zoom(1); return true;
      case '-': this.map.zoom(-1); return true;
      case '0': this.map.fit(); return true;
    }
    // The page uses some digits for tabs; other digits begin a number.
    if (event.key === 'g' || /^\d$/.test(event.key)) {
      this.input.focus();
      this.input.select();
      if (event.key !== 'g') this.input.value = event.key;
      return true;
    }
    return false;
  }

  /** Pins the next or the previous block of the map. */
  private neighbour(by: 1 | -1): boolean {
    const {items} = this.model().at(Math.max(-1, this.app.state.event)), n = items.length;
    if (n === 0) return false;
    const {block} = this.app.state, at = items.indexOf(block ?? this.touched(this.app.state.event)?.row ?? NONE);
    void this.app.show({block: items[at < 0 ? 0 : (at + by + n) % n]!});
    return true;
  }

  hit(x: number, y: number): Hit | null {
    const event = this.list.event_under(x, y);
    return event === null ? this.map.hit(x, y) : {kind: 'event', event};
  }
}

const TITLES: {[name: string]: string} = {allocated: 'allocated', pending: 'pending', reserved: 'reserved', free: 'free', largest: 'largest free'};
