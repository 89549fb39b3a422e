import assert from 'node:assert/strict';
import {test} from 'node:test';
import {NodePositions} from '../src/flame/draw.ts';
import {group_rows, type GroupBy} from '../src/flame/grouping.ts';
import {short_name} from '../src/flame/names.ts';
import {is_noise, user_frames} from '../src/flame/noise.ts';
import {selected_rows, window_events} from '../src/flame/selection.ts';
import {build_tree, frame_keys, NO_FRAMES, scope_keys, type Keys, type Tree, type TreeOptions} from '../src/flame/tree.ts';
import {scope_of, weigh} from '../src/flame/weights.ts';
import {match} from '../src/search/match.ts';
import {read_query} from '../src/search/query.ts';
import {device, elements, live_naively, random_rows, texts} from './rows.ts';
import {random} from './synthetic.ts';

const WORDS = texts([
  ['alloc@lib.rs:3', 'forward@model.py:12', '_PyEval_EvalFrameDefault@ceval.c:1', 'main@run.py:1'],
  ['alloc@lib.rs:4', 'forward@model.py:13', 'main@run.py:1'],
  ['relu@ops.cu:8', 'relu@ops.cu:9', 'backward@model.py:44', 'main@run.py:1'],
  ['_PyEval_EvalFrameDefault@ceval.c:1', 'cfunction_call@methodobject.c:2'],
  ['alloc@other.rs:9', 'thread@pool.rs:1'],
], [[0, 'train'], [1, 'forward'], [2, 'relu'], [1, 'backward']]);
const EVENTS = 300, BLOCKS = elements(random_rows(11, EVENTS, 40), EVENTS), RNG = random(1);
const DEVICE = device(BLOCKS, EVENTS, {categories: ['activation', 'gradient']}, undefined, Array.from({length: EVENTS}, () => Math.floor(RNG() * 5)));
const BASE: TreeOptions = {by: 'function', weight: 'bytes', fold: false, inverted: false, callers_of: null};

function tree_of(event: number, some: Partial<TreeOptions> = {}, passing: Uint8Array | null = null): {tree: Tree; keys: Keys} {
  const options = {...BASE, ...some}, rows = Uint32Array.from(live_naively(BLOCKS, event)), scope = options.by === 'scope';
  const weights = weigh(rows, BLOCKS.size, scope ? WORDS.scope_name.length : WORDS.stack_from.length - 1, row => scope ? scope_of(BLOCKS, DEVICE.table, row) : BLOCKS.stack[row]!, passing);
  const keys = options.by === 'scope' ? scope_keys(WORDS) : frame_keys(WORDS, options.by);
  return {tree: build_tree(WORDS, weights, keys, options), keys};
}

function path(tree: Tree, keys: Keys, node: number): string[] {
  const out: string[] = [];
  for (let at = node; at > 0; at = tree.parent[at]!) out.unshift(tree.key[at] === NO_FRAMES ? '(none)' : keys.text(tree.key[at]!));
  return out;
}

test('the root has the live bytes, and every node is the sum of its children and itself', () => {
  for (const some of [{}, {by: 'location'}, {by: 'scope'}, {fold: true}, {inverted: true}, {inverted: true, fold: true, by: 'location'}, {weight: 'blocks'}] as Partial<TreeOptions>[]) for (const event of [-1, 3, 100, 250, EVENTS - 1]) {
    const {tree} = tree_of(event, some);
    assert.equal(tree.value[0], some.weight === 'blocks' ? live_naively(BLOCKS, event).length : BLOCKS.total[event + 1]);
    for (let node = 0; node < tree.count; node++) {
      let sum = tree.self[node]!, at = tree.x[node]!, before = Infinity;
      for (let c = tree.first_child[node]!; c >= 0; c = tree.next[c]!) {
        assert.equal(tree.parent[c], node);
        assert.equal(tree.x[c], at);
        assert.ok(tree.value[c]! <= before);
        before = tree.value[c]!;
        at += before;
        sum += before;
      }
      assert.equal(sum, tree.value[node]);
    }
  }
});

test('a path has the bytes of the blocks whose stacks begin with it, from the outermost frame', () => {
  const event = 150, {tree, keys} = tree_of(event), live = live_naively(BLOCKS, event);
  const names = (stack: number): string[] => stack === 0 ? ['(none)'] : [...WORDS.stack_frames.subarray(WORDS.stack_from[stack], WORDS.stack_from[stack + 1])].reverse().map(f => WORDS.string(WORDS.frame_name[f]!));
  for (let node = 1; node < tree.count; node++) {
    const want = path(tree, keys, node);
    assert.equal(tree.value[node], live.filter(row => want.every((name, i) => names(BLOCKS.stack[row]!)[i] === name)).reduce((sum, row) => sum + BLOCKS.size[row]!, 0), want.join(' '));
  }
});

test('folding omits internal frames, except in a stack of internal frames alone', () => {
  const {tree, keys} = tree_of(150, {fold: true}), all = Array.from({length: tree.count}, (_, n) => path(tree, keys, n).join(' '));
  assert.ok(all.includes('main forward alloc'));
  assert.ok(all.includes('cfunction_call _PyEval_EvalFrameDefault'));
  assert.ok(!all.some(p => p.startsWith('main _PyEval')));
  assert.ok(tree.folded > 0);
  assert.equal(tree_of(150).tree.folded, 0);
});

test('functions are merged across files, locations are not', () => {
  const paths = (some: Partial<TreeOptions>): string[] => { const {tree, keys} = tree_of(150, some); return Array.from({length: tree.count}, (_, n) => path(tree, keys, n).join(' | ')); };
  assert.equal(paths({}).filter(p => p === 'main | forward | alloc').length, 1);
  assert.deepEqual(paths({by: 'location', fold: true}).filter(p => p.endsWith('alloc') && p.includes('main')).sort(), ['run.py:1  main | model.py:12  forward | lib.rs:3  alloc', 'run.py:1  main | model.py:13  forward | lib.rs:4  alloc']);
});

test('the callers of a function have the bytes of all stacks that contain it, once', () => {
  const relu = Array.from(WORDS.frame_name).find(n => WORDS.string(n) === 'relu')!, {tree, keys} = tree_of(150, {callers_of: relu});
  const through = live_naively(BLOCKS, 150).filter(row => BLOCKS.stack[row] === 3).reduce((sum, row) => sum + BLOCKS.size[row]!, 0);
  assert.ok(through > 0);
  assert.equal(tree.value[0], through);
  // A recursive function counts from its outermost call on.
  assert.deepEqual(Array.from({length: tree.count}, (_, n) => path(tree, keys, n).join(' ')), ['', 'relu', 'relu backward', 'relu backward main']);
});

test('matching blocks are a part of each node', () => {
  const passing = Uint8Array.from({length: BLOCKS.count}, (_, row) => row % 3 === 0 ? 1 : 0), {tree} = tree_of(150, {}, passing);
  assert.equal(tree.matched[0], live_naively(BLOCKS, 150).filter(row => passing[row]).reduce((sum, row) => sum + BLOCKS.size[row]!, 0));
  for (let node = 0; node < tree.count; node++) assert.ok(tree.matched[node]! <= tree.value[node]!);
});

test('a point of the picture is in the node that is drawn there, zoomed or not', () => {
  const {tree} = tree_of(150);
  for (const focus of [0, tree.first_child[0]!, tree.first_child[tree.first_child[0]!]!]) {
    const positions = new NodePositions(tree, focus, 900);
    let seen = 0;
    for (let node = 0; node < tree.count; node++) {
      const position = positions.of(node);
      if (!position) continue;
      seen++;
      assert.equal(positions.at(position[0] + position[1] / 2, tree.depth[node]!), node);
    }
    assert.ok(seen > 2);
    assert.deepEqual(positions.of(focus), [0, 900]);
  }
});

test('a range selects the blocks that were allocated in it, by steps and by time', () => {
  const want = [...BLOCKS.start.keys()].filter(row => BLOCKS.start[row]! >= 20 && BLOCKS.start[row]! <= 90);
  const state = {axis: 'step' as const, from: 19.5, to: 90.2, event: 5};
  assert.deepEqual([...selected_rows(DEVICE, state, 'window')], want);
  const clock = Float64Array.from({length: EVENTS}, (_, e) => Math.floor(e / 3) * 10);
  assert.deepEqual(window_events({...DEVICE, clock}, {axis: 'time', from: 20, to: 50}), [6, 17]);
  assert.deepEqual([...selected_rows(DEVICE, state, 'live')], live_naively(BLOCKS, 5));
});

test('groups contain every block once, the largest first, and their queries find exactly their blocks', async () => {
  const rows = Uint32Array.from(BLOCKS.start.keys()), searched = {device: DEVICE, events: DEVICE.table, texts: WORDS};
  for (const by of ['stack', 'function', 'scope', 'category'] as GroupBy[]) {
    const {groups, count} = group_rows(rows, by, DEVICE, DEVICE.table, WORDS, 100);
    assert.equal(groups.length, count);
    assert.equal(groups.reduce((sum, g) => sum + g.blocks, 0), rows.length);
    assert.equal(groups.reduce((sum, g) => sum + g.bytes, 0), BLOCKS.size.reduce((a, b) => a + b, 0));
    groups.forEach((group, i) => assert.ok(i === 0 || groups[i - 1]!.bytes >= group.bytes));
    for (const group of groups) {
      if (group.query === null) continue;
      const found = (await match(read_query(group.query), searched, {wanted: true})) as Uint8Array;
      assert.equal(found.reduce((a, b) => a + b, 0), group.blocks, `${by} ${group.query}`);
    }
  }
  assert.equal(group_rows(rows, 'stack', DEVICE, null, WORDS, 2).groups.length, 2);
});

test('internal frames are distinguished from those of programs', () => {
  for (const [name, file] of [['_PyEval_EvalFrameDefault', 'ceval.c'], ['_call_impl', '/x/torch/nn/modules/module.py'], ['c10::Dispatcher::call', ''], ['at::_ops::add::redispatch(c10::DispatchKeySet)', '??'],
    ['', ''], ['__libc_start_main', ''], ['core::ops::function::FnOnce::call_once', ''], ['void at::meta::structured_bmm::meta()', ''], ['_call_impl2', 'C:\\x\\Lib\\site-packages\\torch\\nn\\modules\\module.py']] as const) assert.ok(is_noise(name, file), name);
  for (const [name, file] of [['forward', 'model.py'], ['main', 'run.py'], ['at::_ops::add::call(at::Tensor const&)', ''], ['my_crate::step', 'src/lib.rs'], ['<module>', 'train.py'], ['einsum', '/x/torch/functional.py']] as const) assert.ok(!is_noise(name, file), name);
});

test('short names omit only the parameters', () => {
  for (const [name, short] of [['at::add(at::Tensor const&)', 'at::add'], ['f(void (*)(int), std::vector<(a)0>) const', 'f'], ['forward', 'forward'], ['at::(anonymous namespace)::g(int)', 'at::(anonymous namespace)::g'],
    ['x::operator()(int) const', 'x::operator()'], ['x::operator()', 'x::operator()'], ['a::(anonymous namespace)', 'a::(anonymous namespace)'], ['(no stack recorded)', '(no stack recorded)'], ['unwind() [clone .cold]', 'unwind'], [')', ')'], ['', '']]) {
    assert.equal(short_name(name!), short);
  }
});

test('frames that the file marks as internal are skipped', () => {
  const t = texts([['carry@host.rs:1', 'pass@rt.rs:2', 'work@main.rs:3', 'carry@host.rs:1']]);
  t.stack_skip[1] = 1;
  t.frame_noise[1] = 1;
  assert.equal(t.string(t.frame_name[user_frames(t)[1]! - 1]!), 'work');
});
