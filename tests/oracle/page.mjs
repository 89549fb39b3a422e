// page.mjs PAGE.html QUERIES.json RESULTS.json: queries a viewer page (window.memtrack) in headless Chromium.
// Needs playwright-core (MEMTRACK_PLAYWRIGHT = a folder with node_modules) and Debian's chromium.
import {createRequire} from 'node:module';
import fs from 'node:fs';
import os from 'node:os';
import {pathToFileURL} from 'node:url';
const require = createRequire((process.env.MEMTRACK_PLAYWRIGHT ?? os.tmpdir() + '/memtrack-playwright') + '/x.js');
const {chromium} = require('playwright-core');
const [page_file, queries_file, results_file] = process.argv.slice(2);
const queries = JSON.parse(fs.readFileSync(queries_file, 'utf8'));
const browser = await chromium.launch({executablePath: '/usr/bin/chromium', args: ['--no-sandbox', '--disable-gpu']});
const page = await (await browser.newContext({viewport: {width: 1280, height: 800}, offline: false})).newPage();
const errors = [], requests = [];
page.on('console', m => m.type() === 'error' && errors.push(m.text()));
page.on('pageerror', e => errors.push(String(e)));
page.on('request', r => /^(file|data|blob):/.test(r.url()) || requests.push(r.url()));
page.on('dialog', d => { errors.push('dialog: ' + d.message()); d.dismiss(); });
const start = Date.now();
await page.goto(pathToFileURL(page_file).href);
let out = {};
try {
  await page.waitForFunction('!!window.memtrack', {timeout: 60000});
  await page.evaluate('window.memtrack.ready.then(() => true)');
  out.ready_ms = Date.now() - start;
  out.devices = await page.evaluate('window.memtrack.devices()');
  out.answers = await page.evaluate(async qs => {
    const answers = [];
    for (const q of qs) {
      const device = window.memtrack.devices()[q.device];
      const blocks = await window.memtrack.blocksAt(device, q.event);
      answers.push({events: window.memtrack.events(device), allocated: await window.memtrack.allocatedAt(device, q.event),
        blocks: Array.from(blocks, b => [b.address, Number(b.size), !!b.pending])});
    }
    return answers;
  }, queries);
  if (process.env.SHOT) await page.screenshot({path: process.env.SHOT});
} catch (e) { out.failed = String(e).split('\n')[0]; }
out.errors = errors; out.requests = requests;
fs.writeFileSync(results_file, JSON.stringify(out));
await browser.close();
