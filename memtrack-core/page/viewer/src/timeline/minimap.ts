// The whole recording below the picture, with the window as a brush.

import {brushX, type D3BrushEvent} from 'd3-brush';
import {select} from 'd3-selection';
import {h} from '../dom.ts';
import type {Axis} from './axis.ts';
import type {Stack} from './stack.ts';

const HEIGHT = 44;

/** The minimap. `moved` is called with a new window of the axis. */
export class Minimap {
  readonly element: HTMLElement;
  private readonly canvas = h('canvas', {'aria-hidden': 'true'});
  private readonly svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
  private readonly brush = brushX<unknown>();
  private width = 0;
  private from = 0;
  private to = 1;

  constructor(moved: (from: number, to: number) => void) {
    this.element = h('div', {class: 'minimap', title: 'The whole recording. Drag to choose the range above.'}, this.canvas, this.svg);
    this.svg.setAttribute('aria-hidden', 'true');
    this.brush.on('start brush end', (event: D3BrushEvent<unknown>) => {
      if (!event.sourceEvent || !this.width) return;
      const at = (x: number) => this.from + ((this.to - this.from) * x) / this.width;
      if (event.selection) {
        const [a, b] = event.selection as [number, number];
        if (b - a >= 1) moved(at(a), at(b));
      } else if (event.type === 'end') moved(this.from, this.to);
    });
  }

  draw(stack: Stack, axis: Axis, colors: {area: string; line: string; alarm: string}, ooms: number[]): void {
    this.from = axis.from;
    this.to = axis.to;
    const ratio = devicePixelRatio || 1, width = this.canvas.clientWidth || this.element.clientWidth;
    if (width < 2) return;
    if (width !== this.width) {
      this.width = width;
      this.svg.setAttribute('width', String(width));
      this.svg.setAttribute('height', String(HEIGHT));
      select(this.svg as SVGGElement & SVGSVGElement).call(this.brush.extent([[0, 0], [width, HEIGHT]]) as never);
    }
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(HEIGHT * ratio);
    const context = this.canvas.getContext('2d')!, high = stack.peak || 1;
    const columns = this.canvas.width, rows = this.canvas.height;
    context.fillStyle = colors.area;
    let before = axis.before(axis.from);
    for (let x = 0; x < columns; x++) {
      const end = Math.max(before, axis.before(axis.from + ((axis.to - axis.from) * (x + 1)) / columns));
      const y = (stack.total[stack.peaks.top(before, end)]! / high) * (rows - 3);
      context.fillRect(x, rows - y, 1, y);
      before = end;
    }
    context.fillStyle = colors.alarm;
    for (const event of ooms) context.fillRect(Math.round(((axis.at(event) - axis.from) / (axis.to - axis.from)) * columns), 0, Math.ceil(ratio), rows);
  }

  /** Moves the brush to the window. */
  window(from: number, to: number): void {
    if (!this.width) return;
    const x = (v: number) => Math.max(0, Math.min(this.width, ((v - this.from) / (this.to - this.from)) * this.width));
    const a = x(from), b = Math.max(x(to), a + 1);
    select(this.svg as SVGGElement & SVGSVGElement).call(this.brush.move as never, [a, b]);
  }
}
