// The bands of categories against the slow way: what is live after an event, added up block by block.
import assert from 'node:assert/strict';
import {test} from 'node:test';
import {place_of_name} from '../src/categories/marks.ts';
import {bands_of, category_colors} from '../src/categories/names.ts';
import {BandPicture} from '../src/categories/picture.ts';
import {level_after, most_of, series_of} from '../src/categories/sums.ts';
import {match} from '../src/search/match.ts';
import {read_query} from '../src/search/query.ts';
import {Axis} from '../src/timeline/axis.ts';
import {css_of, luminance, parse} from '../src/timeline/rgb.ts';
import {plain_stack} from '../src/timeline/stack.ts';
import type {Elements} from '../src/types.ts';
import {device, elements, live_by_hand, random_rows, texts} from './rows.ts';
import {random} from './synthetic.ts';

/** Random blocks, the layer of each, and which of them count. */
function made(seed: number, events: number, layers: number): {table: Elements; layer: Uint8Array; only: Uint8Array | null} {
  const rng = random(seed), rows = random_rows(seed, events, 5 + Math.floor(rng() * 60));
  for (const row of rows) row.category = Math.floor(rng() * layers);
  const table = elements(rows, events);
  return {table, layer: table.category, only: rng() < 0.5 ? null : Uint8Array.from({length: table.count}, () => (rng() < 0.7 ? 1 : 0))};
}

function bytes_by_hand({table, layer, only}: ReturnType<typeof made>, event: number, layers: number): number[] {
  const out = new Array<number>(layers).fill(0);
  for (const row of live_by_hand(table, event)) if (!only || only[row]) out[layer[row]!]! += table.size[row]!;
  return out;
}

test('each layer has after each event the bytes of its blocks that are live then', () => {
  for (let seed = 1; seed <= 60; seed++) {
    const events = seed % 9 === 0 ? seed % 2 : 3 + seed * 5, layers = 1 + (seed % 7), some = made(seed, events, layers);
    const series = series_of(some.table, some.layer, layers, some.only);
    assert.equal(series.length, layers);
    for (const {event} of series) for (let i = 1; i < event.length; i++) assert.ok(event[i]! > event[i - 1]!, 'one change an event');
    for (let event = -1; event < events; event++) assert.deepEqual(series.map(s => level_after(s, event)), bytes_by_hand(some, event, layers), `seed ${seed}, after event ${event}`);
  }
});

test('the most that layers have together is found where it is first', () => {
  for (let seed = 1; seed <= 40; seed++) {
    const events = 120, some = made(seed, events, 4), series = series_of(some.table, some.layer, 4, some.only);
    let bytes = 0, at = -1;
    for (let event = -1; event < events; event++) {
      const [, a, , b] = bytes_by_hand(some, event, 4);
      if (a! + b! > bytes) [bytes, at] = [a! + b!, event];
    }
    assert.deepEqual(most_of([series[1]!, series[3]!]), {event: at, bytes});
  }
  assert.deepEqual(most_of([]), {event: -1, bytes: 0});
});

test('a picture shows in each column the event with the highest total, and its bands are those of that event', () => {
  for (let seed = 1; seed <= 30; seed++) {
    const rng = random(seed), events = 40 + seed * 30, layers = 6, some = made(seed, events, layers);
    const stack = plain_stack(some.table, some.only), picture = new BandPicture(stack, series_of(some.table, some.layer, layers, some.only));
    const clock = seed % 2 ? Float64Array.from({length: events}, (_, e) => e * 10 + (e % 3)) : null, axis = new Axis(events, clock);
    for (let i = 0; i < 8; i++) {
      const whole = axis.to - axis.from, span = whole * (i ? rng() ** 2 : 1), from = axis.from + rng() * (whole - span), width = 90, coarse = i % 4 === 3 ? 2 : 1;
      picture.lay(axis, {from, to: from + span, bottom: 0, top: stack.peak || 1, width, height: 100, coarse});
      const {frame} = picture;
      assert.equal(frame.span_x[frame.spans], width);
      for (let s = 0; s < frame.spans; s++) {
        const bytes = bytes_by_hand(some, frame.span_event[s]!, layers);
        bytes.forEach((own, l) => {
          const {from, to} = picture.extent(s, l);
          assert.equal(to - from, own);
          if (own) assert.equal(picture.layer_at(s, from), l);
        });
        assert.equal(picture.layer_at(s, stack.total[frame.span_event[s]! + 1]!), null, 'nothing lies above the total');
        // Runs stand one on the other, from the bottom to the total.
        let at = 0;
        for (let run = frame.span_run[s]!; run < frame.span_run[s + 1]!; run++) {
          assert.equal(frame.run_from[run], at);
          at = frame.run_to[run]!;
        }
        assert.equal(at, stack.total[frame.span_event[s]! + 1]);
        // No event that falls into its columns is higher.
        const first = axis.before(from + (span * frame.span_x[s]!) / width), last = axis.before(from + (span * frame.span_x[s + 1]!) / width);
        for (let e = first; e <= last; e++) assert.ok(stack.total[e]! <= stack.total[frame.span_event[s]! + 1]!, 'the peak of a column is not lost');
      }
    }
  }
});

test('bands are in the order of PyTorch, then of the file, and blocks without a category are above', () => {
  const names = (list: string[]): string[] => bands_of(list).map(band => band.name);
  assert.deepEqual(names(['unknown', 'autograd_detail', 'gradient', 'activation', 'temporary', 'input', 'optimizer_state', 'parameter']),
    ['parameter', 'optimizer_state', 'input', 'temporary', 'activation', 'gradient', 'autograd_detail', 'unknown', 'no category']);
  assert.deepEqual(names(['zebra', 'buffer', 'apple', 'optimizer_temporary', 'unknown', 'gradient']), ['gradient', 'unknown', 'optimizer_temporary', 'buffer', 'zebra', 'apple', 'no category']);
  // Spellings that differ in case are one band, and each of its values leads to it.
  const [both] = bands_of(['GRADIENT', 'x', 'gradient']);
  assert.deepEqual([both!.name, both!.values], ['GRADIENT', [1, 3]]);
  assert.deepEqual(names([]), ['no category']);
});

test('every value of the column is in exactly one band, however many names a file has', () => {
  for (const n of [0, 1, 19, 20, 21, 250]) {
    const bands = bands_of(['gradient', ...Array.from({length: n}, (_, i) => `mine ${i}`)]);
    assert.deepEqual(bands.flatMap(band => band.values).sort((a, b) => a - b), Array.from({length: n + 2}, (_, i) => i));
    assert.ok(bands.length <= 22, `${bands.length} bands`);
    assert.equal(bands.at(-2)!.name, n > 20 ? `${n - 19} more categories` : n ? `mine ${n - 1}` : 'gradient');
  }
});

test('the colours are those of PyTorch, and on a dark page none is hard to see', () => {
  const names = ['parameter', 'optimizer_state', 'input', 'temporary', 'activation', 'gradient', 'autograd_detail', 'unknown'];
  assert.deepEqual(category_colors(names, false), ['#006400', '#daa520', '#000000', '#9370db', '#ff0000', '#0000cd', '#4169e1', '#808080'].map(parse));
  const contrast = (a: number, b: number): number => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  for (const [i, color] of category_colors([...names, 'optimizer_temporary', 'buffer'], true).entries()) assert.ok(contrast(luminance(color), luminance([22, 24, 29])) >= 3, `${i}: ${css_of(color)}`);
  const seen = new Set(category_colors([...names, 'optimizer_temporary', 'buffer'], true).map(css_of));
  assert.equal(seen.size, 10, 'no two are the same');
});

test('the query of a band finds its blocks and no others', async () => {
  const names = ['gradient', 'a.b(c', 'Gradient', 'gradients', 'x|y', 'GRADIENT'], rows = random_rows(5, 200, 40);
  rows.forEach((row, i) => { row.category = i % (names.length + 1); });
  const table = elements(rows, 200), d = device(table, 200, {categories: names});
  for (const band of bands_of(names)) {
    const found = await match(read_query(band.query), {device: d, events: d.table, texts: texts([])}, {wanted: true});
    assert.ok(found);
    assert.deepEqual([...found.keys()].filter(row => found[row]), [...table.category.keys()].filter(row => band.values.includes(table.category[row]!)), band.query);
  }
});

test('a name stands where its band is high enough for it, or nowhere', () => {
  // One block of 100 bytes from event 10 to 60, one of 3 bytes all the time below it.
  const table = elements([{start: -1, end: 100, size: 3, address: 1, category: 1}, {start: 10, end: 60, size: 100, address: 9, category: 2}], 100);
  const picture = new BandPicture(plain_stack(table), series_of(table, table.category.map(c => 2 * (c - 1)), 4, null)), axis = new Axis(100, null);
  picture.lay(axis, {from: 0, to: 100, bottom: 0, top: 110, width: 200, height: 110, coarse: 1});
  const place = (band: number, width: number) => place_of_name(picture, band, width, s => picture.frame.sample_x[s]!, bytes => 110 - bytes, 110);
  assert.equal(place(0, 20), null, 'too low');
  assert.equal(place(1, 120), null, 'too wide');
  const at = place(1, 50)!;
  assert.ok(at.x - 25 >= 20 && at.x + 25 <= 120 && at.y > 7 + 7 && at.y < 107 - 7, JSON.stringify(at));
});
