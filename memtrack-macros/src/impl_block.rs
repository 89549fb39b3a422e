//! The attribute on an impl block. Every function in the block is expanded with the block's arguments, unless the
//! function's own `#[track_memory(…)]` overrides them. Constants, types and macro calls are left as they are.

use crate::args::Args;
use crate::function::Function;
use proc_macro2::TokenStream;
use quote::ToTokens;
use syn::{Attribute, ImplItem, ImplItemFn, ItemImpl, Meta, Result};

/// Expands the functions in the block. An invalid function is left unchanged next to its compile error, while the
/// others are expanded.
pub(crate) fn expand(args: &Args, mut block: ItemImpl) -> TokenStream {
    for item in &mut block.items {
        if let ImplItem::Fn(function) = item {
            let tokens = expand_function(args, function).unwrap_or_else(|error| {
                let error = error.into_compile_error();
                quote::quote!(#error #function)
            });
            *item = ImplItem::Verbatim(tokens);
        }
    }
    block.into_token_stream()
}

fn expand_function(args: &Args, function: &mut ImplItemFn) -> Result<TokenStream> {
    let args = match take_attribute(&mut function.attrs)? {
        Some(own) if own.skip.is_some() => return Ok(function.to_token_stream()),
        Some(own) => args.overridden_by(own),
        None => args.clone(),
    };
    Function::from(&*function).expand(&args, true)
}

/// Removes and returns the function's own `#[track_memory]`, regardless of the path it is written with.
fn take_attribute(attributes: &mut Vec<Attribute>) -> Result<Option<Args>> {
    let is_track_memory = |attribute: &Attribute| {
        attribute.path().segments.last().is_some_and(|segment| segment.ident == "track_memory")
    };
    let Some(place) = attributes.iter().position(is_track_memory) else { return Ok(None) };
    let attribute = attributes.remove(place);
    match &attribute.meta {
        Meta::Path(_) => Ok(Some(Args::default())),
        _ => attribute.parse_args().map(Some),
    }
}
