// node test/run_script.mjs test/SCRIPT.ts ARGUMENTS: runs a TypeScript script.
import {build} from 'esbuild';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import {spawnSync} from 'node:child_process';

const out = path.join(fs.mkdtempSync(path.join(os.tmpdir(), 'memtrack-viewer-')), 'script.mjs');
await build({entryPoints: [process.argv[2]], outfile: out, bundle: true, platform: 'node', format: 'esm', target: 'node20', packages: 'external', logLevel: 'warning'});
const run = spawnSync(process.execPath, ['--max-old-space-size=8192', out, ...process.argv.slice(3)], {stdio: 'inherit'});
fs.rmSync(path.dirname(out), {recursive: true});
process.exit(run.status ?? 1);
