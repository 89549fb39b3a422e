// Loads the page's sections: from the elements of the page, or from the server that serves it.

import type {Head} from '../types.ts';

interface FromBase64 {
  fromBase64?(text: string): Uint8Array<ArrayBuffer>;
}

/** Returns a message about a feature that the browser lacks; null: the browser has all of them. */
export function missing_feature(): string | null {
  if (typeof DecompressionStream === 'undefined')
    return 'This browser cannot unpack the page’s tables (it has no DecompressionStream). Firefox 113, Chrome 103, Safari 16.4 and later can.';
  if (!document.createElement('canvas').getContext('2d'))
    return 'This browser does not provide a canvas to draw on. A privacy setting or an extension may have disabled it.';
  return null;
}

/** The unpacked bytes of the page's sections. Each is unpacked once, on the first request. */
export class Sections {
  private readonly requests: (Promise<Uint8Array> | undefined)[] = [];
  constructor(private readonly head: Head) {}

  get(section: number): Promise<Uint8Array> {
    return this.requests[section] ??= this.load(section);
  }

  /** Releases a section that has been decoded. */
  drop(section: number): void {
    this.requests[section] = undefined;
  }

  columns(section: number): Map<string, number> {
    return new Map(this.head.sections[section]!.columns.map(c => [c.name, c.count]));
  }

  private async load(section: number): Promise<Uint8Array> {
    const bytes = this.head.sections[section]?.bytes;
    if (bytes === undefined) throw new Error(`this page refers to a table (${section}) that it does not contain`);
    return inflate(this.head.served ? await fetched(section) : embedded(section), bytes);
  }
}

async function fetched(section: number): Promise<Uint8Array<ArrayBuffer>> {
  let answer;
  try {
    answer = await fetch(`section/${section}`);
  } catch {
    throw new Error('the program that served this page does not respond; is “memtrack view --serve” still running?');
  }
  if (!answer.ok) throw new Error(`the program that served this page returned no table ${section} (status ${answer.status})`);
  return new Uint8Array(await answer.arrayBuffer());
}

function embedded(section: number): Uint8Array<ArrayBuffer> {
  const element = document.getElementById(`memtrack-section-${section}`);
  if (!element) throw new Error(`a table of this page (${section}) is not in the file: it was truncated or changed`);
  const text = element.textContent ?? '';
  const native = (Uint8Array as unknown as FromBase64).fromBase64;
  try {
    if (native) return native.call(Uint8Array, text);
    const raw = atob(text), bytes = new Uint8Array(raw.length);
    for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
    return bytes;
  } catch {
    throw new Error(`a table of this page (${section}) is damaged`);
  }
}

/** Unpacks a raw deflate stream of a known length. */
export async function inflate(packed: Uint8Array<ArrayBuffer>, length: number): Promise<Uint8Array> {
  const stream = new DecompressionStream('deflate-raw');
  const writer = stream.writable.getWriter();
  // The reader reports rejections too, so ignore them here.
  writer.write(packed).catch(() => {});
  writer.close().catch(() => {});
  const reader = stream.readable.getReader(), out = new Uint8Array(length);
  let at = 0;
  try {
    for (;;) {
      const {done, value} = await reader.read();
      if (done) break;
      out.set(value, at);
      at += value.length;
    }
  } catch {
    at = -1;
  }
  if (at !== length) throw new Error('a table of this page cannot be unpacked: the file is damaged');
  return out;
}
