// Writes the format of pages (README.md) for tests, as the Rust code does for real files.

import zlib from 'node:zlib';
import fs from 'node:fs';
import path from 'node:path';
import {createHash} from 'node:crypto';
import type {DeviceHead, Head} from '../src/types.ts';

/** The values of a column; `text` for strings. */
export type Column = {name: string; code: 'u8' | 'varint' | 'delta'; values: ArrayLike<number | bigint>} | {name: string; code: 'text'; values: string[]};

const MASK = (1n << 64n) - 1n;

class Bytes {
  private data = new Uint8Array(1 << 16);
  length = 0;
  push(b: number): void {
    if (this.length === this.data.length) {
      const more = new Uint8Array(this.length * 2);
      more.set(this.data);
      this.data = more;
    }
    this.data[this.length++] = b;
  }
  varint(value: number | bigint): void {
    if (typeof value === 'bigint' && value > 0xffffffffn) {
      for (; value > 127n; value >>= 7n) this.push(Number(value & 127n) | 128);
      this.push(Number(value));
      return;
    }
    let v = Number(value);
    while (v > 127) {
      this.push((v % 128) | 128);
      v = Math.floor(v / 128);
    }
    this.push(v);
  }
  done(): Uint8Array {
    return this.data.slice(0, this.length);
  }
}

/** Returns the bytes of a section, uncompressed. */
export function section(columns: Column[]): Uint8Array {
  const out = new Bytes();
  for (const c of columns) {
    if (c.code === 'text') {
      const texts = c.values.map(t => Buffer.from(t, 'utf8'));
      for (const t of texts) out.varint(t.length);
      for (const t of texts) for (const b of t) out.push(b);
    } else if (c.code === 'u8') for (let i = 0; i < c.values.length; i++) out.push(Number(c.values[i]));
    else if (c.code === 'varint') for (let i = 0; i < c.values.length; i++) out.varint(c.values[i]!);
    else {
      let before: bigint = 0n, small = 0;
      for (let i = 0; i < c.values.length; i++) {
        const value = c.values[i]!;
        if (typeof value === 'number' && Math.abs(value) < 2 ** 50 && Math.abs(small) < 2 ** 50) {
          const d = value - small;
          out.varint(d >= 0 ? d * 2 : -d * 2 - 1);
          small = value;
          before = BigInt(value);
        } else {
          const d = BigInt.asIntN(64, BigInt(value) - before);
          out.varint(((d << 1n) ^ (d >> 63n)) & MASK);
          before = BigInt(value);
          small = Number(before);
        }
      }
    }
  }
  return out.done();
}

/** A block of a test. */
export interface Block {
  start: number;
  end: number;
  pending?: number;
  size: number;
  stack?: number;
  address?: bigint;
  stream?: number;
  pool?: number;
  category?: number;
  flags?: number;
}

/** Returns the columns of `blocks` or `segments`. Rows must be sorted by `start`. */
export function element_columns(rows: Block[], events: number, kind: 'blocks' | 'segments'): Column[] {
  const column = (name: string, code: 'varint' | 'delta', value: (b: Block) => number | bigint): Column => ({name, code, values: rows.map(value)});
  return [
    column('start', 'delta', b => b.start),
    column('life', 'varint', b => (b.end >= events ? 0 : b.end - b.start)),
    ...(kind === 'blocks' ? [column('pending', 'varint', b => (b.pending === undefined ? 0 : 1 + b.pending - b.start))] : []),
    column('size', 'varint', b => b.size),
    column('stack', 'varint', b => b.stack ?? 0),
    column('address', 'delta', b => b.address ?? 0n),
    column('stream', 'varint', b => b.stream ?? 0),
    column('pool', 'varint', b => b.pool ?? 0),
    ...(kind === 'blocks' && rows.some(b => b.category) ? [column('category', 'varint', b => b.category ?? 0)] : []),
    column('flags', 'varint', b => b.flags ?? 0),
  ];
}

/** The parts of a page: a head and its sections. */
export interface Parts {
  head: Omit<Head, 'sections'>;
  sections: Column[][];
}

const count = (c: Column) => c.values.length;

/** Reads the bundled script and style of `npm run build`. */
export function bundle(): {script: string; style: string} {
  const dist = path.join(process.cwd(), 'dist');
  return {script: fs.readFileSync(path.join(dist, 'viewer.js'), 'utf8'), style: fs.readFileSync(path.join(dist, 'viewer.css'), 'utf8')};
}

/** Returns the HTML of a page. */
export function page({head, sections}: Parts, {script, style} = bundle()): string {
  const raw = sections.map(section);
  const full: Head = {...head, sections: sections.map((columns, i) => ({columns: columns.map(c => ({name: c.name, code: c.code, count: count(c)})), bytes: raw[i]!.length}))};
  const hash = createHash('sha256').update(script).digest('base64');
  const json = JSON.stringify(full).replace(/</g, '\\u003c');
  return `<!doctype html>
<html lang="en"><head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src 'sha256-${hash}'; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'">
<title>${head.name.replace(/[<&]/g, ' ')} · memtrack</title><style>${style}</style></head>
<body>
<noscript>This page needs JavaScript.</noscript>
<main id="memtrack"></main>
<script type="application/json" id="memtrack-head">${json}</script>
${raw.map((bytes, i) => `<script type="text/plain" id="memtrack-section-${i}">${Buffer.from(zlib.deflateRawSync(bytes, {level: 6})).toString('base64')}</script>`).join('\n')}
<script>${script}</script>
</body></html>
`;
}

/** Returns a page as served by `memtrack view --serve`, and the content of `section/n`. */
export function served(parts: Parts): {html: string; sections: Uint8Array[]} {
  const html = page({...parts, head: {...parts.head, served: true}}).replace(/<script type="text\/plain" id="memtrack-section[^]*?<\/script>\n/g, '')
    .replace("img-src data:", "connect-src 'self'; img-src data:");
  return {html, sections: parts.sections.map(s => zlib.deflateRawSync(section(s)))};
}

/** Returns the head of a device, with default values. */
export function device_head(some: Partial<DeviceHead> & Pick<DeviceHead, 'events' | 'blocks' | 'segments' | 'sections'>): DeviceHead {
  return {name: 'device 0', ordinal: 0, kind: 'device', estimated: false, reserved: true, streams: ['0'], pools: ['default pool'], categories: [], inferred: false, color: some.categories?.length ? 'category' : 'stack', capacity_bytes: null, first: [], ooms: [], markers: [], ...some};
}
