import assert from 'node:assert/strict';
import test from 'node:test';
import {Axis} from '../src/timeline/axis.ts';
import {Frame, LayoutEngine, OLD, PENDING} from '../src/timeline/frame.ts';
import {paint} from '../src/timeline/paint.ts';
import {colors_of} from '../src/timeline/palette.ts';
import {plain_stack} from '../src/timeline/stack.ts';
import {Checkpoints} from '../src/data/elements.ts';
import {device_head} from './encode.ts';
import type {Texts} from '../src/types.ts';
import {elements, random_blocks} from './tables.ts';

for (const [from, to, bottom, top] of [[0, 1, 0, 1.04], [0.2, 0.25, 0, 0.9], [0.5, 0.503, 0.3, 0.5], [0.9, 1, 0.05, 1.2]] as const) {
  test(`every pixel has the colour of its run (${from} to ${to})`, () => {
    const events = 4000, blocks = random_blocks(61, events), rows = elements(blocks, events), stack = plain_stack(rows), axis = new Axis(events, null);
    const points = new Checkpoints(rows, events - 1), frame = new Frame(stack), width = 131, height = 97, pixels = new Uint32Array(width * height);
    const window = {from: axis.from + (axis.to - axis.from) * from, to: axis.from + (axis.to - axis.from) * to, bottom: stack.peak * bottom, top: stack.peak * top, width, height, coarse: 1};
    new LayoutEngine().lay_out(frame, stack, axis, window, e => points.live_after(e));
    const texts = {strings: 40, string: (id: number) => `line ${id}`, stack_line: Uint32Array.from({length: 1 + Math.max(...rows.stack)}, (_, stack) => stack % 40)} as unknown as Texts;
    const {of, palette} = colors_of(rows, 'stack', device_head({events, blocks: blocks.length, segments: 0, sections: {texts: 0, blocks: 1, events: 2, segments: 3, bands: 4}}), false, points.live_after(0), texts);
    const passing = Uint8Array.from(blocks, (_, i) => Number(i % 5 > 0));
    paint(frame, pixels, {of, palette, passing, layer: null, start: frame.stack.elements.start});
    let patterns = 0, blank = 0;
    for (let x = 0; x < width; x++) {
      const span = frame.span_at(x);
      for (let y = 0; y < height; y++) {
        const level = height - 1 - y, pixel = pixels[y * width + x]!;
        let row = -1, flags = 0;
        for (let run = frame.span_run[span]!; run < frame.span_run[span + 1]!; run++) {
          const place = (bytes: number) => Math.round(((bytes - window.bottom) * height) / (window.top - window.bottom));
          if (place(frame.run_from[run]!) <= level && level < place(frame.run_to[run]!)) [row, flags] = [frame.run_row[run]!, frame.run_flags[run]!];
        }
        if (row < 0) {
          assert.equal(pixel, 0, `nothing at ${x}, ${y}`);
          blank++;
        } else {
          const slot = of[row]!, color = passing[row] ? palette.fill[slot] : palette.dim[slot], line = passing[row] ? palette.edge[slot] : palette.dim[255];
          assert.ok(pixel === color || pixel === line, `the colour of row ${row} at ${x}, ${y}`);
          if (flags & (PENDING | OLD) && pixel === line) patterns++;
        }
      }
    }
    if (bottom < 0.2) assert.ok(patterns > 20, 'old and pending blocks have patterns');
    if (top > 1) assert.ok(blank > 100);
  });
}
