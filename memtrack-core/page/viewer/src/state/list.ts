// The list of events: a few dozen recycled rows of elements in a virtual scroll.

import type {App, Device, Elements, Events, Texts} from '../types.ts';
import {event_text} from './actions.ts';
import {h, set_text} from '../dom.ts';
import {count as count_text, exact_time} from '../format.ts';
import {VirtualScroll} from './virtual.ts';
import {lower_bound} from './order.ts';

const ROW = 20;

export interface ListData {
  readonly device: Device;
  readonly events: Events;
  readonly segments: Elements;
  readonly texts: Texts | null;
  /** The listed events, in increasing order; null: all, preceded by the state before the first. */
  readonly only: Uint32Array | null;
}

interface Row {
  readonly element: HTMLElement;
  readonly cells: HTMLElement[];
  index: number;
}

export class EventList {
  readonly element: HTMLElement;
  private readonly scroller: HTMLElement;
  private readonly spacer: HTMLElement;
  private readonly window: HTMLElement;
  private readonly rows: Row[] = [];
  private readonly scroll = new VirtualScroll(0, ROW);
  private data: ListData | null = null;
  private current = -1;
  /** Cached scrollTop and height of the scroller: reading them makes the browser lay out the page. */
  private scroller_top = 0;
  private room = 0;

  constructor(private readonly app: App) {
    this.window = h('div', {class: 'ev-window'});
    this.spacer = h('div', {class: 'ev-spacer'});
    this.scroller = h('div', {class: 'ev-scroll', role: 'listbox', tabindex: 0, 'aria-label': 'Events',
      onscroll: () => { this.scroller_top = this.scroller.scrollTop; this.scroll.scrolled(this.scroller_top); this.draw(); },
      onwheel: (event: WheelEvent) => this.wheel(event),
      oncopy: (event: ClipboardEvent) => this.copy(event)}, this.window, this.spacer);
    const head = h('div', {class: 'ev-head', 'aria-hidden': 'true'}, ...['event', 'action', 'address', 'size', 'stream', 'time']
      .map(name => h('span', {class: `c-${name}`}, name)));
    this.element = h('div', {class: 'ev-list'}, head, this.scroller);
    new ResizeObserver(() => this.resize()).observe(this.scroller);
  }

  /** The number of rows: with all events, the state before the first is a row too. */
  get length(): number { return !this.data ? 0 : this.data.only ? this.data.only.length : this.data.events.count + 1; }

  /** Returns the event at an index of the list. */
  event_at(index: number): number { return this.data?.only ? this.data.only[index]! : index - 1; }

  /** Returns the index of an event, or of the first after it. */
  index_of(event: number): number { return this.data?.only ? lower_bound(this.data.only, event) : event + 1; }

  set(data: ListData): void {
    this.data = data;
    this.element.classList.toggle('one-stream', data.device.head.streams.length < 2);
    this.element.classList.toggle('no-time', data.events.time.length === 0);
    this.scroller.setAttribute('aria-label', `Events of ${data.device.head.name}`);
    for (const row of this.rows) row.index = -1;
    this.fit();
  }

  /** Redraws after a change of the size. */
  resize(): void {
    const [from, to] = this.scroll.visible(), index = this.index_of(this.current), was_visible = index >= from && index < to;
    this.room = this.scroller.clientHeight;
    this.fit();
    // The header above may have grown by a line. Keep the current row visible.
    if (was_visible && this.length > 0) {
      this.scroll.reveal(Math.min(index, this.length - 1));
      this.apply_scroll();
    }
  }

  private fit(): void {
    const {room} = this;
    this.scroll.resize(this.length, room);
    this.spacer.style.height = `${this.scroll.element_height}px`;
    const wanted = Math.ceil(room / ROW) + 2;
    while (this.rows.length < wanted) this.add_row();
    while (this.rows.length > wanted) this.rows.pop()!.element.remove();
    this.apply_scroll();
  }

  private add_row(): void {
    const cells = ['event', 'action', 'address', 'size', 'stream', 'time'].map(name => h('span', {class: `c-${name}`}));
    const row: Row = {element: h('div', {class: 'ev-row', role: 'option'}, ...cells), cells, index: -1};
    row.element.id = `ev-row-${this.rows.length}`;
    row.element.addEventListener('click', () => {
      if (row.index < 0 || getSelection()?.isCollapsed === false) return;
      void this.app.show({event: this.event_at(row.index)});
    });
    this.rows.push(row);
    this.window.append(row.element);
  }

  /** Makes an event the current one and scrolls to the event; after a long jump, the event is in the middle. */
  select(event: number): void {
    this.current = event;
    const index = this.index_of(event), [from, to] = this.scroll.visible();
    if (index < from - this.scroll.page || index > to + this.scroll.page) this.scroll.centre(index);
    else this.scroll.reveal(Math.min(index, this.length - 1));
    this.apply_scroll();
  }

  get page(): number { return this.scroll.page; }

  private apply_scroll(): void {
    const top = this.scroll.scroll_top;
    if (Math.abs(this.scroller_top - top) >= 1) this.scroller.scrollTop = this.scroller_top = top;
    this.draw();
  }

  private wheel(event: WheelEvent): void {
    if (event.ctrlKey || event.deltaY === 0) return;
    // Native scrolling would skip thousands of rows of a compressed list at each step of the wheel.
    event.preventDefault();
    this.scroll.to(this.scroll.top + event.deltaY * (event.deltaMode === 1 ? ROW : event.deltaMode === 2 ? this.scroll.viewport : 1));
    this.apply_scroll();
  }

  private copy(event: ClipboardEvent): void {
    if (getSelection()?.isCollapsed === false) return;
    const row = this.rows.find(r => r.index >= 0 && this.event_at(r.index) === this.current);
    if (!row) return;
    event.clipboardData?.setData('text/plain', row.cells.map(c => c.textContent).filter(Boolean).join('\t'));
    event.preventDefault();
  }

  private draw(): void {
    if (!this.data) return;
    const [from, to] = this.scroll.visible(), n = this.rows.length;
    this.window.style.transform = `translateY(${from * ROW - this.scroll.top}px)`;
    let active = '';
    for (let i = 0; i < n; i++) {
      // Visible rows keep their elements, so that selected text survives scrolling.
      const index = from + ((i - from) % n + n) % n, row = this.rows[i]!;
      if (index >= to) {
        row.element.hidden = true;
        row.element.classList.remove('current');
        row.index = -1;
        continue;
      }
      row.element.hidden = false;
      row.element.style.top = `${(index - from) * ROW}px`;
      if (row.index !== index) { row.index = index; this.fill(row, this.event_at(index)); }
      const current = this.event_at(index) === this.current;
      if (current) active = row.element.id;
      row.element.classList.toggle('current', current);
      row.element.setAttribute('aria-selected', String(current));
    }
    if (active) this.scroller.setAttribute('aria-activedescendant', active);
    else this.scroller.removeAttribute('aria-activedescendant');
  }

  private fill(row: Row, event: number): void {
    const {device, events, segments, texts} = this.data!, cells = row.cells;
    row.element.setAttribute('aria-posinset', String(row.index + 1));
    row.element.setAttribute('aria-setsize', String(this.length));
    if (event < 0) {
      row.element.dataset.action = 'before';
      ['−1', 'before the first event', '', '', '', ''].forEach((text, i) => set_text(cells[i]!, text));
      return;
    }
    const text = event_text(device, events, segments, texts, event);
    row.element.dataset.action = text.action;
    const stream = text.stream === null ? '' : device.head.streams[text.stream] ?? '';
    set_text(cells[0]!, count_text(event));
    set_text(cells[1]!, text.action);
    set_text(cells[2]!, text.address);
    set_text(cells[3]!, text.size);
    set_text(cells[4]!, device.head.streams.length > 1 && text.stream !== null ? short_stream(stream, text.stream) : '');
    set_text(cells[5]!, events.time.length ? exact_time(events.time[event]!) : '');
    cells[1]!.title = text.action.length > 14 ? text.action : '';
    cells[2]!.title = text.address.length > 20 ? text.address : '';
    cells[4]!.title = stream;
  }

  /** Returns the event at a point of the window. */
  event_under(x: number, y: number): number | null {
    const box = this.scroller.getBoundingClientRect();
    if (x < box.left || x >= box.left + this.scroller.clientWidth || y < box.top || y >= box.bottom) return null;
    const index = this.scroll.row_at(y - box.top);
    return index === null ? null : this.event_at(index);
  }
}

/** Shortens a stream: a raw handle of more than a few digits is replaced by the stream's index. */
function short_stream(handle: string, index: number): string { return handle.length <= 4 ? handle : `#${index}`; }
