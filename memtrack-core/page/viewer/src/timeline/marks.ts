// Lines and labels over the picture: markers, out-of-memory events, reserved and capacity, the selected event and block.

import type {DeviceHead} from '../types.ts';
import type {Axis} from './axis.ts';
import type {Frame} from './frame.ts';
import type {Peaks} from './pyramid.ts';
import {bytes, visible} from '../format.ts';

/** Where things are drawn, in CSS pixels. */
export interface Place {
  context: CanvasRenderingContext2D;
  width: number;
  height: number;
  x(axis: number): number;
  y(bytes: number): number;
}

/** The page's colours for lines. */
export interface Inks {
  ink: string;
  back: string;
  accent: string;
  alarm: string;
  muted: string;
  reserved: string;
  font: string;
}

/** A text on the page's background, right of a place or, at the edge, left of it. Gives where it ends. */
export function label({context, width}: Place, inks: Inks, text: string, x: number, y: number, color: string, right?: boolean): number {
  const w = context.measureText(text).width + 8;
  const at = right ?? x + w + 2 <= width ? x + 2 : x - w - 2;
  context.globalAlpha = 0.86;
  context.fillStyle = inks.back;
  context.fillRect(at, y, w, 15);
  context.globalAlpha = 1;
  context.fillStyle = color;
  context.textBaseline = 'middle';
  context.fillText(text, at + 4, y + 8);
  return at + w;
}

function line({context, height}: Place, x: number, color: string, dash: number[]): void {
  context.strokeStyle = color;
  context.setLineDash(dash);
  context.lineWidth = 1;
  context.beginPath();
  context.moveTo(Math.round(x) + 0.5, 0);
  context.lineTo(Math.round(x) + 0.5, height);
  context.stroke();
  context.setLineDash([]);
}

/** Markers and events that ran out of memory. Labels that would cover one another are left out; the lines stay. */
export function draw_markers(place: Place, inks: Inks, device: DeviceHead, axis: Axis): void {
  place.context.font = inks.font;
  let free = -Infinity, before = -Infinity;
  const at = device.markers.map(m => ({...m, x: place.x(axis.at(m.event))})).filter(({x}) => x >= -1 && x <= place.width + 1);
  const many = at.length > place.width / 40;
  for (const {x, name} of at) {
    // Many lines would hide the picture: then they are ticks at its upper edge.
    if (x - before >= 1) line({...place, height: many ? 18 : place.height}, x, inks.muted, many ? [] : [4, 3]);
    before = x;
    if (x >= free) free = label(place, inks, visible(name), x, 2, inks.ink) + 4;
  }
  free = -Infinity;
  for (const event of device.ooms) {
    const x = place.x(axis.at(event));
    if (x < -1 || x > place.width + 1) continue;
    line(place, x, inks.alarm, []);
    const {context} = place;
    context.fillStyle = inks.alarm;
    context.beginPath();
    context.moveTo(x - 5, 0);
    context.lineTo(x + 6, 0);
    context.lineTo(x + 0.5, 8);
    context.fill();
    if (x >= free) free = label(place, inks, 'out of memory', x, device.markers.length ? 19 : 9, inks.alarm) + 4;
  }
}

/** What was reserved, as a stepped line over the blocks. */
export function draw_reserved(place: Place, inks: Inks, axis: Axis, from: number, to: number, total: Float64Array, peaks: Peaks): void {
  const {context, width} = place;
  context.strokeStyle = inks.reserved;
  context.lineWidth = 1;
  context.setLineDash([]);
  context.beginPath();
  let before = axis.before(from), shown = NaN, last = 0;
  for (let x = 0; x < width; x++) {
    const end = Math.max(before, axis.before(from + ((to - from) * (x + 1)) / width));
    last = total[peaks.top(before, end)]!;
    before = end;
    if (last === shown) continue;
    const y = place.y(last);
    if (Number.isNaN(shown)) context.moveTo(x, y);
    else {
      context.lineTo(x, place.y(shown));
      context.lineTo(x, y);
    }
    shown = last;
  }
  context.lineTo(width, place.y(shown));
  context.stroke();
  context.font = inks.font;
  const y = place.y(last), text = `reserved ${bytes(last)}`;
  if (y < 0) label(place, inks, `${text}, above the picture`, width, 2, inks.reserved);
  else label(place, inks, text, width, Math.max(0, y - 16), inks.reserved);
}

/** A level that is one for the whole recording. */
export function draw_level(place: Place, inks: Inks, value: number, name: string): void {
  const {context, width} = place, y = Math.round(place.y(value)) + 0.5;
  if (y < 0 || y > place.height) return;
  context.strokeStyle = inks.alarm;
  context.lineWidth = 1;
  context.setLineDash([8, 4]);
  context.beginPath();
  context.moveTo(0, y);
  context.lineTo(width, y);
  context.stroke();
  context.setLineDash([]);
  context.font = inks.font;
  label(place, inks, `${name} ${bytes(value)}`, width / 2, y + 1, inks.alarm);
}

/** The selected event: a line, and how much was live after it. */
export function draw_cursor(place: Place, inks: Inks, axis: Axis, event: number, total: number): void {
  const x = place.x(axis.at(event));
  if (x < -1 || x > place.width + 1) return;
  line(place, x, inks.accent, []);
  const {context} = place, y = place.y(total);
  context.fillStyle = inks.accent;
  context.beginPath();
  context.arc(x + 0.5, y, 3.5, 0, 7);
  context.fill();
  context.font = inks.font;
  label(place, inks, `${bytes(total)} after event ${event.toLocaleString('en-US')}`, x, place.height - 18, inks.accent);
}

/** The outline of one row through the picture, as far as it is seen. */
export function outline(place: Place, frame: Frame, row: number, ratio: number, colors: [string, string], fill: string | null): void {
  const track = frame.track(row), size = frame.stack.elements.size[row]!, {context} = place;
  const path = new Path2D();
  // Each stretch in which the row is live without a gap is one polygon: the lower edge forth, the upper edge back.
  for (let s = 0; s < track.length; s++) {
    if (Number.isNaN(track[s])) continue;
    const lower: [number, number][] = [], upper: [number, number][] = [];
    for (; s < track.length && !Number.isNaN(track[s]); s++) {
      const x0 = frame.sample_x[s]! / ratio, x1 = frame.sample_x[s + 1]! / ratio;
      const y0 = place.y(track[s]!), y1 = Math.min(place.y(track[s]! + size), y0 - 1.5);
      lower.push([x0, y0], [x1, y0]);
      upper.push([x0, y1], [x1, y1]);
    }
    lower.forEach(([x, y], i) => (i ? path.lineTo(x, y) : path.moveTo(x, y)));
    for (const [x, y] of upper.reverse()) path.lineTo(x, y);
    path.closePath();
  }
  if (fill) {
    context.fillStyle = fill;
    context.fill(path);
  }
  context.lineJoin = 'round';
  context.strokeStyle = colors[1];
  context.lineWidth = 3.5;
  context.stroke(path);
  context.strokeStyle = colors[0];
  context.lineWidth = 1.5;
  context.stroke(path);
}
