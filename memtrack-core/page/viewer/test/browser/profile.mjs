// node test/browser/profile.mjs PAGE.html: profile of zooming and panning (self times by function).
import path from 'node:path';
import {pathToFileURL} from 'node:url';
import {chromium} from 'playwright-core';

const browser = await chromium.launch({executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox', '--disable-gpu', '--disable-quic']});
const page = await browser.newPage({viewport: {width: 1280, height: 800}});
await page.goto(pathToFileURL(path.resolve(process.argv[2])).href);
await page.waitForFunction('document.querySelector("main[data-ready]")');
const cdp = await page.context().newCDPSession(page);
const box = await page.locator('.timeline .stage').boundingBox();
const x = box.x + box.width * 0.55, y = box.y + box.height * 0.6;
await page.mouse.move(x, y);
await cdp.send('Profiler.enable');
await cdp.send('Profiler.setSamplingInterval', {interval: 200});
await page.evaluate('memtrack.paint()');
await cdp.send('Profiler.start');
for (let i = 0; i < 22; i++) { await page.mouse.wheel(0, -120); await page.waitForTimeout(16); }
await page.mouse.down();
for (let i = 0; i < 60; i++) await page.mouse.move(x + 200 * Math.sin(i / 14), y + 40 * Math.sin(i / 9));
await page.mouse.up();
for (let i = 0; i < 22; i++) { await page.mouse.wheel(0, 120); await page.waitForTimeout(16); }
const {profile} = await cdp.send('Profiler.stop');
const paint = await page.evaluate('memtrack.paint()');
const self = new Map(), name = n => `${n.callFrame.functionName || '(anonymous)'} ${n.callFrame.url.slice(-12)}:${n.callFrame.lineNumber}:${n.callFrame.columnNumber}`;
const nodes = new Map(profile.nodes.map(n => [n.id, n]));
profile.samples.forEach((id, i) => { const k = name(nodes.get(id)); self.set(k, (self.get(k) ?? 0) + (profile.timeDeltas[i] ?? 0) / 1000); });
console.log(paint);
for (const [k, ms] of [...self].sort((a, b) => b[1] - a[1]).slice(0, 22)) console.log(ms.toFixed(1).padStart(8), (ms / paint.count).toFixed(2).padStart(7), k);
await browser.close();
