// The overview: the sentences of the summary, above the picture. A click on a sentence shows its subject. The overview does not
// scroll. If the sentences would take too much of the window, the least important ones are hidden behind a button.

import type {Page} from '../app.ts';
import {fill, h} from '../dom.ts';
import {visible} from '../format.ts';

/** The maximum share of the window's height that the sentences take until they are expanded. */
const MAX_WINDOW_SHARE = 0.24;

/**
 * Returns the number of sentences that fit into a height. `bottoms` are the lower edges of the sentences in order, `button` is the
 * height of one more line.
 */
export function count_fitting(bottoms: readonly number[], height: number, button: number): number {
  if (bottoms.every(bottom => bottom <= height)) return bottoms.length;
  const first = bottoms.findIndex(bottom => bottom > height - button);
  // The first sentence is the answer, and is shown even in a tiny window.
  return Math.max(1, first);
}

/** The sentences. */
export class Glance {
  readonly element = h('section', {class: 'glance', 'aria-label': 'Overview'});
  private readonly more = h('button', {type: 'button', class: 'link more', onclick: () => this.toggle()});
  private sentences: HTMLElement[] = [];
  private whole = false;

  constructor(private readonly page: Page) {
    addEventListener('resize', () => this.fold());
  }

  show(): void {
    const {head, device} = this.page;
    const facts = device.head.first.map(({title, text, show}) => {
      // A sentence without a title continues the subject of the previous sentence.
      const parts = [title ? h('b', {}, visible(title)) : '· ', h('span', {}, visible(text))];
      // The view of categories is a timeline too, so it stays.
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

  /** Hides the sentences that do not fit, unless the user expanded them. */
  private fold(): void {
    for (const sentence of this.sentences) sentence.hidden = false;
    this.more.remove();
    const {top} = this.element.getBoundingClientRect(), bottoms = this.sentences.map(sentence => sentence.getBoundingClientRect().bottom - top);
    const shown = count_fitting(bottoms, innerHeight * MAX_WINDOW_SHARE, 22), hidden = this.sentences.length - shown;
    if (!this.whole) this.sentences.forEach((sentence, i) => { sentence.hidden = i >= shown; });
    if (hidden) this.element.append(this.more);
    this.more.textContent = this.whole ? 'less' : `${hidden} more`;
    this.more.setAttribute('aria-expanded', String(this.whole));
  }
}
