// Runs the unit tests: bundles each test/*.test.ts with esbuild for node's test runner.
import {build} from 'esbuild';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import {spawnSync} from 'node:child_process';

const here = import.meta.dirname;
const out = fs.mkdtempSync(path.join(os.tmpdir(), 'memtrack-viewer-test-'));
const only = process.argv.slice(2);
const tests = fs.readdirSync(here, {recursive: true}).map(String)
  .filter(f => f.endsWith('.test.ts') && (only.length === 0 || only.some(o => f.includes(o)))).sort();
await build({
  absWorkingDir: here, entryPoints: tests, outdir: out, bundle: true, platform: 'node', format: 'esm', target: 'node20',
  outExtension: {'.js': '.mjs'}, sourcemap: 'inline', logLevel: 'warning',
});
const files = fs.readdirSync(out, {recursive: true}).map(String).filter(f => f.endsWith('.mjs')).map(f => path.join(out, f));
const run = spawnSync(process.execPath, ['--enable-source-maps', '--test', ...files], {stdio: 'inherit'});
fs.rmSync(out, {recursive: true});
process.exit(run.status ?? 1);
