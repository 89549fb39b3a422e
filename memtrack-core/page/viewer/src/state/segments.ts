// Reserved memory as segments: the pieces of an expandable segment are mapped one by one but shown as one segment.

import type {Elements} from '../types.ts';
import type {LiveSet} from './live.ts';
import type {Origin} from './order.ts';

const EXPANDABLE = 8;

/** One segment of reserved memory after an event: one piece, or neighbouring pieces of an expandable segment. */
export interface Segment {
  /** Bytes from the origin. */
  readonly from: number;
  to: number;
  readonly stream: number;
  readonly expandable: boolean;
  /** The row of the segment's first piece. */
  readonly row: number;
  pieces: number;
  /** Index of a segment that begins earlier and ends later, or -1. Lost events cause such overlaps. */
  readonly around: number;
}

/** Joins live pieces into segments, by address. */
export function join_pieces(live: LiveSet, origin: Origin): Segment[] {
  const elements: Elements = live.elements, segments: Segment[] = [];
  for (let i = 0; i < live.count; i++) {
    const row = live.row(i), from = origin.distance(elements, row), to = from + elements.size[row]!;
    const expandable = (elements.flags[row]! & EXPANDABLE) !== 0, stream = elements.stream[row]!;
    const last = segments[segments.length - 1];
    if (last && expandable && last.expandable && last.to === from && last.stream === stream) {
      last.to = to;
      last.pieces++;
      continue;
    }
    let around = segments.length - 1;
    while (around >= 0 && segments[around]!.to <= from) around = segments[around]!.around;
    segments.push({from, to, stream, expandable, row, pieces: 1, around});
  }
  return segments;
}

/** Returns the index of the segment that contains an address, from `hint` (the last that begins at or before it), or -1. */
export function containing_segment(segments: readonly Segment[], hint: number, distance: number): number {
  while (hint >= 0 && segments[hint]!.to <= distance) hint = segments[hint]!.around;
  return hint;
}
