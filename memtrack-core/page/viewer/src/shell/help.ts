// The help: all keys, and what the picture means.

import {h} from '../dom.ts';

const KEYS: [string, [string, string][]][] = [
  ['Everywhere', [
    ['1 … 7', 'timeline, pools, segments, state, flame graph, settings, categories'], ['/', 'search'], ['a', 'axis: real time, or one step for each event'], ['c', 'copy a link to what is shown'],
    ['t', 'light or dark'], ['d', 'side: details, or the largest groups of what is selected'], ['Esc', 'let go of the pinned block, then of the selected event; leave a field'], ['?', 'this help'],
  ]],
  ['Timelines, categories', [
    ['wheel', 'zoom in time; with Shift in bytes, with Alt in both'], ['drag', 'move in time and bytes'], ['double click', 'zoom in; with Shift out of bytes'],
    ['← → ↑ ↓', 'move'], ['+ −', 'zoom in time'], ['} {', 'zoom in bytes'], ['0', 'all of it'], ['f', 'fit bytes to what is shown'], ['p', 'to the peak'], ['o', 'to the next time memory ran out'],
    [', .', 'one event back, one forward'], ['j k', 'timelines: pin the block below, the block above'], ['z', 'zoom to the life of the pinned block'], ['click', 'timelines: pin a block and show its life'],
  ]],
  ['Categories', [['click', 'find the blocks of a band; again: let go of them'], ['j k', 'choose the band below, the band above'], ['Enter', 'find the blocks of the chosen band'], ['names in the table', 'leave a category out, or show it alone']]],
  ['State and lists', [['↑ ↓', 'the event before, the event after'], ['Page Up, Page Down, Home, End', 'further'], ['g', 'to an event by its number'], ['j k', 'map: pin the next block, the block before'], ['p o', 'to the peak, to the next time memory ran out'],
    ['+ − 0', 'map: fewer or more bytes on a row; all rows'], ['Ctrl wheel', 'the same']]],
  ['Search', [['Enter, n', 'next match, or next event with this address'], ['Shift Enter, N', 'the match before'],
    ['in:text', 'only in the innermost frame that is the program’s own'], ['scope:text', 'only in operators and modules; so do frame: category: pool: stream: note: address:'], ['stack:17', 'one stack']]],
  ['Flame graph', [['arrows', 'to callers, callees and neighbours'], ['Enter, click', 'zoom in'], ['Esc', 'zoom out'], ['i', 'callers of the selected function']]],
];

const SIGNS: [string, string][] = [
  ['slanted lines', 'a free is pending: the program let go of the block, a stream still uses it. In a pool: held and not used.'],
  ['dots', 'allocated before the recording began'],
  ['one colour, no edges', 'many blocks smaller than a pixel; zoom in to see each'],
  ['outline at each column', 'the state with the most bytes of all that fall into it: peaks are never left out. The bands of categories are those of that state'],
  ['about', 'an estimate: small blocks were sampled, or the rounding of blocks is not known. memtrack summary and top say how far off estimates may be'],
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
