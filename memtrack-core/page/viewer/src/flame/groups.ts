// The stack panel: the largest groups of the selection, beside any view.

import type {App, State} from '../types.ts';
import {el, set_text} from '../state/dom.ts';
import {count_text, exact_size, plural, share_text, size_text, visible} from '../state/numbers.ts';
import {group_rows, type BlockGroup, type GroupBy} from './grouping.ts';
import {selected_rows, window_events, type What} from './selection.ts';

/** Groups that are listed. */
const MOST = 100;

/** A panel that the shell puts beside a view, and shows whenever the state changes. */
export interface GroupsPanel {
  readonly element: HTMLElement;
  show(state: State): Promise<void>;
}

/** Makes the panel. */
export function groups_panel(app: App): GroupsPanel { return new Panel(app); }

class Panel implements GroupsPanel {
  readonly element: HTMLElement;
  private readonly by: HTMLSelectElement;
  private readonly what: HTMLSelectElement;
  private readonly sum: HTMLElement;
  private readonly list: HTMLElement;
  private made = '';
  private passing: Uint8Array | null = null;
  /** The query of the group that was clicked: it marks that group, and does not hide the others. */
  private clicked = '';
  private groups: BlockGroup[] = [];
  private turn = 0;

  constructor(private readonly app: App) {
    const again = (): void => { this.made = ''; void this.show(this.app.state); };
    const choice = (label: string, values: [string, string][]): HTMLSelectElement => el('select', '', {'aria-label': label, change: again},
      ...values.map(([value, text]) => el('option', '', {value}, text)));
    this.by = choice('Groups are by', [['stack', 'stack'], ['function', 'function'], ['scope', 'operator'], ['category', 'category']]);
    this.what = choice('What is counted', [['live', 'live after the event'], ['window', 'allocated in the range']]);
    this.sum = el('div', 'gr-sum', {role: 'status'});
    this.list = el('div', 'gr-list', {role: 'list'});
    this.element = el('aside', 'groups-panel', {'aria-label': 'Largest groups'}, el('div', 'gr-head', {}, 'By ', this.by, this.what), this.sum, this.list);
  }

  async show(state: State): Promise<void> {
    const turn = ++this.turn, device = this.app.devices[state.device];
    if (!device) return;
    const what = this.what.value as What, by = this.by.value as GroupBy;
    const key = [device.place, by, what, what === 'live' ? state.event : window_events(device, state).join('–')].join(' ');
    if (key === this.made && this.passing === this.app.passing) { this.mark(state); return; }
    const texts = await this.app.texts(), events = by === 'scope' ? await device.events() : null;
    if (turn !== this.turn) return;
    this.made = key;
    this.passing = this.app.passing;
    let rows = selected_rows(device, state, what);
    const passing = state.query !== '' && state.query === this.clicked ? null : this.passing;
    if (passing) rows = rows.filter(row => passing[row] === 1);
    const {groups, count} = group_rows(rows, by, device, events, texts, MOST);
    let bytes = 0;
    for (const row of rows) bytes += device.blocks.size[row]!;
    this.groups = groups;
    const about = device.head.estimated ? '~' : '';
    set_text(this.sum, rows.length === 0 ? 'Nothing is selected.' : `${about}${size_text(bytes)} in ${plural(rows.length, 'block')}${passing ? ' that match' : ''}, ${plural(count, 'group')}${count > MOST ? `; the largest ${MOST}` : ''}`);
    this.list.replaceChildren(...groups.map((group, i) => this.item(group, bytes, i)));
    this.mark(state);
  }

  private item(group: BlockGroup, all: number, place: number): HTMLElement {
    const bar = el('span', 'gr-bar', {'aria-hidden': 'true'});
    bar.style.width = `${all ? group.bytes / all * 100 : 0}%`;
    const button = el('button', 'gr-item', {type: 'button', disabled: group.query === null, 'aria-pressed': 'false',
      title: [visible(group.title), visible(group.place), `${exact_size(group.bytes)} in ${plural(group.blocks, 'block')}`].filter(Boolean).join('\n'),
      click: () => this.choose(place)},
    el('span', 'gr-title', {}, visible(group.title)), el('span', 'gr-bytes', {}, size_text(group.bytes)), el('span', 'gr-share', {}, share_text(group.bytes, all)),
    el('span', 'gr-place', {}, visible(group.place)), el('span', 'gr-blocks', {}, `${count_text(group.blocks)} ×`), bar);
    return el('div', '', {role: 'listitem'}, button);
  }

  private choose(place: number): void {
    const query = this.groups[place]?.query;
    if (query === null || query === undefined) return;
    // A second click takes it back.
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
