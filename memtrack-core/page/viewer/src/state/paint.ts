// Paints strips of memory into pixels. A block may be far narrower than a pixel, and there may be 100,000 blocks. Their
// coverage of each column is summed, and one line then fills a strip's height, so that the time is proportional to the number
// of live blocks plus the number of pixels.

import type {Elements} from '../types.ts';
import {item_at} from './items.ts';
import {rounding_after, type Layout} from './layout.ts';
import type {Strip} from './rows.ts';

/** Colours as 0xBBGGRR, as in the pixels of a little-endian machine. */
export interface Colors {
  readonly back: number;
  readonly free: number;
  readonly free_mark: number;
  readonly rounding: number;
  readonly rounding_mark: number;
  readonly pending_mark: number;
  readonly border: number;
}

const NOTHING = 0, FREE = 1, BLOCK = 2, ROUNDING = 3, PENDING = 4, BORDER = 5;

/** The period of patterns, in rows of pixels. */
const PERIOD = 6;

/** The minimum coverage of a block in its column, so that 512 bytes in a segment of gigabytes are visible. */
const MIN_COVER = 0.3;

export interface Scene {
  readonly layout: Layout;
  readonly elements: Elements;
  readonly event: number;
  readonly events: number;
  readonly color: (row: number) => number;
  readonly passing: Uint8Array | null;
  readonly colors: Colors;
}

export class Painter {
  private red = new Float32Array(0);
  private green = new Float32Array(0);
  private blue = new Float32Array(0);
  private cover = new Float32Array(0);
  private rounded = new Float32Array(0);
  private waiting = new Float32Array(0);
  private kind = new Uint8Array(0);
  private line = new Uint32Array(0);
  private pattern = new Uint32Array(0);

  constructor(private readonly pixels: Uint32Array, private readonly width: number, private readonly height: number) {
    for (const name of ['red', 'green', 'blue', 'cover', 'rounded', 'waiting'] as const) this[name] = new Float32Array(width);
    this.kind = new Uint8Array(width);
    this.line = new Uint32Array(width);
    this.pattern = new Uint32Array(width);
  }

  /**
   * Paints one strip, from `top` to `bottom` in pixels. Rows begin at `left`, and `ratio` is the number of device pixels per
   * CSS pixel.
   */
  strip(scene: Scene, strip: Strip, left: number, top: number, bottom: number, ratio: number): void {
    const x0 = Math.max(0, Math.round(left + strip.x * ratio));
    const x1 = Math.min(this.width, Math.max(x0 + 1, Math.round(left + (strip.x + strip.width) * ratio)));
    if (x1 <= x0 || bottom <= 0 || top >= this.height) return;
    for (const values of [this.red, this.green, this.blue, this.cover, this.rounded, this.waiting]) values.fill(0, x0, x1);
    this.edges.length = 0;
    this.blocks(scene, strip, x0, x1);
    this.compose(scene, x0, x1);
    this.fill(scene, x0, x1, top, bottom);
  }

  /** Last columns of blocks that are wide enough for an edge. */
  private readonly edges: number[] = [];

  private blocks(scene: Scene, strip: Strip, x0: number, x1: number): void {
    const {layout, elements, event} = scene, {items, offsets} = layout, {size, pending} = elements, group = strip.group;
    const scale = (x1 - x0) / (strip.to - strip.from || 1);
    // A block that begins before the strip may extend into it; overlaps of more than a few blocks are rare.
    for (let i = Math.max(group.first, item_at(layout, group, strip.from) - 4); i < group.last; i++) {
      const offset = offsets[i]!;
      if (offset >= strip.to) break;
      const row = items[i]!, bytes = size[row]!, to = Math.min(offset + bytes, group.bytes);
      const a = (Math.max(offset, strip.from) - strip.from) * scale, b = (Math.min(to, strip.to) - strip.from) * scale;
      if (b > a || (bytes === 0 && offset >= strip.from)) {
        const faint = scene.passing !== null && scene.passing[row] === 0;
        const color = faint ? mix(scene.color(row), scene.colors.free, 0.85) : scene.color(row);
        this.span(x0, x1, a, Math.max(a, b), color, pending[row]! <= event ? this.waiting : null);
      }
      if (group.kind !== 'segment') continue;
      const next = i + 1 < group.last ? Math.min(offsets[i + 1]!, group.bytes) : group.bytes;
      if (next <= to || next <= strip.from) continue;
      const rounding = rounding_after(row, next - to, size, elements.final_bytes, elements.end, scene.events);
      if (rounding <= 0) continue;
      const c = (Math.min(to + rounding, strip.to) - strip.from) * scale;
      if (c - b > 0.2) this.round(x0, x1, Math.max(b, 0), c);
    }
  }

  private span(x0: number, x1: number, a: number, b: number, color: number, also: Float32Array | null): void {
    const from = Math.min(x1 - 1, x0 + Math.floor(a)), to = Math.min(x1 - 1, x0 + Math.floor(b));
    if (from === to) { this.add(from, Math.max(b - a, MIN_COVER), color, also); return; }
    this.add(from, 1 - (a - Math.floor(a)), color, also);
    const red = color & 255, green = color >> 8 & 255, blue = color >> 16 & 255;
    for (let x = from + 1; x < to; x++) {
      this.red[x] = red; this.green[x] = green; this.blue[x] = blue; this.cover[x] = 1;
      if (also) also[x] = 1;
    }
    const rest = b - Math.floor(b);
    if (rest > 0 || to === x1 - 1) this.add(to, x0 + b >= x1 ? 1 : rest, color, also);
    if (to - from >= 4) this.edges.push(rest < 0.5 ? to - 1 : to);
  }

  private add(x: number, cover: number, color: number, also: Float32Array | null): void {
    this.red[x]! += (color & 255) * cover;
    this.green[x]! += (color >> 8 & 255) * cover;
    this.blue[x]! += (color >> 16 & 255) * cover;
    this.cover[x]! += cover;
    if (also) also[x]! += cover;
  }

  private round(x0: number, x1: number, b: number, c: number): void {
    const from = Math.min(x1 - 1, x0 + Math.floor(b)), to = Math.min(x1 - 1, x0 + Math.floor(c));
    for (let x = from; x <= to; x++) this.rounded[x]! += Math.min(x0 + c, x + 1) - Math.max(x0 + b, x);
    // Mark at least one column as rounding, unless the block fills that column.
    if (this.cover[from]! < 0.7) this.rounded[from] = Math.max(this.rounded[from]!, 0.5);
  }

  private compose(scene: Scene, x0: number, x1: number): void {
    const {colors} = scene, {line, kind} = this;
    for (let x = x0; x < x1; x++) {
      const cover = this.cover[x]!;
      if (this.rounded[x]! >= 0.5 && cover < 0.7) { kind[x] = ROUNDING; line[x] = colors.rounding; continue; }
      if (cover < 0.02) { kind[x] = FREE; line[x] = colors.free; continue; }
      const color = pack(this.red[x]! / cover, this.green[x]! / cover, this.blue[x]! / cover);
      kind[x] = this.waiting[x]! > cover / 2 ? PENDING : BLOCK;
      line[x] = cover >= 0.98 ? color : mix(color, colors.free, 1 - cover);
    }
    for (const x of this.edges) if (x < x1) { line[x] = mix(line[x]!, 0, 0.35); kind[x] = BORDER; }
    if (x1 - x0 >= 3) {
      line[x0] = line[x1 - 1] = colors.border;
      kind[x0] = kind[x1 - 1] = BORDER;
    }
  }

  private fill(scene: Scene, x0: number, x1: number, top: number, bottom: number): void {
    const {colors} = scene, {line, kind, pattern, pixels, width} = this;
    for (let phase = 0; phase < PERIOD; phase++) {
      let made = false;
      for (let y = first_with(top + 1, phase); y < bottom - 1; y += PERIOD) {
        if (y < 0 || y >= this.height) continue;
        if (!made) {
          made = true;
          for (let x = x0; x < x1; x++) {
            let color = line[x]!;
            switch (kind[x]) {
              case FREE: if (phase % 3 === 0 && (x + phase) % 6 === 0) color = colors.free_mark; break;
              case ROUNDING: if (phase % 2 === 0) color = colors.rounding_mark; break;
              case PENDING: if ((x + phase) % PERIOD < 2) color = colors.pending_mark; break;
            }
            pattern[x] = color | 0xff000000;
          }
        }
        pixels.set(pattern.subarray(x0, x1), y * width + x0);
      }
    }
    for (const y of [top, bottom - 1]) {
      if (y >= 0 && y < this.height) pixels.fill((colors.border | 0xff000000) >>> 0, y * width + x0, y * width + x1);
    }
  }

  /** Fills everything with the background. */
  clear(colors: Colors): void {
    this.pixels.fill((colors.back | 0xff000000) >>> 0);
    this.kind.fill(NOTHING);
  }
}

function first_with(from: number, phase: number): number { return from + (((phase - from) % PERIOD) + PERIOD) % PERIOD; }

function pack(red: number, green: number, blue: number): number {
  return (Math.min(255, red) & 255) | (Math.min(255, green) & 255) << 8 | (Math.min(255, blue) & 255) << 16;
}

/** Interpolates between two colours. */
export function mix(from: number, to: number, share: number): number {
  const keep = 1 - share;
  return pack((from & 255) * keep + (to & 255) * share, (from >> 8 & 255) * keep + (to >> 8 & 255) * share,
    (from >> 16 & 255) * keep + (to >> 16 & 255) * share);
}

/** Parses a CSS colour `#rrggbb` as 0xBBGGRR. */
export function parse_color(css: string): number {
  const hex = css.trim().replace('#', '');
  const six = hex.length === 3 ? [...hex].map(c => c + c).join('') : hex;
  return parseInt(six.slice(4, 6) + six.slice(2, 4) + six.slice(0, 2), 16) || 0;
}
