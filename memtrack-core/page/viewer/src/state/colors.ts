// What colours blocks have in the map: those of the timeline.

import type {ColorBy, Device, Texts} from '../types.ts';
import {colors_of, live_at_peak, type Palette} from '../timeline/palette.ts';

/** Colours of a device's blocks. */
export interface BlockColors {
  /** Of a row: 0xBBGGRR. */
  of(row: number): number;
  readonly palette: Palette;
}

let kept: {device: Device; by: ColorBy; dark: boolean; colors: BlockColors} | null = null;

/** Colours of blocks by what the page colours by. Kept while a user steps from event to event. */
export function block_colors(device: Device, by: ColorBy, dark: boolean, texts: Texts): BlockColors {
  if (kept?.device === device && kept.by === by && kept.dark === dark) return kept.colors;
  const {of, palette} = colors_of(device.blocks, by, device.head, dark, live_at_peak(device, device.blocks), texts), fill = palette.fill.map(color => color & 0xffffff);
  kept = {device, by, dark, colors: {of: row => fill[of[row]!]!, palette}};
  return kept.colors;
}
