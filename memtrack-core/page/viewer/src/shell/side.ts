// The side of the page: details of what is under the pointer or pinned, or the largest groups of the selection.

import type {App, State} from '../types.ts';
import {h} from '../dom.ts';
import {groups_panel, type GroupsPanel} from '../flame/groups.ts';

/** The side, with a tab for each of its panels. */
export class Side {
  readonly element: HTMLElement;
  private readonly tabs: HTMLButtonElement[];
  private readonly panels: HTMLElement[];
  private readonly groups: GroupsPanel;
  private shown = 0;

  constructor(private readonly app: App, details: HTMLElement) {
    this.groups = groups_panel(app);
    this.panels = [details, this.groups.element];
    this.tabs = ['Details', 'Groups'].map((title, place) => h('button', {type: 'button', title: `${title} (key d)`, onclick: () => this.turn_to(place)}, title));
    this.element = h('div', {class: 'side'}, h('div', {class: 'tabs side-tabs', role: 'group', 'aria-label': 'Side'}, ...this.tabs), ...this.panels);
    this.turn_to(0);
  }

  /** Key `d`: from one panel to the other. */
  next(): void {
    this.turn_to(1 - this.shown);
  }

  /** Shows the state. Groups cost a walk over what is live, so they are counted only where they can be seen. */
  async show(state: State): Promise<void> {
    if (this.shown === 1) await this.groups.show(state);
  }

  private turn_to(place: number): void {
    this.shown = place;
    this.tabs.forEach((tab, i) => {
      tab.setAttribute('aria-pressed', String(i === place));
      this.panels[i]!.hidden = i !== place;
    });
    if (place === 1) void this.groups.show(this.app.state);
  }
}
