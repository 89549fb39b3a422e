// All views by name, and the bar with search and filter. No other module lists them.

import type {Head, View, ViewName} from './types.ts';
import type {Page} from './app.ts';
import {CategoryView} from './categories/view.ts';
import {flame_view} from './flame/view.ts';
import {search_bar} from './search/bar.ts';
import {settings_view} from './settings/view.ts';
import {state_view} from './state/view.ts';
import {Timeline} from './timeline/view.ts';

export {search_bar};

/** A view's name, its title, and its key. */
export type Tab = [name: ViewName, title: string, key: string];

/** The tabs in their order. A tab has the same key on pages that lack other tabs. */
const TABS: Tab[] = [
  ['timeline', 'Timeline', '1'], ['categories', 'Categories', '7'], ['pools', 'Pools', '2'], ['segments', 'Segments', '3'], ['state', 'State', '4'],
  ['flame', 'Flame graph', '5'], ['settings', 'Settings', '6'],
];

/** Returns the tabs of a page. Categories have a tab only if the file contains any, or if the page opens with that view. */
export function tabs_of(head: Head): Tab[] {
  return TABS.filter(([name]) => name !== 'categories' || head.view === name || head.devices.some(device => device.categories.length > 0));
}

/** Creates a view. */
export function view_of(name: ViewName, page: Page): View {
  switch (name) {
    case 'timeline': case 'pools': case 'segments': return new Timeline(page, name);
    case 'categories': return new CategoryView(page);
    case 'state': return state_view(page);
    case 'flame': return flame_view(page);
    case 'settings': return settings_view(page);
  }
}
