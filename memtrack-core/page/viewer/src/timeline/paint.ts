// Fills pixels from the runs of a frame.
//
// Columns are painted into a small buffer and transposed into rows sixteen at a time: memory is written in whole cache
// lines, and a column starts as a copy of the one before, in which only the changed runs are repainted.

import {OLD, PENDING, UNUSED, type Frame} from './frame.ts';
import {SLACK, type Palette} from './palette.ts';

/** The appearance of rows. */
export interface Looks {
  /** The palette index of each row. */
  of: Uint8Array;
  palette: Palette;
  /** Rows in full colour; the others are dimmed. Null: all. */
  passing: Uint8Array | null;
  /** Rows of layers above the first are inside an envelope, and lighter. */
  layer: Uint16Array | null;
  /** The event at which each row begins, where it has an edge. */
  start: Int32Array;
}

/** The minimum height of a block for an edge above it, and for a pattern. */
const MIN_EDGE_HEIGHT = 4;
/** The minimum width of a span for an edge where a block begins. */
const MIN_EDGE_WIDTH = 6;
const BATCH = 16;
const PATTERNED = PENDING | OLD | UNUSED;

let columns = new Uint32Array(0);

/** Paints a frame. Pixels without a run stay transparent. */
export function paint(frame: Frame, pixels: Uint32Array, looks: Looks): void {
  const {width, height, bottom, top} = frame.window, {run_from, run_to, run_row, run_flags} = frame;
  const {of, passing, palette, layer, start} = looks, {fill, soft, edge, dim} = palette;
  const per_byte = height / (top - bottom);
  if (columns.length < BATCH * height) columns = new Uint32Array(BATCH * height);
  const batch = columns;
  // Columns are upside down: index 0 is the bottom of the picture.
  const level = (bytes: number) => {
    const y = Math.round((bytes - bottom) * per_byte);
    return y < 0 ? 0 : y > height ? height : y;
  };
  const line_of = (row: number) => (row < 0 ? edge[SLACK]! : passing !== null && !passing[row] ? dim[SLACK]! : edge[of[row]!]!);
  const color_of = (row: number) => (row < 0 ? fill[SLACK]! : passing !== null && !passing[row] ? dim[of[row]!]! : layer !== null && layer[row]! > 0 ? soft[of[row]!]! : fill[of[row]!]!);
  let at = -1;
  for (let span = 0; span < frame.spans; span++) {
    const x0 = frame.span_x[span]!, x1 = frame.span_x[span + 1]!;
    const first = frame.span_run[span]!, last = frame.span_run[span + 1]!, same = first + frame.span_same[span]!;
    const edges = x1 - x0 >= MIN_EDGE_WIDTH, before = span > 0 ? frame.span_event[span - 1]! : -2;
    // An edge is drawn only in the first column of a span, so the second column is not a copy of it.
    for (let x = x0; x < x1; x++) {
      const from = at * height;
      at = (at + 1) % BATCH;
      const base = at * height;
      const fresh = x === x0 ? same : x === x0 + 1 && edges ? first : last;
      if (x > 0 && fresh > first) batch.copyWithin(base, from, from + height);
      let y = fresh > first ? level(run_to[fresh - 1]!) : 0;
      if (fresh < last || fresh === first || x === x0) {
        for (let run = fresh; run < last; run++) {
          const y0 = level(run_from[run]!), y1 = level(run_to[run]!);
          if (y1 <= y0) continue;
          if (y0 > y) batch.fill(0, base + y, base + y0);
          const row = run_row[run]!, color = color_of(row);
          for (let i = base + y0, to = base + y1; i < to; i++) batch[i] = color;
          if (y1 - y0 >= MIN_EDGE_HEIGHT) {
            if (edges && x === x0 && row >= 0 && start[row]! > before) batch.fill(line_of(row), base + y0, base + y1);
            else if (run_to[run]! <= top) batch[base + y1 - 1] = line_of(row);
          }
          y = y1;
        }
        batch.fill(0, base + y, base + height);
      }
      for (let run = first; run < last; run++) {
        const flags = run_flags[run]!;
        if (!(flags & PATTERNED)) continue;
        const y0 = level(run_from[run]!), y1 = level(run_to[run]!);
        if (y1 - y0 < MIN_EDGE_HEIGHT) continue;
        const row = run_row[run]!, line = line_of(row), color = color_of(row);
        const lid = run_to[run]! <= top ? 1 : 0;
        // Replace the copied column's pattern with the pattern of this column.
        if (edges && x === x0 && row >= 0 && start[row]! > before) continue;
        batch.fill(color, base + y0, base + y1 - lid);
        if (flags & OLD) {
          if (x % 3 === 0) for (let i = y0 + ((6 - ((y0 + (x % 6)) % 6)) % 6); i < y1 - lid; i += 6) batch[base + i] = line;
        } else {
          const gap = flags & PENDING ? 6 : 9;
          for (let i = y0 + ((gap - ((y0 + x) % gap)) % gap); i < y1 - lid; i += gap) batch[base + i] = line;
        }
      }
      if (at === BATCH - 1 || x === width - 1) transpose(batch, pixels, x - at, at + 1, width, height);
    }
  }
}

/** Transposes columns into rows. */
function transpose(batch: Uint32Array, pixels: Uint32Array, x: number, count: number, width: number, height: number): void {
  if (count === BATCH) {
    for (let y = 0, out = (height - 1) * width + x; y < height; y++, out -= width)
      for (let c = 0, i = y; c < BATCH; c++, i += height) pixels[out + c] = batch[i]!;
  } else {
    for (let y = 0, out = (height - 1) * width + x; y < height; y++, out -= width)
      for (let c = 0, i = y; c < count; c++, i += height) pixels[out + c] = batch[i]!;
  }
}
