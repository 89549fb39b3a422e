// A list of millions of rows in an element of bounded height: browsers stop at some 17 to 33 million pixels.

/** The tallest element that all browsers scroll exactly. */
const TALLEST = 8_000_000;

/** Where a list of equal rows is scrolled to. All in pixels, `top` of the whole list as if there were no limit. */
export class VirtualScroll {
  top = 0;
  private room = 0;

  constructor(private rows: number, readonly row_height: number) {}

  /** Height of the element that the browser scrolls. */
  get element_height(): number { return Math.min(this.rows * this.row_height, TALLEST); }
  get viewport(): number { return this.room; }
  private get furthest(): number { return Math.max(0, this.rows * this.row_height - this.room); }
  private get element_furthest(): number { return Math.max(0, this.element_height - this.room); }

  resize(rows: number, viewport: number): void {
    this.rows = rows;
    this.room = viewport;
    this.to(this.top);
  }

  /** Scrolls to a place of the whole list. */
  to(top: number): void { this.top = Math.max(0, Math.min(this.furthest, top)); }

  /** What the element's scrollTop is to be. */
  get scroll_top(): number {
    return this.furthest === 0 ? 0 : this.top / this.furthest * this.element_furthest;
  }

  /** The user moved the scroll bar: `scroll_top` is the element's. */
  scrolled(scroll_top: number): void {
    // A browser rounds what was set to whole pixels: this is no move, or a list of 5 million rows would jump by a dozen.
    if (Math.abs(scroll_top - this.scroll_top) < 1) return;
    this.to(this.element_furthest === 0 ? 0 : scroll_top / this.element_furthest * this.furthest);
  }

  /** Scrolls as little as possible to make a row visible. */
  reveal(row: number): void {
    const from = row * this.row_height;
    if (from < this.top) this.to(from);
    else if (from + this.row_height > this.top + this.room) this.to(from + this.row_height - this.room);
  }

  /** Puts a row in the middle. */
  centre(row: number): void { this.to((row + 0.5) * this.row_height - this.room / 2); }

  /** Rows that are at least partly visible: from, to (exclusive). */
  visible(): [number, number] {
    return [Math.floor(this.top / this.row_height), Math.min(this.rows, Math.ceil((this.top + this.room) / this.row_height))];
  }

  /** Rows that fit on a page, at least one. */
  get page(): number { return Math.max(1, Math.floor(this.room / this.row_height) - 1); }

  /** The row at a height of the viewport. */
  row_at(y: number): number | null {
    const row = Math.floor((this.top + y) / this.row_height);
    return row >= 0 && row < this.rows ? row : null;
  }
}
