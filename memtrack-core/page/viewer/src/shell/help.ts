// The help: all keys, and the signs in the picture.

import {h} from '../dom.ts';

const KEYS: [string, [string, string][]][] = [
  ['Everywhere', [
    ['1 … 7', 'timeline, pools, segments, state, flame graph, settings, categories'], ['/', 'search'], ['a', 'axis: real time, or one step per event'], ['c', 'copy a link to this view'],
    ['t', 'light or dark'], ['d', 'side panel: details, or the largest groups of the selection'], ['Esc', 'unpin the block, then deselect the event; leave a field'], ['?', 'this help'],
  ]],
  ['Timelines, categories', [
    ['wheel', 'zoom in time; with Shift in bytes, with Alt in both'], ['drag', 'move in time and bytes'], ['double click', 'zoom in; with Shift zoom out of bytes'],
    ['← → ↑ ↓', 'move'], ['+ −', 'zoom in time'], ['} {', 'zoom in bytes'], ['0', 'show everything'], ['f', 'fit bytes to the visible range'], ['p', 'to the peak'], ['o', 'to the next out-of-memory event'],
    [', .', 'one event back, one forward'], ['j k', 'timelines: pin the block below, the block above'], ['z', 'zoom to the lifetime of the pinned block'], ['click', 'timelines: pin a block and show its lifetime'],
  ]],
  ['Categories', [['click', 'find the blocks of a band; again: clear the search'], ['j k', 'choose the band below, the band above'], ['Enter', 'find the blocks of the chosen band'], ['names in the table', 'hide a category, or show it alone']]],
  ['State and lists', [['↑ ↓', 'the event before, the event after'], ['Page Up, Page Down, Home, End', 'scroll the list'], ['g', 'to an event by its number'], ['j k', 'map: pin the next block, the block before'], ['p o', 'to the peak, to the next out-of-memory event'],
    ['+ − 0', 'map: fewer or more bytes on a row; all rows'], ['Ctrl wheel', 'the same']]],
  ['Search', [['Enter, n', 'next match, or next event with this address'], ['Shift Enter, N', 'the match before'],
    ['in:text', 'only in the innermost frame of the program’s code'], ['scope:text', 'only in operators and modules; likewise frame: category: pool: stream: note: address:'], ['stack:17', 'one stack']]],
  ['Flame graph', [['arrows', 'to callers, callees and neighbours'], ['Enter, click', 'zoom in'], ['Esc', 'zoom out'], ['i', 'callers of the selected function']]],
];

const SIGNS: [string, string][] = [
  ['slanted lines', 'a free is pending: the program freed the block, but a stream still uses it. In a pool: reserved and unused.'],
  ['dots', 'allocated before the recording began'],
  ['one colour, no edges', 'many blocks smaller than a pixel; zoom in to see each'],
  ['outline at each column', 'the state with the most bytes of all states in the column: no peak is missed. The bands of categories are those of that state'],
  ['about', 'an estimate: small blocks were sampled, or the rounding of blocks is not known. “memtrack summary” and “memtrack top” print the margin of error'],
];

/** The dialog. */
export class Help {
  readonly element: HTMLDialogElement;

  constructor() {
    const table = (rows: [string, string][], head: string) => [h('h3', {}, head), h('dl', {}, ...rows.flatMap(([a, b]) => [h('dt', {}, a), h('dd', {}, b)]))];
    this.element = h('dialog', {class: 'help', 'aria-label': 'Help'},
      h('form', {method: 'dialog'}, h('button', {'aria-label': 'Close', title: 'Close (Esc)'}, '×')),
      h('div', {class: 'columns'}, ...KEYS.map(([head, rows]) => h('div', {}, ...table(rows, head))), h('div', {}, ...table(SIGNS, 'In the picture'))));
    this.element.addEventListener('click', event => {
      if (event.target === this.element) this.element.close();
    });
  }

  open(): void {
    this.element.showModal();
  }
}
