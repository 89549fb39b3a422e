// The views by name, and the bar of search and filter: the only place that knows them all.

import type {View, ViewName} from './types.ts';
import type {Page} from './app.ts';
import {flame_view} from './flame/view.ts';
import {search_bar} from './search/bar.ts';
import {settings_view} from './settings/view.ts';
import {state_view} from './state/view.ts';
import {Timeline} from './timeline/view.ts';

export {search_bar};

/** Names of the tabs, in their order. */
export const TABS: [ViewName, string][] = [
  ['timeline', 'Timeline'], ['pools', 'Pools'], ['segments', 'Segments'], ['state', 'State'], ['flame', 'Flame graph'], ['settings', 'Settings'],
];

/** Makes a view. */
export function view_of(name: ViewName, page: Page): View {
  switch (name) {
    case 'timeline': case 'pools': case 'segments': return new Timeline(page, name);
    case 'state': return state_view(page);
    case 'flame': return flame_view(page);
    case 'settings': return settings_view(page);
  }
}
