// The page of `memtrack ranks -o` in a browser: pointing, keys, links, colours, and without scripts.
// MEMTRACK is the path of the command; without it the tests are skipped.
import assert from 'node:assert/strict';
import {execFileSync} from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import {pathToFileURL} from 'node:url';
import {after, before, test} from 'node:test';
import {launch} from './browser.mjs';

const memtrack = process.env.MEMTRACK, skip = memtrack ? false : 'MEMTRACK is not set';
const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'memtrack-ranks-'));
const MIB = 1 << 20, hostile = '</script><script>window.ran=1</script><img src=x onerror="window.ran=1">\u202e';
let browser;

// Ranks that allocate and free 100 MiB in each of six steps; one retains 10 MiB more after each step except the first two.
function write(name, count, odd, more = []) {
  const run = path.join(folder, name);
  fs.mkdirSync(run);
  for (let rank = 0; rank < count; rank++) {
    let time = 1e15;
    const events = [], annotations = [];
    const event = (action, addr, size, line) => events.push({action, addr, size, stream: 0, time_us: time += 500, frames: [{name: `f ${hostile}`, filename: '/job/train.py', line}]});
    for (let step = 0; step < 6; step++) {
      annotations.push({name: `ProfilerStep#${step}`, stage: 'START', device: 0, time_us: ++time});
      event('alloc', 4096, 100 * MIB, 7);
      if (rank === odd && step >= 2) event('alloc', (step + 1) * 1e9, 10 * MIB, 88);
      for (const action of ['free_requested', 'free_completed']) event(action, 4096, 100 * MIB, 7);
      annotations.push({name: `ProfilerStep#${step}`, stage: 'END', device: 0, time_us: ++time});
    }
    fs.writeFileSync(path.join(run, `rank${rank}.json`), JSON.stringify({segments: [], device_traces: [events], allocator_settings: {}, external_annotations: annotations}));
  }
  const page = path.join(folder, `${name}.html`);
  execFileSync(memtrack, ['ranks', path.join(run, '*.json'), '-o', page, ...more], {stdio: 'pipe'});
  return page;
}

async function open(file, options = {}) {
  const context = await browser.newContext({viewport: {width: 1280, height: 800}, reducedMotion: 'reduce', ...options});
  const page = await context.newPage(), errors = [];
  page.on('console', m => ['error', 'warning'].includes(m.type()) && errors.push(m.text()));
  page.on('pageerror', e => errors.push(e.stack));
  page.on('request', r => /^(file|data|blob):/.test(r.url()) || errors.push(`request ${r.url()}`));
  await page.goto(pathToFileURL(file).href);
  return {page, clean: () => assert.deepEqual(errors, [])};
}
const status = page => page.locator('.said').innerText();
// Returns the middle of a cell.
async function cell(page, row, rows, column, columns) {
  const box = await page.locator('.map').boundingBox();
  return [box.x + 1 + (box.width - 2) * (column + .5) / columns, box.y + 1 + (box.height - 2) * (row + .5) / rows];
}
// Returns the colour of a pixel of the window.
async function colour(page, x, y) {
  const png = (await page.screenshot({clip: {x, y, width: 1, height: 1}})).toString('base64');
  return page.evaluate(async png => {
    const image = new Image();
    image.src = `data:image/png;base64,${png}`;
    await image.decode();
    const canvas = document.createElement('canvas'), context = canvas.getContext('2d');
    context.drawImage(image, 0, 0);
    return [...context.getImageData(0, 0, 1, 1).data];
  }, png);
}

before(async () => { if (!skip) browser = await launch(); });
after(async () => {
  await browser?.close();
  fs.rmSync(folder, {recursive: true});
});

test('pointing at a cell shows its rank, time and bytes', {skip}, async () => {
  const {page, clean} = await open(write('eight', 8, 5));
  assert.match(await page.locator('.answer').innerText(), /^Rank 5 peaks higher .* Rank 5 holds more than the others since step 2\.$/);
  await page.mouse.move(...await cell(page, 5, 8, 3, 6));
  await page.waitForFunction(() => document.querySelector('.said').textContent.includes('MiB'));
  assert.equal(await status(page), 'rank 5, step 3: 120.0 MiB, 20.0 MiB more than the median of 100.0 MiB');
  await page.mouse.move(...await cell(page, 0, 8, 5, 6));
  assert.equal(await status(page), 'rank 0, step 5: 100.0 MiB, the median');
  await page.mouse.move(5, 5);
  assert.match(await status(page), /^Point at a cell/);
  assert.equal(await page.evaluate('window.ran'), undefined);
  clean();
});

test('keys move over the map, and Enter and a click go to the rank', {skip}, async () => {
  const {page, clean} = await open(write('keys', 8, 5));
  await page.locator('.map').focus();
  await page.keyboard.press('PageDown');
  for (const key of ['ArrowUp', 'ArrowUp', 'End']) await page.keyboard.press(key);
  await page.waitForFunction(() => document.querySelector('.said').textContent.includes('MiB'));
  assert.equal(await status(page), 'rank 5, step 5: 140.0 MiB, 40.0 MiB more than the median of 100.0 MiB');
  await page.keyboard.press('Enter');
  assert.equal(new URL(page.url()).hash, '#m0-r5');
  // The page has scrolled to that row: the click scrolls back to the map.
  const {width, height} = await page.locator('.map').boundingBox();
  await page.locator('.map').click({position: {x: width / 12, y: height * 2.5 / 8}});
  await page.waitForFunction(() => location.hash === '#m0-r2');
  clean();
});

test('the name of a rank and its row of the map link to its page', {skip}, async () => {
  const pages = path.join(folder, 'rank pages');
  const {page, clean} = await open(write('linked', 4, 1, ['--pages', pages]));
  await page.locator('#m0-r1 th a').click();
  await page.waitForFunction('!!window.memtrack');
  assert.match(page.url(), /rank%20pages\/rank1\.html\b/);
  await page.goBack();
  await page.mouse.click(...await cell(page, 3, 4, 0, 6));
  await page.waitForFunction('!!window.memtrack');
  assert.match(page.url(), /rank%20pages\/rank3\.html\b/);
  clean();
});

test('odd cells stand out, and the layers can be switched', {skip}, async () => {
  for (const colorScheme of ['light', 'dark']) {
    const {page, clean} = await open(write(`colours-${colorScheme}`, 8, 5), {colorScheme});
    await page.locator('.map').scrollIntoViewIfNeeded();
    const at = async (row, column) => colour(page, ...await cell(page, row, 8, column, 6));
    const [odd, before, other] = [await at(5, 5), await at(5, 1), await at(4, 5)];
    assert.deepEqual(before, other, 'cells at the median have the same colour');
    assert.ok(odd[0] - odd[2] > 100, `orange: ${odd}`);
    await page.getByRole('radio', {name: 'Bytes'}).check();
    await page.mouse.move(5, 5);
    const [most, less] = [await at(5, 5), await at(5, 1)];
    assert.ok(most[0] + most[1] > less[0] + less[1], `more is lighter: ${most} ${less}`);
    assert.ok(await page.locator('img.off').isHidden());
    clean();
  }
});

test('without scripts the page has everything except single cells, and links work', {skip}, async () => {
  const {page} = await open(write('plain', 8, 5), {javaScriptEnabled: false});
  const text = await page.locator('main').innerText();
  for (const part of ['since step 2', 'train.py:88', '+40.0 MiB', 'Off the median']) assert.ok(text.includes(part), part);
  assert.ok(await page.locator('.said').isHidden());
  await page.getByRole('radio', {name: 'Bytes'}).check();
  assert.ok(await page.locator('img.off').isHidden() && await page.locator('img.bytes').isVisible());
  await page.locator('.heat .side a').click();
  assert.equal(new URL(page.url()).hash, '#m0-r5');
});

test('many ranks share rows, narrow windows do not scroll horizontally, and text is readable', {skip}, async () => {
  const file = write('many', 1100, 700);
  for (const [width, colorScheme] of [[1280, 'light'], [400, 'light'], [400, 'dark']]) {
    const {page, clean} = await open(file, {viewport: {width, height: 800}, colorScheme});
    assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), `${width} wide`);
    await page.locator('.map').scrollIntoViewIfNeeded();
    const rows = Math.ceil(1100 / 3);
    await page.mouse.move(...await cell(page, Math.floor(700 / 3), rows, 5, 6));
    await page.waitForFunction(() => document.querySelector('.said').textContent.includes('MiB'));
    assert.equal(await status(page), 'rank 699 to rank 701, step 5: furthest from the median: 140.0 MiB, 40.0 MiB more than the median of 100.0 MiB');
    const contrasts = await page.evaluate(() => {
      const light = colour => {
        const [r, g, b] = colour.match(/[\d.]+/g).slice(0, 3).map(v => v / 255).map(v => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
      };
      const contrast = (a, b) => (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05);
      const style = (selector, key) => getComputedStyle(document.querySelector(selector))[key], back = style('body', 'backgroundColor');
      const on = selector => [selector, contrast(style(selector, 'color'), back)];
      return [...['.answer', 'figcaption', '.y a', '.side a', '.note', '.ranks thead th'].map(on), ['odd row', contrast(style('.ranks .odd td', 'color'), style('.ranks .odd', 'backgroundColor'))]];
    });
    for (const [what, contrast] of contrasts) assert.ok(contrast >= 4.5, `${colorScheme} ${what} ${contrast}`);
    clean();
  }
});
