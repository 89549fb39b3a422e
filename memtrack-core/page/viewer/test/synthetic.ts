// A synthetic training run of any length, for the browser tests and the benchmark: parameters, activations that are freed newest
// first, gradients that are freed oldest first, short temporaries, a private pool, an idle second, pending frees.

import {device_head, element_columns, type Block, type Parts} from './encode.ts';

/** Returns a pseudo-random number generator; the same seed gives the same sequence. */
export function random(seed: number): () => number {
  let s = seed >>> 0;
  return () => {
    s = (s + 0x6d2b79f5) >>> 0;
    let t = Math.imul(s ^ (s >>> 15), s | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Returns the parts of a page with at least `events_wanted` events. */
export function training(events_wanted: number, params = 700, seed = 1): Parts & {blocks: Block[]; events: number} {
  const rng = random(seed), pick = <T>(list: T[]) => list[Math.floor(rng() * list.length)]!;
  const action: number[] = [], time: number[] = [], event_stack: number[] = [], blocks: Block[] = [], open = new Map<number, Block>();
  const bands = {from: [] as number[], to: [] as number[], depth: [] as number[], name: [] as number[], kind: [] as number[]};
  const strings = ['', 'forward', 'backward', 'optimizer', 'Adam.step', ...Array.from({length: 40}, (_, i) => `layers.${i}`), ...Array.from({length: 300}, (_, i) => `op_${i}`),
    ...Array.from({length: 9}, (_, i) => `/opt/app/model_${i}.py`), ...Array.from({length: 60}, (_, i) => `model_${i % 9}.py:${10 + i} op_${i}`), '<script>alert(1)</script>', '_PyEval_EvalFrameDefault', 'ceval.c'];
  const at = (text: string) => strings.indexOf(text);
  const frames = Array.from({length: 300}, (_, i) => ({name: at(`op_${i}`), file: at(`/opt/app/model_${i % 9}.py`), line: 10 + i}));
  frames.push({name: at('_PyEval_EvalFrameDefault'), file: at('ceval.c'), line: 0}, {name: at('<script>alert(1)</script>'), file: at('ceval.c'), line: 1});
  const stacks: number[][] = [[], ...Array.from({length: 500}, () => [...Array.from({length: 7}, () => Math.floor(rng() * 300)), 300, 300, 300, 301, Math.floor(rng() * 300)])];
  const lines = Array.from({length: 60}, (_, i) => at(`model_${i % 9}.py:${10 + i} op_${i}`));
  let now = 0, address = 0x7f0000000000n;
  const free = new Map<number, bigint[]>();
  const event = (kind: number, stack: number) => {
    now += 1 + Math.floor(rng() * 40);
    action.push(kind);
    time.push(now);
    event_stack.push(stack);
    return action.length - 1;
  };
  let next = 0;
  const alloc = (size: number, pool = 1): number => {
    size = Math.ceil(size / 512) * 512;
    const stack = 1 + Math.floor(rng() * 500), from = event(0, 0);
    const list = free.get(size);
    const where = list?.length ? list.pop()! : address;
    if (where === address) address += BigInt(size);
    const block: Block = {start: from, end: Infinity, size, stack, address: where, pool, stream: rng() < 0.1 ? 1 : 0, category: 1 + (next % 4)};
    blocks.push(block);
    open.set(next, block);
    return next++;
  };
  const release = (id: number) => {
    const block = open.get(id)!;
    open.delete(id);
    block.pending = event(2, block.stack!);
    if (rng() < 0.05) for (let i = 0; i < 3; i++) event(11, 0);
    block.end = event(3, block.stack!);
    const list = free.get(block.size);
    if (list) list.push(block.address!);
    else free.set(block.size, [block.address!]);
  };
  // Blocks from before the first event.
  for (let i = 0; i < 12; i++) {
    blocks.push({start: -1, end: Infinity, size: (8 + i) << 20, stack: 1 + i, address, flags: 2, pool: 1, category: 1});
    address += BigInt((8 + i) << 20);
    next++;
  }
  const sizes = Array.from({length: params}, () => pick([4096, 12 << 10, 1 << 20, 4 << 20, 16 << 20]));
  sizes.forEach(s => alloc(s));
  const band = (depth: number, name: string, kind: number, body: () => void) => {
    const i = bands.from.length;
    for (const list of Object.values(bands)) list.push(0);
    bands.from[i] = action.length;
    bands.depth[i] = depth;
    bands.name[i] = at(name);
    bands.kind[i] = kind;
    body();
    bands.to[i] = Math.max(action.length - 1, bands.from[i]!);
  };
  const markers: {event: number; name: string}[] = [];
  let state: number[] | null = null, steps = 0;
  while (action.length < events_wanted) {
    const acts: number[] = [], grads: number[] = [];
    markers.push({event: action.length, name: 'fw_start'});
    band(0, 'forward', 2, () => {
      for (let l = 0; l < 10; l++) band(1, `layers.${l}`, 1, () => {
        for (let i = (l * params) / 10; i < ((l + 1) * params) / 10; i++) {
          acts.push(alloc(sizes[i]! / 2 + 512));
          release(alloc(sizes[i]! / 4 + 512, rng() < 0.5 ? 2 : 1));
        }
      });
    });
    markers.push({event: action.length, name: 'fw_bw_boundary'});
    band(0, 'backward', 3, () => {
      for (const s of [...sizes].reverse()) {
        grads.push(alloc(s, rng() < 0.2 ? 2 : 1));
        release(acts.pop()!);
      }
    });
    band(0, 'optimizer', 4, () => {
      state ??= sizes.map(s => alloc(s * 2));
      for (const g of grads) release(alloc(open.get(g)!.size));
      for (const g of grads) release(g);
    });
    now += 8000;
    if (++steps === 3) now += 1_000_000;
  }
  const events = action.length;
  for (const b of blocks) if (b.end === Infinity) b.end = events;
  const total = Number(address - 0x7f0000000000n), pieces = 20;
  const segments: Block[] = Array.from({length: pieces}, (_, i) => ({start: i < 2 ? -1 : Math.floor((params * i) / 4), end: events, size: Math.ceil(total / pieces), address: 0x7f0000000000n + BigInt(i * Math.ceil(total / pieces)), pool: i === 7 ? 2 : 1, flags: 8}));
  const totals = new Float64Array(events + 1);
  for (const b of blocks) {
    totals[b.start + 1]! += b.size;
    if (b.end < events) totals[b.end + 1]! -= b.size;
  }
  let peak = -1, high = 0, sum = 0;
  totals.forEach((d, i) => {
    sum += d;
    if (sum > high) [high, peak] = [sum, i - 1];
  });
  const gib = (n: number) => `${(n / 2 ** 30).toFixed(1)} GiB`;
  const oom = action.indexOf(11, Math.floor(events * 0.8));
  action[oom] = 8;
  const column = (name: string, code: 'u8' | 'varint' | 'delta', values: number[]) => ({name, code, values}) as const;
  return {
    blocks, events,
    head: {
      format: 1, memtrack: '0.1.0', name: 'synthetic_training.pickle', view: 'timeline', kept: false, served: false, start_us: 1760000000000000, since: 'first_event', has_time: true, settings: null, first: [],
      devices: [device_head({
        events, blocks: blocks.length, segments: segments.length, sections: {texts: 0, blocks: 1, events: 2, segments: 3, bands: 4}, streams: ['0', '94355077337088'],
        pools: ['default pool', 'pool (0, 1)'], categories: ['parameters', 'activations', 'gradients', 'optimizer state'], capacity_bytes: 80 * 2 ** 30,
        first: [
          {title: 'Peak', text: `${gib(high)} requested, after event ${peak.toLocaleString('en-US')}, ${(time[peak]! / 1e6).toFixed(3)} s after the first event`, show: {view: 'timeline', event: peak}},
          {title: 'Composition', text: '41 % gradients, 30 % optimizer state, 17 % parameters, 12 % activations', show: {view: 'timeline', event: peak, color: 'category'}},
          {title: 'Inspect first', text: 'op_17 in /opt/app/model_8.py:27, which holds 1.3 GiB in 41 blocks at the peak', show: {view: 'flame', event: peak, query: 'op_17'}},
          {title: 'Still allocated at the end', text: `${gib(sum)} in ${open.size} blocks`, show: {view: 'state', event: events - 1}},
        ],
        ooms: [oom], markers,
      })],
    },
    sections: [
      [
        {name: 'strings', code: 'text', values: strings},
        column('frame_name', 'varint', frames.map(f => f.name)), column('frame_file', 'varint', frames.map(f => f.file)), column('frame_line', 'varint', frames.map(f => f.line)),
        column('frame_noise', 'u8', frames.map(() => 0)),
        column('stack_length', 'varint', stacks.map(s => s.length)), column('stack_skip', 'varint', stacks.map(() => 0)), column('stack_line', 'varint', stacks.map((s, i) => (i ? lines[s[0]! % lines.length]! : 0))), column('stack_frames', 'varint', stacks.flat()),
        column('scope_parent', 'varint', [0, 0, 0, 0, 3]), column('scope_name', 'varint', [0, 1, 2, 3, 4]), column('scope_kind', 'varint', [0, 2, 3, 4, 0]),
      ],
      [...element_columns(blocks, events, 'blocks'), column('note_block', 'delta', [3]), column('note_text', 'varint', [at('<script>alert(1)</script>')]), column('final_block', 'delta', []), column('final_bytes', 'varint', [])],
      [
        {name: 'action', code: 'u8', values: action}, column('time', 'delta', time), column('stack', 'varint', event_stack), column('scope', 'varint', action.map((_, i) => (i % 3 ? 0 : 4))),
        column('thread', 'varint', action.map(() => 0)), {name: 'threads', code: 'text', values: ['']},
        column('odd_event', 'delta', [oom]), column('odd_address', 'delta', [123 << 20]), column('odd_size', 'varint', [512 << 20]), column('odd_text', 'varint', [0]),
      ],
      element_columns(segments, events, 'segments'),
      [column('from', 'delta', bands.from), column('to', 'delta', bands.to), column('depth', 'varint', bands.depth), column('thread', 'varint', bands.from.map(() => 0)), column('name', 'varint', bands.name), column('kind', 'varint', bands.kind)],
    ],
  };
}
