// Texts over and around the picture, at 1,400 × 900: no label covers another at any zoom, the overview does not scroll, each
// colouring has a legend, and a file without times shows none.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import {after, before, test} from 'node:test';
import {launch, open} from './browser.mjs';
import {page as html, training} from './made.mjs';

const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'memtrack-labels-'));
const run = training(60_000, 60);
const head = run.head.devices[0];
// Out-of-memory events between steps, and several close together.
head.ooms = [...head.ooms, 20_000, 20_040, 20_080, 40_000].sort((a, b) => a - b);
let browser;

before(async () => { browser = await launch(); });
after(async () => {
  await browser?.close();
  fs.rmSync(folder, {recursive: true});
});

/** Opens a page with a changed head, in a window of 1,400 × 900. */
async function opened(name, change = {}, file = {}, parts = run) {
  const target = path.join(folder, `${name}.html`);
  fs.writeFileSync(target, html({...parts, head: {...parts.head, ...file, devices: [{...parts.head.devices[0], ...change}]}}));
  const {page, clean} = await open(browser, target);
  await page.setViewportSize({width: 1400, height: 900});
  await page.waitForTimeout(200);
  return {page, clean};
}

const overlap = (a, b) => a.x < b.x + b.width && b.x < a.x + a.width && a.y < b.y + b.height && b.y < a.y + a.height;

/** Returns all labels of the picture, and the texts of its axes. */
const texts_of = page => page.evaluate(() => {
  const texts = [...document.querySelectorAll('.views > section:not([hidden]) .axes text')].filter(text => text.textContent);
  return {labels: memtrack.labels(), axes: texts.map(text => { const {x, y, width, height} = text.getBoundingClientRect(); return {text: text.textContent, x, y, width, height}; })};
});

function assert_apart(boxes, where) {
  boxes.forEach((a, i) => boxes.slice(i + 1).forEach(b => assert.ok(!overlap(a, b), `${where}: ${JSON.stringify(a)} covers ${JSON.stringify(b)}`)));
}

test('labels do not overlap in any view at any zoom', async () => {
  const {page, clean} = await opened('labels');
  const events = run.events;
  let seen = 0;
  for (const axis of ['step', 'time']) {
    const end = axis === 'step' ? events : 3_000_000;
    for (const view of ['timeline', 'categories', 'pools', 'segments']) {
      for (const [from, part, event] of [[0, 1, events - 1], [0, 1, 20_041], [0.32, 0.02, 20_040], [0.333, 0.0009, 20_040], [0.6, 0.1, 40_000], [0.9999, 0.0001, events - 3], [0, 0.00002, 0], [0.5, 0.3, 30_000]]) {
        await page.evaluate(show => memtrack.show(show), {view, axis, from: from * end, to: (from + part) * end, event, bottom: 0, top: 0});
        await page.evaluate(show => memtrack.show(show), {from: from * end, to: (from + part) * end});
        const {labels, axes} = await texts_of(page), where = `${view} by ${axis} from ${from}, ${part} of it`;
        assert_apart(labels, where);
        assert_apart(axes, where);
        const stage = await page.locator('.views > section:not([hidden]) .stage').boundingBox();
        for (const label of labels) assert.ok(label.x >= stage.x - 0.01 && label.y >= stage.y - 0.01 && label.x + label.width <= stage.x + stage.width + 0.01 && label.y + label.height <= stage.y + stage.height + 0.01, `${label.text} is inside the picture`);
        for (const text of axes) assert.ok(text.x + text.width <= stage.x + stage.width + 9, `${text.text} does not extend into the side panel`);
        seen += labels.length;
      }
    }
  }
  assert.ok(seen > 150, `${seen} labels`);
  // The pointer has a label too.
  await page.evaluate(show => memtrack.show(show), {view: 'categories', axis: 'step', from: 0, to: events, top: 0, bottom: 0});
  const stage = await page.locator('.views > section:not([hidden]) .stage').boundingBox();
  for (const [x, y] of [[0.01, 0.3], [0.34, 0.05], [0.5, 0.5], [0.97, 0.09], [0.99, 0.97]]) {
    await page.mouse.move(stage.x + x * stage.width, stage.y + y * stage.height);
    await page.waitForTimeout(120);
    assert_apart((await texts_of(page)).labels, `pointed at ${x}, ${y}`);
  }
  await clean();
});

test('each mark is visible, and has a name when pointed at', async () => {
  const {page, clean} = await opened('marks');
  const starts = head.markers.filter(marker => marker.name === 'fw_start');
  assert.ok(starts.length > 50);
  await page.evaluate(show => memtrack.show(show), {view: 'timeline', axis: 'step', from: 0, to: run.events, top: 0, bottom: 0});
  const stage = await page.locator('.views > section:not([hidden]) .stage').boundingBox();
  const pixel = await page.evaluate(() => {
    const canvas = document.querySelector('.views > section:not([hidden]) .overlay');
    return Array.from(canvas.getContext('2d').getImageData(0, Math.round(4 * devicePixelRatio), canvas.width, 1).data).filter((_, i) => i % 4 === 3);
  });
  for (const marker of head.markers) {
    const x = Math.round(marker.event / run.events * stage.width);
    assert.ok(pixel.slice(Math.max(0, x - 1), x + 2).some(alpha => alpha > 0), `${marker.name} at event ${marker.event} has a tick`);
  }
  for (const number of [0, 17, starts.length - 1]) {
    await page.mouse.move(stage.x + starts[number].event / run.events * stage.width + 0.4, stage.y + 6);
    await page.waitForTimeout(200);
    const whole = `fw_start ${number + 1} of ${starts.length}`;
    assert.match(await page.locator('.panel').innerText(), new RegExp(`^${whole}\\n`));
    assert.ok((await texts_of(page)).labels.some(label => label.text === whole), whole);
  }
  await page.mouse.move(stage.x + 200, stage.y + stage.height * 0.8);
  await page.waitForTimeout(200);
  assert.ok(!(await texts_of(page)).labels.some(label => /\d of \d/.test(label.text)));
  await clean();
});

test('the overview does not scroll for any number of sentences', async () => {
  const sentence = (i, text = 'blocks, which are from a_module_with_a_name.py:123 forward → aten::native_layer_norm_backward') => ({title: i % 3 ? '' : `Title ${i}`, text: `sentence ${i}: ${i}.5 MiB (12.5 %) in 12 ${text}`, show: i % 2 ? {view: 'timeline', event: i} : null});
  for (const count of [4, 12, 60]) {
    const {page, clean} = await opened(`answer${count}`, {first: Array.from({length: count}, (_, i) => sentence(i))}, {first: ['A sentence about the file.']});
    const measure = () => page.evaluate(() => {
      const glance = document.querySelector('.glance'), box = glance.getBoundingClientRect();
      const shown = [...glance.children].filter(child => !child.hidden).map(child => child.getBoundingClientRect());
      return {inner: glance.scrollHeight > glance.clientHeight || /auto|scroll|hidden/.test(getComputedStyle(glance).overflowY), height: box.height, bottom: box.bottom,
        lowest: Math.max(...shown.map(rect => rect.bottom)), shown: shown.length, more: glance.querySelector('.more')?.textContent ?? '',
        stage: document.querySelector('.views > section:not([hidden]) .stage').getBoundingClientRect().height};
    });
    const folded = await measure();
    assert.equal(folded.inner, false, 'the overview does not scroll');
    assert.ok(folded.lowest <= folded.bottom + 0.5 && folded.height <= 900 * 0.27, `${folded.height} px`);
    assert.ok(folded.stage >= 350, `the picture has ${folded.stage} px`);
    assert.equal(folded.more, count === 4 ? '' : folded.more);
    if (count === 60) {
      assert.match(folded.more, /^\d+ more$/);
      assert.ok(folded.shown > 6, `${folded.shown} sentences are visible`);
      await page.locator('.glance .more').click();
      const all = await measure();
      assert.equal(all.shown, count + 2);
      assert.equal(all.more, 'less');
      await page.locator('.glance .more').click();
      assert.deepEqual((await measure()).shown, folded.shown);
    }
    await clean();
  }
});

test('each colouring has a legend with the bytes of its groups', async () => {
  const {page, clean} = await opened('legend');
  const legend = () => page.locator('.views > section:not([hidden]) .legend li').evaluateAll(items => items.map(item => item.innerText.replace(/\s+/g, ' ').trim()));
  for (const color of ['stack', 'size', 'age', 'stream', 'pool', 'category']) {
    for (const view of ['timeline', 'pools']) {
      await page.evaluate(show => memtrack.show(show), {view, color});
      const items = await legend();
      assert.ok(items.length >= 2 && items.every(item => /\d (B|KiB|MiB|GiB)$/.test(item)), `${color}: ${JSON.stringify(items)}`);
    }
  }
  // The map has the same legend, and shows all of it.
  await page.evaluate(show => memtrack.show(show), {view: 'state', color: 'stack'});
  const map = page.locator('.map-color-legend');
  assert.ok((await map.locator('li').count()) >= 9);
  assert.equal(await map.evaluate(list => list.scrollHeight > list.clientHeight + 1), false, 'the legend is not cut off');
  await page.evaluate(show => memtrack.show(show), {view: 'timeline', color: 'stack'});
  const items = await legend();
  assert.ok(/^model_\d\.py:\d+ op_\d+ /.test(items[0]) && items.some(item => /^\d+ other lines /.test(item)), JSON.stringify(items));
  // The whole legend is visible.
  const [bar, last] = [await page.locator('.views > section:not([hidden]) .bar').boundingBox(), await page.locator('.views > section:not([hidden]) .legend li').last().boundingBox()];
  assert.ok(last.y + last.height <= bar.y + bar.height + 0.5 && last.x + last.width <= bar.x + bar.width + 0.5);
  await clean();
});

test('inferred categories are marked as inferred, and are a colouring', async () => {
  for (const color of ['category', 'stack']) {
    const {page, clean} = await opened(`inferred-${color}`, {inferred: true, color});
    assert.equal(await page.locator('header select').last().inputValue(), color);
    assert.equal(await page.locator('header option[value=category]').textContent(), 'category (inferred)');
    assert.equal(await page.locator('.legend .inferred').count(), color === 'category' ? 1 : 0);
    await page.evaluate(show => memtrack.show(show), {color: 'category'});
    assert.equal(await page.locator('.legend .inferred').innerText(), 'inferred:');
    await page.evaluate(show => memtrack.show(show), {view: 'categories'});
    assert.match(await page.locator('.cat-title').innerText(), /inferred: the file has none/);
    await clean();
  }
  const {page} = await opened('recorded');
  assert.equal(await page.locator('.inferred').count(), 0);
});

test('a file without times shows events and no seconds', async () => {
  const parts = {...run, sections: run.sections.map((columns, i) => (i === 2 ? columns.filter(column => column.name !== 'time') : columns))};
  const first = [{title: 'Peak', text: '1.3 GiB requested, after event 588', show: {view: 'timeline', event: 588}}];
  const {page, clean} = await opened('no-times', {first}, {has_time: false, start_us: 0}, parts);
  const time = /\d\s?(µs|ms|s)\b/;
  for (const view of ['timeline', 'categories', 'segments', 'state', 'flame']) {
    for (const event of [588, 20_000]) {
      await page.evaluate(show => memtrack.show(show), {view, event, block: view === 'timeline' ? 5 : null});
      await page.waitForTimeout(150);
      const {labels, axes} = await texts_of(page);
      for (const {text} of [...labels, ...axes]) assert.doesNotMatch(text, time);
      assert.doesNotMatch((await page.locator('.page').innerText()), time, view);
    }
  }
  assert.equal(await page.getByRole('button', {name: /^Axis/}).count(), 0);
  await page.evaluate(show => memtrack.show(show), {view: 'timeline', event: run.events - 1, block: null});
  assert.match((await texts_of(page)).axes.map(text => text.text).join(' '), /event 10,000/);
  await clean();
});
