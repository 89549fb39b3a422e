// Colours of blocks. A row's colour is an index into a palette of at most 256 colours. Patterns, edges and labels show the
// other properties, so that no fact depends on colour alone.

import type {ColorBy, Device, DeviceHead, Elements, Texts} from '../types.ts';
import {category_colors, no_category_color} from '../categories/names.ts';
import {bytes, plural, visible} from '../format.ts';
import {QUALITATIVE, luminance, mix, packed, type Rgb} from './rgb.ts';

/** Colours as 32-bit pixels of a little-endian canvas. */
export interface Palette {
  readonly fill: Uint32Array;
  /** Blocks inside an envelope. */
  readonly soft: Uint32Array;
  /** Edges between blocks, and hatching. */
  readonly edge: Uint32Array;
  /** Blocks that do not match search and filter. */
  readonly dim: Uint32Array;
  readonly css: string[];
  /** The legend of the colours: the largest groups first, or groups in their natural order. */
  readonly legend: Key[];
}

/** Index of the colour of unused memory in a private pool, in every palette. */
export const SLACK = 255;

/** Converts from OKLCH, a perceptual colour space in which equal steps look equal. */
function oklch(l: number, c: number, hue: number): Rgb {
  const a = c * Math.cos((hue * Math.PI) / 180), b = c * Math.sin((hue * Math.PI) / 180);
  const [x, y, z] = [l + 0.3963377774 * a + 0.2158037573 * b, l - 0.1055613458 * a - 0.0638541728 * b, l - 0.0894841775 * a - 1.291485548 * b].map(v => v ** 3) as Rgb;
  return [4.0767416621 * x - 3.3077115913 * y + 0.2309699292 * z, -1.2684380046 * x + 2.6097574011 * y - 0.3413193965 * z,
    -0.0041960863 * x - 0.7034186147 * y + 1.707614701 * z]
    .map(v => Math.round(255 * Math.max(0, Math.min(1, v <= 0.0031308 ? 12.92 * v : 1.055 * v ** (1 / 2.4) - 0.055)))) as Rgb;
}

/** The colour of groups without a name. */
const grey = (dark: boolean): Rgb => (dark ? [92, 96, 104] : [176, 180, 188]);

/** A scale from dark blue (low) over green to yellow (high), with increasing lightness. */
const SCALE = Array.from({length: 16}, (_, i) => {
  const t = i / 15;
  return oklch(0.38 + 0.5 * t, 0.085 + 0.045 * t, 275 - 180 * t);
});

/**
 * The upper bounds of the lifetimes, in events, that share a colour by age. Blocks that are never freed get the last colour.
 */
const AGES = [1, 3, 10, 30, 100, 300, 1000, 3000, 10_000, 30_000, 100_000, Infinity];

/** Returns a palette that repeats these colours. */
function palette(colors: readonly Rgb[], back: Rgb, dark: boolean, legend: Palette['legend']): Palette {
  const fill = new Uint32Array(256), soft = new Uint32Array(256), edge = new Uint32Array(256), dim = new Uint32Array(256), css: string[] = [];
  const slack = mix(back, dark ? [255, 255, 255] : [0, 0, 0], 0.09);
  for (let i = 0; i < 256; i++) {
    const c = i === SLACK ? slack : colors[i % colors.length]!;
    fill[i] = packed(c);
    soft[i] = packed(mix(c, back, 0.35));
    // A darker edge would be invisible on a nearly black colour.
    edge[i] = packed(luminance(c) < 0.05 ? mix(c, [255, 255, 255], 0.4) : mix(c, dark ? [0, 0, 0] : [20, 24, 40], 0.34));
    dim[i] = packed(mix(mix(c, [128, 128, 128], 0.6), back, 0.78));
    css.push(`rgb(${c.join(' ')})`);
  }
  return {fill, soft, edge, dim, css, legend};
}

/** The page's background. */
export const background = (dark: boolean): Rgb => (dark ? [22, 24, 29] : [255, 255, 255]);

/** Returns a palette for bands. Their colours may be as dark as an edge, so edges have the background's colour. */
export function band_palette(colors: readonly Rgb[], dark: boolean): Palette {
  const back = background(dark), out = palette(colors, back, dark, []);
  colors.forEach((color, i) => { out.edge[i] = packed(mix(color, back, 0.6)); });
  return out;
}

/** Flag of a row: only its free was recorded. */
const ONLY_FREED = 1;

/** The maximum number of groups that have a colour and a name in the legend, so that the legend fits on a line. */
const MAX_NAMED = 9;

/** An entry of the legend: one of the largest groups at the peak. */
export interface Key {
  readonly color: number;
  readonly name: string;
  /** Bytes at the peak. */
  readonly bytes: number;
}

/** Colours for named groups: those of `QUALITATIVE` without grey. */
const DISTINCT = QUALITATIVE.filter(([r, g, b]) => r !== g || g !== b).slice(0, MAX_NAMED);
/** Number of pale colours for all other groups, which the legend counts together. */
const PALE = 24;
function pale(dark: boolean): Rgb[] {
  return Array.from({length: PALE}, (_, i) => oklch((dark ? 0.36 : 0.83) + [0, 0.05, 0.025][i % 3]!, 0.022, i * 15));
}
/** Index of the colour of unnamed and unknown groups, in every palette. */
const NAMELESS = 254;

/** Assigns a colour to each of the largest groups. `group` returns a row's group, 0 for none; `live` are the rows at the peak. */
function by_group(rows: Elements, live: Uint32Array, groups: number, group: (row: number) => number, name: (group: number) => string, none: string, others: (count: number) => string, dark: boolean):
{of: Uint8Array; colors: Rgb[]; legend: Key[]} {
  const at_peak = new Float64Array(groups + 1), all = new Float64Array(groups + 1);
  for (let row = 0; row < rows.count; row++) all[group(row)]! += rows.size[row]!;
  for (const row of live) at_peak[group(row)]! += rows.size[row]!;
  const order: number[] = [];
  for (let g = 1; g <= groups; g++) if (all[g]! > 0) order.push(g);
  order.sort((a, b) => at_peak[b]! - at_peak[a]! || all[b]! - all[a]! || a - b);
  const color_of = new Uint8Array(groups + 1).fill(NAMELESS, 0, 1), named = order.slice(0, MAX_NAMED), rest = order.slice(MAX_NAMED);
  named.forEach((g, i) => { color_of[g] = i; });
  for (const g of rest) color_of[g] = MAX_NAMED + ((Math.imul(g, 0x9e3779b1) >>> 8) % PALE);
  const of = new Uint8Array(rows.count);
  for (let row = 0; row < of.length; row++) of[row] = color_of[group(row)]!;
  const cycle = [...DISTINCT, ...pale(dark)], colors = Array.from({length: 256}, (_, i): Rgb => (i === NAMELESS ? grey(dark) : cycle[i % cycle.length]!));
  const legend: Key[] = named.map((g, i) => ({color: i, name: visible(name(g)), bytes: at_peak[g]!}));
  if (rest.length) legend.push({color: MAX_NAMED + 1, name: others(rest.length), bytes: rest.reduce((sum, g) => sum + at_peak[g]!, 0)});
  if (all[0]! > 0) legend.push({color: NAMELESS, name: none, bytes: at_peak[0]!});
  return {of, colors, legend};
}

/** Returns the rows of a device's blocks or segments that are live at the peak. */
export function live_at_peak(device: Pick<Device, 'live_after'>, rows: Elements): Uint32Array {
  const {total} = rows;
  let peak = 0;
  for (let i = 1; i < total.length; i++) if (total[i]! > total[peak]!) peak = i;
  return device.live_after(rows, peak - 1);
}

/**
 * Returns the colour of each row, and the palette. `live` are the rows at the peak; `texts` are needed only if `by` is `stack`.
 */
export function colors_of(rows: Elements, by: ColorBy, device: DeviceHead, dark: boolean, live: Uint32Array, texts: Texts | null): {of: Uint8Array; palette: Palette} {
  const back = background(dark);
  const grouped = ({of, colors, legend}: ReturnType<typeof by_group>) => ({of, palette: palette(colors, back, dark, legend)});
  const by_column = (column: Uint16Array, names: readonly string[], shift: 0 | 1, none: string, what: string) => grouped(by_group(rows, live, names.length, row => column[row]! + shift, g => names[g - 1]!, none, n => plural(n, `other ${what}`), dark));
  /** Returns the bytes at the peak by colour. */
  const sums = (of: Uint8Array) => {
    const sum = new Float64Array(256);
    for (const row of live) sum[of[row]!]! += rows.size[row]!;
    return sum;
  };
  switch (by) {
    case 'stack': {
      // If only the free of a block was recorded, its stack is not the one that allocated it.
      const strings = texts?.strings ?? 0, {stack, flags} = rows, lines = texts?.stack_line;
      const group = (row: number) => {
        const line = lines?.[stack[row]!] ?? 0;
        return line && flags[row]! & ONLY_FREED ? strings + line : line;
      };
      return grouped(by_group(rows, live, 2 * strings, group, g => (g > strings ? `older, freed at ${texts!.string(g - strings)}` : texts!.string(g)), 'no stack recorded', n => plural(n, 'other line'), dark));
    }
    case 'stream':
      return by_column(rows.stream, device.streams.map(s => `stream ${s}`), 1, '', 'stream');
    case 'pool':
      return by_column(rows.pool, device.pools, 0, 'pool not known', 'pool');
    case 'size': {
      // Powers of two up to the largest size; less than a four-thousandth of it is too small to be visible.
      let least = Infinity, most = 1;
      for (const size of rows.size) {
        if (size < least) least = size;
        if (size > most) most = size;
      }
      const high = Math.floor(Math.log2(most)), low = Math.max(Math.floor(Math.log2(Math.max(1, least))), high - 12);
      const color = (size: number) => Math.max(0, Math.min(15, Math.floor(((Math.log2(size + 1) - low) * 16) / (high - low + 1))));
      const of = new Uint8Array(rows.count);
      for (let row = 0; row < of.length; row++) of[row] = color(rows.size[row]!);
      const step = Math.max(1, Math.ceil((high - low) / 6)), powers = Array.from({length: Math.floor((high - low) / step) + 1}, (_, i) => 2 ** (low + i * step));
      const at_peak = powers.map(() => 0);
      for (const row of live) at_peak[Math.max(0, powers.findLastIndex(power => rows.size[row]! >= power))]! += rows.size[row]!;
      const legend = powers.map((power, i) => ({color: color(power), name: i === 0 ? `< ${bytes(power * 2 ** step)}` : `≥ ${bytes(power)}`, bytes: at_peak[i]!}));
      return {of, palette: palette(SCALE, back, dark, rows.count ? legend : [])};
    }
    case 'age': {
      const {start, end} = rows, events = rows.total.length - 1, of = new Uint8Array(rows.count);
      for (let row = 0; row < of.length; row++) {
        const life = end[row]! - start[row]!;
        of[row] = end[row]! >= events || start[row]! < 0 ? 15 : AGES.findIndex(a => life <= a);
      }
      const sum = sums(of), within = (from: number, to: number) => sum.slice(from, to + 1).reduce((a, b) => a + b, 0);
      return {of, palette: palette(SCALE, back, dark, [{color: 1, name: 'freed within 3 events', bytes: within(0, 1)}, {color: 4, name: 'within 100', bytes: within(2, 4)}, {color: 6, name: 'within 1,000', bytes: within(5, 6)},
        {color: 8, name: 'within 10,000', bytes: within(7, 8)}, {color: 11, name: 'later', bytes: within(9, 14)}, {color: 15, name: 'live at the start or end', bytes: within(15, 15)}])};
    }
    case 'category': {
      // Categories have the colours of their bands.
      const known = category_colors(device.categories, dark), none = no_category_color(dark), of = new Uint8Array(rows.count);
      for (let row = 0; row < of.length; row++) of[row] = rows.category[row] ? (rows.category[row]! - 1) % SLACK : NAMELESS;
      const colors = Array.from({length: 256}, (_, i): Rgb => (i === NAMELESS || !known.length ? none : known[i % known.length]!)), sum = sums(of);
      const used = new Set(of), order = device.categories.map((_, i) => i).filter(i => used.has(i)).sort((a, b) => sum[b]! - sum[a]! || a - b);
      const named = order.slice(0, 2 * MAX_NAMED), rest = order.slice(2 * MAX_NAMED);
      const legend: Key[] = named.map(i => ({color: i, name: visible(device.categories[i]!), bytes: sum[i]!}));
      if (rest.length) legend.push({color: rest[0]!, name: plural(rest.length, 'other category', 'other categories'), bytes: rest.reduce((all, i) => all + sum[i]!, 0)});
      if (used.has(NAMELESS)) legend.push({color: NAMELESS, name: 'no category', bytes: sum[NAMELESS]!});
      return {of, palette: palette(colors, back, dark, legend)};
    }
  }
}
