// Starts the page: reads its head and draws the first picture, or shows why it cannot.

import './viewer.css';
import type {Head, Texts} from './types.ts';
import {api_of, type Api} from './api.ts';
import {Page} from './app.ts';
import {devices_of, load_texts} from './data/device.ts';
import {missing_feature, Sections} from './data/sections.ts';
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
  const problem = missing_feature();
  const message = (title: string, ...lines: string[]) => main.replaceChildren(h('section', {class: 'empty', role: 'alert'}, h('h1', {}, title), ...lines.map(l => h('p', {}, l))));
  if (!head || head.format !== FORMAT) return message('This page is damaged', head ? `Its tables have format ${head.format}, but its script reads format ${FORMAT}.` : 'It has no tables.');
  if (problem) return message(visible(head.name), problem);
  const sections = new Sections(head);
  const texts = new Map<number, Promise<Texts>>();
  const devices = devices_of(head, sections);
  if (!devices.some(d => d.head.events || d.head.blocks || d.head.segments)) {
    message(visible(head.name), ...head.first.map(visible), 'This file contains no memory: no device has an event, a block or a segment.',
      'If that is unexpected, check that the recording was on before the program allocated, and that the file was written before the program ended.');
    if (!devices.length) {
      const none = async () => { throw new RangeError('this file has no device'); };
      window.memtrack = {ready: Promise.resolve(), devices: () => [], events: () => 0, show: none, allocatedAt: none, blocksAt: none, categoriesAt: none, hit: () => null, labels: () => [], paint: () => ({count: 0, worst_ms: 0})};
      return;
    }
  }
  const page = new Page(head, devices, section => {
    let loading = texts.get(section);
    if (!loading) texts.set(section, loading = load_texts(sections, section));
    return loading;
  });
  if (devices.some(d => d.head.events || d.head.blocks || d.head.segments)) main.replaceChildren(page.element);
  const ready = page.start();
  // The page shows a failure itself; scripts get it from `ready`.
  ready.then(() => (main.dataset.ready = ''), () => {});
  window.memtrack = api_of(page, ready);
}

start(document.getElementById('memtrack')!);
