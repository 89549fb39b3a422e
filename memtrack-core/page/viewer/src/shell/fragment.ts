// The state as a URL's fragment, so that it can be linked to.

import type {ColorBy, Filter, Show, ViewName} from '../types.ts';
import type {Page} from '../app.ts';

const VIEWS: ViewName[] = ['timeline', 'categories', 'pools', 'state', 'segments', 'flame', 'settings'];
const COLORS: ColorBy[] = ['stack', 'size', 'stream', 'pool', 'category', 'age'];

/** Returns the differences from the page's initial state, as text. */
export function fragment_of(page: Page): string {
  const {state, head, axis} = page, out = new URLSearchParams();
  const number = (name: 'from' | 'to' | 'bottom' | 'top', initial: number) => {
    if (state[name] !== initial) out.set(name, String(Number(state[name].toPrecision(12))));
  };
  if (state.view !== head.view) out.set('view', state.view);
  if (state.device !== 0) out.set('device', page.device.head.name);
  if (state.axis !== (head.has_time ? 'time' : 'step')) out.set('axis', state.axis);
  number('from', axis.from);
  number('to', axis.to);
  number('bottom', 0);
  number('top', 0);
  if (state.event !== page.device.head.events - 1) out.set('event', String(state.event));
  if (state.block !== null) out.set('block', String(state.block));
  if (state.query) out.set('query', state.query);
  if (Object.keys(state.filter).length || head.kept) out.set('filter', JSON.stringify(state.filter));
  if (state.color !== page.device.head.color) out.set('color', state.color);
  if (state.hide) out.set('hide', '1');
  return out.toString();
}

/** Parses a fragment. It may come from anywhere, so invalid parts are ignored. */
export function shown_by(fragment: string): Show {
  const all = new URLSearchParams(fragment.replace(/^#/, '')), out: Show = {};
  for (const name of ['from', 'to', 'bottom', 'top', 'event', 'block'] as const) {
    const text = all.get(name);
    if (text !== null && text !== '' && Number.isFinite(Number(text))) out[name] = Number(text);
  }
  const one = <T extends string>(name: string, of: readonly T[]) => of.find(v => v === all.get(name));
  out.view = one('view', VIEWS);
  out.axis = one('axis', ['time', 'step'] as const);
  out.color = one('color', COLORS);
  out.device = all.get('device') ?? undefined;
  out.query = all.get('query') ?? undefined;
  if (all.get('hide') === '1') out.hide = true;
  out.filter = filter(all.get('filter'));
  return out;
}

function filter(text: string | null): Filter | undefined {
  if (text === null) return undefined;
  try {
    const raw = JSON.parse(text) as Record<string, unknown>, out: Filter = {};
    for (const key of ['min_bytes', 'max_bytes', 'min_life', 'max_life'] as const) if (typeof raw[key] === 'number') out[key] = raw[key];
    if (raw.kept === true) out.kept = true;
    for (const key of ['streams', 'pools', 'categories'] as const) if (Array.isArray(raw[key])) out[key] = (raw[key] as unknown[]).filter(v => typeof v === 'number');
    return out;
  } catch {
    return undefined;
  }
}

