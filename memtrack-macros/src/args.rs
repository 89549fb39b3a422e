//! The arguments of `#[track_memory(…)]`: a form, a name, a path or `skip`. [`Args`] contains the arguments as written.
//! Each mistake leads to a compile error that points to the offending word.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::{Error, LitStr, Path, Result, Token};

const SUPPORTED_ARGUMENTS: &str = "supported are one of `operator`, `module`, `root`, `backward` and `optimizer`, \
     `name = \"…\"`, `crate = path`, and `skip` inside an annotated impl block";

/// The kind of scope that a function becomes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Operator,
    Module,
    Root,
    Backward,
    Optimizer,
}

impl Form {
    fn from_word(word: &str) -> Option<Self> {
        match word {
            "operator" => Some(Self::Operator),
            "module" => Some(Self::Module),
            "root" => Some(Self::Root),
            "backward" => Some(Self::Backward),
            "optimizer" => Some(Self::Optimizer),
            _ => None,
        }
    }

    /// Returns whether the arguments and the result are recorded as tensors. Those of modules are not, because the
    /// operators inside them are recorded instead.
    pub(crate) fn records_tensors(self) -> bool {
        !self.is_named_after_type()
    }

    /// Returns whether a method's scope is named after its type.
    pub(crate) fn is_named_after_type(self) -> bool {
        matches!(self, Self::Module | Self::Root)
    }
}

/// Expands to the corresponding variant of `ScopeKind`.
impl ToTokens for Form {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        tokens.extend(match self {
            Self::Operator => quote!(Operator),
            Self::Module => quote!(Module),
            Self::Root => quote!(Root),
            Self::Backward => quote!(Backward),
            Self::Optimizer => quote!(Optimizer),
        });
    }
}

/// The arguments as written.
#[derive(Clone, Default)]
pub(crate) struct Args {
    form: Option<Form>,
    pub(crate) name: Option<LitStr>,
    krate: Option<Path>,
    /// The span of the word `skip`, if it was given.
    pub(crate) skip: Option<Span>,
}

impl Args {
    pub(crate) fn form(&self) -> Form {
        self.form.unwrap_or(Form::Operator)
    }

    /// Returns the path to memtrack-core. If none was given, errors about the default path point to `span`.
    pub(crate) fn krate(&self, span: Span) -> TokenStream {
        let default = || quote_spanned!(span=> ::memtrack_core);
        self.krate.as_ref().map_or_else(default, ToTokens::to_token_stream)
    }

    /// Returns the arguments of a function in an impl block. These are the function's `own` arguments, with the block's
    /// `crate` unless the function gives one.
    pub(crate) fn overridden_by(&self, own: Self) -> Self {
        Self { krate: own.krate.or_else(|| self.krate.clone()), ..own }
    }

    fn parse_argument(&mut self, input: ParseStream) -> Result<()> {
        if !input.peek(Ident::peek_any) {
            return Err(
                input.error(format!("this is not an argument of `#[track_memory]`: {SUPPORTED_ARGUMENTS}"))
            );
        }
        let word = input.call(Ident::parse_any)?;
        match word.to_string().as_str() {
            "name" => self.parse_name(&word, input),
            "crate" => self.parse_crate(&word, input),
            "skip" => {
                if self.skip.replace(word.span()).is_some() {
                    return Err(duplicate_error(&word));
                }
                reject_value(&word, input)
            }
            text => {
                let Some(form) = Form::from_word(text) else {
                    return Err(Error::new(
                        word.span(),
                        format!("unknown argument `{text}`: {SUPPORTED_ARGUMENTS}"),
                    ));
                };
                if let Some(first) = self.form.replace(form) {
                    return Err(if first == form {
                        duplicate_error(&word)
                    } else {
                        Error::new(
                            word.span(),
                            "a function is one kind of scope, but this names a second one",
                        )
                    });
                }
                reject_value(&word, input)
            }
        }
    }

    fn parse_name(&mut self, word: &Ident, input: ParseStream) -> Result<()> {
        let expected = "`name` takes a string: `name = \"attention\"`";
        parse_equals(word, input, expected)?;
        let name: LitStr = input.parse().map_err(|error| Error::new(error.span(), expected))?;
        if name.value().is_empty() {
            return Err(Error::new(
                name.span(),
                "`name` must not be empty: leave it out for the default name",
            ));
        }
        if self.name.replace(name).is_some() { Err(duplicate_error(word)) } else { Ok(()) }
    }

    fn parse_crate(&mut self, word: &Ident, input: ParseStream) -> Result<()> {
        let path = parse_crate_path(word, input)?;
        if self.krate.replace(path).is_some() { Err(duplicate_error(word)) } else { Ok(()) }
    }
}

impl Parse for Args {
    fn parse(input: ParseStream) -> Result<Self> {
        let mut args = Self::default();
        while !input.is_empty() {
            args.parse_argument(input)?;
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        if let Some(skip) = args.skip
            && (args.form.is_some() || args.name.is_some() || args.krate.is_some())
        {
            return Err(Error::new(
                skip,
                "`skip` cannot be combined with other arguments: a function is either left out or followed",
            ));
        }
        Ok(args)
    }
}

/// Parses the path after `crate`.
pub(crate) fn parse_crate_path(word: &Ident, input: ParseStream) -> Result<Path> {
    let expected = "`crate` takes the path of memtrack-core: `crate = my_framework::memtrack_core`";
    parse_equals(word, input, expected)?;
    input.call(Path::parse_mod_style).map_err(|error| Error::new(error.span(), expected))
}

pub(crate) fn parse_equals(word: &Ident, input: ParseStream, expected: &str) -> Result<()> {
    input.parse::<Token![=]>().map(drop).map_err(|_| Error::new(word.span(), expected))
}

fn reject_value(word: &Ident, input: ParseStream) -> Result<()> {
    expect_no_value(input, || format!("`{word}` takes no value; a name is given as `{word}, name = \"…\"`"))
}

/// Fails with `message` if a value follows the word.
pub(crate) fn expect_no_value(input: ParseStream, message: impl FnOnce() -> String) -> Result<()> {
    if input.is_empty() || input.peek(Token![,]) {
        return Ok(());
    }
    Err(input.error(message()))
}

pub(crate) fn duplicate_error(word: &Ident) -> Error {
    Error::new(word.span(), format!("`{word}` is given twice"))
}
