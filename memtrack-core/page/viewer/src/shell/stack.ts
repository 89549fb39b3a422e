// A call stack as a list, the innermost frame first. Internal frames are folded until they are clicked.

import type {Texts} from '../types.ts';
import {h} from '../dom.ts';
import {noise_frames} from '../flame/noise.ts';
import {visible} from '../format.ts';

const STEP = 200;

/** Returns the elements of a stack. */
export function stack_of(stack: number, texts: Texts): Node[] {
  const from = texts.stack_from[stack] ?? 0, to = texts.stack_from[stack + 1] ?? from;
  if (from === to) return [h('p', {class: 'note'}, 'No stack was recorded.')];
  const list = h('ol', {class: 'stack'});
  add(list, texts, from, to, from, from + texts.stack_skip[stack]!);
  return [list];
}

function add(list: HTMLElement, texts: Texts, from: number, to: number, first: number, user: number): void {
  const nodes: HTMLElement[] = [], noise = noise_frames(texts);
  const end = Math.min(to, from + STEP);
  for (let i = from; i < end; i++) {
    let j = i;
    while (j < end && (j < user || noise[texts.stack_frames[j]!])) j++;
    // A single frame is not folded, nor is a stack that consists only of internal frames.
    if (j - i >= 2 && (i > first || j < to)) {
      nodes.push(folded(texts, i, j));
      i = j - 1;
    } else nodes.push(frame(texts, i));
  }
  if (end < to) {
    const more = h('li', {class: 'fold'}, h('button', {type: 'button', class: 'link', onclick: () => {
      more.remove();
      add(list, texts, end, to, first, user);
    }}, `${to - end} more frames`));
    nodes.push(more);
  }
  list.append(...nodes);
}

function folded(texts: Texts, from: number, to: number): HTMLElement {
  const item = h('li', {class: 'fold'}, h('button', {type: 'button', class: 'link', title: 'Frames of the interpreter, the dispatcher and the allocator. Click to show.', onclick: () => {
    item.replaceWith(...Array.from({length: to - from}, (_, i) => frame(texts, from + i)));
  }}, `${to - from} internal frames`));
  return item;
}

function frame(texts: Texts, index: number): HTMLElement {
  const f = texts.stack_frames[index]!, file = visible(texts.string(texts.frame_file[f]!)), line = texts.frame_line[f]!;
  const name = visible(texts.string(texts.frame_name[f]!)) || '(no name)';
  const where = file && file !== '??' ? file + (line ? `:${line}` : '') : '';
  return h('li', {}, h('b', {}, ...breakable(name)), where ? h('span', {title: where}, ...breakable(where)) : null);
}

/** Splits a long name where a line may break. */
function breakable(text: string): (Node | string)[] {
  return text.split(/(?<=::|\/)(?![:/])/).flatMap((part, i) => (i ? [h('wbr'), part] : [part]));
}
