// Wheel, drag and double click: converts the transforms of d3-zoom into windows of the two axes.

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

interface Handlers {
  /** The current ranges, and their size in CSS pixels. */
  ranges(): Ranges;
  size(): {width: number; height: number};
  moved(to: Ranges): void;
  /** A gesture begins or ends. */
  busy(on: boolean): void;
}

/**
 * Handles gestures on an element. Dragging moves both axes. The wheel zooms the horizontal axis, with Shift the axis of bytes,
 * and with Alt both.
 */
export function listen(element: HTMLElement, handlers: Handlers): void {
  let last = zoomIdentity;
  const behaviour = zoom<HTMLElement, unknown>()
    .filter(event => !event.button && !(event.type === 'wheel' && is_horizontal(event as WheelEvent)))
    .wheelDelta(event => -(event.deltaY || event.deltaX) * (event.deltaMode === 1 ? 0.05 : event.deltaMode ? 1 : 0.002) * (event.ctrlKey ? 10 : 1))
    .duration(matchMedia('(prefers-reduced-motion: reduce)').matches ? 0 : 180)
    .on('start', () => handlers.busy(true))
    .on('zoom', (event: D3ZoomEvent<HTMLElement, unknown>) => {
      const t = event.transform, k = t.k / last.k;
      const step = zoomIdentity.translate(t.x - last.x * k, t.y - last.y * k).scale(k);
      last = t;
      const source = event.sourceEvent as MouseEvent | null, now = handlers.ranges(), {width, height} = handlers.size();
      const bytes_too = k === 1 || source?.altKey || source?.shiftKey, along = k === 1 || source?.altKey || !source?.shiftKey;
      const next = {...now};
      if (along) [next.from, next.to] = step.rescaleX(scaleLinear().domain([now.from, now.to]).range([0, width])).domain() as [number, number];
      if (bytes_too) [next.bottom, next.top] = step.rescaleY(scaleLinear().domain([now.bottom, now.top]).range([height, 0])).domain() as [number, number];
      handlers.moved(next);
    })
    .on('end', function () {
      // The state is the window; resetting the transform keeps it within the precision of a number.
      last = zoomIdentity;
      (this as HTMLElement & {__zoom: unknown}).__zoom = zoomIdentity;
      handlers.busy(false);
    });
  select(element).call(behaviour);
  // Horizontal scrolling, as with touch pads, moves the horizontal axis.
  element.addEventListener('wheel', event => {
    if (!is_horizontal(event)) return;
    event.preventDefault();
    const now = handlers.ranges(), by = ((now.to - now.from) * event.deltaX) / handlers.size().width;
    handlers.moved({...now, from: now.from + by, to: now.to + by});
  }, {passive: false});
}

function is_horizontal(event: WheelEvent): boolean {
  return !event.shiftKey && !event.ctrlKey && Math.abs(event.deltaX) > Math.abs(event.deltaY);
}
