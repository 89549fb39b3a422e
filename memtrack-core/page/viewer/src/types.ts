// What the parts of the viewer agree on. README.md says what a page is made of.

/** The head of a page, as `../src/head.rs` writes it. */
export interface Head {
  format: number;
  memtrack: string;
  name: string;
  view: ViewName;
  /** What was freed is left out at first. */
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
  kind: 'device' | 'heap' | 'pinned';
  estimated: boolean;
  events: number;
  blocks: number;
  segments: number;
  /** Whether the segments are what an allocator reserved; those of a profile only say where blocks were seen. */
  reserved: boolean;
  streams: string[];
  pools: string[];
  categories: string[];
  /** Whether the categories are not in the file. */
  inferred: boolean;
  /** What colours stand for at first. */
  color: 'category' | 'stack';
  capacity_bytes: number | null;
  first: {title: string; text: string; show: Show | null}[];
  ooms: number[];
  markers: {event: number; name: string}[];
  sections: {blocks: number; events: number; segments: number; bands: number};
}

export type ViewName = 'timeline' | 'categories' | 'pools' | 'state' | 'segments' | 'flame' | 'settings';

/** What can be asked of `window.memtrack.show`, and what a URL's fragment holds. What is not named stays as it is. */
export interface Show {
  view?: ViewName;
  device?: string | number;
  /** Range of the axis: microseconds since the page's start, or events on the step axis. */
  from?: number;
  to?: number;
  axis?: 'time' | 'step';
  /** The event that is selected: the state after it; -1 before the first. */
  event?: number;
  /** The block that is pinned, by its row. */
  block?: number | null;
  /** Search: a regular expression over frames, addresses, operators, categories and notes. */
  query?: string;
  filter?: Filter;
  /** What colours stand for. */
  color?: ColorBy;
  /** Leave out what search and filter do not let through, rather than dim it. */
  hide?: boolean;
  /** Range of bytes. */
  bottom?: number;
  top?: number;
}

export type ColorBy = 'stack' | 'size' | 'stream' | 'pool' | 'category' | 'age';

/** Which blocks are shown; absent: all. */
export interface Filter {
  min_bytes?: number;
  max_bytes?: number;
  /** Of lifetimes, in events. */
  min_life?: number;
  max_life?: number;
  streams?: number[];
  pools?: number[];
  categories?: number[];
  /** Only what is live at the end. */
  kept?: boolean;
}

export const NONE = 0xffffffff;

/** Blocks or pieces of segments, one per row, in the order of the stack (bottom first). */
export interface Elements {
  readonly count: number;
  /** Event of the allocation; -1: from before the first event. Never falls. */
  readonly start: Int32Array;
  /** Event at which it was free again; the number of events: live at the end. Live after event e: start <= e < end. */
  readonly end: Int32Array;
  /** Event from which on its free is pending; >= end: never. */
  readonly pending: Int32Array;
  readonly size: Float64Array;
  readonly stack: Uint32Array;
  /** Addresses in two halves: they may need 64 bits. */
  readonly address_low: Uint32Array;
  readonly address_high: Uint32Array;
  readonly stream: Uint16Array;
  /** 0: not known; else 1 + place in the device's pools. */
  readonly pool: Uint16Array;
  /** 0: none; else 1 + place in the device's categories. */
  readonly category: Uint8Array;
  readonly flags: Uint8Array;
  /** Sum of `size` of what is live after each event; `total[0]` is before the first, `total[e + 1]` after event e. */
  readonly total: Float64Array;
  /** How many bytes are set aside for a block that is live at the end, where that is not its size. */
  readonly final_bytes: Map<number, number>;
  readonly notes: Notes;
}

/** More text about some blocks: strings by row. */
export interface Notes extends Iterable<[number, number[]]> {
  get(row: number): number[] | undefined;
}

export interface Events {
  readonly count: number;
  readonly action: Uint8Array;
  /** Microseconds since the page's start as the file has them; empty without times. */
  readonly time: Float64Array;
  /** The same made to rise, for axes. */
  readonly axis: Float64Array;
  readonly stack: Uint32Array;
  readonly scope: Uint32Array;
  readonly thread: Uint16Array;
  readonly threads: string[];
  /** The block of each event (`NONE`: none), and the piece of a segment. */
  readonly block: Uint32Array;
  readonly segment: Uint32Array;
  /** Address, size and text where blocks and segments do not say them. */
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
  /** 1: the frame only passes a call on. */
  readonly frame_noise: Uint8Array;
  /** How many frames of a stack, from the innermost on, only carry the allocation out. */
  readonly stack_skip: Uint32Array;
  /** The line of the user's own code in each stack, a string; 0: none. */
  readonly stack_line: Uint32Array;
  /** Frames of stack s: `stack_frames[stack_from[s] .. stack_from[s + 1]]`, innermost first. */
  readonly stack_from: Uint32Array;
  readonly stack_frames: Uint32Array;
  readonly scope_parent: Uint32Array;
  readonly scope_name: Uint32Array;
  readonly scope_kind: Uint8Array;
}

/** One device's tables. What is drawn first is there when the device is; the rest is loaded when it is asked for. */
export interface Device {
  readonly head: DeviceHead;
  /** Place in `App.devices`, which is the order of `window.memtrack.devices()`. */
  readonly place: number;
  /** There when `load` is done, as it is for the current device whenever a view is called. */
  readonly blocks: Elements;
  /** Decodes what the first picture needs. */
  load(): Promise<void>;
  /** Where events lie on the axis of time, never falling: microseconds since the page's start; null without times. */
  readonly clock: Float64Array | null;
  events(): Promise<Events>;
  segments(): Promise<Elements>;
  bands(): Promise<Bands>;
  /** Rows of `elements` that are live after event e, in stack order. Cost: one checkpoint and what is live. */
  live_after(elements: Elements, event: number): Uint32Array;
}

/** What every view is given. */
export interface App {
  readonly head: Head;
  readonly devices: Device[];
  texts(): Promise<Texts>;
  readonly state: State;
  /** Whether the dark theme is on. */
  readonly dark: boolean;
  /** Changes the state, redraws what it concerns, and is fulfilled when that is drawn. */
  show(change: Show): Promise<void>;
  /** Rows of the current device's blocks that search and filter let through; null: all. */
  readonly passing: Uint8Array | null;
  /** Shows in the detail panel what is under the pointer; with `pinned` it stays. */
  detail(what: Detail | null, pinned?: boolean): void;
}

/** The bar of search and filter: one element, shown under the header for every view. */
export interface SearchBar {
  readonly element: HTMLElement;
  /**
   * Shows the state's query and filter, and says which blocks of the device they let through: null when all. Called after every
   * change of query, filter, device, selected event or block, and of `hide`.
   */
  passing(state: State, device: Device): Promise<Uint8Array | null>;
  /** Puts the cursor into the search field (key `/`). */
  focus(): void;
}

export type Detail = {kind: 'block' | 'segment'; row: number} | {kind: 'event'; event: number} | {kind: 'text'; lines: string[]};

/** The whole state of the page; a URL's fragment holds what differs from the default. */
export interface State {
  view: ViewName;
  device: number;
  axis: 'time' | 'step';
  /** In units of the axis. */
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
  /** Blocks that search and filter do not let through are left out, rather than dimmed. */
  hide: boolean;
}

/** What is under a point. */
export interface Hit {
  kind: 'block' | 'segment' | 'event' | 'band' | 'category' | 'free' | 'nothing';
  row?: number;
  address?: string;
  size?: number;
  pending?: boolean;
  /** The event after which the picture is what it is at this point. */
  event?: number;
  name?: string;
}

/** A view: made once, shown and hidden. */
export interface View {
  readonly element: HTMLElement;
  /** Draws the state. `changed` names what is new since the last call; all of it the first time. */
  show(state: State, changed: Set<keyof State>): Promise<void> | void;
  /** Sizes changed, or the theme did. */
  resize(): void;
  /** A key that the page has no use for itself; true: used. */
  key(event: KeyboardEvent): boolean;
  /** What is at a point of the window. */
  hit(x: number, y: number): Hit | null;
}
