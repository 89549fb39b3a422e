// What memory is for: the categories that memtrack knows, in the order in which they are stacked, bottom first, and their colours.
//
// `memtrack_profile::Category` (memtrack-core/profile/src/category.rs) has the same names, order and colours for pictures made
// without a browser. The page may not depend on that package, so the list stands twice; a test of the repository
// (tests/tests/reports/category_colors.rs) reads this one and compares.

import {escaped} from '../search/query.ts';
import {FEW, parse, type Rgb} from '../timeline/rgb.ts';

/** Name in snapshots, colour, and the colour on a dark page: where the first would not be seen there, one that is lighter. */
const KNOWN: readonly [name: string, color: string, on_dark: string][] = [
  ['parameter', '#006400', '#2f9e44'],
  ['optimizer_state', '#daa520', '#daa520'],
  ['input', '#000000', '#e3e6ec'],
  ['temporary', '#9370db', '#9370db'],
  ['activation', '#ff0000', '#ff3b30'],
  ['gradient', '#0000cd', '#4a50ff'],
  ['autograd_detail', '#4169e1', '#7da2ff'],
  ['unknown', '#808080', '#808080'],
  ['optimizer_temporary', '#c71585', '#e0409f'],
  ['buffer', '#20b2aa', '#20b2aa'],
];

/** Blocks of which the file says nothing: it is not a category, and lies above them all. */
const NO_CATEGORY: [string, string] = ['#c4c8d0', '#51565f'];

/** Categories that memtrack does not know and that have a band of their own; those beyond share one. */
const MOST_OTHERS = 20;

/** A band of the picture: one category, as a rule. */
export interface Band {
  /** As the file spells it. */
  readonly name: string;
  /** Its values in the column `category`: 0 for none, else 1 + place in the device's list. */
  readonly values: readonly number[];
  readonly light: Rgb;
  readonly dark: Rgb;
  /** The query that finds its blocks. */
  readonly query: string;
}

const known_as = (name: string): number => KNOWN.findIndex(([known]) => known === name.toLowerCase());

/** The colour of each of a device's categories. */
export function category_colors(names: readonly string[], dark: boolean): Rgb[] {
  const colors: Rgb[] = names.map(() => [0, 0, 0]);
  for (const band of bands_of(names)) for (const value of band.values) if (value > 0) colors[value - 1] = dark ? band.dark : band.light;
  return colors;
}

/** The colour of blocks that have no category. */
export function no_category_color(dark: boolean): Rgb {
  return parse(NO_CATEGORY[dark ? 1 : 0]);
}

/**
 * The bands of a device with these categories, bottom first: those memtrack knows in their order, others in the order of the file,
 * then blocks without a category. Names that differ in case alone are one.
 */
export function bands_of(names: readonly string[]): Band[] {
  const bands: Band[] = [], others: {name: string; values: number[]}[] = [];
  const band = (values: number[], light: Rgb, dark: Rgb, name = names[values[0]! - 1]!): Band => {
    const spelt = values.map(value => escaped(names[value - 1]!));
    return {name, values, light, dark, query: `category:^${spelt.length > 1 ? `(${spelt.join('|')})` : spelt[0]}$`};
  };
  const values_of = KNOWN.map(() => [] as number[]);
  names.forEach((name, place) => {
    const known = known_as(name);
    if (known >= 0) values_of[known]!.push(place + 1);
    else others.push({name, values: [place + 1]});
  });
  KNOWN.forEach(([, light, dark], known) => {
    if (values_of[known]!.length) bands.push(band(values_of[known]!, parse(light), parse(dark)));
  });
  const own = others.length > MOST_OTHERS ? MOST_OTHERS - 1 : others.length;
  others.slice(0, own).forEach(({values}, i) => bands.push(band(values, FEW[i % FEW.length]!, FEW[i % FEW.length]!)));
  const rest = others.slice(own).flatMap(other => other.values);
  if (rest.length) bands.push(band(rest, parse('#999999'), parse('#999999'), `${rest.length} more categories`));
  bands.push({name: 'no category', values: [0], light: no_category_color(false), dark: no_category_color(true), query: 'category:^$'});
  return bands;
}
