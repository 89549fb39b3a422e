// Fills pixels from the runs of a frame.

import {PENDING, type Frame} from './frame.ts';
import {SLACK, type Palette} from './palette.ts';

/** What rows look like. */
export interface Looks {
  /** Place of each row in the palette. */
  of: Uint8Array;
  palette: Palette;
  /** Rows drawn in full colour; the others are dimmed. Null: all. */
  passing: Uint8Array | null;
}

/** How high a block must be for an edge between it and the next. */
const EDGED = 4;

/** Paints a frame. Pixels where nothing is stay transparent. */
export function paint(frame: Frame, pixels: Uint32Array, looks: Looks): void {
  const {width, height, bottom, top} = frame.window, {run_from, run_to, run_row, run_flags} = frame;
  const {start} = frame.stack.elements, {of, passing, palette} = looks, {fill, edge, dim} = palette;
  const per_byte = height / (top - bottom);
  pixels.fill(0);
  for (let span = 0; span < frame.spans; span++) {
    const x0 = frame.span_x[span]!, x1 = frame.span_x[span + 1]!, w = x1 - x0;
    const before = span > 0 ? frame.span_event[span - 1]! : -2;
    for (let run = frame.span_run[span]!, last = frame.span_run[span + 1]!; run < last; run++) {
      let y0 = height - Math.round((run_to[run]! - bottom) * per_byte), y1 = height - Math.round((run_from[run]! - bottom) * per_byte);
      const lid = y0 >= 0 && y1 - y0 >= EDGED;
      if (y0 < 0) y0 = 0;
      if (y1 > height) y1 = height;
      if (y1 <= y0) continue;
      const row = run_row[run]!, slot = row < 0 ? SLACK : of[row]!;
      const faint = passing !== null && row >= 0 && !passing[row];
      const color = faint ? dim[slot]! : fill[slot]!, line = faint ? dim[SLACK]! : edge[slot]!;
      if (w === 1) {
        for (let y = y0, at = y0 * width + x0; y < y1; y++, at += width) pixels[at] = color;
        if (lid) pixels[y0 * width + x0] = line;
      } else {
        for (let y = y0, at = y0 * width; y < y1; y++, at += width) pixels.fill(color, at + x0, at + x1);
        if (lid) pixels.fill(line, y0 * width + x0, y0 * width + x1);
        // Where it was allocated a moment ago the picture shows an edge, if there is room for one.
        if (w >= 6 && y1 - y0 >= EDGED && row >= 0 && start[row]! > before) for (let y = y0, at = y0 * width + x0; y < y1; y++, at += width) pixels[at] = line;
      }
      if (y1 - y0 < EDGED) continue;
      if (run_flags[run]! & PENDING) hatch(pixels, width, x0, x1, y0, y1, line, 6);
      else if (row < 0) hatch(pixels, width, x0, x1, y0, y1, line, 9);
      else if (start[row]! < 0) dots(pixels, width, x0, x1, y0 + 1, y1, line);
    }
  }
}

/** Slanted lines over memory that is held for nothing: pending frees, the unused part of a pool. */
function hatch(pixels: Uint32Array, width: number, x0: number, x1: number, y0: number, y1: number, color: number, gap: number): void {
  for (let y = y0; y < y1; y++) for (let x = x0 + ((gap - ((x0 + y) % gap)) % gap); x < x1; x += gap) pixels[y * width + x] = color;
}

/** Dots over blocks from before the recording. */
function dots(pixels: Uint32Array, width: number, x0: number, x1: number, y0: number, y1: number, color: number): void {
  for (let y = y0 + ((6 - (y0 % 6)) % 6); y < y1; y += 6)
    for (let shift = y % 12 ? 3 : 0, x = x0 + ((6 - ((x0 + shift) % 6)) % 6); x < x1; x += 6) pixels[y * width + x] = color;
}
