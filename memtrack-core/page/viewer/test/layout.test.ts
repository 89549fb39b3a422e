import assert from 'node:assert/strict';
import {test} from 'node:test';
import {find_row, find_at} from '../src/state/items.ts';
import {rounding_after} from '../src/state/layout.ts';
import {StateModel} from '../src/state/model.ts';
import {fitting_bytes, Rows} from '../src/state/rows.ts';
import {class_end, size_class} from '../src/state/classes.ts';
import {device, elements, live_naively, random_rows, type Row} from './rows.ts';
import {random} from './synthetic.ts';

const MIB = 1 << 20;

test('adjacent pieces of an expandable segment are joined; pieces of other streams, with a gap, or not expandable are not', () => {
  const pieces: Row[] = [
    {start: 0, end: 9, size: 2 * MIB, address: 0x1000_0000, flags: 8}, {start: 1, end: 9, size: 2 * MIB, address: 0x1020_0000, flags: 8},
    {start: 2, end: 5, size: 2 * MIB, address: 0x1040_0000, flags: 8},
    {start: 3, end: 9, size: 2 * MIB, address: 0x1060_0000, flags: 8, stream: 1},
    {start: 4, end: 9, size: 2 * MIB, address: 0x1080_0000}, {start: 4, end: 9, size: 2 * MIB, address: 0x10a0_0000},
  ];
  const model = new StateModel(device(elements([], 9), 9), elements(pieces, 9));
  const sizes = (event: number): number[] => model.at(event).segments.map(s => (s.to - s.from) / MIB);
  assert.deepEqual(sizes(0), [2]);
  assert.deepEqual(sizes(2), [6]);
  assert.deepEqual(sizes(4), [6, 2, 2, 2]);
  assert.deepEqual(sizes(5), [4, 2, 2, 2]);
  assert.deepEqual(sizes(1), [4]);
  assert.deepEqual(model.at(4).groups.map(g => g.bytes / MIB), [6, 2, 2, 2]);
});

test('every live block is in exactly one group; allocated, free and rounding bytes add up to the reserved bytes', () => {
  const events = 200, rows = random_rows(5, events, 40, 0x1000_0000), rng = random(2);
  // Segments contain the first 30 slots; the last 10 slots are in none.
  const pieces: Row[] = Array.from({length: 6}, (_, i) => ({start: -1, end: events, size: 5 * 4096, address: 0x1000_0000 + i * 5 * 4096}));
  const table = elements(rows, events), model = new StateModel(device(table, events), elements(pieces, events));
  for (let n = 0; n < 60; n++) {
    const event = Math.floor(rng() * (events + 1)) - 1, {groups, items, offsets, totals} = model.at(event), live = live_naively(table, event);
    assert.deepEqual([...items].sort((a, b) => a - b), live);
    assert.equal(totals.allocated, live.reduce((sum, row) => sum + table.size[row]!, 0));
    assert.equal(totals.allocated, table.total[event + 1]);
    assert.equal(totals.pending_blocks, live.filter(row => table.pending[row]! <= event).length);
    assert.equal(totals.reserved, totals.allocated - totals.outside + totals.free + totals.rounding);
    for (const group of groups) for (let i = group.first; i < group.last; i++) {
      const address = table.address_high[items[i]!]! * 2 ** 32 + table.address_low[items[i]!]!;
      if (group.kind === 'segment') assert.equal(0x1000_0000 + model.at(event).segments[group.id]!.from + offsets[i]!, address);
      else assert.ok(address >= 0x1000_0000 + 30 * 4096);
    }
  }
});

test('blocks outside of segments are packed by address', () => {
  const table = elements([{start: 0, end: 9, size: 100, address: 0x5000}, {start: 1, end: 9, size: 50, address: 0x9000}, {start: 2, end: 9, size: 7, address: 0x100}], 9);
  const model = new StateModel(device(table, 9), elements([{start: -1, end: 9, size: 4096, address: 0x5000}], 9)), {groups, items, offsets, totals} = model.at(8);
  assert.deepEqual(groups.map(g => [g.kind, g.bytes]), [['segment', 4096], ['outside', 57]]);
  assert.deepEqual([...items], [0, 2, 1]);
  assert.deepEqual([...offsets], [0, 0, 7]);
  assert.equal(totals.outside_blocks, 2);
});

test('blocks of a heap, which has no segments, are grouped by size class, the largest first', () => {
  const sizes = [10, 300, 255, 70_000, 256, 1024, 1023];
  const table = elements(sizes.map((size, i) => ({start: i, end: 99, size, address: 0x10000 * (i + 1)})), 99), {groups, totals} = new StateModel(device(table, 99), elements([], 99)).at(98);
  assert.deepEqual(groups.map(g => [g.kind, g.id, g.last - g.first, g.bytes]), [['class', 65536, 1, 70_000], ['class', 1024, 1, 1024], ['class', 256, 3, 300 + 256 + 1023], ['class', 0, 2, 265]]);
  assert.equal(totals.reserved, 0);
  for (const size of sizes) assert.ok(size_class(size) <= size && size < class_end(size_class(size)));
});

test('rounding is the difference to the final size, or a gap that is too small for a free block', () => {
  const table = elements([{start: 0, end: 10, size: 1000, address: 0x1000, final: 1024}, {start: 1, end: 10, size: 100, address: 0x1800, final: 2048}, {start: 2, end: 5, size: 300, address: 0x3000}], 10);
  const round = (row: number, gap: number): number => rounding_after(row, gap, table.size, table.final_bytes, table.end, 10);
  assert.deepEqual([round(0, 5000), round(1, 5000), round(1, 7), round(2, 212), round(2, 512)], [24, 1948, 7, 212, 0]);
  const {totals} = new StateModel(device(table, 10), elements([{start: -1, end: 10, size: 0x4000, address: 0x1000}], 10)).at(9);
  assert.equal(totals.rounding, 24 + 1948);
  assert.equal(totals.free, 0x4000 - 1024 - 2048);
  assert.equal(totals.free_pieces, 2);
  assert.equal(totals.exact, true);
});

test('overlapping segments, which lost events cause, keep their blocks', () => {
  const table = elements([{start: 0, end: 9, size: 10, address: 0x1100}, {start: 1, end: 9, size: 10, address: 0x1900}], 9);
  const model = new StateModel(device(table, 9), elements([{start: -1, end: 9, size: 0x1000, address: 0x1000}, {start: -1, end: 9, size: 0x200, address: 0x1080}], 9));
  assert.equal(model.at(5).totals.outside_blocks, 0);
  assert.deepEqual(model.at(5).groups.map(g => g.last - g.first), [1, 1]);
});

test('rows contain every byte of every group once, in order, and fit their width', () => {
  const events = 50, pieces: Row[] = [];
  let at = 0x1000_0000;
  const rng = random(4);
  for (let i = 0; i < 80; i++) { const size = MIB * (1 + Math.floor(rng() ** 6 * 200)); pieces.push({start: -1, end: events, size, address: at}); at += size + MIB; }
  const {groups} = new StateModel(device(elements([], events), events), elements(pieces, events)).at(0);
  for (const row_bytes of [4 * MIB, 32 * MIB, 256 * MIB]) {
    const rows = new Rows(groups, row_bytes, 700), strips = rows.strips(0, rows.count), covered = new Map<unknown, number>();
    let before = {row: -1, right: 0};
    for (const strip of strips) {
      assert.equal(strip.from, covered.get(strip.group) ?? 0);
      covered.set(strip.group, strip.to);
      assert.ok(strip.x + strip.width <= 700.001);
      if (strip.row === before.row) assert.ok(strip.x > before.right); else assert.equal(strip.row, before.row + 1);
      before = {row: strip.row, right: strip.x + strip.width};
      assert.equal(rows.row_of(strip.group, strip.from), strip.row);
    }
    for (const group of groups) assert.equal(covered.get(group), group.bytes);
    // Strips do not depend on the requested range of rows.
    assert.deepEqual([...rows.strips(0, 3), ...rows.strips(3, rows.count)], strips);
  }
});

test('the fitting scale needs at most the available rows, and a scale twice as fine needs more', () => {
  const pieces: Row[] = Array.from({length: 300}, (_, i) => ({start: -1, end: 5, size: (1 + (i * 7919) % 40) * MIB, address: 0x1000_0000 + i * 64 * MIB}));
  const {groups} = new StateModel(device(elements([], 5), 5), elements(pieces, 5)).at(0), bytes = fitting_bytes(groups, 600, 25);
  assert.ok(new Rows(groups, bytes, 600).count <= 25);
  assert.ok(new Rows(groups, bytes / 2, 600).count > 25);
});

test('thousands of segments that fit at no scale are wide enough to be visible', () => {
  const pieces: Row[] = Array.from({length: 10_000}, (_, i) => ({start: -1, end: 5, size: 2 * MIB, address: 0x1000_0000 + i * 4 * MIB}));
  const {groups} = new StateModel(device(elements([], 5), 5), elements(pieces, 5)).at(0), rows = new Rows(groups, fitting_bytes(groups, 600, 25), 600);
  assert.ok(rows.count < 400, `${rows.count} rows`);
  assert.ok(rows.strips(3, 4).every(strip => strip.width >= 2));
});

test('each byte of a segment is in a block, rounding or free memory, with the right bounds', () => {
  const events = 60, table = elements(random_rows(8, events, 12, 0x4000), events), model = new StateModel(device(table, events), elements([{start: -1, end: events, size: 12 * 4096, address: 0x4000}], events));
  const event = 30, layout = model.at(event), group = layout.groups[0]!, live = live_naively(table, event);
  for (let offset = 0; offset < group.bytes; offset += 61) {
    const containing = live.find(row => table.address_low[row]! - 0x4000 <= offset && offset < table.address_low[row]! - 0x4000 + table.size[row]!);
    const at = find_at(layout, group, offset, 0, table.size, () => 0);
    if (containing !== undefined) assert.deepEqual(at, {kind: 'block', row: containing});
    else {
      assert.equal(at.kind, 'free');
      if (at.kind === 'free') {
        assert.ok(at.from <= offset && offset < at.to);
        for (const row of live) {
          const from = table.address_low[row]! - 0x4000, to = from + table.size[row]!;
          assert.ok(to <= at.from || from >= at.to);
        }
      }
    }
  }
  for (const row of live) assert.equal(find_row(layout, row)!.offset, table.address_low[row]! - 0x4000);
});
