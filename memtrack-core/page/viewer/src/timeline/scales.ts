// Scales and axes of the picture, in readable units.

import {axisBottom, axisLeft} from 'd3-axis';
import {scaleLinear} from 'd3-scale';
import {select} from 'd3-selection';
import {count, time} from '../format.ts';

const SIZES: [number, string][] = [[2 ** 50, 'PiB'], [2 ** 40, 'TiB'], [2 ** 30, 'GiB'], [2 ** 20, 'MiB'], [2 ** 10, 'KiB'], [1, 'B']];
const TIMES: [number, string][] = [[1e6, 's'], [1e3, 'ms'], [1, 'µs']];

/** Draws the axis of bytes. */
export function draw_bytes(g: SVGGElement, height: number, width: number, bottom: number, top: number): void {
  const [unit, name] = SIZES.find(([u]) => top >= u) ?? SIZES.at(-1)!;
  const scale = scaleLinear().domain([bottom / unit, top / unit]).range([height, 0]);
  const ticks = scale.ticks(Math.max(2, Math.floor(height / 55))), format = scale.tickFormat(Math.max(2, Math.floor(height / 55)));
  select(g).call(axisLeft(scale).tickValues(ticks).tickFormat(v => `${format(Number(v))} ${name}`).tickSizeOuter(0).tickSizeInner(-width).tickPadding(6) as never);
}

/** The maximum width of a character of an axis, and the minimum distance of labels, in pixels. */
const CHARACTER = 6.6, LABEL_GAP = 8;
/** The distance in pixels by which a label may extend beyond the picture's right edge. */
const OVERHANG = 6;

/** Selects as many labels as fit beside each other, at even distances, from `left` to the width. `x` is a label's middle. */
export function labels_that_fit(ticks: readonly {x: number; text: string}[], left: number, width: number): boolean[] {
  const half = ticks.map(({text}) => (text.length * CHARACTER) / 2);
  let step = 1;
  const crowded = () => ticks.some((tick, i) => i >= step && i % step === 0 && tick.x - half[i]! - LABEL_GAP < ticks[i - step]!.x + half[i - step]!);
  while (step < ticks.length && crowded()) step++;
  return ticks.map(({x}, i) => i % step === 0 && x - half[i]! >= left && x + half[i]! <= width + OVERHANG);
}

/** Draws the horizontal axis. Far from the start, the common part of all ticks is written once, at the left. */
export function draw_along(g: SVGGElement, shared: SVGTextElement, width: number, from: number, to: number, in_time: boolean): void {
  const n = Math.max(2, Math.floor(width / 110));
  const draw = (scale: ReturnType<typeof scaleLinear<number, number>>, ticks: number[], text: (value: number) => string) => {
    const labels = ticks.map(value => ({x: scale(value), text: text(value)}));
    // The common part is left of the labels.
    const fit = labels_that_fit(labels, shared.textContent ? 0 : -Infinity, width);
    select(g).call(axisBottom(scale).tickValues(ticks).tickFormat((_, i) => (fit[i] ? labels[i]!.text : '')).tickSizeOuter(0).tickSizeInner(4).tickPadding(6) as never);
  };
  if (!in_time) {
    const scale = scaleLinear().domain([from, to]).range([0, width]);
    shared.textContent = '';
    draw(scale, scale.ticks(n).filter(Number.isInteger), value => `event ${count(value)}`);
    return;
  }
  const span = to - from, [unit, name] = TIMES.find(([u]) => span >= 2 * u) ?? TIMES.at(-1)!;
  // More than six digits before the unit are hard to read.
  const base = Math.abs(from) / unit >= 1e4 && unit < 1e6 ? Math.floor(from / (unit * 1000)) * unit * 1000 : 0;
  const scale = scaleLinear().domain([(from - base) / unit, (to - base) / unit]).range([0, width]);
  const format = scale.tickFormat(n);
  shared.textContent = base ? `${time(base, 1e6)}` : '';
  draw(scale, scale.ticks(n), value => `${base ? '+' : ''}${format(value)} ${name}`);
}
