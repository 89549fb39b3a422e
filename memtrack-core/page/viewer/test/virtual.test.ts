import assert from 'node:assert/strict';
import {test} from 'node:test';
import {VirtualScroll} from '../src/state/virtual.ts';

const ROWS = 5_000_000, HEIGHT = 613;

function list(rows = ROWS): VirtualScroll {
  const scroll = new VirtualScroll(rows, 20);
  scroll.resize(rows, HEIGHT);
  return scroll;
}

test('five million rows fit into an element that browsers can scroll, and both ends are reachable', () => {
  const scroll = list();
  assert.ok(scroll.element_height <= 8_000_000);
  assert.deepEqual(scroll.visible(), [0, 31]);
  assert.equal(scroll.scroll_top, 0);
  scroll.to(Infinity);
  assert.equal(scroll.visible()[1], ROWS);
  assert.equal(scroll.scroll_top, scroll.element_height - HEIGHT);
  scroll.scrolled(0);
  assert.deepEqual(scroll.visible(), [0, 31]);
  scroll.scrolled(scroll.element_height - HEIGHT);
  assert.equal(scroll.visible()[1], ROWS);
});

test('every row can be revealed exactly, and a visible row does not move', () => {
  const scroll = list();
  for (const row of [0, 1, 2_499_999, 2_500_000, 4_999_998, 4_999_999]) {
    scroll.reveal(row);
    const [from, to] = scroll.visible();
    assert.ok(row >= from && row < to);
    assert.ok(row * 20 >= scroll.top && row * 20 + 20 <= scroll.top + HEIGHT);
    const {top} = scroll;
    scroll.reveal(row);
    assert.equal(scroll.top, top);
  }
});

test('rounding of scrollTop by the browser does not move the list', () => {
  const scroll = list();
  scroll.reveal(3_141_592);
  const {top} = scroll;
  scroll.scrolled(Math.round(scroll.scroll_top));
  assert.equal(scroll.top, top);
  scroll.scrolled(Math.round(scroll.scroll_top) + 40);
  assert.ok(scroll.top > top);
});

test('a step of the wheel moves by the same number of rows as in a short list', () => {
  const scroll = list();
  scroll.reveal(1_000_000);
  const [from] = scroll.visible();
  scroll.to(scroll.top + 100);
  assert.equal(scroll.visible()[0], from + 5);
});

test('the row at a height is the drawn one', () => {
  const scroll = list();
  scroll.to(47_000_013);
  assert.equal(scroll.row_at(0), 2_350_000);
  assert.equal(scroll.row_at(7), 2_350_001);
  assert.equal(list(3).row_at(70), null);
});

test('a list that fits does not scroll', () => {
  const scroll = list(4);
  scroll.to(50);
  assert.equal(scroll.top, 0);
  assert.equal(scroll.scroll_top, 0);
  assert.deepEqual(scroll.visible(), [0, 4]);
});
