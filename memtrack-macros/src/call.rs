//! Selects a function's arguments and result that may contain tensors; the expansion passes them to memtrack-core. A
//! macro sees only names and types as written, so it excludes types that certainly contain no tensors and leaves the
//! rest to the compiler.

use proc_macro2::{TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::{FnArg, Pat, ReturnType, Signature, Type};

/// Returns the arguments that have names and may contain tensors, including `self`.
pub(crate) fn tensor_inputs(signature: &Signature) -> Vec<TokenStream> {
    let name = |argument: &FnArg| match argument {
        FnArg::Receiver(receiver) => Some(receiver.self_token.to_token_stream()),
        FnArg::Typed(argument) => match &*argument.pat {
            Pat::Ident(name) if name.subpat.is_none() && may_have_tensors(&argument.ty) => {
                Some(name.ident.to_token_stream())
            }
            _ => None,
        },
    };
    // Arguments with attributes may be compiled only on some platforms, so they are skipped.
    let has_attributes = |argument: &FnArg| match argument {
        FnArg::Receiver(receiver) => !receiver.attrs.is_empty(),
        FnArg::Typed(argument) => !argument.attrs.is_empty(),
    };
    signature.inputs.iter().filter(|argument| !has_attributes(argument)).filter_map(name).collect()
}

/// Returns the type of the result if it may contain tensors and can be written in the body.
pub(crate) fn tensor_output(signature: &Signature) -> Option<TokenStream> {
    match &signature.output {
        ReturnType::Type(_, ty) if may_have_tensors(ty) && !has_word(ty.to_token_stream(), "impl") => {
            Some(quote!(#ty))
        }
        _ => None,
    }
}

fn may_have_tensors(ty: &Type) -> bool {
    match ty {
        Type::Reference(reference) => may_have_tensors(&reference.elem),
        Type::Group(group) => may_have_tensors(&group.elem),
        Type::Paren(paren) => may_have_tensors(&paren.elem),
        Type::Slice(slice) => may_have_tensors(&slice.elem),
        Type::Array(array) => may_have_tensors(&array.elem),
        Type::Tuple(tuple) => tuple.elems.iter().any(may_have_tensors),
        Type::Never(_) | Type::FnPtr(_) | Type::ImplTrait(_) | Type::TraitObject(_) | Type::Ptr(_) => false,
        Type::Path(path) => !path.path.get_ident().is_some_and(|name| {
            const TYPES_WITHOUT_TENSORS: [&str; 19] = [
                "bool", "char", "f32", "f64", "i8", "i16", "i32", "i64", "i128", "isize", "u8", "u16", "u32",
                "u64", "u128", "usize", "str", "String", "Duration",
            ];
            TYPES_WITHOUT_TENSORS.iter().any(|without| name == without)
        }),
        _ => true,
    }
}

fn has_word(tokens: TokenStream, word: &str) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Ident(ident) => ident == word,
        TokenTree::Group(group) => has_word(group.stream(), word),
        _ => false,
    })
}
