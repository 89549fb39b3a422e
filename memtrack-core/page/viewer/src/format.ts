// Formats numbers, times and names.

const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];

// Creating a formatter takes longer than all uses of it.
const whole = new Intl.NumberFormat('en-US', {maximumFractionDigits: 0});
const thousandths = new Intl.NumberFormat('en-US', {minimumFractionDigits: 3, maximumFractionDigits: 3});

/** Formats bytes with one decimal: `1.4 GiB`, exact below 1 KiB. */
export function bytes(value: number): string {
  let unit = 0, v = Math.abs(value);
  while (v >= 1023.95 && unit < UNITS.length - 1) {
    v /= 1024;
    unit++;
  }
  return `${value < 0 ? '−' : ''}${unit === 0 ? String(Math.round(v)) : v.toFixed(1)} ${UNITS[unit]}`;
}

/** Formats bytes with the exact number: `1.4 GiB (1,503,238,553 bytes)`. */
export function exact_bytes(value: number): string {
  return value < 1024 ? `${count(value)} ${value === 1 ? 'byte' : 'bytes'}` : `${bytes(value)} (${count(value)} bytes)`;
}

/** Formats a number with thousands separators. */
export function count(value: number): string {
  return whole.format(value);
}

/** Formats microseconds in the unit for `scale`, the visible range: `12.345 ms`. */
export function time(us: number, scale: number = Math.abs(us)): string {
  const [unit, name] = scale >= 1e6 ? [1e6, 's'] : scale >= 1e3 ? [1e3, 'ms'] : [1, 'µs'];
  const digits = unit === 1 ? 0 : 3;
  return `${us < 0 ? '−' : ''}${(digits ? thousandths : whole).format(Math.abs(us) / unit)} ${name}`;
}

/** Formats an address from its two halves. */
export function hex(high: number, low: number): string {
  return '0x' + (high ? high.toString(16) + low.toString(16).padStart(8, '0') : low.toString(16));
}

/** Makes the invisible characters in a name visible: control characters, direction marks and line ends. */
export function visible(text: string): string {
  return text.replace(/[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g, c => {
    const code = c.charCodeAt(0);
    return code < 0x20 ? String.fromCharCode(0x2400 + code) : code === 0x7f ? '\u2421' : `\\u${code.toString(16).padStart(4, '0')}`;
  });
}

/** Formats a number with a noun: `1 block`, `2 blocks`. */
export function plural(n: number, one: string, many = one + 's'): string {
  return `${count(n)} ${n === 1 ? one : many}`;
}

/** Formats a part as a percentage of the whole, with one decimal. */
export function share(part: number, whole: number): string {
  const percent = whole === 0 ? 0 : (part / whole) * 100;
  return percent > 0 && percent < 0.05 ? '< 0.1 %' : `${percent.toFixed(1)} %`;
}

/** Shortens a long text in its middle: both ends distinguish names of functions. */
export function without_middle(text: string, most: number): string {
  const characters = [...text], head = Math.ceil((most - 1) / 3);
  return characters.length <= most ? text : `${characters.slice(0, head).join('')}…${characters.slice(head + 1 - most).join('')}`;
}

/** Formats microseconds exactly as seconds, for columns: `12.345678 s`. */
export function exact_time(us: number): string {
  return `${(us / 1e6).toFixed(6).replace('-', '−')} s`;
}

/** The note on categories that are not in the file. */
export const INFERRED = 'These categories are not in the file: they are inferred from stacks, scopes, sizes and the order of events, and may be wrong. Run “memtrack categories” to see how.';

/** The note on a device whose sizes are estimates. */
export const ESTIMATED = 'Estimates: small blocks were sampled, and each visible one represents several. “memtrack summary” and “memtrack top” print the margin of error.';

/** Returns the name of the moment that times count from. */
export function words_of_since(since: 'start' | 'first_event' | 'first_timed_event'): string {
  return since === 'start' ? 'start' : since === 'first_event' ? 'first event' : 'first event that has a time';
}
