// node test/browser/all.mjs PAGE.html...: opens pages, shows every view of every device, navigates, and prints errors.
import {launch} from './browser.mjs';
import path from 'node:path';
import {pathToFileURL} from 'node:url';

const browser = await launch();
let failed = 0;
for (const file of process.argv.slice(2)) {
  const page = await browser.newPage({viewport: {width: 1280, height: 800}}), errors = [];
  page.on('console', m => ['error', 'warning'].includes(m.type()) && errors.push(m.text()));
  page.on('pageerror', e => errors.push(e.stack));
  page.on('request', r => /^(file|data|blob):/.test(r.url()) || errors.push(`request ${r.url()}`));
  try {
    await page.goto(pathToFileURL(path.resolve(file)).href);
    const found = await page.evaluate(async () => {
      if (!window.memtrack?.ready) return ['no window.memtrack'];
      await memtrack.ready;
      const out = [], names = memtrack.devices();
      for (let device = 0; device < names.length; device++) {
        const events = memtrack.events(device);
        for (const view of ['timeline', 'categories', 'pools', 'segments', 'state', 'flame', 'settings']) await memtrack.show({device, view});
        for (const event of new Set([-1, 0, events >> 1, events - 1])) {
          if (event >= events) continue;
          await memtrack.show({view: 'timeline', event});
          const blocks = await memtrack.blocksAt(device, event), sum = await memtrack.allocatedAt(device, event);
          if (blocks.reduce((s, b) => s + b.size, 0) !== sum) out.push(`device ${device}, event ${event}: blocks do not add up to ${sum}`);
        }
        for (const color of ['stack', 'size', 'stream', 'pool', 'category', 'age']) await memtrack.show({color});
        await memtrack.show({axis: 'step'});
        await memtrack.show({block: 0});
      }
      await new Promise(r => setTimeout(r, 100));
      const alarm = document.querySelector('.alarm:not([hidden])');
      if (alarm) out.push(alarm.textContent);
      return out;
    });
    errors.push(...found);
  } catch (e) { errors.push(String(e)); }
  if (errors.length) { failed++; console.log(path.basename(file), errors.slice(0, 3)); }
  await page.close();
}
console.log(`${process.argv.length - 2 - failed} of ${process.argv.length - 2} pages without errors`);
await browser.close();
process.exit(failed ? 1 : 0);
