// Size classes for memory without segments. They are powers of four, which keeps their number small.

/** Returns the lower bound of the class of a size: 0 for less than 256 bytes, then powers of four. */
export function size_class(bytes: number): number {
  if (bytes < 256) return 0;
  let bound = 256;
  while (bound * 4 <= bytes) bound *= 4;
  return bound;
}

/** Returns the upper bound (exclusive) of a class from its lower bound. */
export function class_end(bound: number): number { return bound === 0 ? 256 : bound * 4; }
