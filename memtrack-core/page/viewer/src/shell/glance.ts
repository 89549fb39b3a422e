// The first glance: what the summary says, in words, above the picture. Each sentence leads to what it speaks of.

import type {Page} from '../app.ts';
import {fill, h} from '../dom.ts';
import {visible} from '../format.ts';

/** The sentences. */
export class Glance {
  readonly element = h('section', {class: 'glance', 'aria-label': 'First glance'});
  constructor(private readonly page: Page) {}

  show(): void {
    const {head, device} = this.page;
    const facts = device.head.first.map(({title, text, show}) => {
      // Without a title it goes on with what the one before speaks of.
      const parts = [title ? h('b', {}, visible(title)) : '· ', h('span', {}, visible(text))];
      // Categories are a timeline too: who looks at them stays there.
      const go = () => this.page.show(show!.view === 'timeline' && this.page.state.view === 'categories' ? {...show, view: 'categories'} : show!);
      return show ? h('button', {type: 'button', title: 'Show this in the picture', onclick: () => void go()}, ...parts) : h('p', {}, ...parts);
    });
    fill(this.element, ...head.first.map(text => h('p', {class: 'note'}, visible(text))), ...facts);
    this.element.hidden = !this.element.childElementCount;
  }
}
