// Random tables for tests, and naive versions of fast algorithms.

import type {Elements} from '../src/types.ts';
import {decode_elements} from '../src/data/elements.ts';
import {element_columns, section, type Block} from './encode.ts';
import {random} from './synthetic.ts';

/** Returns random blocks over a number of events, in the order of a page. */
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

/** Encodes blocks as a page does, and decodes them. */
export function elements(blocks: Block[], events: number): Elements {
  const columns = element_columns(blocks, events, 'blocks');
  return decode_elements(section(columns), new Map(columns.map(c => [c.name, c.values.length])), events);
}

/** Returns the rows that are live after an event, by a scan of all rows. */
export function live_naively(blocks: Block[], event: number): number[] {
  return blocks.flatMap((b, row) => (b.start <= event && event < b.end ? [row] : []));
}
