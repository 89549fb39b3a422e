// Opens a file in speedscope's page, in Chromium, and prints each profile as the page shows it: its name, and the total of
// all its stacks. Usage: node tests/tools/speedscope.mjs NPM_FOLDER FILE
import {createRequire} from 'node:module';
import path from 'node:path';
import {pathToFileURL} from 'node:url';

const [folder, file] = process.argv.slice(2).map(name => path.resolve(name));
const {chromium} = createRequire(path.join(folder, 'package.json'))('playwright-core');
const executablePath = process.env.CHROMIUM ?? '/usr/bin/chromium';
// The page draws with WebGL, which is rendered in software on a machine without a GPU.
const args = ['--no-sandbox', '--use-angle=swiftshader', '--enable-unsafe-swiftshader', '--ignore-gpu-blocklist'];
const browser = await chromium.launch({executablePath, args});
try {
  const page = await browser.newPage();
  const errors = [];
  page.on('pageerror', error => errors.push(error.message));
  await page.goto(pathToFileURL(path.join(folder, 'node_modules/speedscope/dist/release/index.html')).href);
  const input = await page.waitForSelector('input[type=file]', {state: 'attached'});
  await input.setInputFiles(file);
  // `name (1/6)`, or the name alone if there is only one profile.
  const shown = () => page.evaluate(() => document.body.innerText.split('\n').find(line => /^.+: .+ in .+ blocks?/.test(line)));
  const until = async wanted => {
    for (let tries = 0; tries < 200; tries++) {
      const line = await shown();
      if (line !== undefined && wanted(line)) return line;
      await page.waitForTimeout(50);
    }
    throw new Error(`the page shows no other profile than ${await shown()}; ${errors.join('; ')}`);
  };
  let line = await until(() => true);
  const count = Number(/\(1\/(\d+)\)$/.exec(line)?.[1] ?? 1), profiles = [];
  await page.keyboard.press('3');
  // Only visible rows exist in the page.
  await page.setViewportSize({width: 1000, height: 20000});
  await page.waitForTimeout(300);
  for (let number = 1; number <= count; number++) {
    if (number > 1) {
      await page.keyboard.press('n');
      line = await until(text => text.endsWith(`(${number}/${count})`));
    }
    profiles.push({name: line.replace(/ \(\d+\/\d+\)$/, ''), total: await total(page)});
  }
  if (errors.length) throw new Error(errors.join('; '));
  console.log(JSON.stringify(profiles));
} finally {
  await browser.close();
}

// Returns the bytes of all stacks: the view "sandwich" lists functions, whose sizes without callees add up to the total.
// Sizes are printed with two decimals.
async function total(page) {
  const texts = await page.evaluate(() => [...document.querySelectorAll('table tr')].map(row => row.innerText));
  const sizes = texts.map(text => [...text.matchAll(/([\d.]+) ([KMGT]?B) \(/g)].map(([, number, unit]) => number * 1024 ** 'BKMGT'.indexOf(unit[0])));
  return sizes.filter(row => row.length).reduce((sum, [, self]) => sum + self, 0);
}
