import assert from 'node:assert/strict';
import test from 'node:test';
import {Axis} from '../src/timeline/axis.ts';
import {Frame, LayoutEngine, MERGED, OLD, PENDING, type Window} from '../src/timeline/frame.ts';
import {Peaks} from '../src/timeline/pyramid.ts';
import {plain_stack, pool_stack, type Stack} from '../src/timeline/stack.ts';
import {Checkpoints} from '../src/data/elements.ts';
import type {Block} from './encode.ts';
import {random} from './synthetic.ts';
import {elements, live_naively, random_blocks} from './tables.ts';

function clock_of(events: number, seed: number): Float64Array {
  const rng = random(seed), out = new Float64Array(events);
  for (let e = 0, t = 0; e < events; e++) out[e] = t += rng() < 0.3 ? 0 : rng() < 0.01 ? 50_000 : Math.floor(rng() * 30);
  return out;
}

function lay_out(stack: Stack, axis: Axis, window: Window, layout_engine = new LayoutEngine(), frame = new Frame(stack)): Frame {
  const points = new Checkpoints(stack.elements, axis.events - 1);
  layout_engine.lay_out(frame, stack, axis, window, e => points.live_after(e));
  return frame;
}

/** Returns windows from the whole to a few events, and from all bytes to a few. */
function windows(axis: Axis, peak: number, rng: () => number): Window[] {
  return Array.from({length: 40}, (_, i) => {
    const whole = axis.to - axis.from, span = whole * (i % 4 === 0 ? 1 : rng() ** 3), from = axis.from + rng() * (whole - span);
    const high = peak * (i % 3 === 0 ? 1.04 : 0.02 + rng() * 0.9), bottom = i % 3 === 0 ? 0 : rng() * (peak - high);
    return {from, to: from + span, bottom: Math.max(0, bottom), top: Math.max(0, bottom) + high, width: 200, height: 5 + Math.floor(rng() * 300), coarse: i % 5 === 0 ? 3 : 1};
  });
}

test('the peak of a range is its first largest value', () => {
  const rng = random(9), values = Float64Array.from({length: 20_000}, () => Math.floor(rng() * 500)), peaks = new Peaks(values);
  for (let i = 0; i < 3000; i++) {
    const a = Math.floor(rng() * values.length), b = i % 2 ? Math.min(values.length - 1, a + Math.floor(rng() * 300)) : a + Math.floor(rng() * (values.length - a));
    let want = a;
    for (let k = a; k <= b; k++) if (values[k]! > values[want]!) want = k;
    assert.equal(peaks.top(a, b), want, `${a}..${b}`);
  }
});

test('positions of the axis correspond to events', () => {
  const clock = Float64Array.from([10, 20, 20, 20, 35]), axis = new Axis(5, clock);
  assert.deepEqual([0, 10, 15, 20, 21, 35, 99].map(x => axis.event_at(x)), [-1, 0, 0, 3, 3, 4, 4]);
  assert.deepEqual([0, 10, 15, 20, 21, 35, 99].map(x => axis.before(x)), [0, 0, 1, 1, 4, 4, 5]);
  const steps = new Axis(5, null);
  assert.deepEqual([-1, 0, 0.5, 1, 4.9, 9].map(x => steps.event_at(x)), [-1, 0, 0, 1, 4, 4]);
});

for (const kind of ['time', 'step'] as const) {
  test(`each column shows the highest state of its range, and its runs are that state (${kind})`, () => {
    const events = 5000, blocks = random_blocks(11, events), rows = elements(blocks, events), stack = plain_stack(rows);
    const axis = new Axis(events, kind === 'time' ? clock_of(events, 4) : null), rng = random(6);
    // All windows share the engine and the frame: an earlier picture must not affect a later one.
    const layout_engine = new LayoutEngine(), frame = new Frame(stack);
    for (const window of windows(axis, stack.peak, rng)) {
      lay_out(stack, axis, window, layout_engine, frame);
      check_samples(frame, axis, window);
      for (let span = 0; span < frame.spans; span++) check_runs(frame, span, live_naively(blocks, frame.span_event[span]!).map(row => [row, blocks[row]!.size]), blocks, window);
    }
  });
}

function check_samples(frame: Frame, axis: Axis, {from, to, width, coarse}: Window): void {
  const {total} = frame.stack;
  for (let x = 0; x < width; x += coarse) {
    const x0 = from + ((to - from) * x) / width, x1 = from + ((to - from) * Math.min(width, x + coarse)) / width;
    const first = axis.before(x0) - 1, last = Math.max(first, axis.before(x1) - 1);
    let high = 0;
    for (let e = first; e <= last; e++) high = Math.max(high, total[e + 1]!);
    assert.equal(total[frame.span_event[frame.span_at(x)]! + 1], high, `column ${x}`);
  }
}

/** Checks the runs of a span. `state` is the stack from the bottom: rows (or less than 0) and their bytes. */
function check_runs(frame: Frame, span: number, state: [number, number][], blocks: Block[], {bottom, top, height}: Window): void {
  const event = frame.span_event[span]!, pixel = (top - bottom) / height;
  const offsets = new Map<number, [number, number]>();
  let sum = 0;
  for (const [row, size] of state) {
    offsets.set(row, [sum, sum + size]);
    sum += size;
  }
  const edges = new Set([0, ...[...offsets.values()].flat()]);
  let at: number | null = null, small = 0;
  for (let run = frame.span_run[span]!; run < frame.span_run[span + 1]!; run++) {
    const from = frame.run_from[run]!, to = frame.run_to[run]!, row = frame.run_row[run]!, flags = frame.run_flags[run]!;
    if (at === null) assert.ok(from <= Math.max(bottom, 0) || from === 0, 'the first run begins at or below the bottom');
    else assert.equal(from, at, 'runs are contiguous');
    at = to;
    assert.ok(edges.has(from) && edges.has(to), 'runs begin and end at edges of blocks');
    const extent = offsets.get(row);
    assert.ok(extent && extent[0] >= from && extent[1] <= to, 'the run contains its row');
    if (!(flags & MERGED)) assert.deepEqual(extent, [from, to], 'a run of one block has its extent');
    else {
      const inside = state.filter(([r]) => offsets.get(r)![0] >= from && offsets.get(r)![1] <= to);
      assert.ok(inside.length > 1);
      assert.equal(extent[1] - extent[0], Math.max(...inside.map(([, size]) => size)), 'the row of a merged run is its largest');
      assert.ok(inside.every(([, size]) => size < pixel), 'only blocks smaller than a pixel are merged');
    }
    if (to - from < pixel) small++;
    if (row >= 0) {
      const b = blocks[row]!;
      assert.equal(!!(flags & PENDING), b.pending !== undefined && b.pending <= event);
      if (!(flags & PENDING)) assert.equal(!!(flags & OLD), b.start < 0);
    }
  }
  const visible = Math.min(sum, top);
  if (visible > bottom) assert.ok(at !== null && at >= visible, 'runs reach the top of the stack or of the picture');
  else assert.equal(at, null);
  // Runs lower than a pixel occur only between higher ones or changes, so the number of pixels limits their number.
  assert.ok(small <= height + 2, `${small} runs of less than a pixel at a height of ${height}`);
}

test('the runs of a column add up to the total if all bytes are in the picture', () => {
  const events = 3000, blocks = random_blocks(21, events), rows = elements(blocks, events), stack = plain_stack(rows), axis = new Axis(events, null);
  for (const height of [3, 50, 700]) {
    const frame = lay_out(stack, axis, {from: axis.from, to: axis.to, bottom: 0, top: stack.peak * 1.04, width: 300, height, coarse: 1});
    assert.ok(frame.spans > 50);
    for (let span = 0; span < frame.spans; span++) {
      let sum = 0;
      for (let run = frame.span_run[span]!; run < frame.span_run[span + 1]!; run++) sum += frame.run_to[run]! - frame.run_from[run]!;
      assert.equal(sum, rows.total[frame.span_event[span]! + 1]);
    }
  }
});

test('a point is in the block whose bytes are there, merged or not, and the track of a block has its offsets', () => {
  const events = 2000, blocks = random_blocks(31, events), rows = elements(blocks, events), stack = plain_stack(rows), axis = new Axis(events, null), rng = random(8);
  const frame = lay_out(stack, axis, {from: 200, to: 1900, bottom: 0, top: stack.peak, width: 150, height: 40, coarse: 1});
  for (let i = 0; i < 400; i++) {
    const sample = Math.floor(rng() * frame.sample_count), live = live_naively(blocks, frame.samples[sample]!);
    let at = 0;
    const bytes = rng() * rows.total[frame.samples[sample]! + 1]!, want = live.find(row => (at += blocks[row]!.size) > bytes)!;
    const from = at - blocks[want]!.size;
    assert.deepEqual(frame.member_at(sample, bytes), {row: want, from});
    const track = frame.track(want);
    for (let s = 0; s < frame.sample_count; s++) {
      const l = live_naively(blocks, frame.samples[s]!), index = l.indexOf(want);
      assert.equal(track[s], index < 0 ? NaN : l.slice(0, index).reduce((sum, row) => sum + blocks[row]!.size, 0));
    }
    assert.equal(frame.member_at(sample, rows.total[frame.samples[sample]! + 1]!), null);
  }
});

test('hidden rows do not leave gaps', () => {
  const events = 1500, blocks = random_blocks(41, events), rows = elements(blocks, events), only = Uint8Array.from(blocks, (_, i) => Number(i % 4 === 1));
  const stack = plain_stack(rows, only), axis = new Axis(events, null), window = {from: axis.from, to: axis.to, bottom: 0, top: stack.peak, width: 120, height: 90, coarse: 1};
  const frame = lay_out(stack, axis, window);
  check_samples(frame, axis, window);
  for (let span = 0; span < frame.spans; span++)
    check_runs(frame, span, live_naively(blocks, frame.span_event[span]!).filter(row => only[row]).map(row => [row, blocks[row]!.size]), blocks, window);
});

test('the envelope of a pool is its largest size so far, and contains its blocks', () => {
  const events = 1500, blocks = random_blocks(51, events, 4), rows = elements(blocks, events);
  const segment_blocks = random_blocks(52, events, 4).filter((_, i) => i % 40 === 0), segments = elements(segment_blocks, events);
  const is_private = (pool: number) => pool >= 2, axis = new Axis(events, null);
  const stack = pool_stack(rows, segments, is_private), window = {from: axis.from, to: axis.to, bottom: 0, top: stack.peak * 1.02, width: 100, height: 200, coarse: 1};
  assert.deepEqual(stack.envelopes.map(e => e.pool), [3, 4]);
  const high = new Map<number, Float64Array>();
  for (const pool of [3, 4]) {
    const out = new Float64Array(events + 1);
    for (let e = -1, most = 0; e < events; e++) {
      const sum = (list: Block[]) => live_naively(list, e).reduce((s, row) => s + (list[row]!.pool === pool ? list[row]!.size : 0), 0);
      out[e + 1] = most = Math.max(most, sum(blocks), sum(segment_blocks));
    }
    high.set(pool, out);
  }
  const frame = lay_out(stack, axis, window);
  check_samples(frame, axis, window);
  for (let span = 0; span < frame.spans; span++) {
    const event = frame.span_event[span]!, live = live_naively(blocks, event), state: [number, number][] = live.filter(row => blocks[row]!.pool! < 3).map(row => [row, blocks[row]!.size]);
    [3, 4].forEach((pool, layer) => {
      const inside = live.filter(row => blocks[row]!.pool === pool), used = inside.reduce((s, row) => s + blocks[row]!.size, 0);
      state.push(...inside.map((row): [number, number] => [row, blocks[row]!.size]));
      const unused = high.get(pool)![event + 1]! - used;
      if (unused) state.push([-2 - layer, unused]);
    });
    check_runs(frame, span, state, blocks, window);
    const sum = state.reduce((s, [, size]) => s + size, 0);
    assert.equal(stack.total[event + 1], sum, 'the total is the sum of the stack');
  }
  // A block of the upper pool is above the lower envelope.
  const sample = Math.floor(frame.sample_count / 2), event = frame.samples[sample]!, row = live_naively(blocks, event).find(r => blocks[r]!.pool === 4)!;
  const below = live_naively(blocks, event).reduce((s, r) => s + (blocks[r]!.pool! < 3 || (blocks[r]!.pool === 4 && r < row) ? blocks[r]!.size : 0), 0) + high.get(3)![event + 1]!;
  assert.equal(frame.track(row)[sample], below);
  assert.deepEqual(frame.member_at(sample, below), {row, from: below});
});

for (const count of [1, 15, 16, 17, 255, 256, 257]) {
  test(`blocks above a freed block move down into the picture (${count} blocks)`, () => {
    const rng = random(count), order = Array.from({length: count}, (_, i) => i).sort(() => rng() - 0.5), events = count + 3;
    const blocks: Block[] = order.map(index => ({start: -1, end: index + 2, size: 1 + Math.floor(rng() * 5000)})), rows = elements(blocks, events), stack = plain_stack(rows);
    const axis = new Axis(events, null);
    for (const [bottom, top] of [[0, 1], [0, 0.4], [0.3, 0.6], [0.7, 1]] as const) {
      const window = {from: axis.from, to: axis.to, bottom: bottom * stack.peak, top: top * stack.peak, width: events + 10, height: 80, coarse: 1};
      const frame = lay_out(stack, axis, window);
      assert.ok(frame.spans > count / 2);
      for (let span = 0; span < frame.spans; span++) check_runs(frame, span, live_naively(blocks, frame.span_event[span]!).map(row => [row, blocks[row]!.size]), blocks, window);
    }
  });
}
