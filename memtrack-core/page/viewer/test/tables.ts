// Random tables for tests, and the slow way to answer what the fast ways answer.

import type {Elements} from '../src/types.ts';
import {decode_elements} from '../src/data/elements.ts';
import {element_columns, section, type Block} from './encode.ts';
import {random} from './synthetic.ts';

/** Random blocks over so many events, sorted as a page has them. */
export function random_blocks(seed: number, events: number, pools = 1): Block[] {
  const rng = random(seed), out: Block[] = [], live: Block[] = [];
  const size = () => (rng() < 0.1 ? 1 + Math.floor(rng() * 2 ** 24) : 1 + Math.floor(rng() ** 3 * 2 ** 16));
  const block = (start: number): Block => {
    const b: Block = {start, end: events, size: size(), stack: Math.floor(rng() * 9), address: BigInt(Math.floor(rng() * 2 ** 45)), pool: Math.floor(rng() * (pools + 1))};
    live.push(b);
    return b;
  };
  for (let i = 0; i < 20; i++) {
    out.push(block(-1));
    if (rng() < 0.2) out.at(-1)!.pending = -1;
  }
  for (let e = 0; e < events; e++) {
    const dice = rng();
    if (dice < 0.45) out.push(block(e));
    else if (live.length && dice < 0.6) {
      const b = live[Math.floor(rng() * live.length)]!;
      b.pending ??= e;
    } else if (live.length && dice < 0.95) {
      // Mostly short lives, and some long ones.
      const at = rng() < 0.7 ? live.length - 1 : Math.floor(rng() * live.length);
      live.splice(at, 1)[0]!.end = e;
    }
  }
  return out;
}

/** Blocks as a page's tables have them. */
export function elements(blocks: Block[], events: number): Elements {
  const columns = element_columns(blocks, events, 'blocks');
  return decode_elements(section(columns), new Map(columns.map(c => [c.name, c.values.length])), events);
}

/** Rows live after an event, looked for one by one. */
export function live_slowly(blocks: Block[], event: number): number[] {
  return blocks.flatMap((b, row) => (b.start <= event && event < b.end ? [row] : []));
}
