import assert from 'node:assert/strict';
import test from 'node:test';
import {Reader} from '../src/data/columns.ts';
import {section} from './encode.ts';
import {random} from './synthetic.ts';

const bytes_of = (code: 'varint' | 'delta', values: (number | bigint)[]) => new Reader(section([{name: 'x', code, values}]));

test('varints of every length are decoded', () => {
  const values = [0, 1, 127, 128, 16383, 16384, 2 ** 21, 2 ** 28 - 1, 2 ** 28, 2 ** 31, 2 ** 32 - 1];
  assert.deepEqual([...bytes_of('varint', values).varint(values.length)], values);
  assert.deepEqual([...bytes_of('varint', values).varint32(values.length)], values);
  const large = [...values, 2 ** 32, 2 ** 35, 2 ** 49, 2 ** 53 - 1];
  assert.deepEqual([...bytes_of('varint', large).varint(large.length)], large);
});

test('differences may be negative, and values below zero', () => {
  const values = [-1, -1, 0, 5, 3, 2 ** 31 - 1, 0, -(2 ** 31)];
  assert.deepEqual([...bytes_of('delta', values).delta32(values.length)], values);
  const times = [0, -5, 1e15, 1e15 + 1, 3, -(2 ** 52), 2 ** 52];
  assert.deepEqual([...bytes_of('delta', times).delta(times.length)], times);
});

test('addresses have 64 bits, and their differences wrap', () => {
  const rng = random(3), long = () => BigInt.asUintN(64, (BigInt(Math.floor(rng() * 2 ** 32)) << 32n) | BigInt(Math.floor(rng() * 2 ** 32)));
  const values = [0n, 1n, 0xffffffffn, 0x100000000n, 0xffffffffffffffffn, 0n, 0x8000000000000000n, 0x7fffffffffffffffn, ...Array.from({length: 500}, long)];
  const {low, high} = bytes_of('delta', values).delta64(values.length);
  assert.deepEqual([...low].map((l, i) => (BigInt(high[i]!) << 32n) | BigInt(l)), values);
});

test('small values are decoded into small types', () => {
  const values = [0, 1, 127, 128, 255];
  assert.deepEqual([...bytes_of('varint', values).varint_into(new Uint8Array(5))], values);
  assert.deepEqual([...bytes_of('varint', [...values, 65535]).varint_into(new Uint16Array(6))], [...values, 65535]);
});

test('strings may contain non-ASCII characters', () => {
  const values = ['', 'a', 'ä€😀', '\u0000<script>', '\ufffd'];
  const strings = new Reader(section([{name: 'x', code: 'text', values}])).text(values.length);
  assert.deepEqual(values.map((_, i) => strings.get(i)), values);
  assert.equal(strings.get(99), '');
});

test('columns are consecutive, and all bytes are used', () => {
  const reader = new Reader(section([{name: 'a', code: 'u8', values: [7, 255]}, {name: 'b', code: 'varint', values: [300]}, {name: 'c', code: 'delta', values: [-9]}]));
  assert.deepEqual([[...reader.u8(2)], [...reader.varint32(1)], [...reader.delta32(1)], reader.done], [[7, 255], [300], [-9], true]);
});

test('a truncated section throws an error', () => {
  const bytes = section([{name: 'a', code: 'varint', values: [1, 2, 3]}]);
  assert.throws(() => new Reader(bytes.subarray(0, 2)).varint32(3), /damaged/);
  assert.throws(() => new Reader(bytes).text(3), /damaged/);
});
