// How numbers and names are written.

const UNITS = ['bytes', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];

/** A size by people's units with one decimal: `1.4 GiB`, `512 bytes`. */
export function size_text(bytes: number): string {
  let unit = 0, value = bytes;
  while (Math.abs(value) >= 1023.95 && unit < UNITS.length - 1) { value /= 1024; unit++; }
  return unit === 0 ? `${count_text(bytes)} ${bytes === 1 ? 'byte' : 'bytes'}` : `${value.toFixed(1)} ${UNITS[unit]}`;
}

/** A size with its exact bytes: `1.4 GiB (1,503,238,553 bytes)`. */
export function exact_size(bytes: number): string {
  return bytes < 1024 ? size_text(bytes) : `${size_text(bytes)} (${count_text(bytes)} bytes)`;
}

/** A whole number with its thousands apart. */
export function count_text(count: number): string {
  return Math.round(count).toString().replace(/\B(?=(\d{3})+$)/g, ',');
}

/** `1 block`, `2 blocks`. */
export function plural(count: number, one: string, many = one + 's'): string { return `${count_text(count)} ${count === 1 ? one : many}`; }

/** A share in percent; one decimal, as few people read more. */
export function share_text(part: number, whole: number): string {
  if (whole === 0) return '0 %';
  const percent = part / whole * 100;
  return percent > 0 && percent < 0.1 ? '< 0.1 %' : `${percent.toFixed(1)} %`;
}

/** An address of two halves as hexadecimal text, without `0x`. */
export function hex_of(high: number, low: number): string {
  return high === 0 ? (low >>> 0).toString(16) : high.toString(16) + (low >>> 0).toString(16).padStart(8, '0');
}

/** A time in microseconds since the page's start, as seconds with as many digits as there are. */
export function time_text(us: number): string { return `${(us / 1e6).toFixed(6)} s`; }

/** Text with its control characters made visible: names come from files, and files can be hostile. */
export function visible(text: string): string {
  return text.replace(/[\u0000-\u001f]/g, c => String.fromCharCode(0x2400 + c.charCodeAt(0))).replace(/\u007f/g, '\u2421')
    .replace(/[\u0080-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g, '\ufffd');
}
