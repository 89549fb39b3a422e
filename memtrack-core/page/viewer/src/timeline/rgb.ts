// Colours as numbers, and a palette for names.

/** Red, green and blue, 0 to 255. */
export type Rgb = [number, number, number];

/** Converts a colour into a 32-bit pixel of a little-endian canvas. */
export const packed = ([r, g, b]: Rgb) => ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
/** Interpolates between two colours. */
export const mix = (a: Rgb, b: Rgb, t: number) => a.map((v, i) => Math.round(v + (b[i]! - v) * t)) as Rgb;
/** Parses `#rrggbb`. */
export const parse = (text: string) => [1, 3, 5].map(i => parseInt(text.slice(i, i + 2), 16)) as Rgb;

/** Colours for names, which remain distinguishable with common kinds of colour blindness. */
export const QUALITATIVE: readonly Rgb[] = ['#4477aa', '#ee8866', '#228833', '#ccbb44', '#66ccee', '#aa3377', '#bbbbbb', '#44bb99', '#cc3311', '#99ddff', '#999933', '#ddaa99'].map(parse);

/** Formats a colour for CSS. */
export const css_of = ([r, g, b]: Rgb): string => `rgb(${r} ${g} ${b})`;

/** Returns the relative luminance: 0 for black, 1 for white. */
export function luminance([r, g, b]: Rgb): number {
  const linear = (v: number) => (v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4);
  return 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
}
