import assert from 'node:assert/strict';
import test from 'node:test';
import {bytes, count, exact_bytes, hex, time, visible} from '../src/format.ts';

test('sizes have one decimal and a suitable unit', () => {
  assert.deepEqual([0, 1, 1023, 1024, 1536, 1048524, 1048575, 1.5 * 2 ** 30, 2 ** 50, -2048].map(bytes),
    ['0 B', '1 B', '1023 B', '1.0 KiB', '1.5 KiB', '1023.9 KiB', '1.0 MiB', '1.5 GiB', '1.0 PiB', '−2.0 KiB']);
  assert.deepEqual([0, 1, 700, 1503238553].map(exact_bytes), ['0 bytes', '1 byte', '700 bytes', '1.4 GiB (1,503,238,553 bytes)']);
  assert.equal(count(1234567), '1,234,567');
});

test('times have a suitable unit', () => {
  assert.deepEqual([0, 12, 999, 1500, -2_500_000, 61_000_000].map(t => time(t)), ['0 µs', '12 µs', '999 µs', '1.500 ms', '−2.500 s', '61.000 s']);
});

test('addresses are hexadecimal in all 64 bits', () => {
  assert.deepEqual([hex(0, 0), hex(0, 0xdeadbeef), hex(1, 2), hex(0xffffffff, 0xffffffff)], ['0x0', '0xdeadbeef', '0x100000002', '0xffffffffffffffff']);
});

test('invisible characters are made visible, and the rest stays', () => {
  assert.equal(visible('a<b>"\u0007\n\u007f\u202ex\u200b ä😀'), 'a<b>"␇␊␡\\u202ex\\u200b ä😀');
});
