// A call stack as a list, the innermost frame first. Frames that say how a program
// runs rather than what it does are folded away until asked for.

import type {Texts} from '../types.ts';
import {h} from '../dom.ts';
import {is_noise} from '../flame/noise.ts';
import {visible} from '../format.ts';

const STEP = 200;

/** The nodes of a stack. */
export function stack_of(stack: number, texts: Texts): Node[] {
  const from = texts.stack_from[stack] ?? 0, to = texts.stack_from[stack + 1] ?? from;
  if (from === to) return [h('p', {class: 'note'}, 'No stack was recorded.')];
  const list = h('ol', {class: 'stack'});
  add(list, texts, from, to, from);
  return [list];
}

function add(list: HTMLElement, texts: Texts, from: number, to: number, first: number): void {
  const nodes: HTMLElement[] = [];
  const end = Math.min(to, from + STEP);
  for (let i = from; i < end; i++) {
    let j = i;
    while (j < end && noise(texts, j)) j++;
    // One frame is as short as what would stand for it; a stack of nothing else is shown.
    if (j - i >= 2 && (i > first || j < to)) {
      nodes.push(folded(texts, i, j));
      i = j - 1;
    } else nodes.push(frame(texts, i));
  }
  if (end < to) {
    const more = h('li', {class: 'fold'}, h('button', {type: 'button', class: 'link', onclick: () => {
      more.remove();
      add(list, texts, end, to, first);
    }}, `${to - end} more frames`));
    nodes.push(more);
  }
  list.append(...nodes);
}

function noise(texts: Texts, place: number): boolean {
  const f = texts.stack_frames[place]!;
  return is_noise(texts.string(texts.frame_name[f]!), texts.string(texts.frame_file[f]!));
}

function folded(texts: Texts, from: number, to: number): HTMLElement {
  const item = h('li', {class: 'fold'}, h('button', {type: 'button', class: 'link', title: 'Of interpreter, dispatcher and allocator: show them', onclick: () => {
    item.replaceWith(...Array.from({length: to - from}, (_, i) => frame(texts, from + i)));
  }}, `${to - from} internal frames`));
  return item;
}

function frame(texts: Texts, place: number): HTMLElement {
  const f = texts.stack_frames[place]!, file = visible(texts.string(texts.frame_file[f]!)), line = texts.frame_line[f]!;
  const name = visible(texts.string(texts.frame_name[f]!)) || '(no name)';
  const where = file && file !== '??' ? file + (line ? `:${line}` : '') : '';
  return h('li', {}, h('b', {}, ...breakable(name)), where ? h('span', {title: where}, ...breakable(where)) : null);
}

/** Long names break where their parts do. */
function breakable(text: string): (Node | string)[] {
  return text.split(/(?<=::|\/)(?![:/])/).flatMap((part, i) => (i ? [h('wbr'), part] : [part]));
}
