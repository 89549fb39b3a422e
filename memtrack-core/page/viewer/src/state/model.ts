// The state of a device's memory after an event, for the map; updated from step to step.

import type {Device, Elements} from '../types.ts';
import {by_size, lay_out, type Layout} from './layout.ts';
import {LiveSet} from './live.ts';
import {Origin} from './order.ts';
import {join_pieces, type Segment} from './segments.ts';

export class StateModel {
  readonly blocks: LiveSet;
  readonly pieces: LiveSet;
  readonly origin: Origin;
  /** Whether there are no segments: a heap. Blocks are then grouped by size class. */
  readonly classes: boolean;
  private joined: {version: number; segments: Segment[]; order: number[]} | null = null;
  private made: {event: number; layout: Layout} | null = null;

  constructor(readonly device: Device, readonly segments: Elements) {
    const events = device.head.events;
    this.blocks = new LiveSet(device, device.blocks, events);
    this.pieces = new LiveSet(device, segments, events);
    this.origin = Origin.of({elements: device.blocks, order: this.blocks.order}, {elements: segments, order: this.pieces.order});
    this.classes = segments.count === 0;
  }

  /** Returns the layout after an event. */
  at(event: number): Layout {
    if (this.made?.event === event) return this.made.layout;
    this.blocks.go(event);
    this.pieces.go(event);
    if (this.joined?.version !== this.pieces.version) {
      const segments = join_pieces(this.pieces, this.origin);
      this.joined = {version: this.pieces.version, segments, order: by_size(segments)};
    }
    const layout = lay_out(this.blocks, this.joined.segments, this.joined.order, this.origin, event, this.device.head.events, this.classes);
    this.made = {event, layout};
    return layout;
  }
}
