import assert from 'node:assert/strict';
import test from 'node:test';
import {Checkpoints, decode_elements, rows_until, totals} from '../src/data/elements.ts';
import {decode_events, decode_times, nondecreasing} from '../src/data/events.ts';
import {NONE} from '../src/types.ts';
import {element_columns, section, type Column} from './encode.ts';
import {random} from './synthetic.ts';
import {elements, live_naively, random_blocks} from './tables.ts';

test('every column of a block is decoded', () => {
  const events = 500, blocks = random_blocks(1, events, 3), rows = elements(blocks, events);
  blocks.forEach((b, row) => {
    assert.deepEqual([rows.start[row], rows.end[row], rows.size[row], rows.stack[row], rows.pool[row]], [b.start, b.end, b.size, b.stack, b.pool]);
    assert.equal((BigInt(rows.address_high[row]!) << 32n) | BigInt(rows.address_low[row]!), b.address);
    assert.equal(rows.pending[row]! < rows.end[row]! ? rows.pending[row] : undefined, b.pending);
  });
});

test('the total after each event is the sum of the live blocks of a replay', () => {
  const events = 700, blocks = random_blocks(2, events), rows = elements(blocks, events);
  const only = Uint8Array.from(blocks, (_, row) => row % 3 && 1), some = totals(rows.start, rows.end, rows.size, events, only);
  for (let e = -1; e < events; e++) {
    const live = live_naively(blocks, e);
    assert.equal(rows.total[e + 1], live.reduce((sum, row) => sum + blocks[row]!.size, 0), `after ${e}`);
    assert.equal(some[e + 1], live.reduce((sum, row) => sum + (only[row] ? blocks[row]!.size : 0), 0));
  }
});

test('the live rows after an event are those of a replay, in any order of queries', () => {
  const events = 30_000, blocks = random_blocks(3, events), rows = elements(blocks, events), points = new Checkpoints(rows, events - 1), rng = random(5);
  for (const e of [-1, events - 1, 0, 4095, 4096, 4094, ...Array.from({length: 200}, () => Math.floor(rng() * events))])
    assert.deepEqual([...points.live_after(e)], live_naively(blocks, e), `after ${e}`);
  assert.deepEqual([...points.live_after(-7)], [...points.live_after(-1)]);
  assert.deepEqual([...points.live_after(events + 5)], [...points.live_after(events - 1)]);
});

test('a device without events has the blocks of the snapshot', () => {
  const blocks = [{start: -1, end: 0, size: 5}, {start: -1, end: 0, size: 7}], rows = elements(blocks, 0);
  assert.deepEqual([...rows.total], [12]);
  assert.deepEqual([...new Checkpoints(rows, -1).live_after(-1)], [0, 1]);
});

test('rows are found by their first event', () => {
  const start = Int32Array.from([-1, -1, 3, 3, 9]);
  assert.deepEqual([-2, -1, 2, 3, 8, 9, 10].map(e => rows_until(start, e)), [0, 2, 2, 4, 4, 5, 5]);
});

test('the block of an event starts, becomes pending, or ends there', () => {
  const blocks = [{start: -1, end: 3, pending: 2, size: 1}, {start: 0, end: 5, size: 1}], rows = elements(blocks, 5), none = elements([], 5);
  const columns: Column[] = [
    {name: 'action', code: 'u8', values: [0, 10, 2, 3, 8]}, {name: 'time', code: 'delta', values: [5, 4, 9, 9, 12]},
    ...['stack', 'scope', 'thread'].map(name => ({name, code: 'varint' as const, values: [0, 1, 2, 3, 4]})), {name: 'threads', code: 'text', values: ['', 'main']},
    {name: 'odd_event', code: 'delta', values: [1, 4]}, {name: 'odd_address', code: 'delta', values: [0n, 0xfffffffffffffff0n]},
    {name: 'odd_size', code: 'varint', values: [0, 77]}, {name: 'odd_text', code: 'varint', values: [3, 0]},
  ];
  const bytes = section(columns), counts = new Map(columns.map(c => [c.name, c.values.length]));
  const time = decode_times(bytes, counts)!, events = decode_events(bytes, counts, rows, none, nondecreasing(time));
  assert.deepEqual([...events.time], [5, 4, 9, 9, 12]);
  assert.deepEqual([...events.axis], [5, 5, 9, 9, 12]);
  assert.deepEqual([...events.block], [1, NONE, 0, 0, NONE]);
  assert.deepEqual([...events.segment], Array(5).fill(NONE));
  assert.deepEqual(events.odd.get(4), {address: 0xfffffffffffffff0n, size: 77, text: 0});
  assert.deepEqual(events.threads, ['', 'main']);
});

test('notes and final sizes belong to their blocks', () => {
  const columns: Column[] = [...element_columns(Array.from({length: 9}, (_, i) => ({start: i, end: 20, size: 8})), 20, 'blocks'),
    {name: 'note_block', code: 'delta', values: [2, 2, 7]}, {name: 'note_text', code: 'varint', values: [5, 6, 5]},
    {name: 'final_block', code: 'delta', values: [3, 8]}, {name: 'final_bytes', code: 'varint', values: [512, 1024]}];
  const rows = decode_elements(section(columns), new Map(columns.map(c => [c.name, c.values.length])), 20);
  assert.deepEqual([1, 2, 3, 7, 8].map(row => rows.notes.get(row)), [undefined, [5, 6], undefined, [5], undefined]);
  assert.deepEqual([...rows.notes], [[2, [5, 6]], [7, [5]]]);
  assert.deepEqual([...rows.final_bytes], [[3, 512], [8, 1024]]);
});
