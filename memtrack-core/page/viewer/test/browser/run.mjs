// npm run browser: runs the browser tests, with the sources of the synthetic page bundled for them.
import {build} from 'esbuild';
import fs from 'node:fs';
import path from 'node:path';
import {spawnSync} from 'node:child_process';

const here = import.meta.dirname, made = path.join(here, 'made.mjs');
await build({stdin: {contents: 'export * from "../encode.ts"; export * from "../synthetic.ts";', resolveDir: here}, outfile: made, bundle: true, platform: 'node', format: 'esm', target: 'node20', logLevel: 'warning'});
const only = process.argv.slice(2), files = fs.readdirSync(here).filter(f => f.endsWith('.test.mjs') && (!only.length || only.some(o => f.includes(o)))).map(f => path.join(here, f));
const run = spawnSync(process.execPath, ['--test', '--test-concurrency=1', ...files], {stdio: 'inherit'});
fs.rmSync(made);
process.exit(run.status ?? 1);
