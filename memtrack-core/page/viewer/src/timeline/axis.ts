// The horizontal axis: real time, or the number of the event.

/** The axis of a device. The state after event e lies between `at(e)` and `at(e + 1)`. */
export class Axis {
  /** The whole axis, with some room for the states before the first event and after the last. */
  readonly from: number;
  readonly to: number;

  /** `clock` is non-decreasing; null: the axis counts events. */
  constructor(readonly events: number, readonly clock: Float64Array | null) {
    const first = clock ? Math.min(clock[0] ?? 0, 0) : 0, last = clock ? clock[events - 1] ?? 1 : events;
    const room = Math.max((last - first) * 0.005, clock ? 1 : 0.5);
    this.from = (events && clock && clock[0]! > first ? first : first - room);
    this.to = last + room;
  }

  at(event: number): number {
    const {clock, events} = this;
    if (event < 0) return this.from;
    if (event >= events) return this.to;
    return clock ? clock[event]! : event;
  }

  /** Returns the number of events before a position of the axis. */
  before(x: number): number {
    const {clock, events} = this;
    if (!clock) return Math.max(0, Math.min(events, Math.ceil(x)));
    let low = 0, high = events;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (clock[middle]! < x) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** Returns the last event at or before a position of the axis; -1: none. */
  event_at(x: number): number {
    const {clock, events} = this;
    if (!clock) return Math.max(-1, Math.min(events - 1, Math.floor(x)));
    let low = 0, high = events;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (clock[middle]! <= x) low = middle + 1;
      else high = middle;
    }
    return low - 1;
  }

  /** The shortest range that can be shown. */
  get min_span(): number {
    return this.clock ? 1 : 2;
  }
}
