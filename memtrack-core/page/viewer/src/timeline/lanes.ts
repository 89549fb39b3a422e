// Bands above the picture: scopes and annotated ranges, a lane for each depth.

import type {Bands, Texts} from '../types.ts';
import type {Axis} from './axis.ts';
import {visible} from '../format.ts';

const LANE = 15;
const MAX_LANES = 8;

/** Returns the start and end of a band on the axis. */
export function extent(bands: Bands, band: number, axis: Axis): [number, number] {
  const to = bands.to[band]!;
  // On the time axis, a band ends at its last event. On the event axis, the last event has a width.
  return [axis.at(bands.from[band]!), axis.clock ? axis.at(to) : axis.at(to + 1)];
}

/** The lanes of one thread, each sorted along the axis. */
export class Lanes {
  private lanes: Uint32Array[] = [];

  constructor(readonly bands: Bands, thread: number) {
    const lists: number[][] = [];
    for (let i = 0; i < bands.count; i++) if (bands.thread[i] === thread) (lists[Math.min(bands.depth[i]!, MAX_LANES - 1)] ??= []).push(i);
    this.lanes = Array.from({length: lists.length}, (_, i) => Uint32Array.from(lists[i] ?? []));
  }

  get height(): number {
    return this.lanes.length * LANE;
  }

  /** Returns the band at a position; null: none within `reach`. */
  at(x: number, y: number, axis: Axis, reach: number): number | null {
    const lane = this.lanes[Math.floor(y / LANE)];
    if (!lane) return null;
    const i = this.first_after(lane, x + reach, axis) - 1;
    return i >= 0 && extent(this.bands, lane[i]!, axis)[1] + reach >= x ? lane[i]! : null;
  }

  /** Returns the first band of a lane that begins after a position. */
  private first_after(lane: Uint32Array, x: number, axis: Axis): number {
    let low = 0, high = lane.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (axis.at(this.bands.from[lane[middle]!]!) <= x) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  draw(context: CanvasRenderingContext2D, width: number, axis: Axis, from: number, to: number, texts: Texts | null, ink: string, colors: string[], font: string): void {
    const scale = width / (to - from);
    context.font = font;
    context.textBaseline = 'middle';
    this.lanes.forEach((lane, depth) => {
      const y = depth * LANE;
      let i = Math.max(0, this.first_after(lane, from, axis) - 1);
      while (i < lane.length) {
        const band = lane[i]!, [a, b] = extent(this.bands, band, axis);
        if (a > to) break;
        const x0 = Math.max(-1, (a - from) * scale), x1 = Math.min(width + 1, Math.max((b - from) * scale, x0 + 1));
        if (x1 >= 0) {
          context.fillStyle = colors[this.bands.name[band]! % colors.length]!;
          context.fillRect(x0, y + 1, Math.max(1, x1 - x0 - 1), LANE - 2);
          if (x1 - x0 > 24 && texts) {
            context.save();
            context.beginPath();
            context.rect(x0 + 2, y, x1 - x0 - 5, LANE);
            context.clip();
            context.fillStyle = ink;
            context.fillText(visible(texts.string(this.bands.name[band]!)), Math.max(x0, 0) + 4, y + LANE / 2 + 0.5);
            context.restore();
          }
        }
        // Many bands within one pixel are drawn as one. Skip to the next band that begins after the pixel.
        i = x1 - x0 > 2 ? i + 1 : Math.max(i + 1, this.first_after(lane, from + x1 / scale, axis));
      }
    });
  }
}
