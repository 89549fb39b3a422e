// The first glance: what the summary says, in words, above the picture. Each sentence leads to what it speaks of. All that is
// shown is read without scrolling: what would take too much of the window is behind a button, the least important first.

import type {Page} from '../app.ts';
import {fill, h} from '../dom.ts';
import {visible} from '../format.ts';

/** The most of the window's height that the sentences take unasked. */
const MOST_OF_WINDOW = 0.24;

/** How many sentences are shown: those that fit into a height. `bottoms` are the lower edges of the sentences in their order, `button` is the height of one more line. */
export function that_fit(bottoms: readonly number[], height: number, button: number): number {
  if (bottoms.every(bottom => bottom <= height)) return bottoms.length;
  const first = bottoms.findIndex(bottom => bottom > height - button);
  // The first is the answer, however small the window.
  return Math.max(1, first);
}

/** The sentences. */
export class Glance {
  readonly element = h('section', {class: 'glance', 'aria-label': 'First glance'});
  private readonly more = h('button', {type: 'button', class: 'link more', onclick: () => this.toggle()});
  private sentences: HTMLElement[] = [];
  private whole = false;

  constructor(private readonly page: Page) {
    addEventListener('resize', () => this.fold());
  }

  show(): void {
    const {head, device} = this.page;
    const facts = device.head.first.map(({title, text, show}) => {
      // Without a title it goes on with what the one before speaks of.
      const parts = [title ? h('b', {}, visible(title)) : '· ', h('span', {}, visible(text))];
      // Categories are a timeline too: who looks at them stays there.
      const go = () => this.page.show(show!.view === 'timeline' && this.page.state.view === 'categories' ? {...show, view: 'categories'} : show!);
      return show ? h('button', {type: 'button', title: 'Show this in the picture', onclick: () => void go()}, ...parts) : h('p', {}, ...parts);
    });
    this.sentences = [...head.first.map(text => h('p', {class: 'note'}, visible(text))), ...facts];
    this.whole = false;
    fill(this.element, ...this.sentences);
    this.element.hidden = !this.sentences.length;
    this.fold();
  }

  private toggle(): void {
    this.whole = !this.whole;
    this.fold();
  }

  /** Hides what does not fit, unless all was asked for. */
  private fold(): void {
    for (const sentence of this.sentences) sentence.hidden = false;
    this.more.remove();
    const {top} = this.element.getBoundingClientRect(), bottoms = this.sentences.map(sentence => sentence.getBoundingClientRect().bottom - top);
    const shown = that_fit(bottoms, innerHeight * MOST_OF_WINDOW, 22), hidden = this.sentences.length - shown;
    if (!this.whole) this.sentences.forEach((sentence, i) => { sentence.hidden = i >= shown; });
    if (hidden) this.element.append(this.more);
    this.more.textContent = this.whole ? 'less' : `${hidden} more`;
    this.more.setAttribute('aria-expanded', String(this.whole));
  }
}
