import assert from 'node:assert/strict';
import {test} from 'node:test';
import {chips_of} from '../src/search/chips.ts';
import {apply_filter, counts_of, read_count, read_size} from '../src/search/filter.ts';
import {frame_text, match, scope_path} from '../src/search/match.ts';
import {can_match_address, escaped, read_query} from '../src/search/query.ts';
import {count_live, count_marks, next_mark, peak_event} from '../src/search/results.ts';
import {user_frames} from '../src/flame/noise.ts';
import type {Filter} from '../src/types.ts';
import {device, elements, live_naively, random_rows, texts, type Row} from './rows.ts';
import {random} from './synthetic.ts';

const JOB = {wanted: true};
const WORDS = texts([['alloc@lib.rs:3', 'forward@model.py:12', 'main@run.py:1'], ['relu@ops.cu:7', 'Forward@net.py:80'], ['_PyEval_EvalFrameDefault@ceval.c:1', 'step@optim.py:9'],
  ['a+b@weird(1).py:5'], ['relu@ops.cu:8', 'backward@model.py:44']], [[0, 'train'], [1, 'aten::relu'], [1, 'backward']], ['tensor of the user', 'nothing']);

function searched(seed = 3, events = 400) {
  const rows: Row[] = random_rows(seed, events, 50), rng = random(seed);
  rows.forEach((row, i) => { if (i % 17 === 0) row.notes = [WORDS.strings - (rng() < 0.5 ? 2 : 1)]; });
  const d = device(elements(rows, events), events, {streams: ['0', '77', '9000'], pools: ['default pool', 'pool (0, 1)'], categories: ['activation', 'gradient']},
    undefined, Array.from({length: events}, () => Math.floor(rng() * 4)));
  return {device: d, events: d.table, texts: WORDS};
}

async function marks(query: string, s = searched()): Promise<number[]> {
  const found = await match(read_query(query), s, JOB);
  if (!found) return [];
  return [...found.keys()].filter(row => found[row]);
}

/** Returns the blocks that match, by a test of every text of every block. */
function match_naively(pattern: RegExp, s = searched()): number[] {
  const {blocks, head} = s.device;
  return Array.from({length: blocks.count}, (_, row) => row).filter(row => {
    const all: string[] = ['0x' + ((BigInt(blocks.address_high[row]!) << 32n) | BigInt(blocks.address_low[row]!)).toString(16), `stream ${head.streams[blocks.stream[row]!]}`];
    const stack = blocks.stack[row]!;
    for (let i = WORDS.stack_from[stack]!; i < WORDS.stack_from[stack + 1]!; i++) all.push(...frame_text(WORDS, WORDS.stack_frames[i]!).split('\n'));
    const start = blocks.start[row]!, scope = start < 0 ? 0 : s.events.scope[start]!;
    if (scope) all.push(WORDS.string(WORDS.scope_name[scope]!), scope_path(WORDS, scope));
    if (blocks.pool[row]) all.push(head.pools[blocks.pool[row]! - 1]!);
    if (blocks.category[row]) all.push(head.categories[blocks.category[row]! - 1]!);
    for (const note of blocks.notes.get(row) ?? []) all.push(WORDS.string(note));
    return all.some(text => pattern.test(text));
  });
}

test('a pattern finds the blocks that a test of every text finds', async () => {
  for (const query of ['relu', 'forward', 'model\\.py:(12|44)', '^step$', 'backward$', 'train/aten', 'gradient|activation', 'stream 77', 'user', '^0x7f.*[02468]000$', 'pool \\(0', 'nowhere', 'py', '(3|9)000', '.']) {
    const found = await marks(query), want = match_naively(new RegExp(query, 'i'));
    assert.deepEqual(found, want, query);
  }
  assert.ok((await marks('relu')).length > 0);
  assert.deepEqual(await marks('nowhere'), []);
});

test('capitals make a pattern case-sensitive, unless they are escapes', async () => {
  const loose = await marks('forward'), exact = await marks('Forward');
  assert.ok(exact.length > 0 && exact.length < loose.length);
  assert.deepEqual(exact, match_naively(/Forward/));
  assert.deepEqual(await marks('\\Sorward'), match_naively(/\Sorward/i));
});

test('a prefix limits a pattern to one part of a block', async () => {
  const s = searched(), {blocks} = s.device;
  assert.deepEqual(await marks('category:grad'), [...blocks.category.keys()].filter(row => blocks.category[row] === 2));
  assert.deepEqual(await marks('stack:2'), [...blocks.stack.keys()].filter(row => blocks.stack[row] === 2));
  assert.deepEqual(await marks('scope:backward'), [...blocks.start.keys()].filter(row => blocks.start[row]! >= 0 && s.events.scope[blocks.start[row]!] === 3));
  assert.deepEqual(await marks('frame:backward'), [...blocks.stack.keys()].filter(row => blocks.stack[row] === 5));
  assert.deepEqual(await marks('pool:\\(0, 1'), [...blocks.pool.keys()].filter(row => blocks.pool[row] === 2));
  assert.deepEqual(await marks('stream:^77$'), [...blocks.stream.keys()].filter(row => blocks.stream[row] === 1));
  // The innermost user frame of stack 3 is `step`, although a frame of the interpreter is below it.
  assert.deepEqual(await marks('in:^step$'), [...blocks.stack.keys()].filter(row => blocks.stack[row] === 3));
  assert.deepEqual(await marks('in:forward'), []);
});

test('an address finds the blocks that start at it or contain it', async () => {
  const s = searched(), {blocks} = s.device, row = 7, address = (BigInt(blocks.address_high[row]!) << 32n) | BigInt(blocks.address_low[row]!);
  const same = [...blocks.address_low.keys()].filter(r => blocks.address_low[r] === blocks.address_low[row] && blocks.address_high[r] === blocks.address_high[row]);
  assert.deepEqual(await marks(`0x${address.toString(16)}`), same);
  assert.deepEqual(await marks(address.toString(16).toUpperCase()), same);
  const into = BigInt(Math.min(blocks.size[row]! - 1, 700));
  assert.deepEqual(await marks(`0x${(address + into).toString(16)}`), same.filter(r => blocks.size[r]! > Number(into)));
  assert.deepEqual((await marks('0x7f')).length, blocks.count);
});

test('an invalid regular expression has an error message', async () => {
  for (const query of ['(', 'a[', '*', 'frame:+', '\\']) {
    const read = read_query(query);
    assert.equal(read.kind, 'invalid', query);
    if (read.kind === 'invalid') assert.match(read.message, /^This is not a regular expression: [a-z\\].*\./);
  }
  assert.deepEqual(read_query('  '), {kind: 'all'});
  assert.equal(await match(read_query(''), searched(), JOB), null);
});

test('a cancelled search stops', async () => {
  const events = 10, rows: Row[] = Array.from({length: 400_000}, (_, i) => ({start: 0, end: 10, size: 1, address: i * 512}));
  const d = device(elements(rows, events), events), job = {wanted: true};
  const running = match(read_query('[0-9]+f?$'), {device: d, events: d.table, texts: WORDS}, job);
  job.wanted = false;
  assert.equal(await running, false);
});

test('addresses are skipped only if a pattern cannot match one', () => {
  for (const query of ['7f', '0x', 'f+', '.*', 'relu?|7f', '[g-z]?7', 'g*7f', 'x', '^0x7', '(relu)?']) assert.equal(can_match_address(query), true, query);
  for (const query of ['relu', 'forward', 'model', '_call', 'a b', 'conv2d']) assert.equal(can_match_address(query), false, query);
});

test('an escaped text matches only itself', async () => {
  for (const text of ['a+b', 'weird(1).py', '[x]|{2}^$\\', 'plain']) {
    assert.match(text, new RegExp(`^${escaped(text)}$`));
  }
  assert.doesNotMatch('aab', new RegExp(`^${escaped('a+b')}$`));
});

test('the filter matches the blocks that a test of every block does', () => {
  const {device: d} = searched(), {blocks} = d;
  const filters: Filter[] = [{min_bytes: 1000}, {max_bytes: 2000}, {min_bytes: 500, max_bytes: 900}, {min_life: 20}, {max_life: 3}, {streams: [1]}, {streams: []}, {pools: [0, 2]}, {categories: [1]},
    {min_bytes: 100, max_life: 50, streams: [0, 2], categories: [0, 2]}];
  for (const filter of filters) {
    const got = apply_filter(filter, blocks, null)!;
    for (let row = 0; row < blocks.count; row++) {
      const life = blocks.end[row]! - blocks.start[row]!;
      const want = blocks.size[row]! >= (filter.min_bytes ?? 0) && blocks.size[row]! <= (filter.max_bytes ?? Infinity) && life >= (filter.min_life ?? 0) && life <= (filter.max_life ?? Infinity)
        && (filter.streams?.includes(blocks.stream[row]!) ?? true) && (filter.pools?.includes(blocks.pool[row]!) ?? true) && (filter.categories?.includes(blocks.category[row]!) ?? true);
      assert.equal(got[row] === 1, want, JSON.stringify(filter));
    }
  }
  assert.equal(apply_filter({}, blocks, null), null);
});

test('counts are those of a scan of all blocks', async () => {
  const s = searched(), {blocks} = s.device, found = (await match(read_query('relu'), s, JOB)) as Uint8Array;
  assert.equal(count_marks(found), match_naively(/relu/i).length);
  for (const event of [-1, 0, 57, 200, 399]) {
    const live = live_naively(blocks, event), hits = live.filter(row => found[row]), sum = (rows: number[]): number => rows.reduce((n, row) => n + blocks.size[row]!, 0);
    assert.deepEqual(count_live(s.device, found, event), {live: hits.length, live_bytes: sum(hits), all_live_bytes: sum(live)});
  }
  const peak = peak_event(s.device);
  assert.equal(blocks.total[peak + 1], Math.max(...blocks.total));
  assert.deepEqual([...counts_of(blocks.stream, 3)], [0, 1, 2].map(v => [...blocks.stream].filter(x => x === v).length));
});

test('next and previous visit all matches and wrap around', () => {
  const found = Uint8Array.from([0, 1, 0, 0, 1, 1, 0]);
  assert.deepEqual([next_mark(found, null, 1), next_mark(found, 1, 1), next_mark(found, 4, 1), next_mark(found, 5, 1)], [1, 4, 5, 1]);
  assert.deepEqual([next_mark(found, null, -1), next_mark(found, 1, -1), next_mark(found, 3, -1)], [5, 5, 1]);
  assert.equal(next_mark(new Uint8Array(5), 2, 1), null);
  assert.equal(count_marks(found, 4), 2);
});

test('sizes and counts are parsed in common spellings', () => {
  assert.deepEqual(['512', '1.5 MiB', '2g', '64 KB', '1,024', '.5k', '', 'much', '-1', '1 x'].map(read_size), [512, 1572864, 2147483648, 65536, 1024, 512, undefined, null, null, null]);
  assert.deepEqual(['10', '1,000', '', '1.5', 'x'].map(read_count), [10, 1000, undefined, null, null]);
});

test('each condition of a filter has a chip that removes only that condition', () => {
  const {device: d} = searched(), filter: Filter = {min_bytes: 1048576, max_life: 1, streams: [0, 2], categories: [0]};
  const chips = chips_of(filter, d.head);
  assert.deepEqual(chips.map(c => c.text), ['size ≥ 1.0 MiB', 'lifetime ≤ 1 event', 'stream 0, 9000', 'category none']);
  assert.deepEqual(chips[0]!.without, {max_life: 1, streams: [0, 2], categories: [0]});
  assert.deepEqual(chips[3]!.without, {min_bytes: 1048576, max_life: 1, streams: [0, 2]});
});

test('the innermost user frame skips internal frames, unless there are no others', () => {
  const t = texts([['_PyEval_EvalFrameDefault@ceval.c:1', 'torch::unwind::unwind()@??:0', 'step@optim.py:9', 'main@x.py:1'], ['??@:0', 'cfunction_call@methodobject.c:3'], []]);
  const user = user_frames(t), name = (stack: number): string => user[stack] === 0 ? '' : t.string(t.frame_name[user[stack]! - 1]!);
  assert.deepEqual([0, 1, 2, 3].map(name), ['', 'step', '??', '']);
});
