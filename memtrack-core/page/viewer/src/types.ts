// Types that the parts of the viewer share. README.md describes the format of a page.

/** The head of a page, as `../src/head.rs` writes it. */
export interface Head {
  format: number;
  memtrack: string;
  name: string;
  view: ViewName;
  /** Whether only blocks that are live at the end are shown initially. */
  kept: boolean;
  served: boolean;
  start_us: number;
  since: 'start' | 'first_event' | 'first_timed_event';
  has_time: boolean;
  settings: unknown;
  first: string[];
  devices: DeviceHead[];
  sections: {columns: {name: string; code: 'u8' | 'varint' | 'delta' | 'text'; count: number}[]; bytes: number}[];
}

export interface DeviceHead {
  name: string;
  ordinal: number;
  kind: 'device' | 'heap' | 'mapped' | 'pinned';
  estimated: boolean;
  events: number;
  blocks: number;
  segments: number;
  /** Whether the segments are memory that an allocator reserved; those of a profile only span the addresses of blocks. */
  reserved: boolean;
  streams: string[];
  pools: string[];
  categories: string[];
  /** Whether the categories were inferred, and are not in the file. */
  inferred: boolean;
  /** The property of blocks that colours initially show. */
  color: 'category' | 'stack';
  capacity_bytes: number | null;
  first: {title: string; text: string; show: Show | null}[];
  ooms: number[];
  markers: {event: number; name: string}[];
  sections: {texts: number; blocks: number; events: number; segments: number; bands: number};
}

export type ViewName = 'timeline' | 'categories' | 'pools' | 'state' | 'segments' | 'flame' | 'settings';

/**
 * The argument of `window.memtrack.show`, and the content of a URL's fragment. The page keeps the values of missing properties.
 */
export interface Show {
  view?: ViewName;
  device?: string | number;
  /** Range of the axis: microseconds since the page's start, or events on the step axis. */
  from?: number;
  to?: number;
  axis?: 'time' | 'step';
  /** The selected event, after which the state is shown; -1: before the first event. */
  event?: number;
  /** The row of the pinned block. */
  block?: number | null;
  /** Search: a regular expression over frames, addresses, operators, categories and notes. */
  query?: string;
  filter?: Filter;
  /** The property of blocks that colours show. */
  color?: ColorBy;
  /** Whether to hide blocks that do not match search and filter, rather than dim them. */
  hide?: boolean;
  /** Range of bytes. */
  bottom?: number;
  top?: number;
}

export type ColorBy = 'stack' | 'size' | 'stream' | 'pool' | 'category' | 'age';

/** Conditions on blocks. A missing condition matches all blocks. */
export interface Filter {
  min_bytes?: number;
  max_bytes?: number;
  /** Lifetimes in events. */
  min_life?: number;
  max_life?: number;
  streams?: number[];
  pools?: number[];
  categories?: number[];
  /** Only blocks that are live at the end. */
  kept?: boolean;
}

export const NONE = 0xffffffff;

/** Blocks or pieces of segments, one per row, in the order of the stack (bottom first). */
export interface Elements {
  readonly count: number;
  /** Event of the allocation; -1: before the first event. Non-decreasing. */
  readonly start: Int32Array;
  /** Event of the completed free; the number of events: live at the end. Live after event e: start <= e < end. */
  readonly end: Int32Array;
  /** The event from which the free is pending; >= end: never. */
  readonly pending: Int32Array;
  readonly size: Float64Array;
  readonly stack: Uint32Array;
  /** Addresses in two halves: they may need 64 bits. */
  readonly address_low: Uint32Array;
  readonly address_high: Uint32Array;
  readonly stream: Uint16Array;
  /** 0: not known; else 1 + index into the device's pools. */
  readonly pool: Uint16Array;
  /** 0: none; else 1 + index into the device's categories. */
  readonly category: Uint8Array;
  readonly flags: Uint8Array;
  /** Sum of `size` of the live rows: `total[0]` before the first event, `total[e + 1]` after event e. */
  readonly total: Float64Array;
  /** The rounded sizes of blocks that are live at the end, if they differ from `size`. */
  readonly final_bytes: Map<number, number>;
  readonly notes: Notes;
}

/** Additional texts of some blocks: strings by row. */
export interface Notes extends Iterable<[number, number[]]> {
  get(row: number): number[] | undefined;
}

export interface Events {
  readonly count: number;
  readonly action: Uint8Array;
  /** Microseconds since the page's start, as in the file; empty without times. */
  readonly time: Float64Array;
  /** The times in `time`, made non-decreasing for axes. */
  readonly axis: Float64Array;
  readonly stack: Uint32Array;
  readonly scope: Uint32Array;
  readonly thread: Uint16Array;
  readonly threads: string[];
  /** The block of each event (`NONE`: none), and the piece of a segment. */
  readonly block: Uint32Array;
  readonly segment: Uint32Array;
  /** Address, size and text of events that blocks and segments do not describe completely. */
  readonly odd: Map<number, {address: bigint; size: number; text: number}>;
}

export interface Bands {
  readonly count: number;
  readonly from: Int32Array;
  readonly to: Int32Array;
  readonly depth: Uint16Array;
  readonly thread: Uint16Array;
  readonly name: Uint32Array;
  readonly kind: Uint8Array;
}

export interface Texts {
  string(id: number): string;
  readonly strings: number;
  readonly frame_name: Uint32Array;
  readonly frame_file: Uint32Array;
  readonly frame_line: Float64Array;
  /** 1 if the frame only forwards a call. */
  readonly frame_noise: Uint8Array;
  /** Number of innermost frames of a stack that only perform the allocation. */
  readonly stack_skip: Uint32Array;
  /** The string number of each stack's line in the user's code; 0: none. */
  readonly stack_line: Uint32Array;
  /** Frames of stack s: `stack_frames[stack_from[s] .. stack_from[s + 1]]`, innermost first. */
  readonly stack_from: Uint32Array;
  readonly stack_frames: Uint32Array;
  readonly scope_parent: Uint32Array;
  readonly scope_name: Uint32Array;
  readonly scope_kind: Uint8Array;
}

/** The tables of a device. They are loaded on request; `load` loads those of the first picture. */
export interface Device {
  readonly head: DeviceHead;
  /** Index into `App.devices`, which has the order of `window.memtrack.devices()`. */
  readonly index: number;
  /** Available after `load`. When a view is called, the current device is loaded. */
  readonly blocks: Elements;
  /** Decodes the tables of the first picture. */
  load(): Promise<void>;
  /** Non-decreasing positions of events on the time axis, in microseconds since the page's start; null without times. */
  readonly clock: Float64Array | null;
  events(): Promise<Events>;
  segments(): Promise<Elements>;
  bands(): Promise<Bands>;
  /**
   * Returns the rows of `elements` that are live after event e, in stack order. The time is proportional to one checkpoint plus
   * the live rows.
   */
  live_after(elements: Elements, event: number): Uint32Array;
}

/** The interface of the page for views. */
export interface App {
  readonly head: Head;
  readonly devices: Device[];
  texts(device?: Device): Promise<Texts>;
  readonly state: State;
  /** Whether the page has the dark theme. */
  readonly dark: boolean;
  /** Changes the state and redraws everything that depends on it; fulfilled when the new state is drawn. */
  show(change: Show): Promise<void>;
  /** Marks the current device's blocks that match search and filter; null: all. */
  readonly passing: Uint8Array | null;
  /** Shows an item in the detail panel; if `pinned`, the item stays there. */
  detail(what: Detail | null, pinned?: boolean): void;
}

/** The bar with search and filter, below the header in every view. */
export interface SearchBar {
  readonly element: HTMLElement;
  /**
   * Shows the state's query and filter, and returns the blocks of the device that match them; null: all. Called after every
   * change of query, filter, device, selected event or block, and of `hide`.
   */
  passing(state: State, device: Device): Promise<Uint8Array | null>;
  /** Puts the cursor into the search field (key `/`). */
  focus(): void;
}

export type Detail = {kind: 'block' | 'segment'; row: number} | {kind: 'event'; event: number} | {kind: 'text'; lines: string[]};

/** The state of the page. A URL's fragment contains the differences from the default. */
export interface State {
  view: ViewName;
  device: number;
  axis: 'time' | 'step';
  /** The visible range, in units of the axis. */
  from: number;
  to: number;
  /** Bytes at the bottom and the top of the picture. */
  bottom: number;
  top: number;
  event: number;
  block: number | null;
  query: string;
  filter: Filter;
  color: ColorBy;
  /** Whether blocks that do not match search and filter are hidden, rather than dimmed. */
  hide: boolean;
}

/** The item at a point. */
export interface Hit {
  kind: 'block' | 'segment' | 'event' | 'band' | 'category' | 'free' | 'nothing';
  row?: number;
  address?: string;
  size?: number;
  pending?: boolean;
  /** The event whose state the picture shows at this point. */
  event?: number;
  name?: string;
}

/** A view: created once, then shown and hidden. */
export interface View {
  readonly element: HTMLElement;
  /** Draws the state. `changed` contains the properties that changed since the last call; in the first call, all of them. */
  show(state: State, changed: Set<keyof State>): Promise<void> | void;
  /** Redraws after a change of the size or the theme. */
  resize(): void;
  /** Handles a key that the page does not use itself; returns true if the view used the key. */
  key(event: KeyboardEvent): boolean;
  /** Returns the item at a point of the window. */
  hit(x: number, y: number): Hit | null;
}
