// node test/browser/cost.mjs PAGE.html: processor time of zooming and panning, by process. On a busy machine this is more
// reliable than frames per second: the cost of a frame does not depend on other processes.
import fs from 'node:fs';
import path from 'node:path';
import {pathToFileURL} from 'node:url';
import {chromium} from 'playwright-core';
import {ARGUMENTS} from './browser.mjs';

const server = await chromium.launchServer({executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ARGUMENTS});
const browser = await chromium.connect(server.wsEndpoint());
const page = await browser.newPage({viewport: {width: 1280, height: 800}});

/** Returns the processor time of the browser's processes in ms, by kind. */
function times() {
  const parent = new Map(), out = {}, hertz = 100;
  for (const pid of fs.readdirSync('/proc').filter(p => /^\d+$/.test(p))) {
    try {
      const stat = fs.readFileSync(`/proc/${pid}/stat`, 'utf8'), f = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
      const type = /--type=([\w-]+)/.exec(fs.readFileSync(`/proc/${pid}/cmdline`, 'utf8'))?.[1] ?? 'browser';
      parent.set(Number(pid), {parent: Number(f[1]), ms: (Number(f[11]) + Number(f[12])) * 1000 / hertz, type});
    } catch {}
  }
  for (const [pid, p] of parent) {
    let at = pid;
    while (at > 1 && at !== server.process().pid) at = parent.get(at)?.parent ?? 0;
    if (at > 1) out[p.type] = (out[p.type] ?? 0) + p.ms;
  }
  return out;
}

const zero = times();
await page.goto(pathToFileURL(path.resolve(process.argv[2])).href);
await page.waitForFunction('document.querySelector("main[data-ready]")');
const since = (a, b) => Object.fromEntries(Object.entries(b).map(([k, v]) => [k, Math.round(v - (a[k] ?? 0))]).filter(([, v]) => v));
console.log('first picture, ms of processor time:', since(zero, times()));
await page.waitForTimeout(1500);
const box = await page.locator('.timeline .stage').boundingBox(), x = box.x + box.width * 0.55, y = box.y + box.height * 0.6;
for (const round of ['first', 'again']) {
  await page.mouse.move(x, y);
  await page.evaluate('memtrack.paint()');
  const before = times();
  for (let i = 0; i < 22; i++) { await page.mouse.wheel(0, -120); await page.waitForTimeout(33); }
  await page.mouse.down();
  for (let i = 0; i < 60; i++) { await page.mouse.move(x + 200 * Math.sin(i / 14), y + 40 * Math.sin(i / 9)); await page.waitForTimeout(16); }
  await page.mouse.up();
  for (let i = 0; i < 22; i++) { await page.mouse.wheel(0, 120); await page.waitForTimeout(33); }
  const {count} = await page.evaluate('memtrack.paint()'), cost = since(before, times()), sum = Object.values(cost).reduce((a, b) => a + b, 0);
  console.log(`${round}: ${count} frames, ms of processor time per frame:`, Object.fromEntries(Object.entries(cost).map(([k, v]) => [k, +(v / count).toFixed(1)])), `total ${(sum / count).toFixed(1)}: at most ${Math.round(1000 * count / sum)} per second on one core`);
}
await browser.close();
await server.close();
