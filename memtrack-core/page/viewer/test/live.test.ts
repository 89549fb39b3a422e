import assert from 'node:assert/strict';
import {test} from 'node:test';
import {LiveSet} from '../src/state/live.ts';
import {address_order, end_order, Origin} from '../src/state/order.ts';
import {device, elements, live_naively, random_rows} from './rows.ts';
import {random} from './synthetic.ts';

test('rows are ranked by 64-bit addresses, and rows of the same address by allocation', () => {
  const addresses = [0xffff_ffff_ffff_f000n, 0x1000n, 0x8000_0000_0000_0001n, 0x8000_0000_0000_0000n, 0x1000n, 0x1_0000_0000n, 0xffff_ffffn];
  const table = elements(addresses.map((address, i) => ({start: i, end: 100, size: 1, address})), 100);
  const {rows, rank} = address_order(table);
  assert.deepEqual([...rows], [1, 4, 6, 5, 3, 2, 0]);
  rows.forEach((row, index) => assert.equal(rank[row], index));
});

test('rows are sorted by their last event', () => {
  const table = elements(random_rows(3, 200, 30), 200), rows = end_order(table, 200);
  assert.equal(new Set(rows).size, table.count);
  for (let i = 1; i < rows.length; i++) assert.ok(table.end[rows[i - 1]!]! <= table.end[rows[i]!]!);
});

test('steps forward and back and jumps give the live rows of a naive scan', () => {
  const events = 300, table = elements(random_rows(1, events, 60), events), live = new LiveSet(device(table, events), table, events), rng = random(9);
  let event = -1;
  for (let step = 0; step < 2000; step++) {
    event = step % 40 === 0 ? Math.floor(rng() * (events + 1)) - 1 : Math.max(-1, Math.min(events - 1, event + (rng() < 0.5 ? -1 : 1) * (1 + Math.floor(rng() * 4))));
    live.go(event);
    const shown = Array.from({length: live.count}, (_, i) => live.row(i)), want = live_naively(table, event);
    assert.deepEqual([...shown].sort((a, b) => a - b), want, `after event ${event}`);
    for (let i = 1; i < shown.length; i++) assert.ok(live.order.rank[shown[i - 1]!]! < live.order.rank[shown[i]!]!);
  }
});

test('a block with a lifetime of zero events is never live', () => {
  const table = elements([{start: 3, end: 3, size: 1, address: 1}, {start: 3, end: 5, size: 1, address: 2}], 10), live = new LiveSet(device(table, 10), table, 10);
  for (const event of [0, 2, 3, 4, 5, 4, 3, 2]) {
    live.go(event);
    assert.deepEqual(Array.from({length: live.count}, (_, i) => live.row(i)), event === 3 || event === 4 ? [1] : []);
  }
});

test('distances from the lowest address convert back to addresses', () => {
  const table = elements([{start: 0, end: 9, size: 1, address: 0x7f12_3456_7000n}, {start: 1, end: 9, size: 1, address: 0x8000_0000_1234n}], 9);
  const origin = Origin.of({elements: table, order: address_order(table)});
  assert.equal(origin.distance(table, 0), 0);
  assert.equal(origin.address(origin.distance(table, 1)), 0x8000_0000_1234n);
});
