// node test/browser/shot.mjs PAGE.html OUT.png [light|dark] [SCRIPT]: runs a script in a page, and writes a screenshot.
import path from 'node:path';
import {pathToFileURL} from 'node:url';
import {chromium} from 'playwright-core';

const [file, out, scheme = 'light', script = ''] = process.argv.slice(2);
const browser = await chromium.launch({executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
  args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync']});
const page = await browser.newPage({viewport: {width: Number(process.env.WIDTH ?? 1280), height: Number(process.env.HEIGHT ?? 800)}, colorScheme: scheme});
page.on('console', m => console.log(m.type(), m.text()));
page.on('pageerror', e => console.log('error', e.stack));
const start = Date.now();
await page.goto(pathToFileURL(path.resolve(file)).href);
await page.waitForFunction('!!window.memtrack');
await page.evaluate('window.memtrack.ready');
console.log('ready', Date.now() - start);
if (script) console.log(JSON.stringify(await page.evaluate(`(async () => { ${script} })()`)));
await page.waitForTimeout(400);
await page.screenshot({path: out});
await browser.close();
