// Starts the page: reads its head, draws the first picture, and says in words what stands in the way of that.

import './viewer.css';
import type {Head, Texts} from './types.ts';
import {api_of, type Api} from './api.ts';
import {Page} from './app.ts';
import {devices_of, load_texts} from './data/device.ts';
import {missing, Sections} from './data/sections.ts';
import {h} from './dom.ts';
import {visible} from './format.ts';

declare global {
  interface Window {
    memtrack: Api;
  }
}

const FORMAT = 1;

function start(main: HTMLElement): void {
  const head = JSON.parse(document.getElementById('memtrack-head')?.textContent ?? 'null') as Head | null;
  const lack = missing();
  const words = (title: string, ...lines: string[]) => main.replaceChildren(h('section', {class: 'empty', role: 'alert'}, h('h1', {}, title), ...lines.map(l => h('p', {}, l))));
  if (!head || head.format !== FORMAT) return words('This page is damaged', head ? `Its tables have format ${head.format}, its program reads ${FORMAT}.` : 'It has no tables.');
  if (lack) return words(visible(head.name), lack);
  const sections = new Sections(head);
  let texts: Promise<Texts> | null = null;
  const devices = devices_of(head, sections);
  if (!devices.some(d => d.head.events || d.head.blocks || d.head.segments)) {
    words(visible(head.name), ...head.first.map(visible), 'This file holds no memory: no device has an event, a block or a segment.',
      'If that is a surprise: was the recording switched on before the program allocated, and was the file written before it ended?');
    if (!devices.length) {
      const none = async () => { throw new RangeError('this file has no device'); };
      window.memtrack = {ready: Promise.resolve(), devices: () => [], events: () => 0, show: none, allocatedAt: none, blocksAt: none, categoriesAt: none, hit: () => null, labels: () => [], paint: () => ({count: 0, worst_ms: 0})};
      return;
    }
  }
  const page = new Page(head, devices, () => texts ??= load_texts(sections));
  if (devices.some(d => d.head.events || d.head.blocks || d.head.segments)) main.replaceChildren(page.element);
  const ready = page.start();
  // A failure is on the page in words by then; `ready` tells scripts.
  ready.then(() => (main.dataset.ready = ''), () => {});
  window.memtrack = api_of(page, ready);
}

start(document.getElementById('memtrack')!);
