// Strings, frames, stacks and scopes, which all devices share.

import type {Bands, Texts} from '../types.ts';
import {Reader} from './columns.ts';

/** Decodes section 0. */
export function decode_texts(bytes: Uint8Array, columns: Map<string, number>): Texts {
  const reader = new Reader(bytes), n = (name: string) => columns.get(name) ?? 0;
  const strings = reader.text(n('strings'));
  const frame_name = reader.varint32(n('frame_name'));
  const frame_file = reader.varint32(n('frame_file'));
  const frame_line = reader.varint(n('frame_line'));
  const frame_noise = reader.u8(n('frame_noise'));
  const lengths = reader.varint32(n('stack_length'));
  const stack_from = new Uint32Array(lengths.length + 1);
  for (let i = 0; i < lengths.length; i++) stack_from[i + 1] = stack_from[i]! + lengths[i]!;
  const stack_skip = reader.varint32(n('stack_skip'));
  const stack_line = reader.varint32(n('stack_line'));
  return {
    string: id => strings.get(id), strings: strings.count, frame_name, frame_file, frame_line, frame_noise, stack_from, stack_skip, stack_line,
    stack_frames: reader.varint32(n('stack_frames')),
    scope_parent: reader.varint32(n('scope_parent')),
    scope_name: reader.varint32(n('scope_name')),
    scope_kind: reader.varint_into(new Uint8Array(n('scope_kind'))),
  };
}

/** Decodes section `bands`. */
export function decode_bands(bytes: Uint8Array, columns: Map<string, number>): Bands {
  const reader = new Reader(bytes), count = columns.get('from') ?? 0;
  return {
    count, from: reader.delta32(count), to: reader.delta32(count),
    depth: reader.varint_into(new Uint16Array(count)), thread: reader.varint_into(new Uint16Array(count)),
    name: reader.varint32(count), kind: reader.varint_into(new Uint8Array(count)),
  };
}
