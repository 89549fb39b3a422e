// A device's tables, each decoded on first use.

import type {Bands, Device, DeviceHead, Elements, Events, Head, Texts} from '../types.ts';
import {Checkpoints, decode_elements} from './elements.ts';
import {decode_events, decode_times, nondecreasing} from './events.ts';
import {Sections} from './sections.ts';
import {decode_bands, decode_texts} from './texts.ts';

/** Returns the devices in the order of `window.memtrack.devices()`: those with events first, accelerators before host memory; otherwise as in the page, where the larger of a process's heap and mapped memory comes first. */
export function devices_of(head: Head, sections: Sections): LazyDevice[] {
  const places = {device: 0, heap: 1, mapped: 1, pinned: 2};
  return [...head.devices]
    .sort((a, b) => Number(b.events > 0) - Number(a.events > 0) || places[a.kind] - places[b.kind])
    .map((device, index) => new LazyDevice(device, index, sections));
}

/** Loads the texts in a section, which all devices of a process share. */
export async function load_texts(sections: Sections, section: number): Promise<Texts> {
  const texts = decode_texts(await sections.get(section), sections.columns(section));
  sections.drop(section);
  return texts;
}

/** A device of the page. */
export class LazyDevice implements Device {
  clock: Float64Array | null = null;
  private loaded: Promise<void> | null = null;
  private rows: Elements | null = null;
  private requests: {events?: Promise<Events>; segments?: Promise<Elements>; bands?: Promise<Bands>} = {};
  private readonly checkpoints = new Map<Elements, Checkpoints>();

  constructor(readonly head: DeviceHead, readonly index: number, private readonly sections: Sections) {}

  get blocks(): Elements {
    if (!this.rows) throw new Error(`the tables of ${this.head.name} are not loaded yet`);
    return this.rows;
  }

  load(): Promise<void> {
    return this.loaded ??= (async () => {
      const {blocks, events} = this.head.sections;
      const [block_bytes, event_bytes] = await Promise.all([this.sections.get(blocks), this.sections.get(events)]);
      const times = decode_times(event_bytes, this.sections.columns(events));
      this.clock = times && nondecreasing(times);
      this.rows = decode_elements(block_bytes, this.sections.columns(blocks), this.head.events);
      this.sections.drop(blocks);
    })();
  }

  events(): Promise<Events> {
    return this.requests.events ??= (async () => {
      const section = this.head.sections.events;
      const [bytes, segments] = await Promise.all([this.sections.get(section), this.segments(), this.load()]);
      const events = decode_events(bytes, this.sections.columns(section), this.blocks, segments, this.clock);
      this.sections.drop(section);
      return events;
    })();
  }

  segments(): Promise<Elements> {
    return this.requests.segments ??= (async () => {
      const section = this.head.sections.segments;
      const rows = decode_elements(await this.sections.get(section), this.sections.columns(section), this.head.events);
      this.sections.drop(section);
      return rows;
    })();
  }

  bands(): Promise<Bands> {
    return this.requests.bands ??= (async () => {
      const section = this.head.sections.bands;
      return decode_bands(await this.sections.get(section), this.sections.columns(section));
    })();
  }

  live_after(elements: Elements, event: number): Uint32Array {
    let points = this.checkpoints.get(elements);
    if (!points) this.checkpoints.set(elements, points = new Checkpoints(elements, this.head.events - 1));
    return points.live_after(event);
  }
}
