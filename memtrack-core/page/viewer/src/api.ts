// `window.memtrack`, the interface for scripts. The answers come from the tables that the picture is drawn from.

import type {Hit, Show} from './types.ts';
import type {Page} from './app.ts';
import {bands_of} from './categories/names.ts';
import {hex} from './format.ts';
import {Plot, painted} from './timeline/plot.ts';

/** A live block. */
export interface LiveBlock {
  /** Hexadecimal, with `0x`. */
  address: string;
  size: number;
  /** Whether the block's free was requested but has not completed. */
  pending: boolean;
}

/** A label over the picture: its text, and its position in the window. */
export interface LabelBox {
  text: string;
  x: number;
  y: number;
  width: number;
  height: number;
}

/** A device: its name, or its index in `devices()`. */
export type DeviceName = string | number;

/** The interface that docs/PAGE.md documents. */
export interface Api {
  /** Fulfilled when the first picture is complete. */
  readonly ready: Promise<void>;
  /** Names of the devices: those with events first, accelerators before host memory. */
  devices(): string[];
  /** The number of events in a device's trace. */
  events(device: DeviceName): number;
  /** Changes the state of the page; fulfilled when the new state is drawn. */
  show(change: Show): Promise<void>;
  /** The bytes of the blocks that are live after an event; for event -1, before the first event. */
  allocatedAt(device: DeviceName, event: number): Promise<number>;
  /** The blocks that are live after an event, in the order in which they are stacked. */
  blocksAt(device: DeviceName, event: number): Promise<LiveBlock[]>;
  /** Live bytes of each category after an event, in the order of the bands, bottom first. */
  categoriesAt(device: DeviceName, event: number): Promise<{name: string; size: number}[]>;
  /** The item at a point of the window; null: outside the picture. */
  hit(x: number, y: number): Hit | null;
  /** The labels over the picture, in pixels of the window. */
  labels(): LabelBox[];
  /** The number of frames drawn since the last call, and the time of the slowest. */
  paint(): {count: number; worst_ms: number};
}

/** Returns the interface of a page. */
export function api_of(page: Page, ready: Promise<void>): Api {
  const at = async (name: DeviceName, event: number) => {
    const device = page.devices[page.device_of(name)]!;
    if (!Number.isInteger(event) || event < -1 || event >= Math.max(1, device.head.events)) throw new RangeError(`${device.head.name} has events -1 to ${device.head.events - 1}, not ${event}`);
    await device.load();
    return device;
  };
  return {
    ready,
    devices: () => page.devices.map(d => d.head.name),
    events: device => page.devices[page.device_of(device)]!.head.events,
    show: change => page.show(change),
    async allocatedAt(name, event) {
      return (await at(name, event)).blocks.total[event + 1]!;
    },
    async blocksAt(name, event) {
      const device = await at(name, event), {blocks} = device;
      return Array.from(device.live_after(blocks, event), row => ({
        address: hex(blocks.address_high[row]!, blocks.address_low[row]!), size: blocks.size[row]!,
        pending: blocks.pending[row]! <= event,
      }));
    },
    async categoriesAt(name, event) {
      const device = await at(name, event), {blocks} = device, size_of = new Float64Array(256);
      for (const row of device.live_after(blocks, event)) size_of[blocks.category[row]!]! += blocks.size[row]!;
      return bands_of(device.head.categories).map(({name, values}) => ({name, size: values.reduce((sum, value) => sum + size_of[value]!, 0)})).filter(({size}) => size > 0);
    },
    hit: (x, y) => page.view?.hit(x, y) ?? null,
    labels: () => (page.view instanceof Plot ? page.view.label_boxes() : []),
    paint() {
      const {count, worst_ms} = painted;
      painted.count = painted.worst_ms = 0;
      return {count, worst_ms};
    },
  };
}
