// The labels over a picture. Each has several possible positions. They are placed by importance, and one that would cover
// another is omitted, so that labels never overlap at any zoom. Pointing at an item shows its name.

/** Height of a label, in CSS pixels. */
export const LABEL_HEIGHT = 15;
/** Space at both sides of a text, and between labels. */
const PADDING = 4, SPACING = 1;

/** The kinds of labels, the most important first. */
export const enum Rank { Pointer, Cursor, Peak, OutOfMemory, Capacity, Reserved, Marker, BandName }

/** A rectangle in CSS pixels. */
export interface Box {
  x: number;
  y: number;
  width: number;
  height: number;
}

/** A placed label. */
export interface Label extends Box {
  text: string;
}

type Context = Pick<CanvasRenderingContext2D, 'measureText'>;

/** Whether two rectangles share a pixel. */
export function overlap(a: Box, b: Box): boolean {
  return a.x < b.x + b.width && b.x < a.x + a.width && a.y < b.y + b.height && b.y < a.y + a.height;
}

/** The labels of one picture. */
export class Labels {
  readonly placed: Label[] = [];
  private readonly painters: (() => void)[] = [];
  private readonly waiting: {rank: Rank; put: () => void}[] = [];

  constructor(private readonly context: Context, private readonly width: number, private readonly height: number) {}

  /** Returns the width of a label. */
  width_of(text: string): number {
    return this.context.measureText(text).width + 2 * PADDING;
  }

  /** Adds a function that places labels when all are known. */
  defer(rank: Rank, put: () => void): void {
    this.waiting.push({rank, put});
  }

  /** Places a label at the first corner where it is inside the picture and covers no other; returns false if there is none. */
  put(text: string, corners: readonly {x: number; y: number}[], paint: (at: Label) => void, width = this.width_of(text), height = LABEL_HEIGHT): boolean {
    for (const corner of corners) {
      const label: Label = {text, ...corner, width, height};
      if (label.x < 0 || label.y < 0 || label.x + width > this.width || label.y + height > this.height) continue;
      const around = {x: label.x - SPACING, y: label.y - SPACING, width: width + 2 * SPACING, height: height + 2 * SPACING};
      if (this.placed.some(other => overlap(around, other))) continue;
      this.placed.push(label);
      this.painters.push(() => paint(label));
      return true;
    }
    return false;
  }

  /** Places all labels, the most important first, and paints them. */
  settle(): void {
    this.waiting.sort((a, b) => a.rank - b.rank);
    for (const {put} of this.waiting) put();
    for (const paint of this.painters) paint();
  }

  /** Returns the corners right and left of a position, row by row. */
  beside(text: string, x: number, rows: readonly number[], gap = 2): {x: number; y: number}[] {
    const width = this.width_of(text);
    return rows.flatMap(y => [{x: x + gap, y}, {x: x - width - gap, y}]);
  }
}
