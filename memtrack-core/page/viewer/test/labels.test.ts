import assert from 'node:assert/strict';
import test from 'node:test';
import {Labels, LABEL_HEIGHT, Rank, overlap} from '../src/timeline/labels.ts';
import {mark_at, marks_of} from '../src/timeline/marks.ts';
import {labels_that_fit} from '../src/timeline/scales.ts';
import {count_fitting} from '../src/shell/glance.ts';
import {without_middle} from '../src/format.ts';
import {Axis} from '../src/timeline/axis.ts';
import {random} from './synthetic.ts';

const context = {measureText: (text: string) => ({width: 6 * text.length}) as TextMetrics};

test('labels never overlap and stay inside the picture, and the most important are placed', () => {
  for (let seed = 1; seed <= 50; seed++) {
    const rng = random(seed), labels = new Labels(context, 900, 500), painted: string[] = [];
    let pointer_placed = false;
    for (let i = 0; i < 300; i++) {
      const rank = 1 + Math.floor(rng() * 7) as Rank, text = `label ${i} ${'x'.repeat(rng() * 20)}`, x = rng() * 1000 - 50, y = rng() * 550 - 25;
      labels.defer(rank, () => labels.put(text, labels.beside(text, x, [y, y + 20]), at => painted.push(at.text)));
    }
    labels.defer(Rank.Pointer, () => { pointer_placed = labels.put('pointer', [{x: 400, y: 200}], at => painted.push(at.text)); });
    labels.settle();
    const {placed} = labels;
    assert.ok(placed.length > 30, `${placed.length} labels`);
    assert.equal(placed.length, painted.length);
    placed.forEach((a, i) => {
      assert.ok(a.x >= 0 && a.y >= 0 && a.x + a.width <= 900 && a.y + a.height <= 500 && a.height === LABEL_HEIGHT);
      for (const b of placed.slice(i + 1)) assert.ok(!overlap(a, b), `${a.text} and ${b.text}`);
    });
    assert.ok(pointer_placed, 'the pointer has its label');
  }
});

test('a more important label is placed first, even if it was added later', () => {
  const labels = new Labels(context, 200, 40), painted: string[] = [];
  for (const [rank, text] of [[Rank.Marker, 'marker'], [Rank.Cursor, 'cursor']] as const) labels.defer(rank, () => labels.put(text, [{x: 10, y: 10}], at => painted.push(at.text)));
  labels.settle();
  assert.deepEqual(painted, ['cursor']);
});

test('marks of the same name are numbered, and each can be pointed at', () => {
  const markers = Array.from({length: 200}, (_, i) => [{event: 10 * i, name: 'fw_start'}, {event: 10 * i + 5, name: 'fw_bw_boundary'}]).flat();
  const marks = marks_of({markers, ooms: [1000]}), axis = new Axis(2000, null);
  assert.equal(marks.length, 401);
  assert.deepEqual(marks.filter(mark => mark.event === 1000).map(mark => mark.whole), ['fw_start 101 of 200', 'out of memory']);
  // The marks are far enough apart to point at each: 20 pixels per step.
  const x = (v: number) => 2 * v;
  for (const mark of marks.filter(mark => mark.event !== 1000)) assert.equal(mark_at(marks, axis, x, {x: x(mark.event), y: 3}), mark);
  assert.equal(mark_at(marks, axis, x, {x: x(1000), y: 3})!.name, 'out of memory');
  assert.equal(mark_at(marks, axis, x, {x: x(2.5), y: 3})?.name ?? null, null);
  assert.equal(mark_at(marks, axis, x, {x: 0, y: 100}), null);
  assert.equal(mark_at([], axis, x, {x: 0, y: 3}), null);
});

test('labels of an axis do not overlap at any length', () => {
  for (const length of [1, 8, 14, 30, 200]) {
    const ticks = Array.from({length: 13}, (_, i) => ({x: i * 80, text: '9'.repeat(length)})), shown = labels_that_fit(ticks, 0, 960);
    const seen = ticks.filter((_, i) => shown[i]);
    seen.forEach((tick, i) => i && assert.ok(tick.x - seen[i - 1]!.x >= length * 6.6 + 8));
    if (length < 20) assert.ok(seen.length >= 4, `${seen.length} of length ${length}`);
  }
});

test('the last sentences are folded first, and the first one never', () => {
  assert.equal(count_fitting([20, 40, 60], 60, 20), 3);
  assert.equal(count_fitting([20, 40, 60, 80], 60, 20), 2);
  assert.equal(count_fitting([200, 400], 60, 20), 1);
  assert.equal(count_fitting([], 60, 20), 0);
});

test('a shortened name keeps both ends', () => {
  assert.equal(without_middle('short', 10), 'short');
  const name = without_middle('not this: torch::autograd::generated::MulBackward0::apply', 30);
  assert.equal([...name].length, 30);
  assert.ok(name.startsWith('not this') && name.endsWith('MulBackward0::apply'), name);
});
