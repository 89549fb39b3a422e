// The categories that memtrack knows, in stack order from the bottom up, and their colours.
//
// `memtrack_profile::Category` (memtrack-core/profile/src/category.rs) has the same names, order and colours for pictures made
// without a browser. The page may not depend on that package, so there are two lists;
// tests/tests/reports/category_colors.rs compares them.

import {escaped} from '../search/query.ts';
import {QUALITATIVE, parse, type Rgb} from '../timeline/rgb.ts';

/** The name in snapshots, the colour, and the colour on a dark page, which is lighter if the first would be invisible there. */
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

/** Colours of blocks without a category, which are stacked above all categories. */
const NO_CATEGORY: [string, string] = ['#c4c8d0', '#51565f'];

/** The maximum number of bands for unknown categories; the others share one. */
const MAX_OTHERS = 20;

/** A band of the picture: usually one category. */
export interface Band {
  /** The name as spelled in the file. */
  readonly name: string;
  /** Its values in the column `category`: 0 for none, else 1 + index into the device's list. */
  readonly values: readonly number[];
  readonly light: Rgb;
  readonly dark: Rgb;
  /** The query that finds its blocks. */
  readonly query: string;
}

const known_as = (name: string): number => KNOWN.findIndex(([known]) => known === name.toLowerCase());

/** Returns the colours of a device's categories. */
export function category_colors(names: readonly string[], dark: boolean): Rgb[] {
  const colors: Rgb[] = names.map(() => [0, 0, 0]);
  for (const band of bands_of(names)) for (const value of band.values) if (value > 0) colors[value - 1] = dark ? band.dark : band.light;
  return colors;
}

/** Returns the colour of blocks without a category. */
export function no_category_color(dark: boolean): Rgb {
  return parse(NO_CATEGORY[dark ? 1 : 0]);
}

/**
 * Returns the bands of a device with these categories, bottom first: known ones in their order, others in the order of the file,
 * then blocks without a category. Names that differ only in case share a band.
 */
export function bands_of(names: readonly string[]): Band[] {
  const bands: Band[] = [], others: {name: string; values: number[]}[] = [];
  const band = (values: number[], light: Rgb, dark: Rgb, name = names[values[0]! - 1]!): Band => {
    const names_escaped = values.map(value => escaped(names[value - 1]!));
    return {name, values, light, dark, query: `category:^${names_escaped.length > 1 ? `(${names_escaped.join('|')})` : names_escaped[0]}$`};
  };
  const values_of = KNOWN.map(() => [] as number[]);
  names.forEach((name, index) => {
    const known = known_as(name);
    if (known >= 0) values_of[known]!.push(index + 1);
    else others.push({name, values: [index + 1]});
  });
  KNOWN.forEach(([, light, dark], known) => {
    if (values_of[known]!.length) bands.push(band(values_of[known]!, parse(light), parse(dark)));
  });
  const separate = others.length > MAX_OTHERS ? MAX_OTHERS - 1 : others.length;
  others.slice(0, separate).forEach(({values}, i) => bands.push(band(values, QUALITATIVE[i % QUALITATIVE.length]!, QUALITATIVE[i % QUALITATIVE.length]!)));
  const rest = others.slice(separate).flatMap(other => other.values);
  if (rest.length) bands.push(band(rest, parse('#999999'), parse('#999999'), `${rest.length} more categories`));
  bands.push({name: 'no category', values: [0], light: no_category_color(false), dark: no_category_color(true), query: 'category:^$'});
  return bands;
}
