// The page in a browser: the picture agrees with the tables, and gestures and links work. The file is a synthetic training run
// with known blocks; `npm run browser` builds and runs the tests.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import http from 'node:http';
import os from 'node:os';
import path from 'node:path';
import {after, before, test} from 'node:test';
import {launch, open} from './browser.mjs';
import {device_head, element_columns, page as html, served, training} from './made.mjs';

const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'memtrack-browser-'));
const run = training(6000, 60);
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

const live_after = event => run.blocks.flatMap((b, row) => (b.start <= event && event < b.end ? [row] : []));
const state = page => page.evaluate('Object.fromEntries(new URLSearchParams(location.hash.slice(1)))');
const settled = page => page.waitForTimeout(400);
const stage = page => page.locator('.views > section:not([hidden]) .stage').boundingBox();

test('the answers of the page are those of a replay of its file', async () => {
  const {page, clean} = await open(browser, file);
  assert.deepEqual(await page.evaluate('memtrack.devices()'), ['device 0']);
  assert.equal(await page.evaluate('memtrack.events("device 0")'), run.events);
  for (const event of [-1, 0, 1, 777, 3000, run.events - 1]) {
    const want = live_after(event).map(row => run.blocks[row]).map(b => ({address: '0x' + b.address.toString(16), size: b.size, pending: b.pending !== undefined && b.pending <= event}));
    const [got, sum] = await page.evaluate(async e => [await memtrack.blocksAt(0, e), await memtrack.allocatedAt('device 0', e)], event);
    assert.deepEqual(got, want, `after event ${event}`);
    assert.equal(sum, want.reduce((s, b) => s + b.size, 0));
  }
  assert.match(await page.evaluate('memtrack.blocksAt(0, 1e9).catch(String)'), /events -1 to/);
  assert.match(await page.evaluate('memtrack.allocatedAt("nothing", 0).catch(String)'), /no device/);
  await clean();
});

test('each point is in the block whose bytes are there at that event', async () => {
  const {page, clean} = await open(browser, file);
  const total = e => live_after(e).reduce((s, row) => s + run.blocks[row].size, 0);
  for (const [from, to, top] of [[0, run.events, 0], [2000, 2060, 0], [1000, 1400, 3e8]]) {
    await page.evaluate(show => memtrack.show(show), {axis: 'step', from, to, bottom: 0, top});
    const box = await stage(page);
    const high = top || null;
    let hits = 0;
    for (let i = 0; i < 60; i++) {
      const x = box.x + ((i * 37) % 100) / 100 * box.width, y = box.y + box.height - 1 - ((i * 61) % 97) / 97 * box.height * 0.9;
      const hit = await page.evaluate(([x, y]) => memtrack.hit(x, y), [x, y]);
      if (hit.kind === 'nothing') continue;
      assert.equal(hit.kind, 'block');
      const b = run.blocks[hit.row];
      assert.ok(b.start <= hit.event && hit.event < b.end, 'the block is live at that event');
      assert.equal(hit.address, '0x' + b.address.toString(16));
      assert.equal(hit.size, b.size);
      // The block contains this height, within a pixel.
      if (high) {
        const below = live_after(hit.event).filter(row => row < hit.row).reduce((s, row) => s + run.blocks[row].size, 0), value = (1 - (y - box.y) / box.height) * high, pixel = high / box.height;
        assert.ok(value > below - pixel * 1.5 && value < below + b.size + pixel * 1.5, 'the block is at this height');
      }
      hits++;
    }
    assert.ok(hits > 20, `${hits} points hit blocks`);
  }
  // The outline is the total: above it there is no block, below it the topmost block.
  await page.evaluate('memtrack.show({axis: "step", from: 0, to: 300, bottom: 0, top: 2e9})');
  const box = await stage(page);
  for (const x of [0.2, 0.5, 0.9]) {
    const hit = await page.evaluate(([x, y]) => memtrack.hit(x, y), [box.x + x * box.width, box.y + 1]);
    const y = box.y + box.height * (1 - total(hit.event) / 2e9);
    const [over, under] = await page.evaluate(([x, y]) => [memtrack.hit(x, y - 3), memtrack.hit(x, y + 2)], [box.x + x * box.width, y]);
    assert.equal(over.kind, 'nothing');
    const below = live_after(under.event).filter(row => row < under.row).reduce((s, row) => s + run.blocks[row].size, 0), value = 2e9 * (1 - (y + 2 - box.y) / box.height);
    assert.ok(under.kind === 'block' && Math.abs(value - below - under.size / 2) < under.size / 2 + 2e9 / box.height, 'the block at this height');
  }
  await clean();
});

test('wheel, drag, double click and keys move the picture', async () => {
  const {page, clean} = await open(browser, file);
  const box = await stage(page), x = box.x + box.width / 2, y = box.y + box.height / 2;
  const window = async () => { await settled(page); const s = await state(page); return [Number(s.from ?? NaN), Number(s.to ?? NaN), Number(s.top ?? 0)]; };
  await page.mouse.move(x, y);
  for (let i = 0; i < 8; i++) await page.mouse.wheel(0, -120);
  const [a, b, top] = await window();
  assert.ok(b > a && top === 0, 'the wheel zooms in time alone');
  await page.mouse.down();
  await page.mouse.move(x + 120, y, {steps: 4});
  await page.mouse.up();
  const [c, d] = await window();
  assert.ok(c < a && Math.abs(d - c - (b - a)) < (b - a) / 1e6, 'a drag moves and does not zoom');
  assert.equal((await state(page)).block, undefined, 'a drag pins nothing');
  await page.keyboard.down('Shift');
  for (let i = 0; i < 5; i++) await page.mouse.wheel(0, -120);
  await page.keyboard.up('Shift');
  const [e, f, high] = await window();
  assert.deepEqual([e, f], [c, d]);
  assert.ok(high > 0, 'the wheel with shift zooms in bytes');
  await page.keyboard.press('ArrowRight');
  assert.ok((await window())[0] > e);
  await page.keyboard.press('+');
  const [g, k] = await window();
  assert.ok(k - g < f - e);
  await page.keyboard.press('0');
  assert.deepEqual((await window()).map(Number.isNaN), [true, true, false], '0 shows everything');
  assert.equal((await window())[2], 0);
  await page.mouse.dblclick(x, y);
  await page.waitForTimeout(900);
  assert.ok((await state(page)).from, 'a double click zooms in');
  assert.ok((await page.evaluate('memtrack.paint()')).count > 5);
  assert.deepEqual(await page.evaluate('memtrack.paint()'), {count: 0, worst_ms: 0});
  await clean();
});

test('the brush of the minimap chooses the window', async () => {
  const {page, clean} = await open(browser, file);
  const box = await page.locator('.minimap').first().boundingBox();
  // A drag outside the selection creates a new one. Initially everything is selected, so the window is narrowed first.
  await page.evaluate('memtrack.show({axis: "step", from: 100, to: 600})');
  await page.mouse.move(box.x + box.width * 0.5, box.y + 20);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width * 0.75, box.y + 20, {steps: 5});
  await page.mouse.up();
  await settled(page);
  const {from, to} = await state(page);
  assert.ok(Math.abs(from / run.events - 0.5) < 0.02 && Math.abs(to / run.events - 0.75) < 0.02, `${from} to ${to}`);
  await clean();
});

test('a click pins a block and shows its details, and Escape unpins it', async () => {
  const {page, clean} = await open(browser, file);
  await page.evaluate('memtrack.show({axis: "step", from: 0, to: 700, color: "stack"})');
  const box = await stage(page), at = [box.x + box.width * 0.7, box.y + box.height - 8];
  const hit = await page.evaluate(([x, y]) => memtrack.hit(x, y), at), block = run.blocks[hit.row];
  await page.mouse.click(...at);
  await settled(page);
  assert.equal((await state(page)).block, String(hit.row));
  const panel = await page.locator('.panel').innerText();
  assert.match(panel, new RegExp('0x' + block.address.toString(16)));
  assert.match(panel, new RegExp(`${block.size.toLocaleString('en-US')} bytes`));
  assert.match(panel, /3 internal frames/);
  await page.locator('.panel .fold button').first().click();
  assert.match(await page.locator('.panel').innerText(), /_PyEval_EvalFrameDefault/);
  await page.keyboard.press('Escape');
  await settled(page);
  assert.equal((await state(page)).block, undefined);
  assert.doesNotMatch(await page.locator('.panel').innerText(), /Block of/);
  await clean();
});

test('keys select tabs, the peak, out-of-memory events and blocks', async () => {
  const {page, clean} = await open(browser, file);
  const totals = [];
  for (let e = -1, sum = 0; e < run.events; e++) {
    for (const b of run.blocks) if (e === -1 && b.start === -1) sum += b.size;
    totals.push(sum);
  }
  await page.keyboard.press('p');
  await settled(page);
  const peak = Number((await state(page)).event), high = await page.evaluate(e => memtrack.allocatedAt(0, e), peak);
  for (const e of [peak - 1, peak + 1, 100, 2000, run.events - 1]) assert.ok(high >= await page.evaluate(e => memtrack.allocatedAt(0, e), e));
  await page.keyboard.press('o');
  await settled(page);
  assert.equal(Number((await state(page)).event), run.head.devices[0].ooms[0]);
  assert.match(await page.locator('.panel').innerText(), /out of memory[^]*512\.0 MiB/);
  await page.keyboard.press('k');
  await settled(page);
  assert.equal((await state(page)).block, String(live_after(run.head.devices[0].ooms[0])[0]));
  await page.keyboard.press('k');
  await settled(page);
  assert.equal((await state(page)).block, String(live_after(run.head.devices[0].ooms[0])[1]));
  for (const [key, view] of [['2', 'pools'], ['3', 'segments'], ['4', 'state'], ['5', 'flame'], ['7', 'categories'], ['6', 'settings']]) {
    await page.keyboard.press(key);
    await settled(page);
    assert.equal((await state(page)).view, view);
    assert.equal(await page.locator('header [role=tab][aria-selected=true]').count(), 1);
  }
  await page.locator('header [role=tab][aria-selected=true]').focus();
  await page.keyboard.press('ArrowRight');
  await settled(page);
  assert.equal((await state(page)).view, undefined, 'the tabs wrap around');
  await page.keyboard.press('a');
  await settled(page);
  assert.equal((await state(page)).axis, 'step');
  await page.keyboard.press('?');
  assert.ok(await page.locator('dialog.help').isVisible());
  await page.keyboard.press('Escape');
  assert.ok(!await page.locator('dialog.help').isVisible());
  await clean();
});

test('a link restores the state', async () => {
  const {page, clean} = await open(browser, file);
  await page.evaluate('memtrack.show({axis: "step", from: 100, to: 400, event: 250, block: 20, color: "size", view: "pools"})');
  await settled(page);
  const fragment = await page.evaluate('location.hash'), first = await state(page);
  const again = await open(browser, file, {fragment});
  await settled(again.page);
  assert.deepEqual(await state(again.page), first);
  assert.match(await again.page.locator('.panel').innerText(), /Block of/);
  await clean();
  await again.clean();
  const invalid = await open(browser, file, {fragment: '#view=x&from=abc&to=1e999&event=99999999&block=-4&filter={&device=%00&color=1'});
  await settled(invalid.page);
  assert.equal(await invalid.page.evaluate('memtrack.hit(500, 500).kind') !== undefined, true);
});

test('a click on a sentence of the overview shows its subject', async () => {
  const {page, clean} = await open(browser, file);
  const sentences = page.locator('.glance button');
  assert.equal(await sentences.count(), 4);
  await sentences.first().click();
  await settled(page);
  assert.equal(Number((await state(page)).event), run.head.devices[0].first[0].show.event);
  await clean();
});

test('bands with their names are above the picture', async () => {
  const {page, clean} = await open(browser, file);
  await page.waitForFunction('document.querySelector(".lanes").clientHeight > 20');
  const box = await page.locator('.lanes').first().boundingBox();
  const names = new Set();
  for (let i = 0; i < 150; i++) {
    const hit = await page.evaluate(([x, y]) => memtrack.hit(x, y), [box.x + (i / 150) * box.width, box.y + 5]);
    if (hit?.kind === 'band') names.add(hit.name);
  }
  assert.ok(names.has('forward') && names.has('backward') && names.has('optimizer'), [...names].join());
  await clean();
});

test('hostile names are shown as text', async () => {
  const name = '<img src=x onerror=alert(1)>"\'\u0007\u202e', parts = training(500, 20);
  parts.head.name = name;
  parts.head.devices[0] = {...parts.head.devices[0], name, categories: [name, name, name, name], pools: [name, name], first: [{title: name, text: name, show: null}], markers: [{event: 3, name}]};
  const hostile = path.join(folder, 'hostile.html');
  fs.writeFileSync(hostile, html(parts));
  const {page, clean} = await open(browser, hostile, {scheme: 'dark'});
  for (const view of ['categories', 'pools', 'segments', 'state', 'flame', 'settings', 'timeline']) await page.evaluate(view => memtrack.show({view}), view);
  await page.evaluate('memtrack.show({block: 3})');
  await settled(page);
  assert.equal(await page.locator('img').count(), 0);
  assert.match(await page.locator('h1').innerText(), /<img src=x onerror=alert\(1\)>"'␇/);
  await clean();
});

test('a file without memory, or without events, has an explanation', async () => {
  const none = path.join(folder, 'none.html'), still = path.join(folder, 'still.html');
  const texts = training(100, 10).sections[0];
  const head = {...run.head, has_time: false, devices: []};
  fs.writeFileSync(none, html({head, sections: [texts]}));
  const empty = await open(browser, none, {wait: false});
  assert.match(await empty.page.locator('main').innerText(), /contains no memory/);
  await empty.clean();
  const blocks = [{start: -1, end: 0, size: 5 << 20, address: 4096n}];
  const events = training(10, 10).sections[2].map(c => (c.name === 'threads' ? c : {...c, values: []})).filter(c => c.name !== 'time');
  const device = device_head({events: 0, blocks: 1, segments: 1, sections: {texts: 0, blocks: 1, events: 2, segments: 3, bands: 4}});
  fs.writeFileSync(still, html({head: {...head, devices: [device]}, sections: [texts, element_columns(blocks, 0, 'blocks'), events, element_columns(blocks, 0, 'segments'), training(10, 10).sections[4].map(c => ({...c, values: []}))]}));
  const {page, clean} = await open(browser, still);
  await settled(page);
  assert.match(await page.locator('.panel').innerText(), /No events were recorded/);
  const box = await stage(page);
  assert.equal((await page.evaluate(([x, y]) => memtrack.hit(x, y), [box.x + box.width / 2, box.y + box.height / 2])).row, 0);
  for (const view of ['categories', 'pools', 'segments', 'state', 'flame', 'settings']) await page.evaluate(view => memtrack.show({view}), view);
  await clean();
});

test('another device is shown at the same time on the same clock', async () => {
  // The second device has the same events, at half the speed.
  const parts = training(800, 20), [texts, blocks, events, segments, bands] = parts.sections;
  const slow = events.map(c => (c.name === 'time' ? {...c, values: c.values.map(t => 2 * t)} : c));
  const first = parts.head.devices[0], second = {...first, name: 'host heap', kind: 'heap', ordinal: 1, sections: {texts: 0, blocks: 5, events: 6, segments: 7, bands: 8}};
  const both = path.join(folder, 'both.html');
  fs.writeFileSync(both, html({head: {...parts.head, devices: [first, second]}, sections: [texts, blocks, events, segments, bands, blocks, slow, segments, bands]}));
  const {page, clean} = await open(browser, both), time = events.find(c => c.name === 'time').values, at = time[400];
  await page.evaluate(at => memtrack.show({event: 400, from: at - 2000, to: at + 2000}), at);
  await page.evaluate('memtrack.show({device: "host heap"})');
  await settled(page);
  const seen = await state(page);
  assert.deepEqual([Number(seen.from), Number(seen.to)], [at - 2000, at + 2000]);
  assert.equal(Number(seen.event), time.filter(t => 2 * t <= at).length - 1);
  assert.ok(Number(seen.event) < 400);
  await clean();
});

test('a process has texts of its own', async () => {
  const parts = training(800, 20), [texts, blocks, events, segments, bands] = parts.sections;
  const others = texts.map(c => (c.name === 'strings' ? {...c, values: c.values.map(s => s && `other ${s}`)} : c));
  const first = parts.head.devices[0], second = {...first, name: 'device 0 of process 7', sections: {texts: 5, blocks: 6, events: 7, segments: 8, bands: 9}};
  const both = path.join(folder, 'processes.html');
  fs.writeFileSync(both, html({head: {...parts.head, devices: [first, second]}, sections: [texts, blocks, events, segments, bands, others, blocks, events, segments, bands]}));
  const {page, clean} = await open(browser, both);
  const shown = async device => {
    await page.evaluate(device => memtrack.show({device, view: 'timeline', block: 3}), device);
    await settled(page);
    return page.locator('.panel').innerText();
  };
  assert.doesNotMatch(await shown('device 0'), /other /);
  assert.match(await shown('device 0 of process 7'), /other /);
  for (const view of ['flame', 'state', 'timeline']) await page.evaluate(view => memtrack.show({view}), view);
  assert.doesNotMatch(await shown('device 0'), /other /);
  await clean();
});

test('an unsupported browser and a damaged page have error messages', async () => {
  const page = await browser.newPage();
  await page.addInitScript('delete window.DecompressionStream');
  await page.goto('file://' + file);
  assert.match(await page.locator('main').innerText(), /DecompressionStream/);
  const broken = path.join(folder, 'broken.html');
  fs.writeFileSync(broken, html(run).replace(/(memtrack-section-1">[^<]{4000})[^<]*/, '$1'));
  const cut = await browser.newPage();
  await cut.goto('file://' + broken);
  await cut.waitForSelector('.alarm:not([hidden])');
  assert.match(await cut.locator('.alarm').innerText(), /cannot show all of the file: a table of this page/);
});

test('a served page fetches its tables on demand, and reports an unreachable server', async () => {
  const {html: text, sections} = served(run), requests = [];
  const server = http.createServer((request, answer) => {
    const n = /^\/token\/section\/(\d+)$/.exec(request.url)?.[1];
    if (request.url !== '/token/' && n === undefined) return void answer.writeHead(404).end();
    if (n !== undefined) requests.push(Number(n));
    answer.end(n === undefined ? text : sections[n]);
  });
  await new Promise(done => server.listen(0, '127.0.0.1', done));
  const page = await browser.newPage(), errors = [];
  page.on('pageerror', e => errors.push(e.stack));
  await page.goto(`http://127.0.0.1:${server.address().port}/token/`);
  await page.evaluate('memtrack.ready');
  assert.equal((await page.evaluate('memtrack.blocksAt(0, 3000)')).length, live_after(3000).length);
  assert.deepEqual([...requests].sort().filter((n, i, all) => all.indexOf(n) !== i), [], 'no table is fetched twice');
  assert.ok(requests.includes(1) && requests.includes(2));
  await page.waitForTimeout(500);
  const offline = await browser.newPage();
  await offline.route('**/section/1', route => route.abort());
  await offline.goto(`http://127.0.0.1:${server.address().port}/token/`);
  await offline.waitForSelector('.alarm:not([hidden])');
  assert.match(await offline.locator('.alarm').innerText(), /does not respond; is .memtrack view --serve. still running/);
  server.closeAllConnections();
  server.close();
  assert.deepEqual(errors, []);
});

test('points correspond to pixels on a high-resolution screen', async () => {
  const page = await browser.newPage({viewport: {width: 1000, height: 700}, deviceScaleFactor: 2});
  await page.goto('file://' + file);
  await page.evaluate('memtrack.ready');
  await page.evaluate('memtrack.show({axis: "step", from: 0, to: 300, bottom: 0, top: 2e9})');
  const box = await stage(page), hit = await page.evaluate(([x, y]) => memtrack.hit(x, y), [box.x + box.width * 0.6, box.y + box.height * 0.95]);
  const below = live_after(hit.event).filter(row => row < hit.row).reduce((s, row) => s + run.blocks[row].size, 0), value = 2e9 * 0.05;
  assert.ok(Math.abs(value - below - hit.size / 2) <= hit.size / 2 + 2e9 / box.height);
  assert.equal(await page.evaluate('document.querySelector(".picture").width'), 2 * await page.evaluate('document.querySelector(".picture").clientWidth'));
});
