// What a user's query means.

/** Parts of a block that a query can be limited to by a prefix: `scope:backward`. */
export type Field = 'any' | 'in' | 'stack' | 'frame' | 'scope' | 'category' | 'stream' | 'pool' | 'note' | 'address';

const FIELDS: readonly Field[] = ['in', 'stack', 'frame', 'scope', 'category', 'stream', 'pool', 'note', 'address'];

export type Query =
  | {kind: 'all'}
  | {kind: 'pattern'; field: Field; pattern: RegExp; addresses: boolean}
  | {kind: 'address'; digits: string; value: bigint}
  | {kind: 'stack'; stack: number}
  | {kind: 'wrong'; words: string};

/** Reads a query: a regular expression, an address, or one of them for one part of a block. Never throws. */
export function read_query(text: string): Query {
  const trimmed = text.trim();
  if (trimmed === '') return {kind: 'all'};
  const colon = trimmed.indexOf(':'), prefix = FIELDS.find(f => f === trimmed.slice(0, colon));
  const field: Field = prefix ?? 'any', rest = prefix ? trimmed.slice(colon + 1).trim() : trimmed;
  if (field === 'stack' && /^\d+$/.test(rest)) return {kind: 'stack', stack: Number(rest)};
  if (prefix && rest === '') return {kind: 'all'};
  if (field === 'any' || field === 'address') {
    // Without 0x only what is too long for a word, and too long for a number of an event.
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
    return {kind: 'wrong', words: in_words(error)};
  }
}

/** Capitals of escapes (`\S`) say nothing about what the user looks for. */
function has_capitals(text: string): boolean { return /\p{Lu}/u.test(text.replace(/\\./g, '')); }

/** Whether a pattern could match `0x7f…`: if a letter that no address has must occur, a million addresses need not be written out. */
export function can_match_address(text: string): boolean {
  if (/[|()[\]\\{}]/.test(text)) return true;
  return !/[^0-9a-fx.^$*+?](?![*?])/i.test(text);
}

function in_words(error: unknown): string {
  const message = error instanceof Error ? error.message.replace(/^Invalid regular expression: (\/.*\/[a-z]*: )?/s, '') : String(error);
  return `This is not a regular expression: ${message.charAt(0).toLowerCase()}${message.slice(1)}. Put \\ before ( ) [ ] { } . * + ? ^ $ | \\ to look for them as they are.`;
}

/** A pattern that matches a text and nothing else. */
export function escaped(text: string): string { return text.replace(/[\\^$.*+?()[\]{}|]/g, '\\$&'); }
