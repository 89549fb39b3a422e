//! The element types of tensors.

use std::fmt;

macro_rules! dtypes {
    ($($variant:ident = $name:literal, $bytes:literal, $about:literal;)*) => {
        /// The element type of a tensor.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        #[repr(u8)]
        pub enum Dtype {
            $(#[doc = $about] $variant,)*
        }

        impl Dtype {
            /// All types.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// Returns the type's name in operator traces.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// Returns the size of an element in bytes.
            pub const fn bytes(self) -> u64 {
                match self {
                    $(Self::$variant => $bytes,)*
                }
            }
        }
    };
}

// Files contain positions in this list, so add new types at its end.
dtypes! {
    F64 = "f64", 8, "64-bit float.";
    F32 = "f32", 4, "32-bit float.";
    F16 = "f16", 2, "IEEE 754 16-bit float.";
    Bf16 = "bf16", 2, "16-bit float with the exponent range of a 32-bit float.";
    F8E4M3 = "f8e4m3", 1, "8-bit float with a 4-bit exponent.";
    F8E5M2 = "f8e5m2", 1, "8-bit float with a 5-bit exponent.";
    I64 = "i64", 8, "64-bit integer.";
    I32 = "i32", 4, "32-bit integer.";
    I16 = "i16", 2, "16-bit integer.";
    I8 = "i8", 1, "8-bit integer.";
    U64 = "u64", 8, "Unsigned 64-bit integer.";
    U32 = "u32", 4, "Unsigned 32-bit integer.";
    U16 = "u16", 2, "Unsigned 16-bit integer.";
    U8 = "u8", 1, "Bytes; also any element type that is missing in this list.";
    Bool = "bool", 1, "Booleans, one byte each.";
    C32 = "c32", 4, "Complex number of two 16-bit floats.";
    C64 = "c64", 8, "Complex number of two 32-bit floats.";
    C128 = "c128", 16, "Complex number of two 64-bit floats.";
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
