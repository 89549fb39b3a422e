// Scales and axes of the picture, in units that people read.

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

/** Draws the horizontal axis. Far from the start a part that all ticks share stands once, at the left. */
export function draw_along(g: SVGGElement, shared: SVGTextElement, width: number, from: number, to: number, in_time: boolean): void {
  const n = Math.max(2, Math.floor(width / 110));
  if (!in_time) {
    const scale = scaleLinear().domain([from, to]).range([0, width]);
    shared.textContent = '';
    const ticks = scale.ticks(n).filter(Number.isInteger);
    select(g).call(axisBottom(scale).tickValues(ticks).tickFormat(v => `event ${count(Number(v))}`).tickSizeOuter(0).tickSizeInner(4) as never);
    return;
  }
  const span = to - from, [unit, name] = TIMES.find(([u]) => span >= 2 * u) ?? TIMES.at(-1)!;
  // More than six digits before the unit are no longer read.
  const base = Math.abs(from) / unit >= 1e4 && unit < 1e6 ? Math.floor(from / (unit * 1000)) * unit * 1000 : 0;
  const scale = scaleLinear().domain([(from - base) / unit, (to - base) / unit]).range([0, width]);
  const format = scale.tickFormat(n);
  shared.textContent = base ? `${time(base, 1e6)}` : '';
  select(g).call(axisBottom(scale).ticks(n).tickFormat(v => `${base ? '+' : ''}${format(Number(v))} ${name}`).tickSizeOuter(0).tickSizeInner(4) as never);
}
