// Lines and labels over the picture: markers, out-of-memory events, reserved memory, capacity, the selected event and block.

import type {DeviceHead} from '../types.ts';
import type {Axis} from './axis.ts';
import type {Frame} from './frame.ts';
import type {Peaks} from './pyramid.ts';
import {bytes, visible} from '../format.ts';
import {Rank, type Label, type Labels} from './labels.ts';

/** The drawing area, in CSS pixels. */
export interface Area {
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

/** Returns a function that paints a label on the page's background. */
export function paint_label({context}: Area, inks: Inks, color: string): (at: Label) => void {
  return at => {
    context.globalAlpha = 0.86;
    context.fillStyle = inks.back;
    context.fillRect(at.x, at.y, at.width, at.height);
    context.globalAlpha = 1;
    context.fillStyle = color;
    context.font = inks.font;
    context.textAlign = 'start';
    context.textBaseline = 'middle';
    context.fillText(at.text, at.x + 4, at.y + 8);
  };
}

function line({context, height}: Area, x: number, color: string, dash: number[]): void {
  context.strokeStyle = color;
  context.setLineDash(dash);
  context.lineWidth = 1;
  context.beginPath();
  context.moveTo(Math.round(x) + 0.5, 0);
  context.lineTo(Math.round(x) + 0.5, height);
  context.stroke();
  context.setLineDash([]);
}

/** A marker or an out-of-memory event. */
export interface Mark {
  readonly event: number;
  /** Its name, with a number if there are several of that name. */
  readonly name: string;
  /** The name with its number and the number of marks of that name. */
  readonly whole: string;
  readonly is_oom: boolean;
}

/** Returns the marks of a device by event. */
export function marks_of({markers, ooms}: Pick<DeviceHead, 'markers' | 'ooms'>): Mark[] {
  const count = new Map<string, number>(), seen = new Map<string, number>();
  const all = [...markers.map(m => ({...m, is_oom: false})), ...ooms.map(event => ({event, name: OUT_OF_MEMORY, is_oom: true}))].sort((a, b) => a.event - b.event);
  for (const {name} of all) count.set(name, (count.get(name) ?? 0) + 1);
  return all.map(({event, name, is_oom}) => {
    const of = count.get(name)!, number = (seen.get(name) ?? 0) + 1, shown = visible(name);
    seen.set(name, number);
    return {event, is_oom, name: of > 1 ? `${shown} ${number.toLocaleString('en-US')}` : shown, whole: of > 1 ? `${shown} ${number.toLocaleString('en-US')} of ${of.toLocaleString('en-US')}` : shown};
  });
}

const OUT_OF_MEMORY = 'out of memory';

/**
 * The maximum distances of the pointer from the upper edge (vertical) and from a mark (horizontal) for the mark to be found.
 */
export const MARK_HEIGHT = 20;
const MARK_REACH = 5;

/** Returns the index of the first mark at or right of a position of the picture. */
function first_from(marks: readonly Mark[], axis: Axis, x: (axis: number) => number, least: number): number {
  let low = 0, high = marks.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (x(axis.at(marks[middle]!.event)) < least) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Returns the mark that is nearest to a position near the upper edge; null: none is near. */
export function mark_at(marks: readonly Mark[], axis: Axis, x: (axis: number) => number, at: {x: number; y: number}): Mark | null {
  if (at.y > MARK_HEIGHT) return null;
  const low = first_from(marks, axis, x, at.x);
  let best: Mark | null = null, least = MARK_REACH;
  // An out-of-memory event takes precedence over a marker beside it.
  for (const mark of marks.slice(Math.max(0, low - 2), low + 2)) {
    const distance = Math.abs(x(axis.at(mark.event)) - at.x) - (mark.is_oom ? 0.5 : 0);
    if (distance < least) [best, least] = [mark, distance];
  }
  return best;
}

/** Draws markers and out-of-memory events. Labels that would cover each other are omitted; the lines stay. */
export function draw_marks_of(area: Area, inks: Inks, labels: Labels, marks: readonly Mark[], axis: Axis): void {
  const at: {mark: Mark; x: number}[] = [];
  for (let i = first_from(marks, axis, area.x, -1); i < marks.length; i++) {
    const x = area.x(axis.at(marks[i]!.event));
    if (x > area.width + 1) break;
    at.push({mark: marks[i]!, x});
  }
  const markers = at.filter(({mark}) => !mark.is_oom), ooms = at.filter(({mark}) => mark.is_oom);
  const many = markers.length > area.width / 40;
  let before = -Infinity;
  for (const {x} of markers) {
    // Many lines would hide the picture, so they become ticks at its upper edge.
    if (x - before < 1) continue;
    line({...area, height: many ? 18 : area.height}, x, inks.muted, many ? [] : [4, 3]);
    before = x;
  }
  const {context} = area;
  for (const {x} of ooms) {
    line(area, x, inks.alarm, []);
    context.fillStyle = inks.alarm;
    context.beginPath();
    context.moveTo(x - 5, 0);
    context.lineTo(x + 6, 0);
    context.lineTo(x + 0.5, 8);
    context.fill();
  }
  const series = (some: typeof at, rows: number[], color: string) => () => {
    let free = -Infinity;
    for (const {mark, x} of some) {
      // The previous label would cover this one.
      if (x < free) continue;
      if (labels.put(mark.name, labels.beside(mark.name, x, rows), paint_label(area, inks, color))) free = labels.placed.at(-1)!.x + labels.placed.at(-1)!.width;
    }
  };
  labels.defer(Rank.OutOfMemory, series(ooms, [9, 26, 43], inks.alarm));
  labels.defer(Rank.Marker, series(markers, many ? [19] : [2], inks.ink));
}

/** Draws reserved memory as a stepped line over the blocks. */
export function draw_reserved(area: Area, inks: Inks, labels: Labels, axis: Axis, from: number, to: number, total: Float64Array, peaks: Peaks): void {
  const {context, width} = area;
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
    const y = area.y(last);
    if (Number.isNaN(shown)) context.moveTo(x, y);
    else {
      context.lineTo(x, area.y(shown));
      context.lineTo(x, y);
    }
    shown = last;
  }
  context.lineTo(width, area.y(shown));
  context.stroke();
  const y = area.y(last), text = `reserved ${bytes(last)}${y < 0 ? ', above the picture' : ''}`;
  labels.defer(Rank.Reserved, () => {
    const rows = y < 0 ? [2, 19, 36] : [Math.max(0, y - 16), y + 2];
    labels.put(text, rows.map(row => ({x: width - labels.width_of(text) - 2, y: row})), paint_label(area, inks, inks.reserved));
  });
}

/** Draws a constant level. */
export function draw_level(area: Area, inks: Inks, labels: Labels, value: number, name: string): void {
  const {context, width} = area, y = Math.round(area.y(value)) + 0.5;
  if (y < 0 || y > area.height) return;
  context.strokeStyle = inks.alarm;
  context.lineWidth = 1;
  context.setLineDash([8, 4]);
  context.beginPath();
  context.moveTo(0, y);
  context.lineTo(width, y);
  context.stroke();
  context.setLineDash([]);
  const text = `${name} ${bytes(value)}`;
  labels.defer(Rank.Capacity, () => {
    const corners = [0.5, 0.25, 0.75, 0].flatMap(part => [y + 1, y - 16].map(row => ({x: Math.round(width * part), y: row})));
    labels.put(text, corners, paint_label(area, inks, inks.alarm));
  });
}

/** Draws the selected event: a line, and the live bytes after it. */
export function draw_cursor(area: Area, inks: Inks, labels: Labels, axis: Axis, event: number, total: number): void {
  const x = area.x(axis.at(event));
  if (x < -1 || x > area.width + 1) return;
  line(area, x, inks.accent, []);
  const {context} = area, y = area.y(total);
  context.fillStyle = inks.accent;
  context.beginPath();
  context.arc(x + 0.5, y, 3.5, 0, 7);
  context.fill();
  const text = `${bytes(total)} after event ${event.toLocaleString('en-US')}`;
  labels.defer(Rank.Cursor, () => void labels.put(text, labels.beside(text, x, [area.height - 18, area.height - 35]), paint_label(area, inks, inks.accent)));
}

/** Draws the complete label of the mark at the pointer. */
export function draw_mark_label(area: Area, inks: Inks, labels: Labels, axis: Axis, mark: Mark): void {
  const x = area.x(axis.at(mark.event));
  labels.defer(Rank.Pointer, () => void labels.put(mark.whole, labels.beside(mark.whole, x, [MARK_HEIGHT, 2]), paint_label(area, inks, mark.is_oom ? inks.alarm : inks.ink)));
}

/** Draws the outline of one row in the visible part of the picture. */
export function outline(area: Area, frame: Frame, row: number, ratio: number, colors: [string, string], fill: string | null): void {
  const track = frame.track(row), size = frame.stack.elements.size[row]!, {context} = area;
  const path = new Path2D();
  // Each range in which the row is live without a gap is a polygon: along the lower edge, back along the upper one.
  for (let s = 0; s < track.length; s++) {
    if (Number.isNaN(track[s])) continue;
    const lower: [number, number][] = [], upper: [number, number][] = [];
    for (; s < track.length && !Number.isNaN(track[s]); s++) {
      const x0 = frame.sample_x[s]! / ratio, x1 = frame.sample_x[s + 1]! / ratio;
      const y0 = area.y(track[s]!), y1 = Math.min(area.y(track[s]! + size), y0 - 1.5);
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
