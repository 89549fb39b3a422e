// Wheel, drag and double click, by d3-zoom: turns its transforms into windows of the two axes.

import {scaleLinear} from 'd3-scale';
import {select} from 'd3-selection';
import {zoom, zoomIdentity, type D3ZoomEvent} from 'd3-zoom';

/** Ranges of both axes. */
export interface Ranges {
  from: number;
  to: number;
  bottom: number;
  top: number;
}

interface Hands {
  /** What is shown now, and how large it is in CSS pixels. */
  ranges(): Ranges;
  size(): {width: number; height: number};
  moved(to: Ranges): void;
  /** A gesture begins or ends. */
  busy(on: boolean): void;
}

/** Listens to an element. Dragging moves both axes; the wheel zooms along, with shift the bytes, with alt both. */
export function listen(element: HTMLElement, hands: Hands): void {
  let last = zoomIdentity;
  const behaviour = zoom<HTMLElement, unknown>()
    .filter(event => !event.button && !(event.type === 'wheel' && sideways(event as WheelEvent)))
    .wheelDelta(event => -(event.deltaY || event.deltaX) * (event.deltaMode === 1 ? 0.05 : event.deltaMode ? 1 : 0.002) * (event.ctrlKey ? 10 : 1))
    .duration(matchMedia('(prefers-reduced-motion: reduce)').matches ? 0 : 180)
    .on('start', () => hands.busy(true))
    .on('zoom', (event: D3ZoomEvent<HTMLElement, unknown>) => {
      const t = event.transform, k = t.k / last.k;
      const step = zoomIdentity.translate(t.x - last.x * k, t.y - last.y * k).scale(k);
      last = t;
      const source = event.sourceEvent as MouseEvent | null, now = hands.ranges(), {width, height} = hands.size();
      const bytes_too = k === 1 || source?.altKey || source?.shiftKey, along = k === 1 || source?.altKey || !source?.shiftKey;
      const next = {...now};
      if (along) [next.from, next.to] = step.rescaleX(scaleLinear().domain([now.from, now.to]).range([0, width])).domain() as [number, number];
      if (bytes_too) [next.bottom, next.top] = step.rescaleY(scaleLinear().domain([now.bottom, now.top]).range([height, 0])).domain() as [number, number];
      hands.moved(next);
    })
    .on('end', function () {
      // The window is the state; the transform starts anew, so that it never grows out of a number's precision.
      last = zoomIdentity;
      (this as HTMLElement & {__zoom: unknown}).__zoom = zoomIdentity;
      hands.busy(false);
    });
  select(element).call(behaviour);
  // A sideways wheel (touch pads) moves along.
  element.addEventListener('wheel', event => {
    if (!sideways(event)) return;
    event.preventDefault();
    const now = hands.ranges(), by = ((now.to - now.from) * event.deltaX) / hands.size().width;
    hands.moved({...now, from: now.from + by, to: now.to + by});
  }, {passive: false});
}

function sideways(event: WheelEvent): boolean {
  return !event.shiftKey && !event.ctrlKey && Math.abs(event.deltaX) > Math.abs(event.deltaY);
}
