// Brings the page's sections: from the elements of the page, or from the server that serves it.

import type {Head} from '../types.ts';

interface FromBase64 {
  fromBase64?(text: string): Uint8Array<ArrayBuffer>;
}

/** What the browser lacks to show the page, in words; null: nothing. */
export function missing(): string | null {
  if (typeof DecompressionStream === 'undefined')
    return 'This browser cannot unpack the page’s tables (it has no DecompressionStream). Firefox 113, Chrome 103, Safari 16.4 and later can.';
  if (!document.createElement('canvas').getContext('2d'))
    return 'This browser gives the page no canvas to draw on. It may be switched off by a privacy setting or an extension.';
  return null;
}

/** The unpacked bytes of the page's sections. Each is unpacked once, by whoever asks first. */
export class Sections {
  private readonly asked: (Promise<Uint8Array> | undefined)[] = [];
  constructor(private readonly head: Head) {}

  get(section: number): Promise<Uint8Array> {
    return this.asked[section] ??= this.bring(section);
  }

  /** Lets go of a section that is decoded. */
  drop(section: number): void {
    this.asked[section] = undefined;
  }

  columns(section: number): Map<string, number> {
    return new Map(this.head.sections[section]!.columns.map(c => [c.name, c.count]));
  }

  private async bring(section: number): Promise<Uint8Array> {
    const bytes = this.head.sections[section]?.bytes;
    if (bytes === undefined) throw new Error(`this page names a table (${section}) that it does not have`);
    return inflate(this.head.served ? await fetched(section) : embedded(section), bytes);
  }
}

async function fetched(section: number): Promise<Uint8Array<ArrayBuffer>> {
  let answer;
  try {
    answer = await fetch(`section/${section}`);
  } catch {
    throw new Error('the program that served this page does not answer; is “memtrack view --serve” still running?');
  }
  if (!answer.ok) throw new Error(`the program that served this page gave no table ${section} (status ${answer.status})`);
  return new Uint8Array(await answer.arrayBuffer());
}

function embedded(section: number): Uint8Array<ArrayBuffer> {
  const element = document.getElementById(`memtrack-section-${section}`);
  if (!element) throw new Error(`a table of this page (${section}) is not in the file: it was cut off or changed`);
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
  // Rejections come out of the reader as well; here they would only be reported twice.
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
