// Live rows after an event, by address, updated from step to step.

import type {Device, Elements} from '../types.ts';
import {address_order, end_order, first_at_least, lower_bound, type AddressOrder} from './order.ts';

/** If there are more steps than this, computing the rows again is faster. */
const MAX_STEPS = 64;

/** The rows of a table that are live after the current event, in the order of their addresses. */
export class LiveSet {
  readonly order: AddressOrder;
  private readonly ends: Uint32Array;
  private ranks = new Uint32Array(1024);
  private length = 0;
  private at: number | null = null;
  /** The number of changes so far, to invalidate derived data. */
  version = 0;

  constructor(private readonly device: Pick<Device, 'live_after'>, readonly elements: Elements, events: number) {
    this.order = address_order(elements);
    this.ends = end_order(elements, events);
  }

  get count(): number { return this.length; }

  /** Returns the row at an index of the live rows. */
  row(index: number): number { return this.order.rows[this.ranks[index]!]!; }

  /** Moves to the state after `event`. */
  go(event: number): void {
    if (this.at === event) return;
    if (this.at === null || Math.abs(event - this.at) > MAX_STEPS) this.jump(event);
    else while (this.at !== event) {
      if (event > this.at!) this.forward(this.at! + 1); else this.back(this.at!);
    }
  }

  private jump(event: number): void {
    const rows = this.device.live_after(this.elements, event), rank = this.order.rank;
    this.reserve(rows.length);
    for (let i = 0; i < rows.length; i++) this.ranks[i] = rank[rows[i]!]!;
    this.length = rows.length;
    this.ranks.subarray(0, this.length).sort();
    this.at = event;
    this.version++;
  }

  private forward(event: number): void {
    const {start, end} = this.elements;
    for (let i = first_at_least(this.ends, end, event); i < this.ends.length && end[this.ends[i]!] === event; i++) {
      if (start[this.ends[i]!]! < event) this.remove(this.ends[i]!);
    }
    for (let row = lower_bound(start, event, 0, this.elements.count); row < this.elements.count && start[row] === event; row++) {
      if (end[row]! > event) this.add(row);
    }
    this.at = event;
  }

  private back(event: number): void {
    const {start, end} = this.elements;
    for (let row = lower_bound(start, event, 0, this.elements.count); row < this.elements.count && start[row] === event; row++) {
      if (end[row]! > event) this.remove(row);
    }
    for (let i = first_at_least(this.ends, end, event); i < this.ends.length && end[this.ends[i]!] === event; i++) {
      if (start[this.ends[i]!]! < event) this.add(this.ends[i]!);
    }
    this.at = event - 1;
  }

  private index_of(rank: number): number { return lower_bound(this.ranks, rank, 0, this.length); }

  private add(row: number): void {
    this.reserve(this.length + 1);
    const rank = this.order.rank[row]!, at = this.index_of(rank);
    this.ranks.copyWithin(at + 1, at, this.length);
    this.ranks[at] = rank;
    this.length++;
    this.version++;
  }

  private remove(row: number): void {
    const rank = this.order.rank[row]!, at = this.index_of(rank);
    if (at === this.length || this.ranks[at] !== rank) return;
    this.ranks.copyWithin(at, at + 1, this.length);
    this.length--;
    this.version++;
  }

  private reserve(length: number): void {
    if (length <= this.ranks.length) return;
    const more = new Uint32Array(Math.max(length, this.ranks.length * 2));
    more.set(this.ranks.subarray(0, this.length));
    this.ranks = more;
  }
}
