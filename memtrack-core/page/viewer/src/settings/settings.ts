// Allocator settings as rows of a table: nested keys joined by dots.

export interface Setting {
  readonly key: string;
  readonly value: string;
  /** The kind of the value, for its style. */
  readonly kind: 'text' | 'number' | 'yes' | 'no' | 'nothing';
}

/** The maximum nesting of keys. */
const MAX_DEPTH = 8;

/** Flattens settings, in the order of the file. */
export function flatten(settings: unknown, key = '', depth = 0): Setting[] {
  if (settings !== null && typeof settings === 'object' && depth < MAX_DEPTH) {
    const entries = Array.isArray(settings) ? settings.map((value, i) => [String(i), value] as const) : Object.entries(settings);
    if (entries.length === 0) return key === '' ? [] : [{key, value: Array.isArray(settings) ? '(empty list)' : '(empty)', kind: 'nothing'}];
    // A list of scalars is shown on one line.
    if (Array.isArray(settings) && settings.every(v => v === null || typeof v !== 'object')) return [{key, value: settings.map(plain).join(', '), kind: 'text'}];
    return entries.flatMap(([name, value]) => flatten(value, key === '' ? name : `${key}.${name}`, depth + 1));
  }
  const kind = settings === null || settings === undefined || settings === '' ? 'nothing' : typeof settings === 'number' ? 'number'
    : settings === true ? 'yes' : settings === false ? 'no' : 'text';
  return [{key, value: plain(settings), kind}];
}

function plain(value: unknown): string {
  if (value === null || value === undefined) return 'not set';
  if (value === '') return '(empty)';
  if (value === true) return 'yes';
  if (value === false) return 'no';
  return typeof value === 'object' ? '(nested too deeply to be shown)' : String(value);
}
