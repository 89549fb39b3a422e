// A list of millions of rows in an element of limited height: browsers support 17 to 33 million pixels.

/** The maximum height of an element that all browsers scroll exactly. */
const MAX_ELEMENT_HEIGHT = 8_000_000;

/**
 * The scroll position of a list of equal rows. All values are in pixels; `top` is a position in the whole list, as if its
 * height had no limit.
 */
export class VirtualScroll {
  top = 0;
  private room = 0;

  constructor(private rows: number, readonly row_height: number) {}

  /** Height of the element that the browser scrolls. */
  get element_height(): number { return Math.min(this.rows * this.row_height, MAX_ELEMENT_HEIGHT); }
  get viewport(): number { return this.room; }
  private get max_top(): number { return Math.max(0, this.rows * this.row_height - this.room); }
  private get max_scroll_top(): number { return Math.max(0, this.element_height - this.room); }

  resize(rows: number, viewport: number): void {
    this.rows = rows;
    this.room = viewport;
    this.to(this.top);
  }

  /** Scrolls to a position of the whole list. */
  to(top: number): void { this.top = Math.max(0, Math.min(this.max_top, top)); }

  /** The scrollTop to set on the element. */
  get scroll_top(): number {
    return this.max_top === 0 ? 0 : this.top / this.max_top * this.max_scroll_top;
  }

  /** Handles a move of the scroll bar; `scroll_top` is the element's. */
  scrolled(scroll_top: number): void {
    // Browsers round scrollTop to whole pixels. A smaller difference is not a move; in a list of 5 million rows, it would be a
    // dozen rows.
    if (Math.abs(scroll_top - this.scroll_top) < 1) return;
    this.to(this.max_scroll_top === 0 ? 0 : scroll_top / this.max_scroll_top * this.max_top);
  }

  /** Scrolls as little as possible to make a row visible. */
  reveal(row: number): void {
    const from = row * this.row_height;
    if (from < this.top) this.to(from);
    else if (from + this.row_height > this.top + this.room) this.to(from + this.row_height - this.room);
  }

  /** Scrolls a row to the middle. */
  centre(row: number): void { this.to((row + 0.5) * this.row_height - this.room / 2); }

  /** Returns the rows that are at least partly visible: from, to (exclusive). */
  visible(): [number, number] {
    return [Math.floor(this.top / this.row_height), Math.min(this.rows, Math.ceil((this.top + this.room) / this.row_height))];
  }

  /** The number of rows on a page, at least one. */
  get page(): number { return Math.max(1, Math.floor(this.room / this.row_height) - 1); }

  /** Returns the row at a height of the viewport. */
  row_at(y: number): number | null {
    const row = Math.floor((this.top + y) / this.row_height);
    return row >= 0 && row < this.rows ? row : null;
  }
}
