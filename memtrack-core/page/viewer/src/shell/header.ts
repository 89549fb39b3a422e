// The page's header: file, device, tabs, and the controls that all views share.

import type {ColorBy, State} from '../types.ts';
import type {Page} from '../app.ts';
import {fill, h} from '../dom.ts';
import {visible} from '../format.ts';
import {tabs_of, type Tab} from '../views.ts';
import type {Help} from './help.ts';

const COLORS: [ColorBy, string][] = [['stack', 'stack'], ['size', 'size'], ['age', 'lifetime'], ['stream', 'stream'], ['pool', 'pool'], ['category', 'category']];

/** The header. */
export class Header {
  readonly element: HTMLElement;
  private readonly tabs: HTMLButtonElement[];
  private readonly names: Tab[];
  private readonly device: HTMLSelectElement;
  private readonly color: HTMLSelectElement;
  private readonly axis: HTMLButtonElement;
  private readonly link: HTMLButtonElement;
  private readonly theme_button: HTMLButtonElement;

  constructor(private readonly page: Page, help: Help) {
    const {head, devices} = page;
    this.names = tabs_of(head);
    this.tabs = this.names.map(([name, title, key], i) => h('button', {role: 'tab', type: 'button', title: `${title} (key ${key})`, onclick: () => void page.show({view: name}),
      onkeydown: (e: KeyboardEvent) => this.tab_key(e, i)}, title));
    this.device = h('select', {'aria-label': 'Device', onchange: () => void page.show({device: Number(this.device.value)})},
      ...devices.map((d, i) => h('option', {value: i}, visible(d.head.name) + (d.head.events || d.head.blocks ? '' : ' (nothing recorded)'))));
    this.color = h('select', {onchange: () => void page.show({color: this.color.value as ColorBy})});
    this.axis = h('button', {type: 'button', title: 'Real time, or one step per event (key a)', onclick: () => void page.show({axis: page.state.axis === 'time' ? 'step' : 'time'})});
    this.link = h('button', {type: 'button', title: 'Copy a link to this view (key c)', onclick: () => void this.copy()}, 'Copy link');
    this.theme_button = h('button', {type: 'button', title: 'Light or dark (key t)', 'aria-label': 'Light or dark', onclick: () => this.theme()}, '◐');
    this.element = h('header', {},
      h('h1', {title: visible(head.name)}, visible(head.name)),
      devices.length > 1 && this.device,
      h('div', {role: 'tablist', 'aria-label': 'Views', class: 'tabs'}, ...this.tabs),
      h('span', {class: 'gap'}),
      h('label', {}, 'color ', this.color),
      head.has_time && this.axis,
      this.link,
      this.theme_button,
      h('button', {type: 'button', title: 'Keys and help (key ?)', 'aria-label': 'Help', onclick: () => help.open()}, '?'));
  }

  show(state: State, changed: Set<keyof State>): void {
    if (changed.has('view')) {
      this.names.forEach(([name], i) => {
        const on = name === state.view;
        this.tabs[i]!.setAttribute('aria-selected', String(on));
        this.tabs[i]!.tabIndex = on ? 0 : -1;
      });
    }
    // Categories have fixed colours, and settings have none.
    if (changed.has('view')) this.color.parentElement!.hidden = state.view === 'categories' || state.view === 'settings';
    if (changed.has('device')) {
      this.device.value = String(state.device);
      const {categories, inferred, streams, pools} = this.page.device.head;
      const use: Partial<Record<ColorBy, boolean>> = {category: categories.length > 0, stream: streams.length > 1, pool: pools.length > 1};
      fill(this.color, ...COLORS.filter(([name]) => use[name] ?? true).map(([name, title]) => h('option', {value: name}, name === 'category' && inferred ? 'category (inferred)' : name === 'stack' ? 'line of code' : title)));
    }
    if (changed.has('color') || changed.has('device')) this.color.value = state.color;
    if (changed.has('axis')) this.axis.textContent = state.axis === 'time' ? 'Axis: time' : 'Axis: events';
  }

  /** Shows the view for a key; returns false if no view has this key. */
  tab(key: string): boolean {
    const tab = this.names.find(tab => tab[2] === key);
    if (tab) void this.page.show({view: tab[0]});
    return tab !== undefined;
  }

  async copy(): Promise<void> {
    // The URL follows the state with a delay, because browsers limit how often it may change.
    await new Promise(done => setTimeout(done, 300));
    let text = 'Copied';
    try {
      await navigator.clipboard.writeText(location.href);
    } catch {
      text = 'The link is in the address bar';
    }
    this.link.textContent = text;
    setTimeout(() => (this.link.textContent = 'Copy link'), 1600);
  }

  theme(): void {
    document.documentElement.dataset.theme = this.page.dark ? 'light' : 'dark';
    this.page.restyle();
  }

  private tab_key(event: KeyboardEvent, index: number): void {
    const to = {ArrowLeft: index - 1, ArrowRight: index + 1, Home: 0, End: this.names.length - 1}[event.key];
    if (to === undefined) return;
    event.preventDefault();
    const next = (to + this.names.length) % this.names.length;
    void this.page.show({view: this.names[next]![0]});
    this.tabs[next]!.focus();
  }
}
