//! `#[references(…)]` on a type, a variant and a field. Every mistake is an error at the wrong word.

use crate::args::{take_equals, take_krate, take_nothing, twice};
use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, quote_spanned};
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::{Attribute, Error, ExprPath, LitStr, Path, Result, Token, WherePredicate};

const ON_TYPES: &str = "supported on a type are `opaque`, `bound = \"…\"` and `crate = path`";
const ON_VARIANTS: &str = "supported on a variant are `skip` and `opaque`";
const ON_FIELDS: &str = "supported on a field are one of `skip`, `opaque`, `tensors` and `with = path`, and `show` and \
     `rename = \"…\"`";

/// The arguments on the type.
#[derive(Default)]
pub(super) struct TypeArgs {
    krate: Option<Path>,
    pub(super) bound: Option<Punctuated<WherePredicate, Token![,]>>,
    pub(super) opaque: bool,
}

impl TypeArgs {
    /// Parses the attributes; returns the valid arguments, and the errors of the others.
    pub(super) fn take(attributes: &[Attribute]) -> (Self, Option<Error>) {
        let mut args = Self::default();
        let wrong = each_word(attributes, ON_TYPES, |word, input| {
            match word.to_string().as_str() {
                "opaque" => flag(&mut args.opaque, word, input)?,
                "bound" => {
                    let bound = take_bound(word, input)?;
                    once(args.bound.replace(bound).is_none(), word)?;
                }
                "crate" => {
                    let krate = take_krate(word, input)?;
                    once(args.krate.replace(krate).is_none(), word)?;
                }
                text => return Err(unknown(word, text, ON_TYPES)),
            }
            Ok(())
        });
        (args, wrong.err())
    }

    /// Returns the path of memtrack-core; if none was given, errors about it point to `place`.
    pub(super) fn krate(&self, place: Span) -> TokenStream {
        let default = || quote_spanned!(place=> ::memtrack_core);
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
    pub(super) fn take(attributes: &[Attribute]) -> Result<Self> {
        let mut args = Self::default();
        each_word(attributes, ON_VARIANTS, |word, input| {
            match word.to_string().as_str() {
                "skip" => flag(&mut args.skip, word, input)?,
                "opaque" => flag(&mut args.opaque, word, input)?,
                text => return Err(unknown(word, text, ON_VARIANTS)),
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

/// How a field is visited.
#[derive(Default)]
pub(super) enum Look {
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
    pub(super) look: Look,
    pub(super) show: bool,
    pub(super) rename: Option<LitStr>,
}

impl FieldArgs {
    pub(super) fn take(attributes: &[Attribute]) -> Result<Self> {
        let mut args = Self::default();
        // The word that determines how the field is visited.
        let mut look: Option<Ident> = None;
        each_word(attributes, ON_FIELDS, |word, input| {
            args.look = match word.to_string().as_str() {
                "show" => return flag(&mut args.show, word, input),
                "rename" => {
                    let name = take_name(word, input)?;
                    return once(args.rename.replace(name).is_none(), word);
                }
                "skip" => Look::Skip,
                "opaque" => Look::Opaque,
                "tensors" => Look::Tensors,
                "with" => Look::With(take_function(word, input)?),
                text => return Err(unknown(word, text, ON_FIELDS)),
            };
            if let Some(first) = look.replace(word.clone()) {
                return Err(if first == *word { twice(word) } else { two_looks(&first, word) });
            }
            if matches!(args.look, Look::With(_)) { Ok(()) } else { refuse_value(word, input) }
        })?;
        if let (Look::Skip, Some(name)) = (&args.look, &args.rename)
            && !args.show
        {
            let message =
                "`skip` leaves the field out, so that it has no name to change: write one of the two";
            return Err(Error::new(name.span(), message));
        }
        Ok(args)
    }
}

fn two_looks(first: &Ident, second: &Ident) -> Error {
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

/// Parses each word of the `#[references(…)]` among `attributes`, with its value.
fn each_word(
    attributes: &[Attribute],
    supported: &str,
    mut take: impl FnMut(&Ident, ParseStream) -> Result<()>,
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
                take(&word, input)?;
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

fn flag(flag: &mut bool, word: &Ident, input: ParseStream) -> Result<()> {
    once(!std::mem::replace(flag, true), word)?;
    refuse_value(word, input)
}

fn refuse_value(word: &Ident, input: ParseStream) -> Result<()> {
    take_nothing(input, || format!("`{word}` takes no value"))
}

fn once(is_first: bool, word: &Ident) -> Result<()> {
    if is_first { Ok(()) } else { Err(twice(word)) }
}

fn unknown(word: &Ident, text: &str, supported: &str) -> Error {
    Error::new(word.span(), format!("unknown argument `{text}`: {supported}"))
}

fn take_name(word: &Ident, input: ParseStream) -> Result<LitStr> {
    let expected = "`rename` takes a string: `rename = \"weight\"`";
    take_equals(word, input, expected)?;
    let name: LitStr = input.parse().map_err(|error| Error::new(error.span(), expected))?;
    if name.value().is_empty() {
        return Err(Error::new(
            name.span(),
            "`rename` must not be empty: leave it out for the field's own name",
        ));
    }
    Ok(name)
}

fn take_function(word: &Ident, input: ParseStream) -> Result<ExprPath> {
    let expected = "`with` takes the path of a `fn(&FieldType, &mut Visitor<'_>)`: `with = visit_layers`";
    take_equals(word, input, expected)?;
    let path = input.parse().map_err(|error| Error::new(error.span(), expected))?;
    if input.is_empty() || input.peek(Token![,]) { Ok(path) } else { Err(input.error(expected)) }
}

fn take_bound(word: &Ident, input: ParseStream) -> Result<Punctuated<WherePredicate, Token![,]>> {
    let expected = "`bound` takes what would follow `where`: `bound = \"T: References + 'static\"`, or `\"\"` for nothing";
    take_equals(word, input, expected)?;
    let text: LitStr = input.parse().map_err(|error| Error::new(error.span(), expected))?;
    text.parse_with(Punctuated::parse_terminated).map_err(|error| Error::new(error.span(), expected))
}
