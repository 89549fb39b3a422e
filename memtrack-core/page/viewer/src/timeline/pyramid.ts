// Finds the largest value of a range, in a few hundred steps for any length.

const FAN = 64;

/** A search index for the largest value in any range of an array. If there are several, the first one is found. */
export class Peaks {
  private readonly levels: Uint32Array[] = [];

  constructor(private readonly values: Float64Array) {
    let below: Uint32Array | null = null;
    for (let n = values.length; n > FAN; n = Math.ceil(n / FAN)) {
      const level = new Uint32Array(Math.ceil(n / FAN));
      for (let i = 0; i < level.length; i++) {
        let best = below ? below[i * FAN]! : i * FAN, value = values[best]!;
        for (let j = i * FAN + 1, to = Math.min(n, (i + 1) * FAN); j < to; j++) {
          const index: number = below ? below[j]! : j;
          if (values[index]! > value) {
            best = index;
            value = values[index]!;
          }
        }
        level[i] = best;
      }
      this.levels.push(below = level);
    }
  }

  /** Returns the index of the largest of `values[from..to]`, both included. */
  top(from: number, to: number): number {
    const {values} = this;
    let best = from, low = from, high = to + 1;
    // Between the complete nodes of a level and the ends of the range, the level below covers the rest.
    for (let level = -1; ; level++) {
      const indices = level < 0 ? null : this.levels[level]!;
      const up = level + 1 < this.levels.length && high - low > 2 * FAN;
      const left = up ? Math.ceil(low / FAN) * FAN : high, right = up ? Math.floor(high / FAN) * FAN : high;
      for (let i = low; i < left; i++) best = better(values, best, indices ? indices[i]! : i);
      for (let i = right; i < high; i++) best = better(values, best, indices ? indices[i]! : i);
      if (!up) return best;
      low = left / FAN;
      high = right / FAN;
    }
  }
}

function better(values: Float64Array, best: number, index: number): number {
  const a = values[best]!, b = values[index]!;
  return b > a || (b === a && index < best) ? index : best;
}
