// The bands of one picture: for each column of pixels, the drawn event and the height of each layer after that event.

import type {Axis} from '../timeline/axis.ts';
import {choose_events, Frame, type Window} from '../timeline/frame.ts';
import type {Stack} from '../timeline/stack.ts';
import {level_after, type Series} from './sums.ts';

/** Stacked layers: layer 2b has the blocks of band b that match search and filter, layer 2b + 1 its other blocks. */
export class BandPicture {
  readonly frame: Frame;
  /** Upper edge of each layer at each sample, in bytes: `tops[sample * layers + layer]`. */
  tops = new Float64Array(0);

  constructor(stack: Stack, readonly series: readonly Series[]) {
    this.frame = new Frame(stack);
  }

  /** Lays out a window. */
  lay_out(axis: Axis, window: Window): void {
    const {frame, series} = this, layers = series.length;
    frame.window = window;
    frame.columns(Math.ceil(window.width / window.coarse));
    const n = frame.sample_count = choose_events(frame.stack.peaks, axis, window, frame.samples, frame.sample_x);
    if (this.tops.length < n * layers) this.tops = new Float64Array(n * layers);
    frame.runs = 0;
    frame.spans = n;
    frame.room(n * layers);
    for (let s = 0, first_before = 0; s < n; s++) {
      const first = frame.runs, event = frame.samples[s]!;
      frame.span_x[s] = frame.sample_x[s]!;
      frame.span_event[s] = event;
      frame.span_sample[s] = s;
      frame.span_run[s] = first;
      let bytes = 0;
      for (let l = 0; l < layers; l++) {
        const from = bytes;
        bytes += level_after(series[l]!, event);
        this.tops[s * layers + l] = bytes;
        if (bytes === from || bytes <= window.bottom || from >= window.top) continue;
        const run = frame.runs++;
        frame.run_from[run] = from;
        frame.run_to[run] = bytes;
        frame.run_row[run] = l;
        frame.run_flags[run] = 0;
      }
      frame.span_same[s] = s ? shared_runs(frame, first_before, first) : 0;
      first_before = first;
    }
    frame.span_x[n] = window.width;
    frame.span_run[n] = frame.runs;
  }

  /** Returns the lower and upper edge of a layer at a sample, in bytes. */
  extent(sample: number, layer: number): {from: number; to: number} {
    const at = sample * this.series.length + layer;
    return {from: layer ? this.tops[at - 1]! : 0, to: this.tops[at]!};
  }

  /** Returns the layer at a height in bytes at a sample; null: above all layers. */
  layer_at(sample: number, bytes: number): number | null {
    for (let l = 0; l < this.series.length; l++) if (bytes < this.tops[sample * this.series.length + l]!) return l;
    return null;
  }
}

/** Returns the number of runs, from the bottom up, that two neighbouring spans share. */
function shared_runs({run_from, run_to, run_row, runs}: Frame, before: number, now: number): number {
  let n = 0;
  while (before + n < now && now + n < runs && run_row[before + n] === run_row[now + n] && run_from[before + n] === run_from[now + n] && run_to[before + n] === run_to[now + n]) n++;
  return n;
}
