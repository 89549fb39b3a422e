import assert from 'node:assert/strict';
import test from 'node:test';
import type {ColorBy, Texts} from '../src/types.ts';
import {colors_of, live_at_peak} from '../src/timeline/palette.ts';
import {Checkpoints} from '../src/data/elements.ts';
import {device_head} from './encode.ts';
import {elements, random_blocks} from './tables.ts';

const EVENTS = 3000;

/** Returns blocks whose stacks have a number of different lines. */
function blocks_of_lines(lines: number) {
  const blocks = random_blocks(17, EVENTS), rows = elements(blocks, EVENTS), points = new Checkpoints(rows, EVENTS - 1);
  const live = live_at_peak({live_after: (_, event) => points.live_after(event)}, rows);
  const stacks = 61;
  rows.stack.forEach((_, row) => { rows.stack[row] = row % stacks; });
  const texts = {strings: lines + 1, string: (id: number) => `file.py:${id} f`, stack_line: Uint32Array.from({length: stacks}, (_, s) => (s ? 1 + (s % lines) : 0))} as unknown as Texts;
  const streams = Array.from({length: 1 + Math.max(...rows.stream)}, (_, i) => `${i}`), pools = Array.from({length: Math.max(1, ...rows.pool)}, (_, i) => `pool ${i}`);
  const categories = Array.from({length: Math.max(1, ...rows.category)}, (_, i) => ['parameter', 'activation', 'gradient'][i] ?? `custom ${i}`);
  const head = device_head({events: EVENTS, blocks: blocks.length, segments: 0, streams, pools, categories, sections: {texts: 0, blocks: 1, events: 2, segments: 3, bands: 4}});
  return {rows, live, texts, head};
}

const peak = (total: Float64Array) => total.reduce((a, b) => Math.max(a, b), 0);

for (const by of ['stack', 'size', 'age', 'stream', 'pool', 'category'] as ColorBy[]) {
  test(`the legend of colours by ${by} accounts for every byte at the peak`, () => {
    for (const lines of [3, 200]) {
      const {rows, live, texts, head} = blocks_of_lines(lines), {palette, of} = colors_of(rows, by, head, false, live, texts);
      assert.ok(palette.legend.length > 0 && palette.legend.length < 20, `${palette.legend.length} entries`);
      assert.equal(palette.legend.reduce((sum, key) => sum + key.bytes, 0), peak(rows.total));
      if (by === 'size' || by === 'age') continue;
      // Each named group has a different colour.
      assert.equal(new Set(palette.legend.map(key => palette.css[key.color])).size, palette.legend.length);
      const largest = palette.legend[0]!;
      const bytes = [...live].filter(row => of[row] === largest.color).reduce((sum, row) => sum + rows.size[row]!, 0);
      assert.equal(bytes, largest.bytes);
    }
  });
}

test('the largest lines come first, and the others are counted together', () => {
  const {rows, live, texts, head} = blocks_of_lines(40), {legend} = colors_of(rows, 'stack', head, true, live, texts).palette;
  const named = legend.filter(key => key.name.startsWith('file.py') || key.name.startsWith('older'));
  assert.equal(named.length, 9);
  named.forEach((key, i) => i && assert.ok(key.bytes <= named[i - 1]!.bytes));
  assert.ok(legend.some(key => /^\d+ other lines$/.test(key.name)));
});

test('a block is not attributed to the line that freed it if only its free was recorded', () => {
  const {rows, live, texts, head} = blocks_of_lines(3);
  rows.flags.fill(1);
  const {legend} = colors_of(rows, 'stack', head, false, live, texts).palette;
  assert.ok(legend.every(key => key.name.startsWith('older, freed at ') || key.name === 'no stack recorded'), JSON.stringify(legend));
});
