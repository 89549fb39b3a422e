// Colours of blocks in the map: the same as in the timeline.

import type {ColorBy, Device, Texts} from '../types.ts';
import {colors_of, live_at_peak, type Palette} from '../timeline/palette.ts';

/** Colours of a device's blocks. */
export interface BlockColors {
  /** Returns the colour of a row: 0xBBGGRR. */
  of(row: number): number;
  readonly palette: Palette;
}

let cached: {device: Device; by: ColorBy; dark: boolean; colors: BlockColors} | null = null;

/** Returns the colours of blocks. Cached while the user steps from event to event. */
export function block_colors(device: Device, by: ColorBy, dark: boolean, texts: Texts): BlockColors {
  if (cached?.device === device && cached.by === by && cached.dark === dark) return cached.colors;
  const {of, palette} = colors_of(device.blocks, by, device.head, dark, live_at_peak(device, device.blocks), texts), fill = palette.fill.map(color => color & 0xffffff);
  cached = {device, by, dark, colors: {of: row => fill[of[row]!]!, palette}};
  return cached.colors;
}
