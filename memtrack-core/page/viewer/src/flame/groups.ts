// The stack panel: the largest groups of the selection, beside any view.

import type {App, State} from '../types.ts';
import {h, set_text} from '../dom.ts';
import {bytes as size_text, count as count_text, exact_bytes as exact_size, plural, share as share_text, visible} from '../format.ts';
import {group_rows, type BlockGroup, type GroupBy} from './grouping.ts';
import {selected_rows, window_events, type What} from './selection.ts';

/** The maximum number of listed groups. */
const MAX_GROUPS = 100;

/** A panel beside a view, which the shell updates whenever the state changes. */
export interface GroupsPanel {
  readonly element: HTMLElement;
  show(state: State): Promise<void>;
}

/** Creates the panel. */
export function groups_panel(app: App): GroupsPanel { return new Panel(app); }

class Panel implements GroupsPanel {
  readonly element: HTMLElement;
  private readonly by: HTMLSelectElement;
  private readonly what: HTMLSelectElement;
  private readonly sum: HTMLElement;
  private readonly list: HTMLElement;
  private made = '';
  private passing: Uint8Array | null = null;
  /** The query of the clicked group. This query marks the group and does not hide the other groups. */
  private clicked = '';
  private groups: BlockGroup[] = [];
  private turn = 0;

  constructor(private readonly app: App) {
    const rebuild = (): void => { this.made = ''; void this.show(this.app.state); };
    const choice = (label: string, values: [string, string][]): HTMLSelectElement => h('select', {'aria-label': label, onchange: rebuild},
      ...values.map(([value, text]) => h('option', {value}, text)));
    this.by = choice('Group by', [['stack', 'stack'], ['function', 'function'], ['scope', 'operator'], ['category', 'category']]);
    this.what = choice('Counted blocks', [['live', 'live after the event'], ['peak', 'live at the peak'], ['window', 'allocated in the range']]);
    this.sum = h('div', {class: 'gr-sum', role: 'status'});
    this.list = h('div', {class: 'gr-list', role: 'list'});
    this.element = h('aside', {class: 'groups-panel', 'aria-label': 'Largest groups'}, h('div', {class: 'gr-head'}, 'By ', this.by, this.what), this.sum, this.list);
  }

  async show(state: State): Promise<void> {
    const turn = ++this.turn, device = this.app.devices[state.device];
    if (!device) return;
    const what = this.what.value as What, by = this.by.value as GroupBy;
    const key = [device.index, by, what, what === 'live' ? state.event : what === 'window' ? window_events(device, state).join('–') : ''].join(' ');
    if (key === this.made && this.passing === this.app.passing) { this.mark(state); return; }
    const texts = await this.app.texts(device), events = by === 'scope' ? await device.events() : null;
    if (turn !== this.turn) return;
    this.made = key;
    this.passing = this.app.passing;
    let rows = selected_rows(device, state, what);
    const passing = state.query !== '' && state.query === this.clicked ? null : this.passing;
    if (passing) rows = rows.filter(row => passing[row] === 1);
    const {groups, count} = group_rows(rows, by, device, events, texts, MAX_GROUPS);
    let bytes = 0;
    for (const row of rows) bytes += device.blocks.size[row]!;
    this.groups = groups;
    const about = device.head.estimated ? 'about ' : '';
    set_text(this.sum, rows.length === 0 ? 'Nothing is selected.' : `${about}${size_text(bytes)} in ${plural(rows.length, 'block')}${passing ? ' that match' : ''}, ${plural(count, 'group')}${count > MAX_GROUPS ? `; the largest ${MAX_GROUPS}` : ''}`);
    this.list.replaceChildren(...groups.map((group, i) => this.item(group, bytes, i)));
    this.mark(state);
  }

  private item(group: BlockGroup, all: number, index: number): HTMLElement {
    const bar = h('span', {class: 'gr-bar', 'aria-hidden': 'true'});
    bar.style.width = `${all ? group.bytes / all * 100 : 0}%`;
    const button = h('button', {class: 'gr-item', type: 'button', disabled: group.query === null, 'aria-pressed': 'false',
      title: [visible(group.title), visible(group.location), `${exact_size(group.bytes)} in ${plural(group.blocks, 'block')}`].filter(Boolean).join('\n'),
      onclick: () => this.choose(index)},
    h('span', {class: 'gr-title'}, visible(group.title)), h('span', {class: 'gr-bytes'}, size_text(group.bytes)), h('span', {class: 'gr-share'}, share_text(group.bytes, all)),
    h('span', {class: 'gr-place'}, visible(group.location)), h('span', {class: 'gr-blocks'}, `${count_text(group.blocks)} ×`), bar);
    return h('div', {role: 'listitem'}, button);
  }

  private choose(index: number): void {
    const query = this.groups[index]?.query;
    if (query === null || query === undefined) return;
    // A second click clears the search.
    const next = this.app.state.query === query ? '' : query;
    this.clicked = next;
    void this.app.show({query: next});
  }

  private mark(state: State): void {
    this.list.querySelectorAll('.gr-item').forEach((item, i) => {
      item.setAttribute('aria-pressed', String(state.query !== '' && this.groups[i]?.query === state.query));
    });
  }
}
