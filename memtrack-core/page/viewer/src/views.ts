// The views by name, and the bar of search and filter: the only place that knows them all.

import type {App, SearchBar, View, ViewName} from './types.ts';
import type {Page} from './app.ts';
import {h} from './dom.ts';
import {Timeline} from './timeline/view.ts';

/** Names of the tabs, in their order. */
export const TABS: [ViewName, string][] = [
  ['timeline', 'Timeline'], ['pools', 'Pools'], ['segments', 'Segments'], ['state', 'State'], ['flame', 'Flame graph'], ['settings', 'Settings'],
];

/** Makes a view. */
export function view_of(name: ViewName, page: Page): View {
  switch (name) {
    case 'timeline': case 'pools': case 'segments': return new Timeline(page, name);
    default: return placeholder(name);
  }
}

/** Makes the bar of search and filter; null: there is none. */
export function search_bar(_app: App): SearchBar | null {
  return null;
}

function placeholder(name: string): View {
  return {element: h('section', {class: 'empty'}, h('p', {}, `The view “${name}” is being loaded.`)), show() {}, resize() {}, key: () => false, hit: () => null};
}
