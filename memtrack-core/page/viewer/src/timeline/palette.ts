// Colours of blocks. A row's colour is a place in a palette of at most 256; patterns, edges and labels say the rest, so that
// no fact is told by colour alone.

import type {ColorBy, DeviceHead, Elements} from '../types.ts';
import {category_colors, no_category_color} from '../categories/names.ts';
import {bytes, visible} from '../format.ts';
import {FEW, luminance, mix, packed, type Rgb} from './rgb.ts';

/** Colours as a little-endian canvas has them in 32 bits. */
export interface Palette {
  readonly fill: Uint32Array;
  /** Blocks inside of an envelope. */
  readonly soft: Uint32Array;
  /** Edges between blocks, and hatching. */
  readonly edge: Uint32Array;
  /** Blocks that search and filter do not let through. */
  readonly dim: Uint32Array;
  readonly css: string[];
  /** What the colours mean, most telling first. */
  readonly legend: {color: number; name: string}[];
}

/** Colour of what a private pool holds and no block uses: the last place of every palette. */
export const SLACK = 255;

/** From a perceptual space (OKLCH), in which equal steps look equal. */
function oklch(l: number, c: number, hue: number): Rgb {
  const a = c * Math.cos((hue * Math.PI) / 180), b = c * Math.sin((hue * Math.PI) / 180);
  const [x, y, z] = [l + 0.3963377774 * a + 0.2158037573 * b, l - 0.1055613458 * a - 0.0638541728 * b, l - 0.0894841775 * a - 1.291485548 * b].map(v => v ** 3) as Rgb;
  return [4.0767416621 * x - 3.3077115913 * y + 0.2309699292 * z, -1.2684380046 * x + 2.6097574011 * y - 0.3413193965 * z,
    -0.0041960863 * x - 0.7034186147 * y + 1.707614701 * z]
    .map(v => Math.round(255 * Math.max(0, Math.min(1, v <= 0.0031308 ? 12.92 * v : 1.055 * v ** (1 / 2.4) - 0.055)))) as Rgb;
}

/** Many calm colours, for stacks: neighbours in hue differ in lightness, which every eye tells apart. */
function many(dark: boolean): Rgb[] {
  const out: Rgb[] = [];
  for (let shade = 0; shade < 3; shade++)
    for (let i = 0; i < 12; i++)
      out.push(oklch((dark ? 0.56 : 0.64) + [0, 0.1, 0.05][shade]! + (i % 2 ? 0.07 : 0), shade === 1 ? 0.095 : 0.085, 252 + i * 30 + shade * 10));
  return out;
}

/** What has no name. */
const grey = (dark: boolean): Rgb => (dark ? [92, 96, 104] : [176, 180, 188]);

/** From little (dark blue) over green to much (yellow), its lightness rising all the way. */
const SCALE = Array.from({length: 16}, (_, i) => {
  const t = i / 15;
  return oklch(0.38 + 0.5 * t, 0.085 + 0.045 * t, 275 - 180 * t);
});

/** Longest lives, in events, of the steps of colour by age; blocks that are never freed get the last colour. */
const AGES = [1, 3, 10, 30, 100, 300, 1000, 3000, 10_000, 30_000, 100_000, Infinity];

/** A palette of these colours, over and over. */
function palette(colors: readonly Rgb[], back: Rgb, dark: boolean, legend: Palette['legend']): Palette {
  const fill = new Uint32Array(256), soft = new Uint32Array(256), edge = new Uint32Array(256), dim = new Uint32Array(256), css: string[] = [];
  const slack = mix(back, dark ? [255, 255, 255] : [0, 0, 0], 0.09);
  for (let i = 0; i < 256; i++) {
    const c = i === SLACK ? slack : colors[i % colors.length]!;
    fill[i] = packed(c);
    soft[i] = packed(mix(c, back, 0.35));
    // On what is nearly black, a darker edge would not be seen.
    edge[i] = packed(luminance(c) < 0.05 ? mix(c, [255, 255, 255], 0.4) : mix(c, dark ? [0, 0, 0] : [20, 24, 40], 0.34));
    dim[i] = packed(mix(mix(c, [128, 128, 128], 0.6), back, 0.78));
    css.push(`rgb(${c.join(' ')})`);
  }
  return {fill, soft, edge, dim, css, legend};
}

/** The page's background. */
export const background = (dark: boolean): Rgb => (dark ? [22, 24, 29] : [255, 255, 255]);

/** A palette for bands. Their colours may be as dark as any edge, so the edges between them are of the background's colour. */
export function band_palette(colors: readonly Rgb[], dark: boolean): Palette {
  const back = background(dark), out = palette(colors, back, dark, []);
  colors.forEach((color, i) => { out.edge[i] = packed(mix(color, back, 0.6)); });
  return out;
}

/** The colour of each row, and the palette. */
export function colors_of(rows: Elements, by: ColorBy, device: DeviceHead, dark: boolean): {of: Uint8Array; palette: Palette} {
  const of = new Uint8Array(rows.count), back = background(dark);
  const made = (colors: Rgb[], legend: Palette['legend']) => ({of, palette: palette(colors, back, dark, legend)});
  const named = (column: Uint16Array | Uint8Array, names: string[], none: string | null, own: readonly Rgb[] = FEW, blank = grey(dark)) => {
    const bytes_of = new Float64Array(names.length + 1), shift = none === null ? 1 : 0;
    for (let row = 0; row < of.length; row++) {
      const place = column[row]! + shift;
      of[row] = place === 0 ? 254 : (place - 1) % own.length;
      bytes_of[place]! += rows.size[row]!;
    }
    const colors = Array.from({length: 256}, (_, i): Rgb => (i === 254 ? blank : own[i % own.length]!));
    const legend = [...bytes_of.keys()].filter(i => bytes_of[i]! > 0).sort((a, b) => bytes_of[b]! - bytes_of[a]!)
      .map(i => ({color: i === 0 ? 254 : (i - 1) % own.length, name: i === 0 ? none! : visible(names[i - 1]!)}));
    return made(colors, legend);
  };
  switch (by) {
    case 'stack': {
      const hues = many(dark), n = hues.length;
      let none = false;
      for (let row = 0; row < of.length; row++) {
        const stack = rows.stack[row]!;
        of[row] = stack ? (Math.imul(stack, 0x9e3779b1) >>> 8) % n : 254;
        none ||= !stack;
      }
      return made(Array.from({length: 256}, (_, i) => (i === 254 ? grey(dark) : hues[i % n]!)), none ? [{color: 254, name: 'no stack recorded'}] : []);
    }
    case 'size': {
      // Steps of doublings up to the largest; what is less than a four-thousandth of it is not seen beside it anyway.
      let least = Infinity, most = 1;
      for (const size of rows.size) {
        if (size < least) least = size;
        if (size > most) most = size;
      }
      const high = Math.floor(Math.log2(most)), low = Math.max(Math.floor(Math.log2(Math.max(1, least))), high - 12);
      const color = (size: number) => Math.max(0, Math.min(15, Math.floor(((Math.log2(size + 1) - low) * 16) / (high - low + 1))));
      for (let row = 0; row < of.length; row++) of[row] = color(rows.size[row]!);
      const step = Math.max(1, Math.ceil((high - low) / 6)), powers = Array.from({length: Math.floor((high - low) / step) + 1}, (_, i) => 2 ** (low + i * step));
      return made(SCALE, rows.count ? powers.map(power => ({color: color(power), name: power === powers[0] ? `< ${bytes(power * 2 ** step)}` : `≥ ${bytes(power)}`})) : []);
    }
    case 'age': {
      const {start, end} = rows, events = rows.total.length - 1;
      for (let row = 0; row < of.length; row++) {
        const life = end[row]! - start[row]!;
        of[row] = end[row]! >= events || start[row]! < 0 ? 15 : AGES.findIndex(a => life <= a);
      }
      return made(SCALE, [{color: 1, name: 'freed within 3 events'}, {color: 4, name: 'within 100'}, {color: 6, name: 'within 1,000'}, {color: 8, name: 'within 10,000'},
        {color: 11, name: 'later'}, {color: 15, name: 'live at the end, or from before'}]);
    }
    case 'stream':
      return named(rows.stream, device.streams.map(s => `stream ${s}`), null);
    case 'pool':
      return named(rows.pool, device.pools, 'pool not known');
    case 'category': {
      const own = category_colors(device.categories, dark);
      return named(rows.category, device.categories, 'no category', own.length ? own : undefined, no_category_color(dark));
    }
  }
}
