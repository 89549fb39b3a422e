import assert from 'node:assert/strict';
import {test} from 'node:test';
import {flatten} from '../src/settings/settings.ts';
import {moment} from '../src/settings/facts.ts';

test('nested settings become rows with joined keys, in the order of the file', () => {
  const rows = flatten({conf: '', deep: {b: 1, a: {x: true, y: null}}, list: [1, 2], mixed: [{k: 'v'}], empty: {}, none: []});
  assert.deepEqual(rows.map(r => [r.key, r.value, r.kind]), [['conf', '(empty)', 'nothing'], ['deep.b', '1', 'number'], ['deep.a.x', 'yes', 'yes'], ['deep.a.y', 'not set', 'nothing'],
    ['list', '1, 2', 'text'], ['mixed.0.k', 'v', 'text'], ['empty', '(empty)', 'nothing'], ['none', '(empty list)', 'nothing']]);
});

test('a file without settings has no rows', () => {
  assert.deepEqual(flatten({}), []);
  assert.deepEqual(flatten([]), []);
  assert.deepEqual(flatten('native').map(r => r.value), ['native']);
});

test('deeply nested settings are cut off at a maximum depth', () => {
  let deep: unknown = 1;
  for (let i = 0; i < 5000; i++) deep = {k: deep};
  assert.equal(flatten(deep).length, 1);
});

test('moments have microseconds', () => {
  assert.equal(moment(1760000000000007), '2025-10-09 08:53:20.000007 UTC');
  assert.equal(moment(1e30), '1e+30 µs after 1970');
});
