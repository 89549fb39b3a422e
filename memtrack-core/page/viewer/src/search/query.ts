// Parses a query.

/** The parts of a block to which a prefix limits a query, as in `scope:backward`. */
export type Field = 'any' | 'in' | 'stack' | 'frame' | 'scope' | 'category' | 'stream' | 'pool' | 'note' | 'address';

const FIELDS: readonly Field[] = ['in', 'stack', 'frame', 'scope', 'category', 'stream', 'pool', 'note', 'address'];

export type Query =
  | {kind: 'all'}
  | {kind: 'pattern'; field: Field; pattern: RegExp; addresses: boolean}
  | {kind: 'address'; digits: string; value: bigint}
  | {kind: 'stack'; stack: number}
  | {kind: 'invalid'; message: string};

/** Parses a query: a regular expression or an address, with an optional prefix. Never throws. */
export function read_query(text: string): Query {
  const trimmed = text.trim();
  if (trimmed === '') return {kind: 'all'};
  const colon = trimmed.indexOf(':'), prefix = FIELDS.find(f => f === trimmed.slice(0, colon));
  const field: Field = prefix ?? 'any', rest = prefix ? trimmed.slice(colon + 1).trim() : trimmed;
  if (field === 'stack' && /^\d+$/.test(rest)) return {kind: 'stack', stack: Number(rest)};
  if (prefix && rest === '') return {kind: 'all'};
  if (field === 'any' || field === 'address') {
    // Without 0x an address needs nine digits, which is too long for a word or the number of an event.
    const hex = /^0x([0-9a-f]{1,16})$/i.exec(rest) ?? (field === 'address' ? /^([0-9a-f]{1,16})$/i : /^([0-9a-f]{9,16})$/i).exec(rest);
    if (hex) {
      const digits = hex[1]!.toLowerCase().replace(/^0+(?=.)/, '');
      return {kind: 'address', digits, value: BigInt('0x' + digits)};
    }
  }
  try {
    return {kind: 'pattern', field: field === 'stack' ? 'frame' : field, pattern: new RegExp(rest, has_capitals(rest) ? 'm' : 'im'),
      addresses: (field === 'any' && can_match_address(rest)) || field === 'address'};
  } catch (error) {
    return {kind: 'invalid', message: message_of(error)};
  }
}

/** Returns whether a pattern has capitals outside of escapes such as `\S`. */
function has_capitals(text: string): boolean { return /\p{Lu}/u.test(text.replace(/\\./g, '')); }

/**
 * Returns whether a pattern could match an address. If the pattern requires a letter that `0x7f…` cannot contain, a million
 * addresses need not be formatted.
 */
export function can_match_address(text: string): boolean {
  if (/[|()[\]\\{}]/.test(text)) return true;
  return !/[^0-9a-fx.^$*+?](?![*?])/i.test(text);
}

function message_of(error: unknown): string {
  const message = error instanceof Error ? error.message.replace(/^Invalid regular expression: (\/.*\/[a-z]*: )?/s, '') : String(error);
  return `This is not a regular expression: ${message.charAt(0).toLowerCase()}${message.slice(1)}. Put \\ before ( ) [ ] { } . * + ? ^ $ | \\ to match them literally.`;
}

/** Returns a pattern that matches only the given text. */
export function escaped(text: string): string { return text.replace(/[\\^$.*+?()[\]{}|]/g, '\\$&'); }
