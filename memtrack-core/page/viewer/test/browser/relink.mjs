// node test/browser/relink.mjs PAGE.html DIST OUT.html: replaces the bundle of a page (by an unminified one, for profiles).
import fs from 'node:fs';
import {createHash} from 'node:crypto';
const [file, dist, out] = process.argv.slice(2);
const script = fs.readFileSync(`${dist}/viewer.js`, 'utf8'), style = fs.readFileSync(`${dist}/viewer.css`, 'utf8');
const html = fs.readFileSync(file, 'utf8'), at = html.lastIndexOf('<script>');
const hash = createHash('sha256').update(script).digest('base64');
fs.writeFileSync(out, (html.slice(0, at) + `<script>${script}</script>\n</body></html>\n`).replace(/script-src '[^']*'/, () => `script-src 'sha256-${hash}'`).replace(/<style>[^]*?<\/style>/, () => `<style>${style}</style>`));
