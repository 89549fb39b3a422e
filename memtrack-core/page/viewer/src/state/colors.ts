// What colours blocks have in the map: those of the timeline.

import type {ColorBy, Device} from '../types.ts';
import {colors_of} from '../timeline/palette.ts';

let kept: {device: Device; by: ColorBy; dark: boolean; color: (row: number) => number} | null = null;

/** Colours of blocks by what the page colours by: 0xBBGGRR. Kept while a user steps from event to event. */
export function block_colors(device: Device, by: ColorBy, dark: boolean): (row: number) => number {
  if (kept?.device === device && kept.by === by && kept.dark === dark) return kept.color;
  const {of, palette} = colors_of(device.blocks, by, device.head, dark), fill = palette.fill.map(color => color & 0xffffff);
  kept = {device, by, dark, color: row => fill[of[row]!]!};
  return kept.color;
}
