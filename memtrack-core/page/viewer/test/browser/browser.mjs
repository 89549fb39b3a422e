// Common code of the browser tests: opens pages in Chromium and fails a test for any error or request.
import assert from 'node:assert/strict';
import path from 'node:path';
import {pathToFileURL} from 'node:url';
import {chromium} from 'playwright-core';

export const ARGUMENTS = ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'];

/** Starts the browser. */
export function launch() {
  return chromium.launch({executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ARGUMENTS});
}

/** Opens a page, and waits for its first picture if `wait` is true. `clean()` fails if there were errors since. */
export async function open(browser, file, {fragment = '', scheme = 'light', wait = true} = {}) {
  const page = await browser.newPage({viewport: {width: 1280, height: 800}, colorScheme: scheme});
  const errors = [];
  page.on('console', m => ['error', 'warning'].includes(m.type()) && errors.push(m.text()));
  page.on('pageerror', e => errors.push(e.stack));
  page.on('request', r => /^(file|data|blob):/.test(r.url()) || errors.push(`request ${r.url()}`));
  page.on('dialog', d => { errors.push(`dialog ${d.message()}`); d.dismiss(); });
  await page.goto(pathToFileURL(path.resolve(file)).href + fragment);
  if (wait) {
    await page.waitForFunction('!!window.memtrack');
    await page.evaluate('memtrack.ready');
  }
  const clean = async () => {
    assert.deepEqual(errors, []);
    assert.equal(await page.locator('.alarm:not([hidden])').count(), 0, 'the page shows no error');
  };
  return {page, clean};
}
