//! Selects the expansion for the annotated item. Functions and impl blocks are expanded. Any other item is left
//! unchanged next to a compile error that names its kind, so that one mistake leads to only one error.

use crate::args::Args;
use crate::function::Function;
use crate::impl_block;
use proc_macro2::{Ident, TokenStream};
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser};
use syn::{Attribute, Error, LitStr, Result, Token, Visibility};

/// Expands `#[track_memory]` on any item.
pub(crate) fn expand(args: TokenStream, item: TokenStream) -> TokenStream {
    try_expand(args, item.clone()).unwrap_or_else(|error| {
        let error = error.into_compile_error();
        quote::quote!(#error #item)
    })
}

fn try_expand(args: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let args: Args = syn::parse2(args)?;
    if let Some(skip) = args.skip {
        return Err(Error::new(
            skip,
            "`skip` leaves a function out of an annotated impl block; here there is none to leave it out of",
        ));
    }
    let keyword = parse_keyword.parse2(item.clone())?;
    match keyword.to_string().as_str() {
        "fn" => syn::parse2::<Function>(item)?.expand(&args, false),
        "impl" => Ok(impl_block::expand(&args, syn::parse2(item)?)),
        other => Err(wrong_target_error(&keyword, other)),
    }
}

/// Returns the keyword that determines an item's kind.
fn parse_keyword(input: ParseStream) -> Result<Ident> {
    input.call(Attribute::parse_outer)?;
    input.parse::<Visibility>()?;
    loop {
        if !input.peek(Ident::peek_any) {
            return Err(input.error("`#[track_memory]` goes on a function, a method or an impl block"));
        }
        let word = input.call(Ident::parse_any)?;
        let is_qualifier = match word.to_string().as_str() {
            "default" | "async" | "unsafe" | "safe" => true,
            // In a constant, `const` is followed by a name; in a `const fn`, by another keyword.
            "const" => {
                input.peek(Token![fn])
                    || input.peek(Token![async])
                    || input.peek(Token![unsafe])
                    || input.peek(Token![extern])
            }
            "extern" => {
                input.parse::<Option<LitStr>>()?;
                input.peek(Token![fn]) || input.peek(Token![impl])
            }
            _ => false,
        };
        if !is_qualifier {
            input.parse::<TokenStream>()?;
            return Ok(word);
        }
    }
}

fn wrong_target_error(keyword: &Ident, item: &str) -> Error {
    let on_methods = "put it on an impl block of the type or on single methods";
    let on_value = "put it on the function that computes the value";
    let (item, instead) = match item {
        "struct" => ("a struct", on_methods),
        "enum" => ("an enum", on_methods),
        "union" => ("a union", on_methods),
        "trait" => ("a trait", "put it on its default methods, or on the impl blocks"),
        "mod" => ("a module", "put it on the functions in it"),
        "const" => ("a constant", on_value),
        "static" => ("a static", on_value),
        "extern" => ("an extern block", "put it on a function that calls into it"),
        _ => ("this", "put it on what allocates"),
    };
    Error::new(
        keyword.span(),
        format!("`#[track_memory]` goes on a function, a method or an impl block, not on {item}: {instead}"),
    )
}
