//! `#[limits(…)]`: parses the arguments and expands the test. The test's body becomes a closure or a future that
//! memtrack-core runs, so that `?` and `return` leave only the body.

use crate::args::{duplicate_error, parse_crate_path, parse_equals};
use crate::function::{Function, output_type};
use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::spanned::Spanned;
use syn::{Error, Expr, Lit, LitStr, Path, Result, ReturnType, Token, parenthesized};

const SUPPORTED_ARGUMENTS: &str = "supported are `peak = \"64 MiB\"`, `leaks = 0`, `count = 1000`, these inside of `host(…)` or \
     `devices(…)`, `ignore_leaks = \"my_crate::cache::*\"`, `run_once` and `crate = path`";

/// A method call that sets a limit.
enum Call {
    /// A method and its argument.
    Plain(TokenStream),
    /// `host` or `devices`, and the calls in its parentheses.
    Group(Ident, Vec<Call>),
}

impl Call {
    /// Returns the tokens of the call. `new` is the expression that creates nested limits. Its path depends on the
    /// attribute's `crate` argument.
    fn to_tokens_with(&self, new: &TokenStream) -> TokenStream {
        match self {
            Self::Plain(call) => call.clone(),
            Self::Group(word, calls) => {
                let calls = calls.iter().map(|call| call.to_tokens_with(new));
                quote!(.#word(#new #(#calls)*))
            }
        }
    }
}

/// The limits as written.
#[derive(Default)]
struct Limits {
    /// The calls that set the limits, in the order given.
    calls: Vec<Call>,
    /// The names of the arguments that were given.
    given: Vec<String>,
    krate: Option<Path>,
    /// Whether any of the arguments sets a limit.
    has_limit: bool,
}

impl Limits {
    fn parse(input: ParseStream, is_outer: bool) -> Result<Self> {
        let mut limits = Self::default();
        while !input.is_empty() {
            limits.parse_argument(input, is_outer)?;
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        Ok(limits)
    }

    fn parse_argument(&mut self, input: ParseStream, is_outer: bool) -> Result<()> {
        if !input.peek(Ident::peek_any) {
            return Err(input.error(format!("this is not an argument of `#[limits]`: {SUPPORTED_ARGUMENTS}")));
        }
        let word = input.call(Ident::parse_any)?;
        let name = word.to_string();
        if name != "ignore_leaks" {
            if self.given.contains(&name) {
                return Err(duplicate_error(&word));
            }
            self.given.push(name.clone());
        }
        match name.as_str() {
            "peak" | "leaks" => {
                let bytes = parse_bytes(&word, input)?;
                self.calls.push(Call::Plain(quote!(.#word(#bytes))));
                self.has_limit = true;
            }
            "count" => {
                parse_equals(&word, input, "`count` takes a number of allocations: `count = 1000`")?;
                let blocks: Expr = input.parse()?;
                self.calls.push(Call::Plain(quote!(.count(#blocks))));
                self.has_limit = true;
            }
            "host" | "devices" if is_outer => {
                let content;
                parenthesized!(content in input);
                let group = Self::parse(&content, false)?;
                if !group.has_limit {
                    return Err(Error::new(
                        word.span(),
                        format!("`{name}(…)` names no limit: {SUPPORTED_ARGUMENTS}"),
                    ));
                }
                self.calls.push(Call::Group(word, group.calls));
                self.has_limit = true;
            }
            "ignore_leaks" => {
                let expected = "`ignore_leaks` takes a glob: `ignore_leaks = \"my_crate::cache::*\"`";
                parse_equals(&word, input, expected)?;
                let glob: LitStr = input.parse().map_err(|error| Error::new(error.span(), expected))?;
                self.calls.push(Call::Plain(quote!(.ignore_leaks(#glob))));
            }
            "run_once" if is_outer => self.calls.push(Call::Plain(quote!(.run_once()))),
            "crate" if is_outer => self.krate = Some(parse_crate_path(&word, input)?),
            _ => {
                return Err(Error::new(
                    word.span(),
                    format!("unknown argument `{name}`: {SUPPORTED_ARGUMENTS}"),
                ));
            }
        }
        Ok(())
    }
}

impl Parse for Limits {
    fn parse(input: ParseStream) -> Result<Self> {
        let limits = Self::parse(input, true)?;
        if !limits.has_limit {
            return Err(Error::new(
                Span::call_site(),
                format!("`#[limits]` names no limit: {SUPPORTED_ARGUMENTS}"),
            ));
        }
        Ok(limits)
    }
}

/// Parses a number of bytes, which is either a string with a unit or an expression.
fn parse_bytes(word: &Ident, input: ParseStream) -> Result<TokenStream> {
    let expected = format!("`{word}` takes bytes: `{word} = \"64 MiB\"` or `{word} = 64 << 20`");
    parse_equals(word, input, &expected)?;
    let value: Expr = input.parse().map_err(|error| Error::new(error.span(), &expected))?;
    let Expr::Lit(literal) = &value else { return Ok(value.into_token_stream()) };
    match &literal.lit {
        Lit::Str(text) => {
            let bytes = parse_size(&text.value()).map_err(|why| Error::new(text.span(), why))?;
            Ok(quote_spanned!(text.span()=> #bytes))
        }
        Lit::Int(_) => Ok(value.into_token_stream()),
        _ => Err(Error::new(value.span(), expected)),
    }
}

/// Parses a size in the same syntax as the `memtrack` command.
fn parse_size(text: &str) -> std::result::Result<u64, String> {
    const SIZE_SYNTAX: &str = "write bytes, or a number with KiB, MiB, GiB or kB, MB, GB";
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kib" | "k" => 1 << 10,
        "mib" | "m" => 1 << 20,
        "gib" | "g" => 1 << 30,
        "tib" => 1 << 40,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        _ => return Err(SIZE_SYNTAX.into()),
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(factor).ok_or_else(|| "it is too large".into());
    }
    let bytes = number.parse::<f64>().map_err(|_| SIZE_SYNTAX)? * factor as f64;
    if bytes >= u64::MAX as f64 { Err("it is too large".into()) } else { Ok(bytes.round() as u64) }
}

/// Expands the function so that it is checked against the limits.
pub(crate) fn expand(args: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let limits: Limits = syn::parse2(args)?;
    let function: Function = syn::parse2(item).map_err(|error| {
        Error::new(error.span(), format!("`#[limits]` is for a function, best a test: {error}"))
    })?;
    if let Some(constness) = &function.signature.constness {
        return Err(Error::new_spanned(
            constness,
            "a `const fn` cannot be held to limits: it may run in the compiler",
        ));
    }
    let krate = limits.krate.as_ref().map_or_else(|| quote!(::memtrack_core), ToTokens::to_token_stream);
    let new = quote!(#krate::testing::Limits::new());
    let calls = limits.calls.iter().map(|call| call.to_tokens_with(&new));
    let limits = quote!(#new #(#calls)*);
    let body = expand_body(&function, &krate, &limits);
    Ok(function.with_body(&body))
}

fn expand_body(function: &Function, krate: &TokenStream, limits: &TokenStream) -> TokenStream {
    let signature = &function.signature;
    let name = signature.ident.unraw().to_string();
    let name = quote!(::core::concat!(::core::module_path!(), "::", #name));
    let panics = function.outer.iter().any(|attribute| attribute.path().is_ident("should_panic"));
    let output = match &signature.output {
        ReturnType::Default => quote!(()),
        ReturnType::Type(_, ty) => quote!(#ty),
    };
    let failed = quote! {
        |value| {
            #[allow(unused_imports)]
            use #krate::__private::{OtherOutcome as _, ResultOutcome as _};
            (&#krate::__private::Outcome(value)).failed()
        }
    };
    let failed = (!panics).then_some(failed);
    let body = &function.body;
    // A body with arguments may consume them, so it can run only once.
    let kind = if signature.inputs.is_empty() {
        quote!(#krate::__private::Repeatable)
    } else {
        quote!(#krate::__private::Once::new)
    };
    if signature.asyncness.is_some() {
        let hint = output_type(signature)
            .map(|output| quote!(if false { return #krate::__private::output::<#output>(); }));
        let mut block = Group::new(Delimiter::Brace, quote!(#hint #body));
        block.set_span(function.braces);
        let run =
            Ident::new(if panics { "run_test_async_panicking" } else { "run_test_async" }, Span::call_site());
        return quote!(#krate::__private::limited!(
            #krate::__private::#run(#limits, #name, #kind(move || async move #block), #failed).await
        ));
    }
    let mut block = Group::new(Delimiter::Brace, body.clone());
    block.set_span(function.braces);
    let run = Ident::new(if panics { "run_test_panicking" } else { "run_test" }, Span::call_site());
    quote!(#krate::__private::limited!(
        #krate::__private::#run(#limits, #name, #kind(move || -> #output #block), #failed)
    ))
}
