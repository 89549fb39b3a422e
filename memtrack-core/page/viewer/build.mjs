// Bundles the page's script and style into dist/, with the licences of the packages in the script.
// The result depends only on the sources and the lock file: CI rebuilds it and compares.
import {build} from 'esbuild';
import {createHash} from 'node:crypto';
import fs from 'node:fs';
import path from 'node:path';

const here = import.meta.dirname;
const out = path.join(here, 'dist');
const limit = 300_000;

const result = await build({
  absWorkingDir: here,
  entryPoints: {viewer: 'src/main.ts'},
  outdir: out,
  bundle: true,
  format: 'iife',
  target: 'es2022',
  minify: true,
  charset: 'ascii',
  legalComments: 'none',
  metafile: true,
  logLevel: 'warning',
});

// The packages in the bundle, according to esbuild, not package.json.
const packages = new Set();
for (const file of Object.keys(result.metafile.inputs)) {
  const m = /node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(file);
  if (m) packages.add(m[1]);
}
let text = 'memtrack\'s viewer contains these packages.\n';
for (const name of [...packages].sort()) {
  const folder = path.join(here, 'node_modules', name);
  const {version, license, homepage} = JSON.parse(fs.readFileSync(path.join(folder, 'package.json'), 'utf8'));
  const file = fs.readdirSync(folder).find(f => /^licen[cs]e/i.test(f));
  if (!file) throw new Error(`${name} has no licence text`);
  text += `\n${'='.repeat(78)}\n${name} ${version} (${license}), ${homepage}\n${'='.repeat(78)}\n\n`;
  text += fs.readFileSync(path.join(folder, file), 'utf8').replace(/\r\n/g, '\n').trim() + '\n';
}
fs.writeFileSync(path.join(out, 'LICENSES.txt'), text);

// These texts would end the script element, or change its parsing.
const script = fs.readFileSync(path.join(out, 'viewer.js'), 'utf8');
if (/<\/script|<!--/i.test(script)) throw new Error('dist/viewer.js cannot be embedded into a page: it contains the end of a script element');
// The page's Content-Security-Policy allows only this script.
fs.writeFileSync(path.join(out, 'viewer.sha256'), createHash('sha256').update(script).digest('base64') + '\n');
const bytes = script.length + fs.statSync(path.join(out, 'viewer.css')).size;
if (bytes > limit) throw new Error(`the bundle has ${bytes} bytes, more than ${limit}`);
console.log(`dist: ${bytes} bytes, ${packages.size} packages`);
