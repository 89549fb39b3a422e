// Draws the tree of a flame graph as an icicle: the root on top, callees below.

import type {Tree} from './tree.ts';

export const ROW = 20;

/** The appearance of nodes. */
export interface Look {
  text(node: number): string;
  /** CSS colours: of the matching part, and of the rest. */
  fill(node: number): string;
  readonly faint: string;
  readonly ink: string;
  readonly line: string;
  readonly accent: string;
  /** Whether the node's text matches the search. */
  found(node: number): boolean;
}

/** The minimum width in pixels of a drawn node. The descendants of narrower nodes are not drawn either. */
const MIN_WIDTH = 0.7;

/** Positions of nodes when `focus` fills the width; nodes outside it, other than its callers, have none. */
export class NodePositions {
  constructor(private readonly tree: Tree, readonly focus: number, readonly width: number) {}

  get scale(): number { return this.width / (this.tree.value[this.focus]! || 1); }

  /** Left edge and width in pixels; null: not visible. */
  of(node: number): [number, number] | null {
    if (this.above(node)) return [0, this.width];
    const {tree, focus} = this, x = (tree.x[node]! - tree.x[focus]!) * this.scale, w = tree.value[node]! * this.scale;
    return x < -0.01 || x + w > this.width + 0.01 || w < MIN_WIDTH ? null : [x, w];
  }

  /** Whether the node is the focus or one of its callers. */
  above(node: number): boolean {
    for (let at = this.focus; at >= 0; at = this.tree.parent[at]!) if (at === node) return true;
    return false;
  }

  /** Returns the node at a horizontal position and a depth. */
  at(x: number, depth: number): number | null {
    const {tree} = this, chain: number[] = [];
    for (let at = this.focus; at >= 0; at = tree.parent[at]!) chain.unshift(at);
    if (depth < chain.length) return chain[depth] ?? null;
    const target = tree.x[this.focus]! + x / this.scale;
    let node = this.focus;
    for (let d = chain.length; d <= depth; d++) {
      let c = tree.first_child[node]!;
      while (c >= 0 && tree.x[c]! + tree.value[c]! <= target) c = tree.next[c]!;
      if (c < 0 || tree.x[c]! > target || tree.value[c]! * this.scale < MIN_WIDTH) return null;
      node = c;
    }
    return node;
  }
}

/** Draws the visible nodes, and returns their number. */
export function draw_tree(context: CanvasRenderingContext2D, tree: Tree, positions: NodePositions, look: Look, scrolled: number, height: number, selected: number | null): number {
  let drawn = 0;
  context.font = '12px ui-sans-serif, system-ui, sans-serif';
  context.textBaseline = 'middle';
  const box = (node: number, x: number, w: number, dim: boolean): void => {
    const y = tree.depth[node]! * ROW - scrolled;
    if (y + ROW < 0 || y > height) return;
    drawn++;
    const wide = Math.max(0.7, w - (w > 3 ? 1 : 0.2)), share = tree.value[node] ? tree.matched[node]! / tree.value[node]! : 1;
    context.globalAlpha = dim ? 0.55 : 1;
    if (share < 1) { context.fillStyle = look.faint; context.fillRect(x, y, wide, ROW - 1); }
    if (share > 0) { context.fillStyle = look.fill(node); context.fillRect(x, y, wide * share, ROW - 1); }
    if (w > 4 && look.found(node)) { context.fillStyle = look.accent; context.fillRect(x, y + ROW - 4, wide, 3); }
    if (w > 28) label(context, look.text(node), x + 5, y + ROW / 2, wide - 8, look.ink);
    context.globalAlpha = 1;
  };
  const chain: number[] = [];
  for (let at = tree.parent[positions.focus]!; at >= 0; at = tree.parent[at]!) chain.unshift(at);
  for (const node of chain) box(node, 0, positions.width, true);
  const stack = [positions.focus];
  while (stack.length > 0) {
    const node = stack.pop()!, position = positions.of(node);
    if (!position) continue;
    box(node, position[0], position[1], false);
    if (tree.depth[node]! * ROW - scrolled > height) continue;
    for (let c = tree.first_child[node]!; c >= 0; c = tree.next[c]!) {
      if (tree.value[c]! * positions.scale < MIN_WIDTH) break;
      stack.push(c);
    }
  }
  if (selected !== null) {
    const position = positions.of(selected);
    if (position) {
      context.lineWidth = 2;
      context.strokeStyle = look.line;
      context.strokeRect(position[0] + 1, tree.depth[selected]! * ROW - scrolled + 1, Math.max(2, position[1] - 2), ROW - 3);
    }
  }
  return drawn;
}

/**
 * Draws a text, truncated at its end if there is no room for all of it, because the beginning of a name is more informative.
 */
function label(context: CanvasRenderingContext2D, text: string, x: number, y: number, room: number, ink: string): void {
  // Measuring text is slow; 6.2 pixels per character is accurate enough.
  const most = Math.floor(room / 6.2);
  if (most < 2) return;
  context.fillStyle = ink;
  context.fillText(text.length <= most ? text : text.slice(0, most - 1) + '…', x, y, room);
}
