// Lays out one picture: for each column of pixels, the drawn event and the runs of bytes from the bottom up.
//
// A column shows the state after the event with the highest total in its range, so that the outline is the true envelope and no
// peak is missed. Rows that are live in none of these states are skipped; the others ("members") are the leaves of a tree of
// sums, in which each column expands only nodes that are higher than a pixel and in the picture.

import type {Axis} from './axis.ts';
import type {Stack} from './stack.ts';
import {rows_until} from '../data/elements.ts';
import type {Peaks} from './pyramid.ts';

const FAN = 16;

/** The run consists of several blocks smaller than a pixel. */
export const MERGED = 1;
/** The free is pending. */
export const PENDING = 2;
/** Allocated before the recording. */
export const OLD = 4;
/** Reserved by a pool and not used by a block. */
export const UNUSED = 8;

/** The part of the picture to draw. */
export interface Window {
  from: number;
  to: number;
  bottom: number;
  top: number;
  /** Pixels of the picture. */
  width: number;
  height: number;
  /** Pixels per column: more than one if drawing is too slow for a gesture. */
  coarse: number;
}

/**
 * Chooses the event of each column of pixels: the one in its range with the highest total. Neighbouring columns with the same
 * event are merged. Writes the events, and the first pixel of each followed by the width; returns the number of events.
 */
export function choose_events(peaks: Peaks, axis: Axis, {from, to, width, coarse}: Window, events: Int32Array, first_x: Int32Array): number {
  const columns = Math.ceil(width / coarse);
  let before = axis.before(from), count = 0;
  for (let c = 0; c < columns; c++) {
    const end = axis.before(from + ((to - from) * Math.min(width, (c + 1) * coarse)) / width);
    // The column begins with the state before its first event.
    const event = peaks.top(before, Math.max(before, end)) - 1;
    before = Math.max(before, end);
    if (count === 0 || events[count - 1] !== event) {
      events[count] = event;
      first_x[count] = c * coarse;
      count++;
    }
  }
  first_x[count] = width;
  return count;
}

/** A picture as runs. Columns with the same state form a span. */
export class Frame {
  /** First pixel of each span, followed by the width of the picture. */
  span_x = new Int32Array(0);
  /** The event whose state a span shows. */
  span_event = new Int32Array(0);
  /** First run of each span, followed by the number of runs. */
  span_run = new Int32Array(0);
  /** Number of a span's runs, from the bottom up, that equal those of the span before. */
  span_same = new Int32Array(0);
  spans = 0;
  run_from = new Float64Array(1 << 12);
  run_to = new Float64Array(1 << 12);
  /** The row, or the largest row of a merged run; -1 - layer: unused memory of a pool. */
  run_row = new Int32Array(1 << 12);
  run_flags = new Uint8Array(1 << 12);
  runs = 0;
  /** Members in stack order: their row (or -1 - layer), and the first and past-the-end sample in which they are live. */
  member_row = new Int32Array(0);
  member_from = new Int32Array(0);
  member_to = new Int32Array(0);
  members = 0;
  /** The distinct drawn events; `span_sample` contains the index of each span's event. */
  samples = new Int32Array(0);
  /** First pixel of each sample, followed by the width of the picture. */
  sample_x = new Int32Array(0);
  sample_count = 0;
  span_sample = new Int32Array(0);
  /** Height of each envelope at each sample: `[layer - 1][sample]`. */
  heights: Float64Array[] = [];
  window: Window = {from: 0, to: 1, bottom: 0, top: 1, width: 0, height: 0, coarse: 1};

  constructor(public stack: Stack) {}

  /** Reserves space for a number of columns. */
  columns(count: number): void {
    if (this.samples.length >= count + 2) return;
    this.samples = new Int32Array(count + 2);
    this.sample_x = new Int32Array(count + 2);
    this.span_x = new Int32Array(count + 2);
    this.span_event = new Int32Array(count + 2);
    this.span_sample = new Int32Array(count + 2);
    this.span_run = new Int32Array(count + 2);
    this.span_same = new Int32Array(count + 2);
  }

  /** Reserves space for more runs. */
  room(more: number): void {
    const need = this.runs + more;
    if (need <= this.run_from.length) return;
    const length = Math.max(need, this.run_from.length * 2);
    const grow = <T extends {set(from: T): void}>(made: T, old: T) => (made.set(old), made);
    this.run_from = grow(new Float64Array(length), this.run_from);
    this.run_to = grow(new Float64Array(length), this.run_to);
    this.run_row = grow(new Int32Array(length), this.run_row);
    this.run_flags = grow(new Uint8Array(length), this.run_flags);
  }

  /** Returns the span at a pixel. */
  span_at(x: number): number {
    let low = 0, high = this.spans - 1;
    while (low < high) {
      const middle = (low + high + 1) >>> 1;
      if (this.span_x[middle]! <= x) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  private size_of(member: number, sample: number, used: number): number {
    const row = this.member_row[member]!;
    return row >= 0 ? this.stack.elements.size[row]! : Math.max(0, this.heights[-2 - row]![sample]! - used);
  }

  /** Returns the row (or -1 - layer) at a height in bytes of a sample's stack, and its lower edge; null: none. */
  member_at(sample: number, bytes: number): {row: number; from: number} | null {
    let at = 0, used = 0;
    for (let m = 0; m < this.members; m++) {
      const row = this.member_row[m]!;
      if (row >= 0 && (this.member_from[m]! > sample || this.member_to[m]! <= sample)) continue;
      const size = this.size_of(m, sample, used);
      used = row >= 0 ? used + (this.stack.layer?.[row] ? size : 0) : 0;
      if (bytes < at + size) return {row, from: at};
      at += size;
    }
    return null;
  }

  /** Returns the lower edge of a row in each sample; NaN where it is not live. */
  track(row: number): Float64Array {
    const n = this.sample_count, {size} = this.stack.elements, layer = this.stack.layer;
    const step = new Float64Array(n + 1);
    const row_layer = layer?.[row] ?? 0;
    let from = n, to = n;
    for (let m = 0; m < this.members; m++) {
      const r = this.member_row[m]!;
      if (r === row) {
        from = this.member_from[m]!;
        to = this.member_to[m]!;
        break;
      }
      if (r < 0 || (layer && layer[r]! !== 0 && layer[r]! !== row_layer)) continue;
      step[this.member_from[m]!]! += size[r]!;
      step[this.member_to[m]!]! -= size[r]!;
    }
    const out = new Float64Array(n).fill(NaN);
    for (let s = 0, at = 0; s < n; s++) {
      at += step[s]!;
      if (s < from || s >= to) continue;
      out[s] = at;
      for (let l = 1; l < row_layer; l++) out[s]! += this.heights[l - 1]![s]!;
    }
    return out;
  }
}

/** An engine that lays out frames. It reuses its buffers, so that drawing does not create garbage. */
export class LayoutEngine {
  private readonly sums: Float64Array[] = [];
  private readonly largest: Int32Array[] = [];
  private order = new Int32Array(0);

  /** Lays out a window into a frame. `live_after` returns the rows that are live after an event. */
  lay_out(frame: Frame, stack: Stack, axis: Axis, window: Window, live_after: (event: number) => Uint32Array): void {
    frame.stack = stack;
    frame.window = window;
    frame.runs = frame.spans = 0;
    this.sample(frame, axis, window);
    this.collect_members(frame, live_after);
    this.stack_up(frame, window);
  }

  /** Chooses the event of each column. */
  private sample(frame: Frame, axis: Axis, {width, coarse}: Window): void {
    frame.columns(Math.ceil(width / coarse));
    frame.sample_count = choose_events(frame.stack.peaks, axis, frame.window, frame.samples, frame.sample_x);
  }

  /** Finds the rows that are live in some sample, and their samples. */
  private collect_members(frame: Frame, live_after: (event: number) => Uint32Array): void {
    const {stack, samples, sample_count: n} = frame, {start, end} = stack.elements, {layer, only, envelopes} = stack;
    const last = n ? samples[n - 1]! : -1, first = n ? samples[0]! : -1;
    const old = n ? live_after(first) : new Uint32Array(0);
    const row_to = n ? rows_until(start, last) : 0, row_from = n ? rows_until(start, first) : 0;
    const room = old.length + Math.max(0, row_to - row_from) + envelopes.length;
    if (frame.member_row.length < room) {
      const length = Math.min(stack.elements.count + envelopes.length, room * 2);
      frame.member_row = new Int32Array(length);
      frame.member_from = new Int32Array(length);
      frame.member_to = new Int32Array(length);
    }
    const {member_row, member_from, member_to} = frame;
    let m = 0;
    // Returns the first sample at or after the event that frees a row.
    const end_sample = (row: number, sample: number) => {
      const free = end[row]!;
      let low = sample + 1, high = n;
      while (low < high) {
        const middle = (low + high) >>> 1;
        if (samples[middle]! < free) low = middle + 1;
        else high = middle;
      }
      return low;
    };
    for (const row of old) {
      if (only && !only[row]) continue;
      member_row[m] = row;
      member_from[m] = 0;
      member_to[m++] = end_sample(row, 0);
    }
    for (let row = row_from, sample = 0; row < row_to; row++) {
      const allocated = start[row]!;
      while (samples[sample]! < allocated) sample++;
      if (end[row]! <= samples[sample]! || (only && !only[row])) continue;
      member_row[m] = row;
      member_from[m] = sample;
      member_to[m++] = end_sample(row, sample);
    }
    frame.members = m;
    frame.heights = [];
    if (layer && envelopes.length) this.sort_by_layer(frame, layer);
  }

  /** Sorts members by layer, adds the unused memory of each envelope above its layer, and computes the heights of envelopes. */
  private sort_by_layer(frame: Frame, layer: Uint16Array): void {
    const {envelopes} = frame.stack, n = frame.sample_count, m = frame.members;
    const from = new Int32Array(envelopes.length + 2);
    const of = (i: number) => layer[frame.member_row[i]!]!;
    for (let i = 0; i < m; i++) from[of(i) + 1]!++;
    for (let l = 1; l < from.length; l++) from[l]! += from[l - 1]! + (l > 1 ? 1 : 0);
    const row = new Int32Array(m + envelopes.length), a = new Int32Array(row.length), b = new Int32Array(row.length);
    for (let i = 0; i < m; i++) {
      const at = from[of(i)]!++;
      row[at] = frame.member_row[i]!;
      a[at] = frame.member_from[i]!;
      b[at] = frame.member_to[i]!;
    }
    envelopes.forEach((envelope, l) => {
      const at = from[l + 1]!;
      row[at] = -2 - l;
      a[at] = 0;
      b[at] = n;
      const heights = new Float64Array(n);
      for (let s = 0, next = 0, high = 0; s < n; s++) {
        while (next < envelope.event.length && envelope.event[next]! <= frame.samples[s]!) high = envelope.high[next++]!;
        heights[s] = high;
      }
      frame.heights.push(heights);
    });
    frame.member_row = row;
    frame.member_from = a;
    frame.member_to = b;
    frame.members = row.length;
  }

  /** Visits the samples in order, updates the sums, and collects the runs of each. */
  private stack_up(frame: Frame, window: Window): void {
    const {stack, members, sample_count: n, member_row, member_from, member_to} = frame;
    const {size, start, pending, end} = stack.elements, layered = frame.heights.length > 0;
    this.reset(members);
    let fill = new Int32Array(0);
    const {sums, largest} = this, levels = sums.length, leaf = sums[0]!;
    // The changes at each sample, by one counting sort: members that end, that begin, and whose free becomes pending.
    const at = new Int32Array(3 * n + 4), order = this.order.length >= 3 * members ? this.order : (this.order = new Int32Array(3 * members));
    for (let pass = 0; pass < 2; pass++) {
      for (let m = 0; m < members; m++) {
        const row = member_row[m]!;
        if (row < 0) continue;
        const from = 3 * member_from[m]! + 1, to = 3 * member_to[m]!;
        const pends = pending[row]! < end[row]! && pending[row]! > start[row]! ? 3 * this.sample_from(frame, pending[row]!) + 2 : 0;
        // The first pass counts the members of each kind, the second places them.
        if (pass === 0) {
          at[from + 1]!++;
          if (to < 3 * n) at[to + 1]!++;
          if (pends > from && pends < to) at[pends + 1]!++;
        } else {
          order[fill[from]!++] = m;
          if (to < 3 * n) order[fill[to]!++] = m;
          if (pends > from && pends < to) order[fill[pends]!++] = m;
        }
      }
      if (pass === 0) {
        for (let i = 1; i < at.length; i++) at[i]! += at[i - 1]!;
        fill = at.slice();
      }
    }
    const used = new Float64Array(frame.heights.length), slack = new Int32Array(frame.heights.length);
    for (let m = 0; m < members; m++) if (member_row[m]! < 0) slack[-2 - member_row[m]!] = m;
    const change = (m: number, by: number) => {
      for (let l = 0, i = m; l < levels; l++, i >>>= 4) {
        sums[l]![i]! += by;
        largest[l]![i] = -1;
      }
    };
    const pixel = window.height > 0 ? (window.top - window.bottom) / window.height : 1;
    const collect = new Collector(frame, sums, largest, window.bottom, window.top, pixel);
    for (let s = 0; s < n; s++) {
      // The range of changed members: below and above it, the runs are those of the previous sample.
      let low = members, high = -1;
      for (let i = at[3 * s]!, to = at[3 * s + 3]!; i < to; i++) {
        const m = order[i]!;
        if (m < low) low = m;
        if (m > high) high = m;
      }
      if (layered) {
        for (let i = at[3 * s]!, to = at[3 * s + 2]!; i < to; i++) {
          const row = member_row[order[i]!]!, l = stack.layer![row]!;
          if (l) used[l - 1]! += i < at[3 * s + 1]! ? -size[row]! : size[row]!;
        }
        for (let l = 0; l < slack.length; l++) {
          const m = slack[l]!;
          if (Math.max(0, frame.heights[l]![s]! - used[l]!) === leaf[m]!) continue;
          if (m < low) low = m;
          if (m > high) high = m;
        }
      }
      if (high < 0 && s > 0) continue;
      const keep_below = s ? this.sum_below(low) : 0, keep_above = s ? this.sum_below(high + 1) : 0;
      let growth = 0;
      for (let i = at[3 * s]!, to = at[3 * s + 2]!, first_new = at[3 * s + 1]!; i < to; i++) {
        const m = order[i]!, by = i < first_new ? -size[member_row[m]!]! : size[member_row[m]!]!;
        change(m, by);
        growth += by;
      }
      for (let l = 0; l < slack.length; l++) {
        const m = slack[l]!, by = Math.max(0, frame.heights[l]![s]! - used[l]!) - leaf[m]!;
        if (by) change(m, by);
        growth += by;
      }
      const before = frame.spans - 1;
      frame.span_x[frame.spans] = frame.sample_x[s]!;
      frame.span_event[frame.spans] = frame.samples[s]!;
      frame.span_sample[frame.spans] = s;
      frame.span_same[frame.spans] = 0;
      frame.span_run[frame.spans++] = frame.runs;
      if (s === 0) collect.all(frame.samples[s]!);
      else collect.changed(frame.samples[s]!, frame.span_run[before]!, keep_below, keep_above, growth);
    }
    frame.span_x[frame.spans] = window.width;
    frame.span_run[frame.spans] = frame.runs;
  }

  private sample_from(frame: Frame, event: number): number {
    let low = 0, high = frame.sample_count;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (frame.samples[middle]! < event) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** Returns the bytes of the members below a member. */
  private sum_below(member: number): number {
    let bytes = 0;
    for (let l = 0, i = member; l < this.sums.length; l++, i >>>= 4) {
      const sums = this.sums[l]!;
      for (let k = l === this.sums.length - 1 ? 0 : i & ~15; k < i; k++) bytes += sums[k]!;
    }
    return bytes;
  }

  private reset(members: number): void {
    let n = Math.max(1, members), level = 0;
    for (; ; level++) {
      const room = Math.ceil(n / FAN) * FAN;
      if ((this.sums[level]?.length ?? 0) < room) {
        this.sums[level] = new Float64Array(room);
        this.largest[level] = new Int32Array(room);
      } else this.sums[level]!.fill(0, 0, room);
      this.largest[level]!.fill(-1, 0, room);
      if (n <= FAN) break;
      n = Math.ceil(n / FAN);
    }
    this.sums.length = this.largest.length = level + 1;
  }
}

/** A collector of the runs of one state. */
class Collector {
  private group_from = 0;
  private group_bytes = 0;
  private group_member = -1;
  private group_count = 0;
  private event = 0;

  constructor(private readonly frame: Frame, private readonly sums: Float64Array[], private readonly largest: Int32Array[],
    private readonly bottom: number, private readonly top: number, private readonly pixel: number) {}

  /** Collects all runs of a state. */
  all(event: number): void {
    this.event = event;
    this.between(0, Infinity);
  }

  /**
   * Collects the runs of a state from the runs of the previous state, which begin at `old`. Nothing changed below `below`
   * bytes, and everything above `above` is `growth` bytes higher.
   */
  changed(event: number, old: number, below: number, above: number, growth: number): void {
    this.event = event;
    const {frame, top, bottom} = this, end = frame.runs;
    let run = old;
    while (run < end && frame.run_to[run]! <= below) run++;
    this.copy(old, run, 0);
    frame.span_same[frame.spans - 1] = run - old;
    // Bytes below the first unchanged run are below the picture, and stay there.
    const from = run > old ? frame.run_to[run - 1]! : run < end ? Math.min(below, frame.run_from[run]!) : 0;
    while (run < end && frame.run_from[run]! < above) run++;
    if (run === end) return this.between(from, Infinity);
    this.between(from, frame.run_from[run]! + growth);
    const copied = frame.runs;
    this.copy(run, end, growth);
    // If the stack shrank, the top of the picture shows runs that were above it.
    const last = frame.runs > copied ? frame.run_to[frame.runs - 1]! : bottom;
    if (growth < 0 && last < top) this.between(last, Infinity);
  }

  private copy(from: number, to: number, by: number): void {
    const {frame, top, bottom} = this;
    frame.room(to - from);
    const {run_from, run_to, run_row, run_flags} = frame;
    let n = frame.runs;
    for (let run = from; run < to; run++) {
      const a = run_from[run]! + by, b = run_to[run]! + by;
      if (b <= bottom) continue;
      if (a >= top) break;
      run_from[n] = a;
      run_to[n] = b;
      run_row[n] = run_row[run]!;
      run_flags[n++] = run_flags[run]!;
    }
    frame.runs = n;
  }

  private low = 0;
  private high = Infinity;

  /** Collects the runs between two heights in bytes, which are edges of members. */
  private between(low: number, high: number): void {
    this.low = Math.max(low, 0);
    this.high = high;
    this.group_count = this.group_bytes = 0;
    if (high > low) this.nodes(this.sums.length - 1, 0, 0);
    this.flush();
  }

  /** Visits the sixteen nodes from `base` on, the first of which begins at the height `at`. */
  private nodes(level: number, base: number, at: number): void {
    const sums = this.sums[level]!, {pixel, low, high} = this, start = Math.max(this.bottom, low), stop = Math.min(this.top, high);
    for (let i = base, to = base + FAN; i < to; i++) {
      const bytes = sums[i]!;
      if (bytes === 0) continue;
      const next = at + bytes;
      if (next > start) {
        if (at >= stop) return;
        // A node across an edge is expanded, even if it is small.
        if (bytes < pixel && (level === 0 || (at >= low && next <= high))) this.merge(level, i, at, bytes);
        else {
          if (level === 0) {
            if (this.group_count) this.flush();
            this.emit(at, next, i, 0);
          } else {
            if (this.group_count && bytes >= pixel) this.flush();
            this.nodes(level - 1, i * FAN, at);
          }
        }
      }
      at = next;
    }
  }

  private merge(level: number, node: number, at: number, bytes: number): void {
    const leaf = this.sums[0]!, member = level === 0 ? node : this.find(level, node);
    if (this.group_count === 0) {
      this.group_from = at;
      this.group_member = member;
    } else if (leaf[member]! > leaf[this.group_member]!) this.group_member = member;
    this.group_bytes += bytes;
    // A node may contain a single block: then the run is not merged.
    this.group_count += level === 0 || leaf[member] === bytes ? 1 : 2;
    if (this.group_bytes >= this.pixel) this.flush();
  }

  private find(level: number, node: number): number {
    const known = this.largest[level]![node]!;
    if (known >= 0) return known;
    const sums = this.sums[level - 1]!, leaf = this.sums[0]!;
    let best = -1, most = -1;
    for (let i = node * FAN, to = i + FAN; i < to; i++) {
      if (sums[i] === 0) continue;
      const member = level === 1 ? i : this.find(level - 1, i);
      if (leaf[member]! > most) {
        most = leaf[member]!;
        best = member;
      }
    }
    return (this.largest[level]![node] = best);
  }

  private flush(): void {
    if (this.group_count) this.emit(this.group_from, this.group_from + this.group_bytes, this.group_member, this.group_count > 1 ? MERGED : 0);
    this.group_count = this.group_bytes = 0;
  }

  private emit(from: number, to: number, member: number, flags: number): void {
    const {frame} = this, run = frame.runs++;
    if (run === frame.run_from.length) frame.room(1);
    const row = frame.member_row[member]!, {start, pending, end} = frame.stack.elements;
    if (row < 0) flags |= UNUSED;
    else if (pending[row]! <= this.event && pending[row]! < end[row]!) flags |= PENDING;
    else if (start[row]! < 0) flags |= OLD;
    frame.run_from[run] = from;
    frame.run_to[run] = to;
    frame.run_row[run] = row;
    frame.run_flags[run] = flags;
  }
}
