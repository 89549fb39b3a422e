// Sizes by class, for memory that has no segments: powers of four, which keeps the classes few and each worth a look.

/** Lower bound of the class of a size: 0 for less than 256 bytes, then powers of four. */
export function size_class(bytes: number): number {
  if (bytes < 256) return 0;
  let bound = 256;
  while (bound * 4 <= bytes) bound *= 4;
  return bound;
}

/** Upper bound (exclusive) of a class, by its lower. */
export function class_end(bound: number): number { return bound === 0 ? 256 : bound * 4; }
