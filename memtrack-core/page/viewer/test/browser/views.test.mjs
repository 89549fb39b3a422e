// The state history, the search, the flame graph, the groups and the settings of a page. The file is a made-up training run, of
// which the blocks are known, so that counts can be compared with a look at every block; MEMTRACK_PAGES="A.html B.html" adds
// pages of real files, for what holds of any.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import {after, before, test as named} from 'node:test';
import {launch, open} from './browser.mjs';
import {page as html, training} from './made.mjs';

const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'memtrack-views-'));
const made = training(20_000, 200);
const files = [{file: path.join(folder, 'made.html'), made}, ...(process.env.MEMTRACK_PAGES ?? '').split(' ').filter(Boolean).map(file => ({file, made: null}))];
let browser;

before(async () => {
  fs.writeFileSync(files[0].file, html(made));
  browser = await launch();
});
after(async () => {
  await browser?.close();
  fs.rmSync(folder, {recursive: true});
});

for (const {file, made} of files) {
  named(`the views of ${path.basename(file)}`, async t => {
    const {page, clean} = await open(browser, file);
    await checks(page, made, (name, body) => t.test(name, async () => {
      await body();
      await clean();
    }));
    await page.close();
  });
}

async function checks(page, made, test) {
  const show = change => page.evaluate(c => memtrack.show(c), change);
  const events = await page.evaluate('memtrack.devices().length ? memtrack.events(0) : 0');
  const visible = selector => page.locator(`.views > section:not([hidden]) ${selector}`);
  /** What the state history says, and what the tables do. */
  const state = () => page.evaluate(async () => {
    const event = Number(document.querySelector('.st-goto').value), device = memtrack.devices()[0], blocks = await memtrack.blocksAt(device, event);
    const exact = text => Number((/\(([\d,]+) bytes\)/.exec(text)?.[1] ?? /^([\d,]+) /.exec(text)?.[1] ?? '0').replaceAll(',', ''));
    const said = document.querySelector('.st-allocated');
    return {event, said_bytes: exact(said.title), said_blocks: Number(/in ([\d,]+) block/.exec(said.textContent)?.[1].replaceAll(',', '') ?? NaN),
      bytes: await memtrack.allocatedAt(device, event), blocks: blocks.length, current: document.querySelector('.ev-row.current .c-event')?.textContent.replaceAll(',', '').replace('−', '-')};
  });
  const agree = async event => {
    let s = await state();
    // What the browser says of a changed height comes with the next frame, which a loaded machine lets wait.
    for (let i = 1; i < 60 && Number(s.current) !== s.event; i++) {
      await page.waitForTimeout(50);
      s = await state();
    }
    if (event !== undefined) assert.equal(s.event, event);
    assert.equal(s.said_blocks, s.blocks);
    assert.equal(s.said_bytes, s.bytes);
    assert.equal(Number(s.current), s.event);
    return s.event;
  };
  /** Every block that the map shows somewhere is live, at the size and in the state that the tables say; how many there are. */
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

  await test('settings are shown, or words', async () => {
    await show({view: 'settings'});
    assert.ok((await visible('.se-card').count()) >= 2);
    assert.match(await visible('').first().innerText(), /Allocator settings[^]*File/);
  });

  if (events === 0) return;
  const some = [-1, 0, events - 1, ...Array.from({length: 25}, (_, i) => Math.floor(((i * 7919 + 13) % 1000) / 1000 * events))];
  await test('the state history shows what the tables say, at any event, forward and back', async () => {
    await show({view: 'state'});
    for (const event of some) {
      await show({event});
      await agree(event);
    }
    await show({event: Math.min(events - 1, Math.floor(events / 2))});
    let at = await agree();
    for (const key of [...Array(15).fill('ArrowDown'), ...Array(30).fill('ArrowUp'), ...Array(15).fill('ArrowDown')]) {
      await page.keyboard.press(key);
      at = await agree(Math.max(-1, Math.min(events - 1, at + (key === 'ArrowDown' ? 1 : -1))));
    }
  });
  await test('every block on the map is live as the tables have it, and free memory is told from blocks', async () => {
    for (const event of [some[5], some[9], -1, events - 1]) {
      await show({view: 'state', event});
      const {bad, seen, live, kinds} = await hits();
      assert.deepEqual(bad, []);
      if (live > 0) assert.ok(seen > 0, JSON.stringify(kinds));
    }
  });
  await test('the state history is used by keys alone', async () => {
    await page.keyboard.press('4');
    assert.ok(await page.locator('.state-view').isVisible());
    await page.keyboard.press('Home');
    await agree(-1);
    await page.keyboard.press('End');
    await agree(events - 1);
    // The numbers above the list take a line less before the first event, and a line more at the end: within one frame the
    // list's height changes and changes back.
    for (let i = 0; i < 40; i++) {
      await page.keyboard.press('Home');
      await page.keyboard.press('End');
      await agree(events - 1);
    }
    await page.keyboard.press('PageUp');
    const up = await agree();
    assert.ok(up < events - 1 || events < 3);
    await page.keyboard.press('g');
    await page.keyboard.type(String(Math.floor(events / 3)));
    await page.keyboard.press('Enter');
    await agree(Math.floor(events / 3));
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
  await test('a click on an event and on a block selects it', async () => {
    await show({view: 'state', event: Math.floor(events / 2), block: null});
    const rows = page.locator('.ev-row:not([hidden])'), row = rows.nth(Math.min(4, await rows.count() - 1)), event = Number((await row.locator('.c-event').innerText()).replaceAll(',', '').replace('−', '-'));
    await row.click();
    await agree(event);
    const point = await page.evaluate(() => {
      const box = document.querySelector('.map-scroll').getBoundingClientRect();
      // A mouse is at whole pixels.
      for (let y = Math.ceil(box.top) + 8; y < box.bottom; y += 10) for (let x = Math.ceil(box.left) + 1; x < box.right; x += 2) if (memtrack.hit(x, y)?.kind === 'block') return {x, y, row: memtrack.hit(x, y).row};
      return null;
    });
    if (!point) return;
    await page.mouse.click(point.x, point.y);
    await page.waitForTimeout(400);
    assert.match(await page.evaluate('location.hash'), new RegExp(`block=${point.row}(&|$)`));
    await show({block: null});
  });
  await test('a list of a few events is stepped through as it is', async () => {
    await show({view: 'state', event: Math.floor(events / 2)});
    await page.selectOption('.st-listed', 'segments');
    const said = await page.locator('.st-listed-note').innerText();
    if (!said.startsWith('0 ')) {
      await page.keyboard.press('End');
      assert.match(await page.locator('.ev-row.current .c-action').innerText(), /^segment_/);
    }
    await page.selectOption('.st-listed', 'all');
    assert.equal(await page.locator('.st-listed-note').innerText(), '');
  });
  await test('the flame graph holds all that is live, zooms in and out, by pointer and by keys', async () => {
    await show({view: 'flame', event: Math.floor(events / 2)});
    // Where the last event is selected the peak is shown at first.
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
  await test('a wrong pattern is said in words', async () => {
    await page.keyboard.press('/');
    await page.keyboard.type('a[');
    await page.waitForFunction(() => document.querySelector('.sb-said').textContent.startsWith('This is not a regular expression'));
    await page.keyboard.press('Escape');
    await page.waitForFunction(() => document.querySelector('.sb-said').textContent === '');
    await page.keyboard.press('Escape');
  });
  await test('the first block’s address is found, and Enter goes through its events', async () => {
    await show({view: 'state', event: Math.floor(events / 2)});
    const first = (await page.evaluate(async e => await memtrack.blocksAt(memtrack.devices()[0], e), Math.floor(events / 2)))[0];
    if (!first) return;
    await page.keyboard.press('/');
    await page.keyboard.type(first.address);
    await page.waitForFunction(() => Number(document.querySelector('.sb-said').dataset.blocks) > 0);
    await page.keyboard.press('Enter');
    await page.keyboard.press('Escape');
    await page.keyboard.press('Escape');
    await page.waitForFunction(() => document.querySelector('.sb-said').textContent === '');
  });
  await test('a group’s click finds its blocks, a second one lets go', async () => {
    await show({view: 'timeline', event: Math.floor(events / 2)});
    await page.keyboard.press('d');
    const group = page.locator('.gr-item:not([disabled])').first();
    await page.waitForFunction(() => document.querySelector('.gr-sum').textContent !== '');
    if (await group.count()) {
      const live = Number((await group.locator('.gr-blocks').innerText()).replace(/\D/g, ''));
      await group.click();
      await page.waitForFunction(n => document.querySelector('.sb-said').dataset.live === String(n) && document.querySelector('.sb-said').textContent !== '', live);
      await page.waitForFunction(() => document.querySelector('.gr-item[aria-pressed=true]'));
      await group.click();
      await page.waitForFunction(() => document.querySelector('.sb-said').textContent === '');
    }
    await page.keyboard.press('d');
  });
  if (!made) return;

  const {blocks} = made, column = name => made.sections[0].find(c => c.name === name).values, strings = column('strings');
  const stacks = [];
  column('stack_length').reduce((from, n) => (stacks.push(column('stack_frames').slice(from, from + n)), from + n), 0);
  const names = stacks.map(frames => frames.map(f => strings[column('frame_name')[f]])), files = stacks.map(frames => frames.map(f => strings[column('frame_file')[f]]));
  const scope = made.sections[2].find(c => c.name === 'scope').values;
  const live = (block, event) => block.start <= event && event < block.end;
  await test('live counts of a search are those of a look at every block', async () => {
    const event = 9000;
    await show({view: 'timeline', event, query: '', filter: {}});
    const cases = [['^op_17$', b => names[b.stack ?? 0].includes('op_17')], ['model_[12]\\.py:', b => files[b.stack ?? 0].some(f => /model_[12]\.py/.test(f))],
      ['category:^gradients$', b => b.category === 3], ['scope:Adam', b => b.start >= 0 && scope[b.start] === 4], ['<script>', b => names[b.stack ?? 0].some(n => n.includes('<script>')) || blocks.indexOf(b) === 3],
      ['pool:0, 1', b => b.pool === 2], ['Op_17', () => false]];
    for (const [query, yes] of cases) {
      await page.keyboard.press('/');
      await page.keyboard.type(query);
      const want = blocks.filter(yes), now = want.filter(b => live(b, event));
      await page.waitForFunction(q => document.querySelector('.sb-said').textContent !== 'searching …' && decodeURIComponent(location.hash.replaceAll('+', ' ')).includes(q), `query=${query}`);
      const said = await page.evaluate(() => ({...document.querySelector('.sb-said').dataset}));
      assert.deepEqual([Number(said.blocks), Number(said.live), Number(said.liveBytes)], [want.length, now.length, now.reduce((n, b) => n + b.size, 0)], query);
      await page.keyboard.press('Escape');
      await page.keyboard.press('Escape');
      await page.waitForFunction(() => document.querySelector('.sb-said').textContent === '');
    }
  });
  await test('next and previous go from match to match', async () => {
    await show({view: 'state', query: 'op_17', block: null});
    const rows = blocks.map((b, row) => [b, row]).filter(([b]) => names[b.stack ?? 0].some(n => /op_17/.test(n))).map(([, row]) => row);
    for (let i = 0; i < 5; i++) {
      await page.keyboard.press('n');
      await page.waitForFunction(text => document.querySelector('.sb-place').textContent === text, `${i + 1} / ${rows.length.toLocaleString('en-US')}`);
      await agree(blocks[rows[i]].start);
    }
    await page.keyboard.press('N');
    await page.waitForFunction(text => document.querySelector('.sb-place').textContent.startsWith(text), '4 /');
    await show({query: '', block: null});
  });
  await test('the filter is put together by hand, shown as chips, and taken away', async () => {
    await page.click('.sb-filter');
    await page.fill('[aria-label="Least size"]', '1 MiB');
    await page.keyboard.press('Enter');
    const wait = yes => page.waitForFunction(n => Number(document.querySelector('.sb-said').dataset.blocks) === n && document.querySelector('.sb-said').textContent !== '', blocks.filter(yes).length);
    await wait(b => b.size >= 1 << 20);
    await page.click('[aria-label="only gradients"]', {force: true});
    await wait(b => b.size >= 1 << 20 && b.category === 3);
    assert.deepEqual(await page.locator('.chip-text').allInnerTexts(), ['size ≥ 1.0 MiB', 'category gradients']);
    await page.keyboard.press('Escape');
    await page.click('[aria-label="Remove the filter size ≥ 1.0 MiB"]');
    await wait(b => b.category === 3);
    await page.click('.chip-x');
    await page.waitForFunction(() => document.querySelector('.sb-said').textContent === '' && !document.querySelector('.chip'));
  });
  await test('with an address Enter goes from each of its events to the next', async () => {
    await show({view: 'state', event: 100, block: null});
    const address = blocks[400].address, of = [];
    for (const b of blocks) if (b.address === address) of.push(...[b.start, b.pending, b.end].filter(e => e !== undefined && e >= 0 && e < made.events));
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
  await test('what is hostile in names stays text', async () => {
    await show({view: 'flame', query: '<script>'});
    assert.equal(await page.locator('main script, main img').count(), 0);
    await show({query: ''});
  });
}
