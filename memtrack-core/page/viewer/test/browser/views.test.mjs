// The state history, the search, the flame graph, the groups and the settings of a page. The file is a synthetic training run
// with known blocks, so that counts can be compared with a scan of all blocks; MEMTRACK_PAGES="A.html B.html" adds pages of real
// files, for the tests that apply to any file.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import {after, before, test as top_level} from 'node:test';
import {launch, open} from './browser.mjs';
import {page as html, training} from './made.mjs';

const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'memtrack-views-'));
const synthetic = training(20_000, 200);
const files = [{file: path.join(folder, 'synthetic.html'), synthetic}, ...(process.env.MEMTRACK_PAGES ?? '').split(' ').filter(Boolean).map(file => ({file, synthetic: null}))];
let browser;

before(async () => {
  fs.writeFileSync(files[0].file, html(synthetic));
  browser = await launch();
});
after(async () => {
  await browser?.close();
  fs.rmSync(folder, {recursive: true});
});

for (const {file, synthetic} of files) {
  top_level(`the views of ${path.basename(file)}`, async t => {
    const {page, clean} = await open(browser, file);
    await checks(page, synthetic, (name, body) => t.test(name, async () => {
      await body();
      await clean();
    }));
    await page.close();
  });
}

async function checks(page, synthetic, test) {
  const show = change => page.evaluate(c => memtrack.show(c), change);
  const events = await page.evaluate('memtrack.devices().length ? memtrack.events(0) : 0');
  const visible = selector => page.locator(`.views > section:not([hidden]) ${selector}`);
  /** Returns the numbers of the state history, and those of the tables. */
  const state = () => page.evaluate(async () => {
    const event = Number(document.querySelector('.st-goto').value), device = memtrack.devices()[0], blocks = await memtrack.blocksAt(device, event);
    const exact = text => Number((/\(([\d,]+) bytes\)/.exec(text)?.[1] ?? /^([\d,]+) /.exec(text)?.[1] ?? '0').replaceAll(',', ''));
    const allocated = document.querySelector('.st-allocated');
    return {event, shown_bytes: exact(allocated.title), shown_blocks: Number(/in ([\d,]+) block/.exec(allocated.textContent)?.[1].replaceAll(',', '') ?? NaN),
      bytes: await memtrack.allocatedAt(device, event), blocks: blocks.length, current: document.querySelector('.ev-row.current .c-event')?.textContent.replaceAll(',', '').replace('−', '-')};
  });
  const check_state = async event => {
    let s = await state();
    // The browser reports a changed height with the next frame, which may be late on a loaded machine.
    for (let i = 1; i < 60 && Number(s.current) !== s.event; i++) {
      await page.waitForTimeout(50);
      s = await state();
    }
    if (event !== undefined) assert.equal(s.event, event);
    assert.equal(s.shown_blocks, s.blocks);
    assert.equal(s.shown_bytes, s.bytes);
    assert.equal(Number(s.current), s.event);
    return s.event;
  };
  /** Compares the blocks on the map with the live blocks of the tables: those that differ, and the number of the others. */
  const hits = () => page.evaluate(async () => {
    const box = document.querySelector('.map-scroll').getBoundingClientRect(), event = Number(document.querySelector('.st-goto').value);
    const live = new Map((await memtrack.blocksAt(memtrack.devices()[0], event)).map(b => [`${b.address} ${b.size} ${b.pending}`, b])), bad = [], seen = new Set(), kinds = {};
    for (let y = box.top + 2; y < box.bottom; y += 5) for (let x = box.left + 1; x < box.right; x += 1) {
      const hit = memtrack.hit(x, y);
      if (!hit) continue;
      kinds[hit.kind] = (kinds[hit.kind] ?? 0) + 1;
      if (hit.kind !== 'block') continue;
      const key = `${hit.address} ${hit.size} ${hit.pending}`;
      if (live.has(key)) seen.add(key); else bad.push(key);
    }
    return {bad: bad.slice(0, 5), seen: seen.size, live: live.size, kinds};
  });

  await test('settings are shown, or a note that there are none', async () => {
    await show({view: 'settings'});
    assert.ok((await visible('.se-card').count()) >= 2);
    assert.match(await visible('').first().innerText(), /Allocator settings[^]*File/);
  });

  if (events === 0) return;
  const some = [-1, 0, events - 1, ...Array.from({length: 25}, (_, i) => Math.floor(((i * 7919 + 13) % 1000) / 1000 * events))];
  await test('the state history agrees with the tables at any event, forward and back', async () => {
    await show({view: 'state'});
    for (const event of some) {
      await show({event});
      await check_state(event);
    }
    await show({event: Math.min(events - 1, Math.floor(events / 2))});
    let at = await check_state();
    for (const key of [...Array(15).fill('ArrowDown'), ...Array(30).fill('ArrowUp'), ...Array(15).fill('ArrowDown')]) {
      await page.keyboard.press(key);
      at = await check_state(Math.max(-1, Math.min(events - 1, at + (key === 'ArrowDown' ? 1 : -1))));
    }
  });
  await test('every block on the map is live in the tables', async () => {
    for (const event of [some[5], some[9], -1, events - 1]) {
      await show({view: 'state', event});
      const {bad, seen, live, kinds} = await hits();
      assert.deepEqual(bad, []);
      if (live > 0) assert.ok(seen > 0, JSON.stringify(kinds));
    }
  });
  await test('keys control the state history', async () => {
    await page.keyboard.press('4');
    assert.ok(await page.locator('.state-view').isVisible());
    await page.keyboard.press('Home');
    await check_state(-1);
    await page.keyboard.press('End');
    await check_state(events - 1);
    // The totals above the list take a line less before the first event, and a line more at the end: the list's height changes
    // twice within one frame.
    for (let i = 0; i < 40; i++) {
      await page.keyboard.press('Home');
      await page.keyboard.press('End');
      await check_state(events - 1);
    }
    await page.keyboard.press('PageUp');
    const up = await check_state();
    assert.ok(up < events - 1 || events < 3);
    await page.keyboard.press('g');
    await page.keyboard.type(String(Math.floor(events / 3)));
    await page.keyboard.press('Enter');
    await check_state(Math.floor(events / 3));
    const pinned = async () => { await page.waitForTimeout(350); return /block=(\d+)/.exec(await page.evaluate('location.hash'))?.[1]; };
    if ((await state()).blocks > 1) {
      await page.keyboard.press('j');
      const first = await pinned();
      await page.keyboard.press('j');
      assert.notEqual(await pinned(), first);
      await page.keyboard.press('k');
      assert.equal(await pinned(), first);
      await page.keyboard.press('Escape');
      assert.equal(await pinned(), undefined);
    }
    await page.keyboard.press('p');
    const s = await state();
    for (const e of [0, events - 1, Math.floor(events / 2)]) assert.ok(s.bytes >= await page.evaluate(e => memtrack.allocatedAt(memtrack.devices()[0], e), e));
    await page.keyboard.press('+');
    await page.keyboard.press('-');
    await page.keyboard.press('0');
  });
  await test('a click on an event or a block selects it', async () => {
    await show({view: 'state', event: Math.floor(events / 2), block: null});
    const rows = page.locator('.ev-row:not([hidden])'), row = rows.nth(Math.min(4, await rows.count() - 1)), event = Number((await row.locator('.c-event').innerText()).replaceAll(',', '').replace('−', '-'));
    await row.click();
    await check_state(event);
    const point = await page.evaluate(() => {
      const box = document.querySelector('.map-scroll').getBoundingClientRect();
      // The mouse has integer coordinates.
      for (let y = Math.ceil(box.top) + 8; y < box.bottom; y += 10) for (let x = Math.ceil(box.left) + 1; x < box.right; x += 2) if (memtrack.hit(x, y)?.kind === 'block') return {x, y, row: memtrack.hit(x, y).row};
      return null;
    });
    if (!point) return;
    await page.mouse.click(point.x, point.y);
    await page.waitForTimeout(400);
    assert.match(await page.evaluate('location.hash'), new RegExp(`block=${point.row}(&|$)`));
    await show({block: null});
  });
  await test('keys step through a list of some events', async () => {
    await show({view: 'state', event: Math.floor(events / 2)});
    await page.selectOption('.st-listed', 'segments');
    const note = await page.locator('.st-listed-note').innerText();
    if (!note.startsWith('0 ')) {
      await page.keyboard.press('End');
      assert.match(await page.locator('.ev-row.current .c-action').innerText(), /^segment_/);
    }
    await page.selectOption('.st-listed', 'all');
    assert.equal(await page.locator('.st-listed-note').innerText(), '');
  });
  await test('the flame graph has all live bytes, and zooms by pointer and by keys', async () => {
    await show({view: 'flame', event: Math.floor(events / 2)});
    // If the last event is selected, the graph first shows the peak.
    await page.selectOption('.fl-head select >> nth=0', 'live');
    const box = await page.locator('.fl-scroll').boundingBox(), total = await page.evaluate(e => memtrack.allocatedAt(memtrack.devices()[0], e), Math.floor(events / 2));
    const at = (x, depth) => page.evaluate(([x, y]) => memtrack.hit(x, y), [box.x + x, box.y + depth * 20 + 10]);
    if (total === 0) return;
    assert.equal((await at(5, 0)).size, total);
    const sums = [];
    for (let x = 0.5, before = null; x < box.width; x += 1) {
      const hit = await at(x, 1);
      if (hit && (hit.name !== before)) sums.push(hit.size);
      before = hit?.name ?? null;
    }
    assert.ok(sums.reduce((a, b) => a + b, 0) <= total && sums[0] >= total / 50);
    const first = await at(3, 1);
    await page.mouse.click(box.x + 3, box.y + 30);
    assert.equal((await at(box.width - 5, 1)).size, first.size);
    assert.ok((await page.locator('.fl-part').count()) > 1);
    await page.keyboard.press('Escape');
    assert.equal(await page.locator('.fl-part').count(), 1);
    for (const key of ['ArrowDown', 'ArrowDown', 'Enter']) await page.keyboard.press(key);
    assert.ok((await page.locator('.fl-part').count()) > 1);
    for (const key of ['Escape', 'Escape', 'ArrowUp', 'ArrowRight', 'ArrowLeft', 'i', 'Escape']) await page.keyboard.press(key);
    await page.selectOption('.fl-head select >> nth=1', 'blocks');
    assert.equal((await at(5, 0)).size, (await page.evaluate(async e => (await memtrack.blocksAt(memtrack.devices()[0], e)).length, Math.floor(events / 2))));
    await page.selectOption('.fl-head select >> nth=1', 'bytes');
  });
  await test('an invalid pattern has an error message', async () => {
    await page.keyboard.press('/');
    await page.keyboard.type('a[');
    await page.waitForFunction(() => document.querySelector('.sb-status').textContent.startsWith('This is not a regular expression'));
    await page.keyboard.press('Escape');
    await page.waitForFunction(() => document.querySelector('.sb-status').textContent === '');
    await page.keyboard.press('Escape');
  });
  await test('the search finds the first block’s address, and Enter steps through its events', async () => {
    await show({view: 'state', event: Math.floor(events / 2)});
    const first = (await page.evaluate(async e => await memtrack.blocksAt(memtrack.devices()[0], e), Math.floor(events / 2)))[0];
    if (!first) return;
    await page.keyboard.press('/');
    await page.keyboard.type(first.address);
    await page.waitForFunction(() => Number(document.querySelector('.sb-status').dataset.blocks) > 0);
    await page.keyboard.press('Enter');
    await page.keyboard.press('Escape');
    await page.keyboard.press('Escape');
    await page.waitForFunction(() => document.querySelector('.sb-status').textContent === '');
  });
  await test('a click on a group finds its blocks, and a second click clears the search', async () => {
    await show({view: 'timeline', event: Math.floor(events / 2)});
    await page.keyboard.press('d');
    const group = page.locator('.gr-item:not([disabled])').first();
    await page.waitForFunction(() => document.querySelector('.gr-sum').textContent !== '');
    if (await group.count()) {
      const live = Number((await group.locator('.gr-blocks').innerText()).replace(/\D/g, ''));
      await group.click();
      await page.waitForFunction(n => document.querySelector('.sb-status').dataset.live === String(n) && document.querySelector('.sb-status').textContent !== '', live);
      await page.waitForFunction(() => document.querySelector('.gr-item[aria-pressed=true]'));
      await group.click();
      await page.waitForFunction(() => document.querySelector('.sb-status').textContent === '');
    }
    await page.keyboard.press('d');
  });
  if (!synthetic) return;

  const {blocks} = synthetic, column = name => synthetic.sections[0].find(c => c.name === name).values, strings = column('strings');
  const stacks = [];
  column('stack_length').reduce((from, n) => (stacks.push(column('stack_frames').slice(from, from + n)), from + n), 0);
  const names = stacks.map(frames => frames.map(f => strings[column('frame_name')[f]])), files = stacks.map(frames => frames.map(f => strings[column('frame_file')[f]]));
  const scope = synthetic.sections[2].find(c => c.name === 'scope').values;
  const live = (block, event) => block.start <= event && event < block.end;
  await test('live counts of a search are those of a scan of all blocks', async () => {
    const event = 9000;
    await show({view: 'timeline', event, query: '', filter: {}});
    const cases = [['^op_17$', b => names[b.stack ?? 0].includes('op_17')], ['model_[12]\\.py:', b => files[b.stack ?? 0].some(f => /model_[12]\.py/.test(f))],
      ['category:^gradients$', b => b.category === 3], ['scope:Adam', b => b.start >= 0 && scope[b.start] === 4], ['<script>', b => names[b.stack ?? 0].some(n => n.includes('<script>')) || blocks.indexOf(b) === 3],
      ['pool:0, 1', b => b.pool === 2], ['Op_17', () => false]];
    for (const [query, matches] of cases) {
      await page.keyboard.press('/');
      await page.keyboard.type(query);
      const want = blocks.filter(matches), now = want.filter(b => live(b, event));
      await page.waitForFunction(q => document.querySelector('.sb-status').textContent !== 'searching …' && decodeURIComponent(location.hash.replaceAll('+', ' ')).includes(q), `query=${query}`);
      const counts = await page.evaluate(() => ({...document.querySelector('.sb-status').dataset}));
      assert.deepEqual([Number(counts.blocks), Number(counts.live), Number(counts.liveBytes)], [want.length, now.length, now.reduce((n, b) => n + b.size, 0)], query);
      await page.keyboard.press('Escape');
      await page.keyboard.press('Escape');
      await page.waitForFunction(() => document.querySelector('.sb-status').textContent === '');
    }
  });
  await test('next and previous select one match after another', async () => {
    await show({view: 'state', query: 'op_17', block: null});
    const rows = blocks.map((b, row) => [b, row]).filter(([b]) => names[b.stack ?? 0].some(n => /op_17/.test(n))).map(([, row]) => row);
    for (let i = 0; i < 5; i++) {
      await page.keyboard.press('n');
      await page.waitForFunction(text => document.querySelector('.sb-place').textContent === text, `${i + 1} / ${rows.length.toLocaleString('en-US')}`);
      await check_state(blocks[rows[i]].start);
    }
    await page.keyboard.press('N');
    await page.waitForFunction(text => document.querySelector('.sb-place').textContent.startsWith(text), '4 /');
    await show({query: '', block: null});
  });
  await test('the filter can be edited, and its chips remove conditions', async () => {
    await page.click('.sb-filter');
    await page.fill('[aria-label="Smallest size"]', '1 MiB');
    await page.keyboard.press('Enter');
    const wait = matches => page.waitForFunction(n => Number(document.querySelector('.sb-status').dataset.blocks) === n && document.querySelector('.sb-status').textContent !== '', blocks.filter(matches).length);
    await wait(b => b.size >= 1 << 20);
    await page.click('[aria-label="only gradients"]', {force: true});
    await wait(b => b.size >= 1 << 20 && b.category === 3);
    assert.deepEqual(await page.locator('.chip-text').allInnerTexts(), ['size ≥ 1.0 MiB', 'category gradients']);
    await page.keyboard.press('Escape');
    await page.click('[aria-label="Remove the filter size ≥ 1.0 MiB"]');
    await wait(b => b.category === 3);
    await page.click('.chip-x');
    await page.waitForFunction(() => document.querySelector('.sb-status').textContent === '' && !document.querySelector('.chip'));
  });
  await test('Enter goes through the events of an address', async () => {
    await show({view: 'state', event: 100, block: null});
    const address = blocks[400].address, of = [];
    for (const b of blocks) if (b.address === address) of.push(...[b.start, b.pending, b.end].filter(e => e !== undefined && e >= 0 && e < synthetic.events));
    of.sort((a, b) => a - b);
    await page.keyboard.press('/');
    await page.keyboard.type(`0x${address.toString(16)}`);
    for (const event of [...of.slice(0, 4)]) {
      await page.keyboard.press('Enter');
      await page.waitForFunction(e => document.querySelector('.st-goto').value === String(e), event);
    }
    await page.keyboard.press('Escape');
    await page.keyboard.press('Escape');
    await show({query: '', block: null});
  });
  await test('hostile names are shown as text', async () => {
    await show({view: 'flame', query: '<script>'});
    assert.equal(await page.locator('main script, main img').count(), 0);
    await show({query: ''});
  });
}
