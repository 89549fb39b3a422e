// The side panel: details of the item that is pinned or at the pointer, or the largest groups of the selection.

import type {App, State} from '../types.ts';
import {h} from '../dom.ts';
import {groups_panel, type GroupsPanel} from '../flame/groups.ts';

/** The side panel, with a tab for each of its parts. */
export class Side {
  readonly element: HTMLElement;
  private readonly tabs: HTMLButtonElement[];
  private readonly panels: HTMLElement[];
  private readonly groups: GroupsPanel;
  private shown = 0;

  constructor(private readonly app: App, details: HTMLElement) {
    this.groups = groups_panel(app);
    this.panels = [details, this.groups.element];
    this.tabs = ['Details', 'Groups'].map((title, index) => h('button', {type: 'button', title: `${title} (key d)`, onclick: () => this.switch_to(index)}, title));
    this.element = h('div', {class: 'side'}, h('div', {class: 'tabs side-tabs', role: 'group', 'aria-label': 'Side panel'}, ...this.tabs), ...this.panels);
    this.switch_to(0);
  }

  /** Handles the key `d`: switches to the other part. */
  next(): void {
    this.switch_to(1 - this.shown);
  }

  /**
   * Shows the state. Groups are computed only while they are visible, because computing them takes a pass over the live blocks.
   */
  async show(state: State): Promise<void> {
    if (this.shown === 1) await this.groups.show(state);
  }

  private switch_to(index: number): void {
    this.shown = index;
    this.tabs.forEach((tab, i) => {
      tab.setAttribute('aria-pressed', String(i === index));
      this.panels[i]!.hidden = i !== index;
    });
    if (index === 1) void this.groups.show(this.app.state);
  }
}
