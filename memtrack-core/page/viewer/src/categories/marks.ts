// Marks over the bands: names that fit, the peak, and the band at the pointer.

import {bytes, exact_bytes, visible} from '../format.ts';
import {LABEL_HEIGHT, Rank, type Labels} from '../timeline/labels.ts';
import {paint_label, type Inks, type Area} from '../timeline/marks.ts';
import {css_of, luminance, type Rgb} from '../timeline/rgb.ts';
import type {BandPicture} from './picture.ts';

/** The height that a name needs in a band, and the space at its sides, in CSS pixels. */
const NAME_HEIGHT = 15, ROOM = 10;
/** The distance between the positions that are tried for a name. */
const STRIDE = 12;

/** Returns the lower and upper edge of a band with both layers at a sample, in bytes. */
function edges(picture: BandPicture, sample: number, band: number): [from: number, to: number] {
  return [picture.extent(sample, 2 * band).from, picture.extent(sample, 2 * band + 1).to];
}

/** Returns the middle of the largest part of a band that has room for a name of this width; null: no part has. */
export function name_position(picture: BandPicture, band: number, width: number, x: (sample: number) => number, y: (bytes: number) => number, height: number): {x: number; y: number} | null {
  const n = picture.frame.sample_count;
  let best: {x: number; y: number} | null = null, score = 0;
  for (let s = 0; s < n;) {
    let low = height, high = 0, t = s;
    // A part wider than three names does not make the name easier to find.
    for (; t < n && x(t) - x(s) < 3 * width; t++) {
      const [from, to] = edges(picture, t, band);
      low = Math.min(low, y(from));
      high = Math.max(high, y(to));
      if (low - high < NAME_HEIGHT) break;
      const wide = x(t + 1) - x(s), worth = Math.min(low - high, 60) * Math.min(wide, 3 * width);
      if (wide < width + ROOM || worth <= score) continue;
      score = worth;
      best = {x: (x(s) + x(t + 1)) / 2, y: (low + high) / 2};
    }
    // The next stretch begins where this one ended, or a little further along.
    const least = x(s) + STRIDE;
    for (s++; s < t && x(s) < least;) s++;
  }
  return best;
}

/** Draws the name of a band inside the band, unless another label is there. */
export function draw_name(area: Area, labels: Labels, name: string, at: {x: number; y: number}, color: Rgb): void {
  labels.defer(Rank.BandName, () => {
    const width = labels.width_of(visible(name));
    labels.put(visible(name), [{x: at.x - width / 2, y: at.y - LABEL_HEIGHT / 2}], () => paint_name(area, name, at, color), width);
  });
}

function paint_name({context}: Area, name: string, at: {x: number; y: number}, color: Rgb): void {
  context.textBaseline = 'middle';
  context.textAlign = 'center';
  context.lineJoin = 'round';
  context.lineWidth = 3;
  context.strokeStyle = css_of(color);
  context.strokeText(visible(name), at.x, at.y);
  // At this luminance black and white have the same contrast.
  context.fillStyle = luminance(color) > 0.179 ? '#000' : '#fff';
  context.fillText(visible(name), at.x, at.y);
  context.textAlign = 'start';
}

/** Draws the peak and its exact bytes. */
export function draw_peak(area: Area, inks: Inks, labels: Labels, x: number, total: number, mark: string): void {
  const {context, width, height} = area, y = area.y(total);
  if (x < -1 || x > width + 1 || y > height) return;
  const tip = Math.max(y, 8);
  context.fillStyle = inks.ink;
  context.strokeStyle = inks.back;
  context.lineWidth = 1.5;
  context.beginPath();
  context.moveTo(x, tip);
  context.lineTo(x - 6, tip - 9);
  context.lineTo(x + 6, tip - 9);
  context.closePath();
  context.stroke();
  context.fill();
  const text = `peak ${mark}${exact_bytes(total)}${y < 0 ? ', above the picture' : ''}`;
  labels.defer(Rank.Peak, () => void labels.put(text, labels.beside(text, x, [Math.max(1, tip - 17), tip + 3], 8), paint_label(area, inks, inks.ink)));
}

/** Outlines a band, along its two edges. */
export function outline_band(area: Area, picture: BandPicture, band: number, ratio: number, inks: Inks): void {
  const {context} = area, {frame} = picture, path = new Path2D();
  let open = false;
  for (const upper of [0, 1]) {
    open = false;
    for (let s = 0; s < frame.sample_count; s++) {
      const e = edges(picture, s, band);
      if (e[1] === e[0]) {
        open = false;
        continue;
      }
      const y = area.y(e[upper]!), x0 = frame.sample_x[s]! / ratio, x1 = frame.sample_x[s + 1]! / ratio;
      if (open) path.lineTo(x0, y);
      else path.moveTo(x0, y);
      path.lineTo(x1, y);
      open = true;
    }
  }
  context.lineJoin = 'round';
  context.strokeStyle = inks.back;
  context.lineWidth = 3;
  context.stroke(path);
  context.strokeStyle = inks.ink;
  context.lineWidth = 1.2;
  context.stroke(path);
}

/** Draws a line at the pointer, with a label. */
export function draw_pointer(area: Area, inks: Inks, labels: Labels, at: {x: number; y: number}, text: string): void {
  const {context, height} = area, x = Math.round(at.x) + 0.5;
  context.strokeStyle = inks.muted;
  context.lineWidth = 1;
  context.setLineDash([2, 2]);
  context.beginPath();
  context.moveTo(x, 0);
  context.lineTo(x, height);
  context.stroke();
  context.setLineDash([]);
  const above = Math.max(1, Math.min(height - 18, at.y - 20));
  labels.defer(Rank.Pointer, () => void labels.put(text, labels.beside(text, at.x, [above, Math.min(height - 18, at.y + 12)], 8), paint_label(area, inks, inks.ink)));
}

/** Returns a band's name and bytes as a label. */
export function band_label(name: string, value: number, mark: string): string {
  return `${visible(name)} ${mark}${bytes(value)}`;
}
