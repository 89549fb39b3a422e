// Compares the bands of categories with naive sums over the live blocks.
import assert from 'node:assert/strict';
import {test} from 'node:test';
import {name_position} from '../src/categories/marks.ts';
import {bands_of, category_colors} from '../src/categories/names.ts';
import {BandPicture} from '../src/categories/picture.ts';
import {level_after, peak_of, series_of} from '../src/categories/sums.ts';
import {match} from '../src/search/match.ts';
import {read_query} from '../src/search/query.ts';
import {Axis} from '../src/timeline/axis.ts';
import {css_of, luminance, parse} from '../src/timeline/rgb.ts';
import {plain_stack} from '../src/timeline/stack.ts';
import type {Elements} from '../src/types.ts';
import {device, elements, live_naively, random_rows, texts} from './rows.ts';
import {random} from './synthetic.ts';

/** Random blocks, the layer of each, and the ones that count. */
function random_layers(seed: number, events: number, layers: number): {table: Elements; layer: Uint8Array; only: Uint8Array | null} {
  const rng = random(seed), rows = random_rows(seed, events, 5 + Math.floor(rng() * 60));
  for (const row of rows) row.category = Math.floor(rng() * layers);
  const table = elements(rows, events);
  return {table, layer: table.category, only: rng() < 0.5 ? null : Uint8Array.from({length: table.count}, () => (rng() < 0.7 ? 1 : 0))};
}

function bytes_naively({table, layer, only}: ReturnType<typeof random_layers>, event: number, layers: number): number[] {
  const out = new Array<number>(layers).fill(0);
  for (const row of live_naively(table, event)) if (!only || only[row]) out[layer[row]!]! += table.size[row]!;
  return out;
}

test('a layer has the bytes of its live blocks after each event', () => {
  for (let seed = 1; seed <= 60; seed++) {
    const events = seed % 9 === 0 ? seed % 2 : 3 + seed * 5, layers = 1 + (seed % 7), some = random_layers(seed, events, layers);
    const series = series_of(some.table, some.layer, layers, some.only);
    assert.equal(series.length, layers);
    for (const {event} of series) for (let i = 1; i < event.length; i++) assert.ok(event[i]! > event[i - 1]!, 'one change per event');
    for (let event = -1; event < events; event++) assert.deepEqual(series.map(s => level_after(s, event)), bytes_naively(some, event, layers), `seed ${seed}, after event ${event}`);
  }
});

test('the peak of several layers is its first occurrence', () => {
  for (let seed = 1; seed <= 40; seed++) {
    const events = 120, some = random_layers(seed, events, 4), series = series_of(some.table, some.layer, 4, some.only);
    let bytes = 0, at = -1;
    for (let event = -1; event < events; event++) {
      const [, a, , b] = bytes_naively(some, event, 4);
      if (a! + b! > bytes) [bytes, at] = [a! + b!, event];
    }
    assert.deepEqual(peak_of([series[1]!, series[3]!]), {event: at, bytes});
  }
  assert.deepEqual(peak_of([]), {event: -1, bytes: 0});
});

test('each column of a picture shows the bands of the event with the highest total', () => {
  for (let seed = 1; seed <= 30; seed++) {
    const rng = random(seed), events = 40 + seed * 30, layers = 6, some = random_layers(seed, events, layers);
    const stack = plain_stack(some.table, some.only), picture = new BandPicture(stack, series_of(some.table, some.layer, layers, some.only));
    const clock = seed % 2 ? Float64Array.from({length: events}, (_, e) => e * 10 + (e % 3)) : null, axis = new Axis(events, clock);
    for (let i = 0; i < 8; i++) {
      const whole = axis.to - axis.from, span = whole * (i ? rng() ** 2 : 1), from = axis.from + rng() * (whole - span), width = 90, coarse = i % 4 === 3 ? 2 : 1;
      picture.lay_out(axis, {from, to: from + span, bottom: 0, top: stack.peak || 1, width, height: 100, coarse});
      const {frame} = picture;
      assert.equal(frame.span_x[frame.spans], width);
      for (let s = 0; s < frame.spans; s++) {
        const bytes = bytes_naively(some, frame.span_event[s]!, layers);
        bytes.forEach((size, l) => {
          const {from, to} = picture.extent(s, l);
          assert.equal(to - from, size);
          if (size) assert.equal(picture.layer_at(s, from), l);
        });
        assert.equal(picture.layer_at(s, stack.total[frame.span_event[s]! + 1]!), null, 'there is no layer above the total');
        // Runs are contiguous from the bottom to the total.
        let at = 0;
        for (let run = frame.span_run[s]!; run < frame.span_run[s + 1]!; run++) {
          assert.equal(frame.run_from[run], at);
          at = frame.run_to[run]!;
        }
        assert.equal(at, stack.total[frame.span_event[s]! + 1]);
        // No event of the column is higher.
        const first = axis.before(from + (span * frame.span_x[s]!) / width), last = axis.before(from + (span * frame.span_x[s + 1]!) / width);
        for (let e = first; e <= last; e++) assert.ok(stack.total[e]! <= stack.total[frame.span_event[s]! + 1]!, 'a column shows its peak');
      }
    }
  }
});

test('bands are in the order of PyTorch, then of the file, and then blocks without a category', () => {
  const names = (list: string[]): string[] => bands_of(list).map(band => band.name);
  assert.deepEqual(names(['unknown', 'autograd_detail', 'gradient', 'activation', 'temporary', 'input', 'optimizer_state', 'parameter']),
    ['parameter', 'optimizer_state', 'input', 'temporary', 'activation', 'gradient', 'autograd_detail', 'unknown', 'no category']);
  assert.deepEqual(names(['zebra', 'buffer', 'apple', 'optimizer_temporary', 'unknown', 'gradient']), ['gradient', 'unknown', 'optimizer_temporary', 'buffer', 'zebra', 'apple', 'no category']);
  // Spellings that differ in case share a band, which has the values of each.
  const [both] = bands_of(['GRADIENT', 'x', 'gradient']);
  assert.deepEqual([both!.name, both!.values], ['GRADIENT', [1, 3]]);
  assert.deepEqual(names([]), ['no category']);
});

test('every value of the column is in exactly one band, for any number of names', () => {
  for (const n of [0, 1, 19, 20, 21, 250]) {
    const bands = bands_of(['gradient', ...Array.from({length: n}, (_, i) => `custom ${i}`)]);
    assert.deepEqual(bands.flatMap(band => band.values).sort((a, b) => a - b), Array.from({length: n + 2}, (_, i) => i));
    assert.ok(bands.length <= 22, `${bands.length} bands`);
    assert.equal(bands.at(-2)!.name, n > 20 ? `${n - 19} more categories` : n ? `custom ${n - 1}` : 'gradient');
  }
});

test('colours are those of PyTorch, and have enough contrast on a dark page', () => {
  const names = ['parameter', 'optimizer_state', 'input', 'temporary', 'activation', 'gradient', 'autograd_detail', 'unknown'];
  assert.deepEqual(category_colors(names, false), ['#006400', '#daa520', '#000000', '#9370db', '#ff0000', '#0000cd', '#4169e1', '#808080'].map(parse));
  const contrast = (a: number, b: number): number => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  for (const [i, color] of category_colors([...names, 'optimizer_temporary', 'buffer'], true).entries()) assert.ok(contrast(luminance(color), luminance([22, 24, 29])) >= 3, `${i}: ${css_of(color)}`);
  const seen = new Set(category_colors([...names, 'optimizer_temporary', 'buffer'], true).map(css_of));
  assert.equal(seen.size, 10, 'all are distinct');
});

test('the query of a band finds exactly its blocks', async () => {
  const names = ['gradient', 'a.b(c', 'Gradient', 'gradients', 'x|y', 'GRADIENT'], rows = random_rows(5, 200, 40);
  rows.forEach((row, i) => { row.category = i % (names.length + 1); });
  const table = elements(rows, 200), d = device(table, 200, {categories: names});
  for (const band of bands_of(names)) {
    const found = await match(read_query(band.query), {device: d, events: d.table, texts: texts([])}, {wanted: true});
    assert.ok(found);
    assert.deepEqual([...found.keys()].filter(row => found[row]), [...table.category.keys()].filter(row => band.values.includes(table.category[row]!)), band.query);
  }
});

test('a name is placed where its band has room for it, or nowhere', () => {
  // A block of 100 bytes from event 10 to 60, and below it one of 3 bytes at all times.
  const table = elements([{start: -1, end: 100, size: 3, address: 1, category: 1}, {start: 10, end: 60, size: 100, address: 9, category: 2}], 100);
  const picture = new BandPicture(plain_stack(table), series_of(table, table.category.map(c => 2 * (c - 1)), 4, null)), axis = new Axis(100, null);
  picture.lay_out(axis, {from: 0, to: 100, bottom: 0, top: 110, width: 200, height: 110, coarse: 1});
  const position = (band: number, width: number) => name_position(picture, band, width, s => picture.frame.sample_x[s]!, bytes => 110 - bytes, 110);
  assert.equal(position(0, 20), null, 'too low');
  assert.equal(position(1, 120), null, 'too wide');
  const at = position(1, 50)!;
  assert.ok(at.x - 25 >= 20 && at.x + 25 <= 120 && at.y > 7 + 7 && at.y < 107 - 7, JSON.stringify(at));
});
