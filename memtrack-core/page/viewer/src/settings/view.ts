// The allocator's settings, and facts about the file.

import './settings.css';
import type {App, Hit, State, View} from '../types.ts';
import {h} from '../dom.ts';
import {visible} from '../format.ts';
import {device_facts, file_facts, type Fact} from './facts.ts';
import {flatten} from './settings.ts';

/** Creates the view. */
export function settings_view(app: App): View { return new SettingsView(app); }

class SettingsView implements View {
  readonly element: HTMLElement;
  private readonly body: HTMLElement;
  private made = false;

  constructor(private readonly app: App) {
    this.body = h('div', {class: 'se-body'});
    this.element = h('section', {class: 'settings-view', 'aria-label': 'Settings and file', tabindex: 0}, this.body);
  }

  show(state: State): void {
    if (!this.made) this.make();
    this.made = true;
    this.body.querySelectorAll('[data-device]').forEach(element => element.classList.toggle('current', element.getAttribute('data-device') === String(state.device)));
  }

  private make(): void {
    const {head, devices} = this.app, settings = flatten(head.settings);
    this.body.append(h('div', {class: 'se-column'},
      card('Allocator settings', settings.length === 0
        ? h('p', {class: 'se-none'}, 'The file has no allocator settings. Snapshots of PyTorch 2.5 and later have them; recordings of memtrack do not.')
        : h('table', {class: 'se-table'}, h('tbody', {}, ...settings.map(({key, value, kind}) => h('tr', {}, h('th', {scope: 'row'}, ...breakable(key)), h('td', {class: `is-${kind}`}, visible(value)))))))),
    h('div', {class: 'se-column'}, card('File', facts(file_facts(head))),
      ...devices.map(device => {
        const made = card(device.head.name, facts(device_facts(device.head)));
        made.dataset.device = String(device.index);
        return made;
      })));
  }

  resize(): void { /* The browser lays out text. */ }

  key(event: KeyboardEvent): boolean {
    const page = this.element.clientHeight * 0.9;
    const by = {ArrowDown: 40, ArrowUp: -40, PageDown: page, PageUp: -page}[event.key];
    if (by === undefined) return false;
    this.element.scrollBy(0, by);
    return true;
  }

  hit(_x: number, _y: number): Hit | null { return null; }
}

function card(title: string, ...children: Node[]): HTMLElement { return h('section', {class: 'se-card'}, h('h2', {}, visible(title)), ...children); }

function facts(list: readonly Fact[]): HTMLElement {
  return h('table', {class: 'se-table'}, h('tbody', {}, ...list.map(([name, value]) => h('tr', {}, h('th', {scope: 'row'}, name), h('td', {}, visible(value))))));
}

/** Splits a key where a line may break. */
function breakable(key: string): (Node | string)[] {
  return visible(key).split(/(?<=[._])/).flatMap((part, i) => i === 0 ? [part] : [document.createElement('wbr'), part]);
}
