//! The opcodes of pickle protocols 0 to 5, which the writers use as well, and tokens, which are instructions along with the
//! operands that directly follow them. The encoding of operands is confined to this module; the machine and its fast path
//! get tokens from a slice of bytes.
//!
//! **Why does one decoder suffice for both?** A token has at most ten bytes. If fewer than ten are left, the token is
//! decoded from a copy padded with zeros, so the end of the window does not need a second decoder.

use super::error::PickleErrorKind;

macro_rules! opcodes {
    ($($name:ident = $byte:literal),* $(,)?) => {
        $(pub(crate) const $name: u8 = $byte;)*

        /// Returns the name of an opcode for use in messages, or `None` if the byte is not an opcode.
        pub(crate) fn opcode_name(byte: u8) -> Option<&'static str> {
            match byte {
                $($name => Some(stringify!($name)),)*
                _ => None,
            }
        }
    };
}

opcodes! {
    MARK = b'(', STOP = b'.', POP = b'0', POP_MARK = b'1', DUP = b'2',
    FLOAT = b'F', INT = b'I', BININT = b'J', BININT1 = b'K', LONG = b'L', BININT2 = b'M',
    NONE = b'N', PERSID = b'P', BINPERSID = b'Q', REDUCE = b'R',
    STRING = b'S', BINSTRING = b'T', SHORT_BINSTRING = b'U', UNICODE = b'V', BINUNICODE = b'X',
    APPEND = b'a', BUILD = b'b', GLOBAL = b'c', DICT = b'd', EMPTY_DICT = b'}', APPENDS = b'e',
    GET = b'g', BINGET = b'h', INST = b'i', LONG_BINGET = b'j', LIST = b'l', EMPTY_LIST = b']',
    OBJ = b'o', PUT = b'p', BINPUT = b'q', LONG_BINPUT = b'r', SETITEM = b's', TUPLE = b't',
    EMPTY_TUPLE = b')', SETITEMS = b'u', BINFLOAT = b'G',
    PROTO = 0x80, NEWOBJ = 0x81, EXT1 = 0x82, EXT2 = 0x83, EXT4 = 0x84,
    TUPLE1 = 0x85, TUPLE2 = 0x86, TUPLE3 = 0x87, NEWTRUE = 0x88, NEWFALSE = 0x89,
    LONG1 = 0x8a, LONG4 = 0x8b, BINBYTES = b'B', SHORT_BINBYTES = b'C',
    SHORT_BINUNICODE = 0x8c, BINUNICODE8 = 0x8d, BINBYTES8 = 0x8e, EMPTY_SET = 0x8f,
    ADDITEMS = 0x90, FROZENSET = 0x91, NEWOBJ_EX = 0x92, STACK_GLOBAL = 0x93,
    MEMOIZE = 0x94, FRAME = 0x95, BYTEARRAY8 = 0x96, NEXT_BUFFER = 0x97, READONLY_BUFFER = 0x98,
}

/// Returns the error for a byte that is not a supported opcode.
#[cold]
pub(crate) fn unsupported_opcode_error(byte: u8) -> PickleErrorKind {
    opcode_name(byte).map_or(PickleErrorKind::NotAPickle(byte), PickleErrorKind::RefusedOpcode)
}

/// The maximum length of a token in bytes.
pub(crate) const MAX_TOKEN_BYTES: usize = 10;

/// An instruction and its operand. Data of variable length comes after the token, i.e. the bytes of strings and of long
/// integers, and the lines of the text protocols.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Token {
    /// Pushes the value in a memo slot.
    Get(u32),
    /// An integer.
    Int(i64),
    /// An instruction that has no operand or is followed by lines, or a byte that is not an instruction.
    Plain(u8),
    /// A token that rarely occurs in large files.
    Rare(RareToken),
}

/// Tokens that rarely occur in large files.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum RareToken {
    /// Stores the top value in a memo slot.
    Put(u32),
    /// An integer of this many bytes, which follow the token.
    Long(u64),
    /// A float.
    Float(f64),
    /// A string of this many bytes, which follow the token.
    Text(u64),
    /// Raw data of this many bytes, which follow the token.
    Bytes(u64),
    /// The protocol version.
    Protocol(u8),
    /// A frame of this many bytes, which follow the token.
    Frame(u64),
    /// A negative length, which Python would reject as well. Contains the error message.
    Negative(&'static str),
}

/// Returns the token at the start of `bytes` and its length, or `None` if the token is incomplete.
#[inline(always)]
pub(crate) fn decode_first(bytes: &[u8]) -> Option<(Token, usize)> {
    match bytes.first_chunk() {
        Some(head) => Some(decode_token(head)),
        None => copy_padded(bytes, &mut [0; MAX_TOKEN_BYTES]).map(decode_token),
    }
}

/// Returns the first [`MAX_TOKEN_BYTES`] of `bytes`. If there are fewer, returns a copy in `room`, padded with zeros.
/// Returns `None` if the token at the start is incomplete.
#[inline(always)]
pub(crate) fn pad_head<'a>(
    bytes: &'a [u8],
    room: &'a mut [u8; MAX_TOKEN_BYTES],
) -> Option<&'a [u8; MAX_TOKEN_BYTES]> {
    bytes.first_chunk().or_else(|| copy_padded(bytes, room))
}

#[cold]
#[inline(never)]
fn copy_padded<'a>(bytes: &[u8], room: &'a mut [u8; MAX_TOKEN_BYTES]) -> Option<&'a [u8; MAX_TOKEN_BYTES]> {
    *room = [0; MAX_TOKEN_BYTES];
    room[..bytes.len()].copy_from_slice(bytes);
    let (_, length) = decode_token(room);
    (length <= bytes.len()).then_some(room)
}

/// Returns the token at the start of `head` and its length.
#[inline(always)]
pub(crate) fn decode_token(head: &[u8; MAX_TOKEN_BYTES]) -> (Token, usize) {
    let &[opcode, a, b, c, d, e, f, g, h, i] = head;
    let word = || u32::from_le_bytes([a, b, c, d]);
    let wide = || u64::from_le_bytes([a, b, c, d, e, f, g, h]);
    let signed = |make: fn(u64) -> RareToken, complaint| {
        u64::try_from(word().cast_signed()).map_or(RareToken::Negative(complaint), make)
    };
    match opcode {
        BINGET => (Token::Get(a.into()), 2),
        LONG_BINGET => (Token::Get(word()), 5),
        BINPUT => (Token::Rare(RareToken::Put(a.into())), 2),
        LONG_BINPUT => (Token::Rare(RareToken::Put(word())), 5),
        BININT1 => (Token::Int(a.into()), 2),
        BININT2 => (Token::Int(u16::from_le_bytes([a, b]).into()), 3),
        BININT => (Token::Int(word().cast_signed().into()), 5),
        LONG1 if a <= 8 => {
            // Shift out the bytes after the integer, and shift in the sign.
            let shift = 64 - 8 * u32::from(a);
            let number = i64::from_le_bytes([b, c, d, e, f, g, h, i]);
            (Token::Int(if a == 0 { 0 } else { number << shift >> shift }), 2 + usize::from(a))
        }
        LONG1 => (Token::Rare(RareToken::Long(a.into())), 2),
        LONG4 => (Token::Rare(signed(RareToken::Long, "integer: a negative length")), 5),
        BINFLOAT => (Token::Rare(RareToken::Float(f64::from_bits(wide().swap_bytes()))), 9),
        SHORT_BINUNICODE | SHORT_BINSTRING => (Token::Rare(RareToken::Text(a.into())), 2),
        BINUNICODE => (Token::Rare(RareToken::Text(word().into())), 5),
        BINUNICODE8 => (Token::Rare(RareToken::Text(wide())), 9),
        BINSTRING => (Token::Rare(signed(RareToken::Text, "string: a negative length")), 5),
        SHORT_BINBYTES => (Token::Rare(RareToken::Bytes(a.into())), 2),
        BINBYTES => (Token::Rare(RareToken::Bytes(word().into())), 5),
        BINBYTES8 | BYTEARRAY8 => (Token::Rare(RareToken::Bytes(wide())), 9),
        PROTO => (Token::Rare(RareToken::Protocol(a)), 2),
        FRAME => (Token::Rare(RareToken::Frame(wide())), 9),
        // These are listed individually so that the compiler does not need to match the opcode twice.
        MARK => (Token::Plain(MARK), 1),
        MEMOIZE => (Token::Plain(MEMOIZE), 1),
        SETITEMS => (Token::Plain(SETITEMS), 1),
        EMPTY_DICT => (Token::Plain(EMPTY_DICT), 1),
        EMPTY_LIST => (Token::Plain(EMPTY_LIST), 1),
        TUPLE2 => (Token::Plain(TUPLE2), 1),
        NEWTRUE => (Token::Plain(NEWTRUE), 1),
        NEWFALSE => (Token::Plain(NEWFALSE), 1),
        _ => (Token::Plain(opcode), 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tokens and the bytes that encode them.
    const TOKENS: [(&[u8], Token); 27] = [
        (b"h\xff", Token::Get(255)),
        (b"j\x01\x02\x03\xff", Token::Get(0xff03_0201)),
        (b"q\x07", Token::Rare(RareToken::Put(7))),
        (b"r\x00\x00\x01\x00", Token::Rare(RareToken::Put(65_536))),
        (b"K\xff", Token::Int(255)),
        (b"M\xff\xff", Token::Int(65_535)),
        (b"J\xff\xff\xff\xff", Token::Int(-1)),
        (b"\x8a\x00", Token::Int(0)),
        (b"\x8a\x01\x80", Token::Int(-128)),
        (b"\x8a\x02\xff\x00", Token::Int(255)),
        (b"\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80", Token::Int(i64::MIN)),
        (b"\x8a\x09", Token::Rare(RareToken::Long(9))),
        (b"\x8b\xff\xff\xff\x7f", Token::Rare(RareToken::Long(0x7fff_ffff))),
        (b"\x8b\xff\xff\xff\xff", Token::Rare(RareToken::Negative("integer: a negative length"))),
        (b"G\xbf\xf8\x00\x00\x00\x00\x00\x00", Token::Rare(RareToken::Float(-1.5))),
        (b"\x8c\xff", Token::Rare(RareToken::Text(255))),
        (b"U\x01", Token::Rare(RareToken::Text(1))),
        (b"X\xff\xff\xff\xff", Token::Rare(RareToken::Text(0xffff_ffff))),
        (b"\x8d\xff\xff\xff\xff\xff\xff\xff\xff", Token::Rare(RareToken::Text(u64::MAX))),
        (b"T\x00\x00\x00\x80", Token::Rare(RareToken::Negative("string: a negative length"))),
        (b"C\x02", Token::Rare(RareToken::Bytes(2))),
        (b"B\x00\x01\x00\x00", Token::Rare(RareToken::Bytes(256))),
        (b"\x8e\x00\x00\x00\x00\x01\x00\x00\x00", Token::Rare(RareToken::Bytes(1 << 32))),
        (b"\x80\x05", Token::Rare(RareToken::Protocol(5))),
        (b"\x95\x01\x00\x00\x00\x00\x00\x00\x01", Token::Rare(RareToken::Frame(1 << 56 | 1))),
        (b"(", Token::Plain(MARK)),
        (b"\xfe", Token::Plain(0xfe)),
    ];

    #[test]
    fn token_is_decoded_before_any_following_bytes() {
        for (bytes, token) in TOKENS {
            for rest in [&b""[..], b"\0", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"] {
                assert_eq!(decode_first(&[bytes, rest].concat()), Some((token, bytes.len())), "{bytes:x?}");
            }
        }
    }

    #[test]
    fn truncated_token_is_none() {
        for (bytes, _) in TOKENS {
            for length in 0..bytes.len() {
                assert_eq!(decode_first(&bytes[..length]), None, "{bytes:x?} cut at {length}");
            }
        }
    }
}
