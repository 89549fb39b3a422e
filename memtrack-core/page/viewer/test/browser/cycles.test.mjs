// The page of `memtrack cycles` in a browser: pointing, following references, keys, and without scripts.
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
const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'memtrack-cycles-'));
const hostile = '</script><script>window.ran=1</script><img src=x onerror="window.ran=1">\u202e';
let browser;

function write(name, nodes, edges) {
  const json = path.join(folder, `${name}.json`), page = path.join(folder, `${name}.html`);
  fs.writeFileSync(json, JSON.stringify({memtrack_cycles: 1, origin: 'rust', nodes, edges}));
  execFileSync(memtrack, ['cycles', json, '-o', page, '--force'], {stdio: 'pipe'});
  return page;
}

// A trainer and its hook that refer to each other and, through a model, to a buffer.
function trainer() {
  const memory = [{device: 'cuda:0', storage: 4096, bytes: 1 << 30}];
  return write('trainer', [
    {label: 'Trainer', serial: 1, created: 'src/trainer.rs:12:9'},
    {label: 'Hook', serial: 2},
    {label: 'Model', serial: 3},
    {label: `Buffer ${hostile}`, serial: 4, root: true, allocated: 'Buffer::new at src/buffer.rs:7\nmain at src/main.rs:3', memory},
  ], [{from: 0, to: 1, path: '.hooks[0]'}, {from: 1, to: 0, path: '.owner'}, {from: 0, to: 2, path: '.model'}, {from: 2, to: 3, path: '.weight'}]);
}

function many() {
  const nodes = [], edges = [];
  for (let i = 0; i < 290; i++) {
    const ring = i - i % 10;
    nodes.push({label: `Value ${i}`, serial: i, ...(i % 10 === 9 && {root: true, memory: [{device: 'cuda:0', storage: i + 1, bytes: 1e6 + i}]})});
    if (i % 10 < 9) edges.push({from: i, to: i + 1, path: '.next'});
    if (i % 10 === 4) edges.push({from: i, to: ring, path: '.owner'});
    if (i % 30 === 3) edges.push({from: i, to: (i + 11) % 290, path: '.peer'});
  }
  return write('many', nodes, edges);
}

async function open(file, options = {}) {
  const context = await browser.newContext({viewport: {width: 1280, height: 800}, reducedMotion: 'reduce', ...options});
  const page = await context.newPage(), errors = [];
  page.on('console', m => ['error', 'warning'].includes(m.type()) && errors.push(m.text()));
  page.on('pageerror', e => errors.push(e.stack));
  page.on('request', r => r.url().startsWith('file:') || errors.push(`request ${r.url()}`));
  await page.goto(pathToFileURL(file).href);
  const clean = () => assert.deepEqual(errors, []);
  return {page, clean};
}
const chosen = page => page.locator('.node.on').evaluateAll(nodes => nodes.map(node => node.dataset.node));
const width = page => page.locator('svg.graph').evaluate(svg => svg.viewBox.baseVal.width);
const is_in_view = (page, selector) => page.evaluate(selector => {
  const at = document.querySelector(selector).getBoundingClientRect(), view = document.getElementById('view').getBoundingClientRect();
  return at.left >= view.left && at.right <= view.right && at.top >= view.top && at.bottom <= view.bottom;
}, selector);

before(async () => { if (!skip) browser = await launch(); });
after(async () => {
  await browser?.close();
  fs.rmSync(folder, {recursive: true});
});

test('pointing at device memory, or moving to it with keys, shows where it was allocated', {skip}, async () => {
  const {page, clean} = await open(trainer());
  const pane = page.locator('#pane');
  assert.doesNotMatch(await pane.innerText(), /buffer\.rs/);
  await page.locator('#n3 > rect').first().hover();
  assert.match(await pane.innerText(), /Buffer::new at src\/buffer\.rs:7/);
  assert.match(await pane.innerText(), /1\.00 GiB/);
  assert.match(await pane.innerText(), /<\/script><script>/, 'a label is shown as text');
  await page.mouse.move(5, 5);
  await page.locator('#n0').focus();
  assert.match(await pane.innerText(), /src\/trainer\.rs:12:9/);
  for (const key of ['ArrowRight', 'ArrowLeft']) await page.keyboard.press(key);
  assert.equal((await chosen(page)).length, 1);
  await page.evaluate(() => document.querySelector('#n2').focus());
  await page.keyboard.press(' ');
  await page.keyboard.press('ArrowRight');
  assert.deepEqual(await chosen(page), ['3']);
  assert.match(await pane.innerText(), /buffer\.rs:7/);
  assert.equal(await page.evaluate('window.ran'), undefined);
  clean();
});

test('a click on a reference follows it, and a second click returns', {skip}, async () => {
  const {page, clean} = await open(trainer());
  const reference = page.locator('.line[data-from="2"][data-to="3"] text');
  await reference.click();
  assert.deepEqual(await chosen(page), ['3']);
  assert.ok(await is_in_view(page, '#n3'));
  await reference.click();
  assert.deepEqual(await chosen(page), ['2']);
  assert.equal(await page.locator('.line.on').count(), 2, 'its references are highlighted');
  await page.keyboard.press('Escape');
  assert.deepEqual(await chosen(page), []);
  assert.equal(new URL(page.url()).hash, '', 'the page does not scroll');
  clean();
});

test('a click on a finding shows its cycle, and the reference to make weak is marked', {skip}, async () => {
  const {page, clean} = await open(trainer());
  await page.locator('.cycle h2 a').click();
  assert.deepEqual((await chosen(page)).sort(), ['0', '1', '2', '3'], 'the cycle and its path to the memory');
  assert.equal(await page.locator('.hull.on').count(), 1);
  assert.deepEqual(await page.locator('.line.weak').evaluateAll(lines => lines.map(line => [line.dataset.from, line.dataset.to])), [['1', '0']]);
  assert.notEqual(await page.locator('.line.weak .stroke').evaluate(line => getComputedStyle(line).strokeDasharray), 'none');
  clean();
});

test('hundreds of values can be moved, enlarged and searched', {skip}, async () => {
  const {page, clean} = await open(many());
  const view = await page.locator('#view').boundingBox(), x = view.x + view.width / 2, y = view.y + view.height / 2;
  const before = await width(page);
  await page.mouse.move(x, y);
  await page.mouse.wheel(0, -400);
  await page.waitForFunction(before => document.querySelector('svg.graph').viewBox.baseVal.width < before * 0.7, before);
  const corner = () => page.locator('svg.graph').evaluate(svg => [svg.viewBox.baseVal.x, svg.viewBox.baseVal.y]);
  const from = await corner();
  await page.mouse.down();
  await page.mouse.move(x + 120, y + 60, {steps: 4});
  await page.mouse.up();
  const to = await corner();
  assert.ok(to[0] < from[0] && to[1] < from[1], `${from} ${to}`);
  await page.keyboard.press('0');
  const all = await width(page);
  assert.ok(all > before);
  for (const key of ['+', '-', '-']) await page.keyboard.press(key);
  assert.ok(await width(page) > all);
  await page.keyboard.press('/');
  await page.keyboard.type('value 17');
  assert.match(await page.locator('#bar output').innerText(), /^11 found$/);
  await page.keyboard.press('Enter');
  const [first] = await chosen(page);
  assert.match(await page.locator('#pane h2').innerText(), /Value 17/);
  assert.ok(await is_in_view(page, `#n${first}`));
  clean();
});

test('without scripts the page has all texts, and links lead to the table', {skip}, async () => {
  const {page} = await open(trainer(), {javaScriptEnabled: false});
  const text = await page.locator('main').innerText();
  for (const part of ['held only by itself', 'make weak: Hook .owner → Trainer', 'src/buffer.rs:7', '1.00 GiB on cuda:0']) assert.ok(text.includes(part), part);
  assert.ok(await page.locator('#bar').isHidden() && await page.locator('#pane').isHidden());
  assert.ok(await is_in_view(page, '#n3'), 'the whole picture is visible');
  await page.locator('#n3 > rect').first().click();
  assert.equal(new URL(page.url()).hash, '#v3');
});

test('both colour schemes are readable', {skip}, async () => {
  const file = trainer();
  for (const colorScheme of ['light', 'dark']) {
    const {page, clean} = await open(file, {colorScheme});
    const contrasts = await page.evaluate(() => {
      const light = colour => {
        const [r, g, b] = colour.match(/[\d.]+/g).slice(0, 3).map(v => v / 255).map(v => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
      };
      const contrast = (a, b) => (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05);
      const style = (selector, key) => getComputedStyle(document.querySelector(selector))[key];
      const back = style('body', 'backgroundColor'), box = style('.node.memory > rect', 'fill');
      return {
        label: contrast(style('.node.memory text', 'fill'), box), bytes: contrast(style('.node .bytes', 'fill'), box), name: contrast(style('.line text', 'fill'), back),
        weak: contrast(style('.line text .weak', 'fill'), back), fact: contrast(style('.facts th', 'color'), back), link: contrast(style('.way a', 'color'), back),
        badge: contrast(style('.badge text', 'fill'), style('.badge rect', 'fill')),
      };
    });
    for (const [what, contrast] of Object.entries(contrasts)) assert.ok(contrast >= 4.5 || (what === 'badge' && contrast >= 4), `${colorScheme} ${what} ${contrast}`);
    clean();
  }
});
