// Categories over time. The file is a synthetic training run with known blocks; MEMTRACK_PAGES="A.html B.html" adds pages of real
// profiles, which are compared with their own tables.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import {after, before, test} from 'node:test';
import {launch, open} from './browser.mjs';
import {page as html, training} from './made.mjs';

const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'memtrack-categories-'));
const run = training(6000, 60), NAMES = ['gradient', 'custom', 'parameter', 'activation'];
run.head.devices[0].categories = NAMES;
// Some blocks have no category.
run.blocks.forEach((b, row) => { if (row % 11 === 5) b.category = 0; });
const column = run.sections[1].find(c => c.name === 'category');
column.values = run.blocks.map(b => b.category);
/** Bands in stack order from the bottom, and their values in the column. */
const ORDER = [['parameter', 3], ['activation', 4], ['gradient', 1], ['custom', 2], ['no category', 0]];
const file = path.join(folder, 'run.html');
let browser;

before(async () => {
  fs.writeFileSync(file, html(run));
  browser = await launch();
});
after(async () => {
  await browser?.close();
  fs.rmSync(folder, {recursive: true});
});

const bytes_after = event => ORDER.map(([, value]) => run.blocks.reduce((s, b) => s + (b.category === value && b.start <= event && event < b.end ? b.size : 0), 0));
const peak = (() => {
  const totals = new Float64Array(run.events + 1);
  for (const b of run.blocks) {
    totals[b.start + 1] += b.size;
    if (b.end < run.events) totals[b.end + 1] -= b.size;
  }
  let best = 0;
  for (let i = 1, sum = totals[0], high = sum; i < totals.length; i++) if ((sum += totals[i]) > high) [best, high] = [i, sum];
  return best - 1;
})();
const count = n => n.toLocaleString('en-US');
const state = page => page.evaluate('Object.fromEntries(new URLSearchParams(location.hash.slice(1)))');
const settled = page => page.waitForTimeout(400);
const stage = page => page.locator('.categories .stage').boundingBox();
/** Returns the exact bytes of each band in a column of the table, from the bottom up; null: hidden. Estimates have a mark. */
const column_of = (page, place) => page.locator('.cat-table tbody tr').evaluateAll((rows, place) => rows.map(row => {
  const title = row.querySelectorAll('td')[2 * place].title;
  return title === 'hidden' ? null : Number((/\(([\d,]+) bytes\)/.exec(title) ?? /^(?:about )?([\d,]+) byte/.exec(title))[1].replaceAll(',', ''));
}).reverse(), place);
const categories = {fragment: '#view=categories'};

test('table and title have the sums over all blocks, at the peak and at any moment', async () => {
  const {page, clean} = await open(browser, file, categories);
  assert.deepEqual((await page.locator('.cat-name').allInnerTexts()).reverse(), ORDER.map(o => o[0]));
  assert.deepEqual(await column_of(page, 0), bytes_after(peak));
  const high = bytes_after(peak).reduce((a, b) => a + b);
  const title = await page.locator('.cat-title').innerText();
  assert.match(title, new RegExp(`^Peak allocated: [\\d.]+ [GM]iB \\(${count(high)} bytes\\)`));
  assert.match(title, /Peak reserved: /);
  for (const event of [-1, 0, 500, peak, 4321, run.events - 1]) {
    await page.evaluate(event => memtrack.show({event}), event);
    assert.deepEqual(await column_of(page, 1), bytes_after(event), `after event ${event}`);
    const sizes = await page.evaluate(event => memtrack.categoriesAt(0, event), event);
    assert.deepEqual(sizes, ORDER.map(([name], i) => ({name, size: bytes_after(event)[i]})).filter(c => c.size > 0));
  }
  await clean();
});

test('each point is in the band whose bytes are there at that event', async () => {
  const {page, clean} = await open(browser, file, categories);
  const high = bytes_after(peak).reduce((a, b) => a + b) * 1.1;
  let hits = 0;
  for (const [from, to] of [[0, run.events], [2000, 2060], [1000, 1400]]) {
    await page.evaluate(show => memtrack.show(show), {axis: 'step', from, to, bottom: 0, top: high});
    const box = await stage(page);
    for (let i = 0; i < 50; i++) {
      const x = box.x + (((i * 37) % 100) / 100) * box.width, y = box.y + box.height - 1 - (((i * 61) % 97) / 97) * box.height;
      const hit = await page.evaluate(([x, y]) => memtrack.hit(x, y), [x, y]), bytes = bytes_after(hit.event), value = (1 - (y - box.y) / box.height) * high, pixel = (1.5 * high) / box.height;
      let at = 0;
      const near = bytes.map((b, band) => ({band, from: at, to: (at += b)})).filter(b => b.to > b.from && value > b.from - pixel && value < b.to + pixel).map(b => ORDER[b.band][0]);
      if (hit.kind === 'nothing') assert.ok(value > at - pixel, 'above all bands');
      else {
        assert.equal(hit.kind, 'category');
        assert.ok(near.includes(hit.name), `${hit.name} is not at ${value}`);
        assert.equal(hit.size, bytes[ORDER.findIndex(o => o[0] === hit.name)]);
        hits++;
      }
    }
  }
  assert.ok(hits > 60, `${hits} points hit bands`);
  await clean();
});

test('pointing at a band shows its details, and the bytes of all bands at that moment', async () => {
  const {page, clean} = await open(browser, file, categories);
  const box = await stage(page), at = [box.x + box.width * 0.6, box.y + box.height * 0.9];
  const hit = await page.evaluate(([x, y]) => memtrack.hit(x, y), at);
  await page.mouse.move(...at);
  await settled(page);
  assert.deepEqual(await column_of(page, 1), bytes_after(hit.event));
  assert.match(await page.locator('.cat-table thead').innerText(), new RegExp(`Pointed at\\s+event ${count(hit.event)}`));
  const panel = await page.locator('.panel').innerText();
  assert.match(panel, new RegExp(`^${hit.name}\n+[^]*${count(hit.size)} bytes`));
  assert.match(await page.locator('.cat-table tr.pointed').innerText(), new RegExp(`^${hit.name}`));
  await page.mouse.move(5, 5);
  await settled(page);
  assert.match(await page.locator('.cat-table thead').innerText(), /At the end/);
  await clean();
});

test('a click on a band finds its blocks, and a second click clears the search', async () => {
  const {page, clean} = await open(browser, file, categories);
  const box = await stage(page), at = [box.x + box.width * 0.6, box.y + box.height - 6];
  assert.equal((await page.evaluate(([x, y]) => memtrack.hit(x, y), at)).name, 'parameter');
  await page.mouse.click(...at);
  await settled(page);
  assert.equal((await state(page)).query, 'category:^parameter$');
  assert.equal(Number(await page.locator('.sb-status').getAttribute('data-blocks')), run.blocks.filter(b => b.category === 3).length);
  // Dimmed blocks still count.
  assert.deepEqual(await column_of(page, 0), bytes_after(peak));
  await page.mouse.click(...at);
  await settled(page);
  assert.equal((await state(page)).query, undefined);
  await page.mouse.move(5, 5);
  // The search also finds blocks without a category.
  await page.evaluate('memtrack.show({query: "category:^$"})');
  await settled(page);
  assert.equal(Number(await page.locator('.sb-status').getAttribute('data-blocks')), run.blocks.filter(b => b.category === 0).length);
  await page.evaluate('memtrack.show({hide: true})');
  assert.deepEqual(await column_of(page, 1), bytes_after(run.events - 1).map((b, i) => (i === 4 ? b : 0)));
  await clean();
});

test('the table hides categories, and shows one alone', async () => {
  const {page, clean} = await open(browser, file, categories);
  await page.getByRole('button', {name: 'gradient', exact: true}).click();
  await settled(page);
  assert.deepEqual(await column_of(page, 1), bytes_after(run.events - 1).map((b, i) => (i === 2 ? null : b)));
  assert.match(await page.locator('.cat-title').innerText(), /Peak of visible blocks: /);
  assert.deepEqual(JSON.parse((await state(page)).filter).categories, [0, 2, 3, 4]);
  await page.getByRole('button', {name: 'only activation'}).click();
  await settled(page);
  let most = 0, when = -1;
  for (let event = -1; event < run.events; event++) {
    const bytes = run.blocks.reduce((s, b) => s + (b.category === 4 && b.start <= event && event < b.end ? b.size : 0), 0);
    if (bytes > most) [most, when] = [bytes, event];
  }
  assert.deepEqual(await column_of(page, 0), [null, most, null, null, null], 'the peak is that of the visible blocks');
  assert.match(await page.locator('.cat-title').innerText(), new RegExp(`Peak of visible blocks: [^]*${count(most)} bytes`));
  // The key p selects that event.
  await page.locator('.categories .stage').focus();
  await page.keyboard.press('p');
  await settled(page);
  assert.equal(Number((await state(page)).event), when);
  const kinds = new Set();
  const box = await stage(page);
  for (let i = 0; i < 40; i++) kinds.add((await page.evaluate(([x, y]) => memtrack.hit(x, y), [box.x + (i / 40) * box.width, box.y + box.height - 4])).name);
  kinds.delete(undefined);
  assert.deepEqual([...kinds], ['activation']);
  await page.getByRole('button', {name: 'show all categories'}).click();
  await settled(page);
  assert.equal((await state(page)).filter, undefined);
  await clean();
});

test('keys move the picture, choose bands, and find their blocks', async () => {
  const {page, clean} = await open(browser, file);
  await page.keyboard.press('7');
  await settled(page);
  assert.equal((await state(page)).view, 'categories');
  for (const name of ['parameter', 'activation', 'gradient']) {
    await page.keyboard.press('k');
    await settled(page);
    assert.match(await page.locator('.panel').innerText(), new RegExp(`^${name}`));
    assert.match(await page.locator('.cat-table tr.pointed').innerText(), new RegExp(`^${name}`));
  }
  await page.keyboard.press('j');
  await page.keyboard.press('Enter');
  await settled(page);
  assert.equal((await state(page)).query, 'category:^activation$');
  await page.keyboard.press('Escape');
  assert.equal(await page.locator('.cat-table tr.pointed').count(), 0);
  await page.keyboard.press('+');
  await settled(page);
  assert.ok((await state(page)).to, 'plus zooms');
  const name = await page.locator('.categories .stage').getAttribute('aria-label');
  assert.match(name, /by category, stacked over time; at most [^:]+: parameter \d+\.\d %/);
  await clean();
});

/** Returns the number of pixels of each colour `r,g,b` in the picture. */
const colors = page => page.evaluate(() => {
  const shown = document.querySelector('.categories .picture'), {width, height} = shown, seen = {};
  // Read from a copy: the picture's context is optimized for drawing.
  const context = Object.assign(document.createElement('canvas'), {width, height}).getContext('2d', {willReadFrequently: true});
  context.drawImage(shown, 0, 0);
  const {data} = context.getImageData(0, 0, width, height);
  for (let i = 0; i < data.length; i += 4) {
    const color = `${data[i]},${data[i + 1]},${data[i + 2]}`;
    if (data[i + 3]) seen[color] = (seen[color] ?? 0) + 1;
  }
  return seen;
});

test('bands and the table have the colours of PyTorch, and all are visible on a dark page', async () => {
  for (const scheme of ['light', 'dark']) {
    const {page, clean} = await open(browser, file, {...categories, scheme});
    const seen = await colors(page), keys = await page.locator('.cat-name i').evaluateAll(keys => keys.map(key => getComputedStyle(key).backgroundColor.replace(/[^\d,]/g, '')).reverse());
    if (scheme === 'light') assert.deepEqual(keys.slice(0, 3), ['0,100,0', '255,0,0', '0,0,205']);
    for (const key of keys) assert.ok(seen[key] > 50, `${scheme}: ${key} is in the picture`);
    // A change of the theme changes both.
    await page.keyboard.press('t');
    await settled(page);
    const other = await page.locator('.cat-name i').first().evaluate(key => getComputedStyle(key).backgroundColor.replace(/[^\d,]/g, ''));
    assert.notEqual(other, keys.at(-1));
    assert.ok((await colors(page))[other] > 50);
    await clean();
  }
});

test('a short peak is visible among any number of events', async () => {
  // During two of 60,000 events there is a block larger than all others together.
  const long = training(60_000, 60), rows = long.blocks, at = 31_000, where = rows.findIndex(b => b.start > at);
  rows.splice(where, 0, {start: rows[where].start, end: rows[where].start + 2, size: 2 ** 36, stack: 0, address: 1n << 44n, pool: 1, stream: 0, category: 2});
  for (const c of long.sections[1]) {
    if (c.name === 'start') c.values = rows.map(b => b.start);
    else if (c.name === 'life') c.values = rows.map(b => (b.end >= long.events ? 0 : b.end - b.start));
    else if (c.name === 'pending') c.values = rows.map(b => (b.pending === undefined ? 0 : 1 + b.pending - b.start));
    else if (['size', 'stack', 'address', 'stream', 'pool', 'category', 'flags'].includes(c.name)) c.values = rows.map(b => b[c.name] ?? 0);
  }
  long.head.devices[0].blocks = rows.length;
  const high = path.join(folder, 'high.html');
  fs.writeFileSync(high, html(long));
  const {page, clean} = await open(browser, high, categories);
  const box = await stage(page), seen = new Set();
  for (let x = 0; x < box.width; x++) {
    const hit = await page.evaluate(([x, y]) => memtrack.hit(x, y), [box.x + x, box.y + box.height * 0.3]);
    if (hit?.kind === 'category') seen.add(`${hit.name} ${hit.event - rows[where].start}`);
  }
  assert.ok([...seen].some(s => /^activations [01]$/.test(s)), [...seen].join());
  await clean();
});

test('a page without categories has no tab for them, and the view explains where they come from', async () => {
  const parts = training(500, 20);
  parts.head.devices[0].categories = [];
  parts.sections[1] = parts.sections[1].filter(c => c.name !== 'category');
  const none = path.join(folder, 'none.html');
  fs.writeFileSync(none, html(parts));
  const {page, clean} = await open(browser, none);
  assert.equal(await page.getByRole('tab', {name: 'Categories'}).count(), 0);
  await page.keyboard.press('7');
  await settled(page);
  assert.equal((await state(page)).view, undefined);
  await page.evaluate('memtrack.show({view: "categories"})');
  assert.match(await page.locator('.categories').innerText(), /^This device has no categories\. Categories come from [^.]+\.$/);
  await clean();
  fs.writeFileSync(none, html({...parts, head: {...parts.head, view: 'categories'}}));
  const opened = await open(browser, none);
  assert.equal(await opened.page.getByRole('tab', {name: 'Categories'}).getAttribute('aria-selected'), 'true');
  await opened.clean();
});

test('another device has its own categories, or none', async () => {
  const parts = training(800, 20), [texts, blocks, events, segments, bands] = parts.sections, [first] = parts.head.devices;
  const second = {...first, name: 'host heap', kind: 'heap', ordinal: 1, categories: [], sections: {texts: 0, blocks: 5, events: 6, segments: 7, bands: 8}};
  const third = {...first, name: 'device 2', ordinal: 2, categories: ['x', 'y', 'buffer', 'z'], sections: {texts: 0, blocks: 9, events: 10, segments: 11, bands: 12}};
  const several = path.join(folder, 'several.html');
  fs.writeFileSync(several, html({head: {...parts.head, devices: [first, second, third]}, sections: [texts, blocks, events, segments, bands,
    blocks.filter(c => c.name !== 'category'), events, segments, bands, blocks, events, segments, bands]}));
  const {page, clean} = await open(browser, several, categories);
  const names = async () => (await page.locator('.cat-name').allInnerTexts()).reverse();
  for (let i = 0; i < 2; i++) {
    await page.evaluate('memtrack.show({device: "host heap"})');
    assert.ok(await page.locator('.cat-none').isVisible() && !await page.locator('.cat-body').isVisible());
    await page.evaluate('memtrack.show({device: "device 2", filter: {categories: [1]}})');
    assert.deepEqual(await names(), ['buffer', 'x', 'y', 'z']);
    assert.deepEqual((await column_of(page, 0)).map(b => b === null), [true, false, true, true]);
    await page.evaluate('memtrack.show({device: "device 0"})');
    assert.deepEqual(await names(), ['parameters', 'activations', 'gradients', 'optimizer state']);
    assert.ok((await column_of(page, 0)).every(b => b !== null), 'the filter does not apply to another device');
    const box = await stage(page);
    assert.equal((await page.evaluate(([x, y]) => memtrack.hit(x, y), [box.x + box.width / 2, box.y + box.height - 4])).kind, 'category');
  }
  await clean();
});

test('segments that only span the addresses of a profile are not shown as reserved', async () => {
  const parts = training(500, 20), spans = path.join(folder, 'spans.html');
  parts.head.devices[0].reserved = false;
  fs.writeFileSync(spans, html(parts));
  const {page, clean} = await open(browser, spans, categories);
  await settled(page);
  assert.doesNotMatch(await page.locator('.cat-title').innerText(), /reserved/i);
  await clean();
});

test('in a narrow window the table is below the picture, and nothing is cut off at the side', async () => {
  const {page, clean} = await open(browser, file, categories);
  await page.setViewportSize({width: 640, height: 700});
  await settled(page);
  const picture = await stage(page), table = await page.locator('.cat-side').boundingBox();
  assert.ok(table.y >= picture.y + picture.height && picture.width > 250 && picture.height > 60, JSON.stringify([picture, table]));
  assert.ok(await page.evaluate('document.documentElement.scrollWidth <= innerWidth'));
  await page.setViewportSize({width: 1400, height: 700});
  await settled(page);
  assert.ok((await page.locator('.cat-side').boundingBox()).x > (await stage(page)).x + (await stage(page)).width);
  await clean();
});

for (const real of (process.env.MEMTRACK_PAGES ?? '').split(' ').filter(Boolean)) {
  test(`the view of ${path.basename(real)} agrees with its blocks`, async () => {
    const {page, clean} = await open(browser, real, categories);
    if (await page.locator('.cat-none:visible').count()) return;
    const at = async (event, place) => {
      const sizes = await page.evaluate(event => memtrack.categoriesAt(0, event), event), all = await page.evaluate(event => memtrack.allocatedAt(0, event), event);
      const names = (await page.locator('.cat-name').allInnerTexts()).reverse(), bytes = await column_of(page, place);
      assert.deepEqual(names.map((name, i) => ({name, size: bytes[i]})).filter(c => c.size > 0), sizes, `after event ${event}`);
      assert.equal(sizes.reduce((s, c) => s + c.size, 0), all);
      return all;
    };
    const events = await page.evaluate('memtrack.events(0)');
    await page.locator('.categories .stage').focus();
    await page.keyboard.press('p');
    await settled(page);
    const top = Number((await state(page)).event ?? events - 1), high = await at(top, 0);
    for (let i = 0; i <= 40; i++) {
      const event = Math.round((i / 40) * events) - 1;
      await page.evaluate(event => memtrack.show({event}), event);
      assert.ok(await at(event, 1) <= high, 'nothing is above the peak');
    }
    assert.ok((await page.locator('.cat-title').innerText()).includes(`${count(high)} bytes`));
    await clean();
  });
}
