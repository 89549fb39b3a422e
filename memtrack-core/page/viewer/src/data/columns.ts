// Decodes the columns of a section (README.md, "Sections"), one after another. The loops are simple so that a million values
// take a few milliseconds.

const utf8 = new TextDecoder();

/** A reader of the columns in an unpacked section, in their order. */
export class Reader {
  private at = 0;
  constructor(private readonly bytes: Uint8Array) {}

  /** Whether all bytes were read. */
  get done(): boolean {
    return this.at === this.bytes.length;
  }

  u8(count: number): Uint8Array {
    const from = this.at;
    this.at += count;
    this.check_bounds();
    return this.bytes.subarray(from, this.at);
  }

  /** Reads values of up to 53 bits. Larger values lose their low bits. */
  varint(count: number): Float64Array {
    const out = new Float64Array(count), bytes = this.bytes;
    let at = this.at;
    for (let i = 0; i < count; i++) {
      let b = bytes[at++]!, value = b & 127;
      for (let unit = 128; b > 127; unit *= 128) {
        b = bytes[at++]!;
        value += (b & 127) * unit;
      }
      out[i] = value;
    }
    this.at = at;
    this.check_bounds();
    return out;
  }

  /** Reads values of up to 32 bits. */
  varint32(count: number): Uint32Array {
    const out = new Uint32Array(count), bytes = this.bytes;
    let at = this.at;
    for (let i = 0; i < count; i++) {
      let b = bytes[at++]!, value = b & 127;
      for (let shift = 7; b > 127; shift += 7) {
        b = bytes[at++]!;
        if (shift < 32) value |= (b & 127) << shift;
      }
      out[i] = value;
    }
    this.at = at;
    this.check_bounds();
    return out;
  }

  /** Reads values like `varint32`, but into the 16 or 8 bits that the values of a column need. */
  varint_into<T extends Uint16Array | Uint8Array>(out: T): T {
    const bytes = this.bytes, count = out.length;
    let at = this.at;
    for (let i = 0; i < count; i++) {
      let b = bytes[at++]!, value = b & 127;
      for (let shift = 7; b > 127; shift += 7) {
        b = bytes[at++]!;
        if (shift < 32) value |= (b & 127) << shift;
      }
      out[i] = value;
    }
    this.at = at;
    this.check_bounds();
    return out;
  }

  /** Reads signed values whose differences fit in 32 bits each. */
  delta32(count: number): Int32Array {
    const out = new Int32Array(count), bytes = this.bytes;
    let at = this.at, sum = 0;
    for (let i = 0; i < count; i++) {
      let b = bytes[at++]!, value = b & 127;
      for (let shift = 7; b > 127; shift += 7) {
        b = bytes[at++]!;
        if (shift < 32) value |= (b & 127) << shift;
      }
      sum = (sum + ((value >>> 1) ^ -(value & 1))) | 0;
      out[i] = sum;
    }
    this.at = at;
    this.check_bounds();
    return out;
  }

  /** Reads signed values of up to 53 bits. */
  delta(count: number): Float64Array {
    const out = new Float64Array(count), bytes = this.bytes;
    let at = this.at, sum = 0;
    for (let i = 0; i < count; i++) {
      const from = at;
      let b = bytes[at++]!, value = b & 127;
      for (let unit = 128; b > 127; unit *= 128) {
        b = bytes[at++]!;
        value += (b & 127) * unit;
      }
      // Halving a number above 2^53 would round it; such a difference is computed exactly, as a bigint.
      if (at - from > 7) sum = Number(BigInt.asIntN(64, BigInt(sum) + unzigzag(long(bytes, from))));
      else sum += value % 2 === 0 ? value / 2 : -(value + 1) / 2;
      out[i] = sum;
    }
    this.at = at;
    this.check_bounds();
    return out;
  }

  /** Reads unsigned 64-bit values in two halves. Sums wrap. */
  delta64(count: number): {low: Uint32Array; high: Uint32Array} {
    const low = new Uint32Array(count), high = new Uint32Array(count), bytes = this.bytes;
    let at = this.at, sum_low = 0, sum_high = 0;
    for (let i = 0; i < count; i++) {
      let b = bytes[at++]!, value_low = b & 127, value_high = 0;
      for (let shift = 7; b > 127; shift += 7) {
        b = bytes[at++]!;
        const group = b & 127;
        if (shift < 28) value_low |= group << shift;
        else if (shift === 28) {
          value_low |= group << 28;
          value_high = group >>> 4;
        } else if (shift < 64) value_high |= group << (shift - 32);
      }
      const sign = -(value_low & 1);
      const step_low = (((value_low >>> 1) | (value_high << 31)) ^ sign) >>> 0;
      const step_high = (value_high >>> 1) ^ sign;
      const next = sum_low + step_low;
      sum_high = (sum_high + step_high + (next > 0xffffffff ? 1 : 0)) >>> 0;
      sum_low = next >>> 0;
      low[i] = sum_low;
      high[i] = sum_high;
    }
    this.at = at;
    this.check_bounds();
    return {low, high};
  }

  text(count: number): Strings {
    const lengths = this.varint32(count);
    const from = new Uint32Array(count + 1);
    let end = this.at;
    for (let i = 0; i < count; i++) {
      from[i] = end;
      end += lengths[i]!;
    }
    from[count] = end;
    this.at = end;
    this.check_bounds();
    return new Strings(this.bytes, from);
  }

  private check_bounds(): void {
    if (this.at > this.bytes.length) throw new Error('a table of this page ends too early: the file is damaged');
  }
}

/** Strings that are decoded on first use. */
export class Strings {
  private readonly decoded = new Map<number, string>();
  constructor(private readonly bytes: Uint8Array, private readonly from: Uint32Array) {}

  get count(): number {
    return this.from.length - 1;
  }

  get(index: number): string {
    let text = this.decoded.get(index);
    if (text === undefined) {
      if (index >= this.count) return '';
      text = utf8.decode(this.bytes.subarray(this.from[index], this.from[index + 1]));
      this.decoded.set(index, text);
    }
    return text;
  }
}

function long(bytes: Uint8Array, at: number): bigint {
  let value = 0n, shift = 0n, b;
  do {
    b = bytes[at++]!;
    value |= BigInt(b & 127) << shift;
    shift += 7n;
  } while (b > 127);
  return BigInt.asUintN(64, value);
}

function unzigzag(value: bigint): bigint {
  return (value >> 1n) ^ -(value & 1n);
}
