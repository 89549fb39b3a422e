// node bench/bench.mjs MEMTRACK SNAPSHOT... [--serve] [--json]
//
// Measures a page: the time of memtrack to write it, and of Chromium to show it, zoom and pan, switch to the state history and
// step through it. `taskset -c 0 node bench/bench.mjs …` runs everything on one core. With --serve the page is served, not written.
// Rendering is in software; times are in milliseconds from the start of the navigation.
import {execFileSync, spawn} from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import {pathToFileURL} from 'node:url';
import {chromium} from 'playwright-core';

const argv = process.argv.slice(2);
const serve = argv.includes('--serve'), json = argv.includes('--json');
const [memtrack, ...snapshots] = argv.filter(word => !word.startsWith('--'));
if (!snapshots.length) {
  console.error('usage: node bench/bench.mjs MEMTRACK SNAPSHOT... [--serve] [--json]');
  process.exit(2);
}
const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'memtrack-bench-'));
const args = ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'];
const STEPS = 20;

/** Returns the peak memory of the renderer processes, in MiB. */
function renderer_mib(browser_pid) {
  let most = 0;
  for (const pid of fs.readdirSync('/proc').filter(name => /^\d+$/.test(name))) {
    try {
      const command = fs.readFileSync(`/proc/${pid}/cmdline`, 'utf8');
      if (!command.includes('--type=renderer') || !command.includes(browser_pid)) continue;
      const peak = /VmHWM:\s+(\d+)/.exec(fs.readFileSync(`/proc/${pid}/status`, 'utf8'));
      most = Math.max(most, Number(peak?.[1] ?? 0) / 1024);
    } catch {
      // The process has ended.
    }
  }
  return most;
}

async function measure(snapshot) {
  const row = {snapshot: path.basename(snapshot)};
  let server = null, url;
  if (serve) {
    server = spawn(memtrack, ['view', snapshot, '--serve'], {stdio: ['ignore', 'pipe', 'ignore']});
    url = await new Promise((resolve, reject) => {
      server.stdout.once('data', data => resolve(String(data).trim()));
      server.once('exit', () => reject(new Error(`${memtrack} ended`)));
    });
  } else {
    const page = path.join(folder, 'page.html'), start = performance.now();
    execFileSync(memtrack, ['view', snapshot, '-o', page, '--force'], {stdio: ['ignore', 'ignore', 'ignore']});
    row.written_ms = performance.now() - start;
    row.page_mib = fs.statSync(page).size / 2 ** 20;
    url = pathToFileURL(page).href;
  }
  const data = fs.mkdtempSync(path.join(folder, 'profile-'));
  const context = await chromium.launchPersistentContext(data, {executablePath: '/usr/bin/chromium', args, viewport: {width: 1280, height: 800}});
  const page = context.pages()[0] ?? await context.newPage();
  await page.goto(url);
  await page.waitForFunction('!!window.memtrack');
  row.picture_ms = await page.evaluate('memtrack.ready.then(() => performance.now())');
  row.events = await page.evaluate('memtrack.events(memtrack.devices()[0])');
  // Zoom and pan as fast as the browser handles the events; `frames_seen` counts the browser's frames.
  const stage = await page.locator('.views > section:not([hidden]) .stage').boundingBox();
  const x = stage.x + stage.width / 2, y = stage.y + stage.height / 2;
  await page.mouse.move(x, y);
  await page.evaluate('memtrack.paint(), window.frames_seen = 0, (function see() { window.frames_seen++; requestAnimationFrame(see); })()');
  const start = performance.now();
  for (let i = 0; i < 25; i++) await page.mouse.wheel(0, -120);
  await page.mouse.down();
  for (let i = 0; i < 90; i++) await page.mouse.move(x + 200 * Math.sin(i / 8), y);
  await page.mouse.up();
  for (let i = 0; i < 25; i++) await page.mouse.wheel(0, 120);
  const seconds = (performance.now() - start) / 1000;
  row.frames_per_s = await page.evaluate('window.frames_seen') / seconds;
  row.worst_frame_ms = (await page.evaluate('memtrack.paint()')).worst_ms;
  row.state_ms = await page.evaluate(`(async () => { const t = performance.now(); await memtrack.show({view: 'state'}); return performance.now() - t; })()`);
  for (const [name, from] of [['first', '0'], ['middle', 'n >> 1'], ['last', `n - ${STEPS} - 1`]]) {
    row[`steps_${name}_ms`] = await page.evaluate(`(async () => {
      const n = memtrack.events(memtrack.devices()[0]), from = Math.max(0, ${from});
      await memtrack.show({event: from});
      const t = performance.now();
      for (let i = 1; i <= ${STEPS}; i++) await memtrack.show({event: from + i});
      return performance.now() - t;
    })()`);
  }
  row.renderer_mib = renderer_mib(data) || renderer_mib('');
  await context.close();
  server?.kill();
  return row;
}

const rows = [];
for (const snapshot of snapshots) rows.push(await measure(snapshot));
fs.rmSync(folder, {recursive: true});
if (json) console.log(JSON.stringify(rows, null, 1));
else for (const row of rows) {
  console.log(row.snapshot);
  for (const [name, value] of Object.entries(row)) if (name !== 'snapshot') console.log(`  ${name.padEnd(16)} ${Number(value).toFixed(name === 'events' ? 0 : 1)}`);
}
