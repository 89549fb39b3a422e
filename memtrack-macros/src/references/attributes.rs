//! Parses `#[references(…)]` on a type, a variant or a field. Each mistake leads to a compile error that points to the
//! offending word.

use crate::args::{duplicate_error, expect_no_value, parse_crate_path, parse_equals};
use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, quote_spanned};
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::{Attribute, Error, ExprPath, LitStr, Path, Result, Token, WherePredicate};

const SUPPORTED_ON_TYPES: &str = "supported on a type are `opaque`, `bound = \"…\"` and `crate = path`";
const SUPPORTED_ON_VARIANTS: &str = "supported on a variant are `skip` and `opaque`";
const SUPPORTED_ON_FIELDS: &str = "supported on a field are one of `skip`, `opaque`, `tensors` and `with = path`, and `show` and \
     `rename = \"…\"`";

/// The arguments on the type.
#[derive(Default)]
pub(super) struct TypeArgs {
    krate: Option<Path>,
    pub(super) bound: Option<Punctuated<WherePredicate, Token![,]>>,
    pub(super) opaque: bool,
}

impl TypeArgs {
    /// Parses the attributes. Returns the arguments up to the first invalid one, and the error for that one.
    pub(super) fn parse(attributes: &[Attribute]) -> (Self, Option<Error>) {
        let mut args = Self::default();
        let wrong = parse_each(attributes, SUPPORTED_ON_TYPES, |word, input| {
            match word.to_string().as_str() {
                "opaque" => set_flag(&mut args.opaque, word, input)?,
                "bound" => {
                    let bound = parse_bound(word, input)?;
                    check_first(args.bound.replace(bound).is_none(), word)?;
                }
                "crate" => {
                    let krate = parse_crate_path(word, input)?;
                    check_first(args.krate.replace(krate).is_none(), word)?;
                }
                text => return Err(unknown_argument_error(word, text, SUPPORTED_ON_TYPES)),
            }
            Ok(())
        });
        (args, wrong.err())
    }

    /// Returns the path to memtrack-core. If none was given, errors about the default path point to `span`.
    pub(super) fn krate(&self, span: Span) -> TokenStream {
        let default = || quote_spanned!(span=> ::memtrack_core);
        self.krate.as_ref().map_or_else(default, ToTokens::to_token_stream)
    }
}

/// The arguments on a variant.
#[derive(Default)]
pub(super) struct VariantArgs {
    pub(super) skip: bool,
    pub(super) opaque: bool,
}

impl VariantArgs {
    pub(super) fn parse(attributes: &[Attribute]) -> Result<Self> {
        let mut args = Self::default();
        parse_each(attributes, SUPPORTED_ON_VARIANTS, |word, input| {
            match word.to_string().as_str() {
                "skip" => set_flag(&mut args.skip, word, input)?,
                "opaque" => set_flag(&mut args.opaque, word, input)?,
                text => return Err(unknown_argument_error(word, text, SUPPORTED_ON_VARIANTS)),
            }
            if args.skip && args.opaque {
                let message = "a variant is either left out (`skip`) or reported as not inspected (`opaque`)";
                return Err(Error::new(word.span(), message));
            }
            Ok(())
        })?;
        Ok(args)
    }
}

/// How a field's value is inspected.
#[derive(Default)]
pub(super) enum Inspection {
    #[default]
    Visit,
    Skip,
    Opaque,
    Tensors,
    With(ExprPath),
}

/// The arguments on a field.
#[derive(Default)]
pub(super) struct FieldArgs {
    pub(super) inspection: Inspection,
    pub(super) show: bool,
    pub(super) rename: Option<LitStr>,
}

impl FieldArgs {
    pub(super) fn parse(attributes: &[Attribute]) -> Result<Self> {
        let mut args = Self::default();
        // The argument that determines how the field is inspected.
        let mut inspection_word: Option<Ident> = None;
        parse_each(attributes, SUPPORTED_ON_FIELDS, |word, input| {
            args.inspection = match word.to_string().as_str() {
                "show" => return set_flag(&mut args.show, word, input),
                "rename" => {
                    let name = parse_name(word, input)?;
                    return check_first(args.rename.replace(name).is_none(), word);
                }
                "skip" => Inspection::Skip,
                "opaque" => Inspection::Opaque,
                "tensors" => Inspection::Tensors,
                "with" => Inspection::With(parse_function(word, input)?),
                text => return Err(unknown_argument_error(word, text, SUPPORTED_ON_FIELDS)),
            };
            if let Some(first) = inspection_word.replace(word.clone()) {
                return Err(if first == *word {
                    duplicate_error(word)
                } else {
                    conflict_error(&first, word)
                });
            }
            if matches!(args.inspection, Inspection::With(_)) { Ok(()) } else { reject_value(word, input) }
        })?;
        if let (Inspection::Skip, Some(name)) = (&args.inspection, &args.rename)
            && !args.show
        {
            let message =
                "`skip` leaves the field out, so that it has no name to change: write one of the two";
            return Err(Error::new(name.span(), message));
        }
        Ok(args)
    }
}

fn conflict_error(first: &Ident, second: &Ident) -> Error {
    let message = if first == "skip" || second == "skip" {
        let other = if first == "skip" { second } else { first };
        format!(
            "`skip` leaves the field out, so that it cannot be combined with `{other}`: write one of the two"
        )
    } else {
        format!("a field is looked at in one way, either `{first}` or `{second}`")
    };
    Error::new(second.span(), message)
}

/// Calls `parse` for each argument of the `#[references(…)]` attributes among `attributes`.
fn parse_each(
    attributes: &[Attribute],
    supported: &str,
    mut parse: impl FnMut(&Ident, ParseStream) -> Result<()>,
) -> Result<()> {
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("references")) {
        let list = attribute.meta.require_list().map_err(|error| {
            Error::new(error.span(), format!("`#[references]` needs arguments in parentheses: {supported}"))
        })?;
        let words = |input: ParseStream| {
            while !input.is_empty() {
                if !input.peek(Ident::peek_any) {
                    return Err(
                        input.error(format!("this is not an argument of `#[references]`: {supported}"))
                    );
                }
                let word = input.call(Ident::parse_any)?;
                parse(&word, input)?;
                if !input.is_empty() {
                    input.parse::<Token![,]>()?;
                }
            }
            Ok(())
        };
        words.parse2(list.tokens.clone())?;
    }
    Ok(())
}

fn set_flag(flag: &mut bool, word: &Ident, input: ParseStream) -> Result<()> {
    check_first(!std::mem::replace(flag, true), word)?;
    reject_value(word, input)
}

fn reject_value(word: &Ident, input: ParseStream) -> Result<()> {
    expect_no_value(input, || format!("`{word}` takes no value"))
}

fn check_first(is_first: bool, word: &Ident) -> Result<()> {
    if is_first { Ok(()) } else { Err(duplicate_error(word)) }
}

fn unknown_argument_error(word: &Ident, text: &str, supported: &str) -> Error {
    Error::new(word.span(), format!("unknown argument `{text}`: {supported}"))
}

fn parse_name(word: &Ident, input: ParseStream) -> Result<LitStr> {
    let expected = "`rename` takes a string: `rename = \"weight\"`";
    parse_equals(word, input, expected)?;
    let name: LitStr = input.parse().map_err(|error| Error::new(error.span(), expected))?;
    if name.value().is_empty() {
        return Err(Error::new(
            name.span(),
            "`rename` must not be empty: leave it out for the field's own name",
        ));
    }
    Ok(name)
}

fn parse_function(word: &Ident, input: ParseStream) -> Result<ExprPath> {
    let expected = "`with` takes the path of a `fn(&FieldType, &mut Visitor<'_>)`: `with = visit_layers`";
    parse_equals(word, input, expected)?;
    let path = input.parse().map_err(|error| Error::new(error.span(), expected))?;
    if input.is_empty() || input.peek(Token![,]) { Ok(path) } else { Err(input.error(expected)) }
}

fn parse_bound(word: &Ident, input: ParseStream) -> Result<Punctuated<WherePredicate, Token![,]>> {
    let expected = "`bound` takes what would follow `where`: `bound = \"T: References + 'static\"`, or `\"\"` for nothing";
    parse_equals(word, input, expected)?;
    let text: LitStr = input.parse().map_err(|error| Error::new(error.span(), expected))?;
    text.parse_with(Punctuated::parse_terminated).map_err(|error| Error::new(error.span(), expected))
}
