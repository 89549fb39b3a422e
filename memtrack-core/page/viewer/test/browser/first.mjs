// node test/browser/first.mjs PAGE.html: profile of the first picture (self times by function).
import path from 'node:path';
import {pathToFileURL} from 'node:url';
import {launch} from './browser.mjs';

const browser = await launch(), page = await browser.newPage({viewport: {width: 1280, height: 800}});
const cdp = await page.context().newCDPSession(page);
await cdp.send('Profiler.enable');
await cdp.send('Profiler.setSamplingInterval', {interval: 300});
await cdp.send('Profiler.start');
await page.goto(pathToFileURL(path.resolve(process.argv[2])).href);
await page.waitForFunction('document.querySelector("main[data-ready]")');
console.log('ready', await page.evaluate('Math.round(performance.now())'));
if (process.argv[3]) await page.waitForTimeout(Number(process.argv[3]));
const {profile} = await cdp.send('Profiler.stop');
const self = new Map(), nodes = new Map(profile.nodes.map(n => [n.id, n]));
profile.samples.forEach((id, i) => {
  const f = nodes.get(id).callFrame, k = `${f.functionName || '(anonymous)'}:${f.lineNumber}`;
  self.set(k, (self.get(k) ?? 0) + (profile.timeDeltas[i] ?? 0) / 1000);
});
for (const [k, ms] of [...self].sort((a, b) => b[1] - a[1]).slice(0, 26)) console.log(ms.toFixed(1).padStart(8), k);
await browser.close();
