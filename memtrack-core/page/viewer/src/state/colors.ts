// What colours blocks have in the map.

import type {ColorBy, Device} from '../types.ts';
import {parse_color} from './paint.ts';

/** Ten hues that people with any kind of colour blindness tell apart in lightness at least. */
const HUES = ['#4c78a8', '#e08a2e', '#5fa6a0', '#b75d69', '#7a9f4c', '#8c6bb1', '#d3b13f', '#9c7a5b', '#6baed6', '#c77daf'].map(parse_color);
const OTHER = parse_color('#8f96a0');

/** Colours of blocks by what the page colours by: 0xBBGGRR. */
export function block_color(device: Device, by: ColorBy, event: number): (row: number) => number {
  const blocks = device.blocks, hue = (n: number): number => HUES[n % HUES.length]!;
  switch (by) {
    case 'stream': return row => hue(blocks.stream[row]!);
    case 'pool': return row => blocks.pool[row] === 0 ? OTHER : hue(blocks.pool[row]! - 1);
    case 'category': return row => blocks.category[row] === 0 ? OTHER : hue(blocks.category[row]! - 1);
    case 'size': return row => hue(Math.floor(Math.log2(Math.max(1, blocks.size[row]!)) / 4));
    case 'age': return row => hue(Math.floor(Math.log2(Math.max(1, event - blocks.start[row]! + 1)) / 2.5));
    case 'stack': return row => blocks.stack[row] === 0 ? OTHER : hue(Math.imul(blocks.stack[row]!, 0x9e3779b1) >>> 16);
  }
}
