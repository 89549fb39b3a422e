// The detail panel: everything known about a block, a segment or an event. The pinned item stays; the item at the pointer
// temporarily replaces it.

import {NONE, type Detail, type Elements, type Events, type Texts} from '../types.ts';
import type {Page} from '../app.ts';
import {fill, h} from '../dom.ts';
import {FREE_UNKNOWN} from '../state/actions.ts';
import {ESTIMATED, bytes, count, exact_bytes, hex, time, visible, words_of_since} from '../format.ts';
import {stack_of} from './stack.ts';

const ACTIONS = ['alloc', 'free', 'free_requested', 'free_completed', 'segment_alloc', 'segment_free', 'segment_map', 'segment_unmap', 'out of memory', 'snapshot', 'annotate', 'other'];

type Fact = [string, string | Node];

/** The panel. */
export class Panel {
  readonly element = h('aside', {class: 'panel', 'aria-label': 'Details', tabindex: '0'});
  private pinned: Detail | null = null;
  private shown: string | null = null;
  private turn = 0;
  private next: number | null = null;
  /** Whether nothing is selected, so that the panel describes the device. */
  private whole = false;
  private shown_device = -1;

  constructor(private readonly page: Page) {}

  /** Shows the selection, which is the pinned block or else the event. */
  pin(): void {
    const {block, event} = this.page.state;
    this.pinned = block !== null ? {kind: 'block', row: block} : {kind: 'event', event};
    // The last event is selected initially. Until the selection changes, the panel describes the device instead.
    const unselected = block === null && event === this.page.device.head.events - 1;
    if (this.shown_device !== this.page.state.device) this.whole = true;
    this.whole &&= unselected;
    this.shown_device = this.page.state.device;
    if (this.next !== null) cancelAnimationFrame(this.next);
    this.next = null;
    this.draw(this.pinned, true);
  }

  /** Makes the panel describe the device when nothing is selected. */
  reset(): void {
    this.shown_device = -1;
  }

  show(what: Detail | null, pinned: boolean): void {
    if (pinned && what) this.pinned = what;
    else if (pinned) return this.pin();
    // The pointer may cross hundreds of blocks in a second, so only its position at the end of a frame is used.
    const target = what ?? this.pinned, steady = !what || pinned || JSON.stringify(what) === JSON.stringify(this.pinned);
    if (this.next !== null) cancelAnimationFrame(this.next);
    this.next = requestAnimationFrame(() => {
      this.next = null;
      if (target) this.draw(target, steady);
    });
  }

  private draw(what: Detail, pinned: boolean): void {
    const key = JSON.stringify([what, pinned, this.whole, this.page.state.device, this.page.state.event]);
    if (key === this.shown) return;
    this.shown = key;
    const turn = ++this.turn;
    // Screen readers announce only the pinned item.
    this.element.setAttribute('aria-live', pinned ? 'polite' : 'off');
    this.content(what, pinned).then(nodes => {
      if (turn === this.turn) {
        fill(this.element, ...nodes);
        this.element.scrollTop = 0;
      }
    }, error => this.page.report(error));
  }

  private async content(what: Detail, pinned: boolean): Promise<(Node | string)[]> {
    const device = this.page.device;
    switch (what.kind) {
      case 'text': return what.lines.map((line, i) => h(i ? 'p' : 'h2', {}, line));
      case 'event': return this.whole ? this.device() : this.event(what.event);
      case 'segment': {
        const [rows, texts] = await Promise.all([device.segments(), this.page.texts()]);
        return this.element_of(what.row, rows, texts, null, 'segment', pinned);
      }
      case 'block': {
        const [texts, events] = await Promise.all([this.page.texts(), pinned ? device.events() : Promise.resolve(null)]);
        return this.element_of(what.row, device.blocks, texts, events, 'block', pinned);
      }
    }
  }

  private device(): (Node | string)[] {
    const {device, head: file} = this.page, {head, blocks, clock} = device, last = head.events - 1;
    let peak = 0;
    for (let i = 1; i < blocks.total.length; i++) if (blocks.total[i]! > blocks.total[peak]!) peak = i;
    const mark = head.estimated ? 'about ' : '';
    const facts: Fact[] = [
      ['events', count(head.events)], ['blocks', count(head.blocks)], ['segments', count(head.segments)],
      ['streams', count(head.streams.length)], ['pools', count(head.pools.length)],
    ];
    if (clock && last >= 0) facts.push(['recorded', time(clock[last]! - Math.min(0, clock[0]!))]);
    if (file.start_us > 0 && clock) facts.push(['began', new Date(file.start_us / 1000).toLocaleString(undefined, {dateStyle: 'medium', timeStyle: 'medium'})]);
    facts.push(['live at the start', mark + bytes(blocks.total[0]!)]);
    const waiting = device.live_after(blocks, peak - 1).some(row => blocks.pending[row]! < peak);
    facts.push(['peak', h('span', {}, `${mark}${bytes(blocks.total[peak]!)}${waiting ? ' with pending frees' : ''}, `, this.when(peak - 1))]);
    facts.push(['at the end', mark + bytes(blocks.total[last + 1]!)]);
    if (head.capacity_bytes) facts.push(['capacity', bytes(head.capacity_bytes)]);
    const out: (Node | string)[] = [h('h2', {}, visible(head.name)), list(facts)];
    if (!head.events) out.push(h('p', {class: 'note'}, 'No events were recorded on this device. The page shows the blocks that were live when the snapshot was taken.'));
    if (head.estimated) out.push(h('p', {class: 'note'}, ESTIMATED));
    out.push(h('p', {class: 'note'}, 'Point at a block for its details and the stack that allocated it; click to pin it. The wheel zooms, dragging moves, and ? lists all keys.'));
    return out;
  }

  private when(event: number): Node | string {
    const {head, device} = this.page;
    if (event < 0) return 'before the recording';
    if (event >= device.head.events) return 'never, in this recording';
    const at = device.clock ? [', ', h('span', {class: 'whole'}, time(device.clock[event]!))] : [];
    return h('span', {title: `Times count from the ${words_of_since(head.since)}`},
      h('button', {type: 'button', class: 'link', title: 'Select this event', onclick: () => void this.page.go_to(event)}, `event ${count(event)}`), ...at);
  }

  private element_of(row: number, rows: Elements, texts: Texts, events: Events | null, kind: 'block' | 'segment', pinned: boolean): (Node | string)[] {
    const {device, state} = this.page, {head, clock} = device, facts: Fact[] = [];
    const start = rows.start[row]!, end = rows.end[row]!, pending = rows.pending[row]!, flags = rows.flags[row]!, size = rows.size[row]!;
    const mark = flags & 4 || head.estimated ? 'about ' : '';
    facts.push(['address', h('code', {}, hex(rows.address_high[row]!, rows.address_low[row]!))]);
    facts.push(['size', mark + exact_bytes(size)]);
    const final = rows.final_bytes.get(row);
    if (final !== undefined) facts.push(['rounded size', exact_bytes(final)]);
    facts.push(['stream', visible(head.streams[rows.stream[row]!] ?? '?')]);
    facts.push(['pool', rows.pool[row] ? visible(head.pools[rows.pool[row]! - 1] ?? '?') : 'not known']);
    if (rows.category[row]) facts.push(['category', visible(head.categories[rows.category[row]! - 1] ?? '?') + (head.inferred ? ' (inferred)' : '')]);
    facts.push([kind === 'block' ? 'allocated' : 'reserved', this.when(start)]);
    if (pending < end) facts.push(['free pending', this.when(pending)]);
    facts.push(['freed', this.when(end)]);
    const from = Math.max(start, 0), events_lived = end - from;
    const lived = clock && end < head.events && start >= 0 ? `${time(clock[end]! - clock[start]!)}, ` : '';
    facts.push(['lifetime', end >= head.events || start < 0 ? `${start < 0 ? 'more than ' : ''}${count(events_lived)} events${end >= head.events ? ', live at the end' : ''}` : `${lived}${count(events_lived)} ${events_lived === 1 ? 'event' : 'events'}`]);
    facts.push([kind === 'block' ? 'live after' : 'reserved after', `${mark}${bytes(rows.total[start + 1]!)} in total, including this one`]);
    const out: (Node | string)[] = [h('h2', {}, `${kind === 'block' ? 'Block' : 'Segment'} of ${mark}${bytes(size)}`,
      pinned && state.block === row && kind === 'block' ? h('button', {type: 'button', class: 'link', title: 'Unpin (Esc)', onclick: () => void this.page.show({block: null})}, 'unpin') : null)];
    if (flags & 1) out.push(h('p', {class: 'note'}, 'Its allocation was not recorded; the stack is that of the free.'));
    if (flags & 2) out.push(h('p', {class: 'note'}, 'Neither its allocation nor its free is in the recording. It was found in a segment at the end.'));
    if (flags & 4) out.push(h('p', {class: 'note'}, 'An estimate: small blocks were sampled, and this one represents several.'));
    if (flags & 8) out.push(h('p', {class: 'note'}, 'Part of an expandable segment.'));
    out.push(list(facts));
    for (const note of rows.notes.get(row) ?? []) out.push(h('pre', {class: 'text'}, visible_lines(texts.string(note))));
    const scope = events && start >= 0 ? events.scope[start]! : 0;
    if (scope) out.push(h('h3', {}, 'Scopes'), scopes(scope, texts));
    out.push(h('h3', {}, flags & 1 ? 'Stack of the free' : 'Stack'), ...stack_of(rows.stack[row]!, texts));
    return out;
  }

  private async event(event: number): Promise<(Node | string)[]> {
    const {device} = this.page;
    if (event < 0) return [h('h2', {}, 'Before the first event'), list([['live', exact_bytes(device.blocks.total[0]!)]])];
    const [events, texts] = await Promise.all([device.events(), this.page.texts()]);
    const odd = events.odd.get(event), action = events.action[event]!, facts: Fact[] = [];
    const block = events.block[event]!, segment = events.segment[event]!;
    const rows = action >= 4 && action <= 7 ? await device.segments() : device.blocks, row = rows === device.blocks ? block : segment;
    if (device.clock) facts.push(['time', `${time(events.time[event]!)} after the ${words_of_since(this.page.head.since)}`]);
    if (action === 8 && odd) {
      facts.push(['requested', exact_bytes(odd.size)]);
      if (odd.address !== FREE_UNKNOWN) facts.push(['free on the device', exact_bytes(Number(odd.address))]);
    } else {
      const address = odd ? '0x' + odd.address.toString(16) : row !== NONE ? hex(rows.address_high[row]!, rows.address_low[row]!) : null;
      const size = odd ? odd.size : row !== NONE ? rows.size[row]! : null;
      if (address !== null && action < 9) facts.push(['address', h('code', {}, address)]);
      if (size !== null && action < 9) facts.push(['size', exact_bytes(size)]);
    }
    const {total} = device.blocks, step = total[event + 1]! - total[event]!;
    facts.push(['live after', exact_bytes(total[event + 1]!) + (step ? ` (${step > 0 ? '+' : ''}${bytes(step)})` : '')]);
    if (events.threads.length > 1) facts.push(['thread', visible(events.threads[events.thread[event]!] || 'not known')]);
    const name = action === 11 && odd ? visible(texts.string(odd.text)) : ACTIONS[action] ?? 'other';
    const out: (Node | string)[] = [h('h2', {}, `Event ${count(event)}: ${name}`)];
    if (action === 10 && odd) out.push(h('pre', {class: 'text'}, visible_lines(texts.string(odd.text))));
    out.push(list(facts));
    if (row !== NONE && rows === device.blocks) out.push(h('p', {}, h('button', {type: 'button', class: 'link', onclick: () => void this.page.show({block: row})}, 'show its block')));
    if (events.scope[event]) out.push(h('h3', {}, 'Scopes'), scopes(events.scope[event]!, texts));
    const stack = events.stack[event] || (action === 0 && block !== NONE ? device.blocks.stack[block]! : 0);
    out.push(h('h3', {}, 'Stack'), ...stack_of(stack, texts));
    return out;
  }
}

function list(facts: Fact[]): HTMLElement {
  return h('dl', {}, ...facts.flatMap(([name, value]) => [h('dt', {}, name), h('dd', {}, value)]));
}

const KINDS = ['operator', 'module', '', 'backward', 'optimizer'];

function scopes(scope: number, texts: Texts): HTMLElement {
  const path: HTMLElement[] = [];
  for (let at = scope, n = 0; at && n < 1000; at = texts.scope_parent[at]!, n++) {
    const kind = KINDS[texts.scope_kind[at]!];
    path.push(h('li', {}, visible(texts.string(texts.scope_name[at]!)), kind ? h('small', {}, ` ${kind}`) : null));
  }
  return h('ol', {class: 'scopes'}, ...path.reverse());
}

/** Makes invisible characters visible, except for line ends. */
function visible_lines(text: string): string {
  return text.split(/\r?\n/).map(visible).join('\n');
}
