//! The attribute on a single function. A guard is declared before the body, so that `?`, `return`, panics,
//! `#[track_caller]` and borrowed return values work as before; an async body is wrapped in a future that carries its
//! scope. The body's tokens are passed through unparsed and keep their spans.
//!
//! **Why is the body not wrapped in a closure to read its result?** A closure would add a frame to stacks, so the body
//! becomes the value of a `let` instead. The price is that the value of an early `return` is not read.

use crate::args::Args;
use crate::call;
use crate::tail::map_future_at_end;
use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::spanned::Spanned;
use syn::visit_mut::VisitMut;
use syn::{
    Attribute, Error, ImplItemFn, LitStr, Result, ReturnType, Signature, Token, Type, Visibility, braced,
};

/// A function with a body.
pub(crate) struct Function {
    pub(crate) outer: Vec<Attribute>,
    visibility: Visibility,
    defaultness: Option<Token![default]>,
    pub(crate) signature: Signature,
    /// The inner attributes (`#![…]`) at the start of the body.
    inner: Vec<Attribute>,
    pub(crate) body: TokenStream,
    /// The braces around the body.
    pub(crate) braces: Span,
}

impl Parse for Function {
    fn parse(input: ParseStream) -> Result<Self> {
        let outer = input.call(Attribute::parse_outer)?;
        let visibility = input.parse()?;
        let defaultness = input.parse()?;
        let signature: Signature = input.parse()?;
        if input.peek(Token![;]) {
            return Err(Error::new(
                signature.ident.span(),
                "a function without a body has nothing to follow: put the attribute on its implementations",
            ));
        }
        let content;
        let braces = braced!(content in input).span.join();
        let inner = content.call(Attribute::parse_inner)?;
        Ok(Self { outer, visibility, defaultness, signature, inner, body: content.parse()?, braces })
    }
}

impl From<&ImplItemFn> for Function {
    fn from(function: &ImplItemFn) -> Self {
        let (inner, outer) = function
            .attrs
            .iter()
            .cloned()
            .partition(|attribute| matches!(attribute.style, syn::AttrStyle::Inner(_)));
        let statements = &function.block.stmts;
        Self {
            outer,
            visibility: function.vis.clone(),
            defaultness: function.modifiers.defaultness,
            signature: function.sig.clone(),
            inner,
            body: quote!(#(#statements)*),
            braces: function.block.brace_token.span.join(),
        }
    }
}

impl Function {
    /// Expands the function with its scope. `in_impl` is true if the attribute is on the surrounding impl block.
    pub(crate) fn expand(self, args: &Args, in_impl: bool) -> Result<TokenStream> {
        if let Some(constness) = &self.signature.constness {
            let advice = if in_impl { " (leave it out with `#[track_memory(skip)]`)" } else { "" };
            let message = format!(
                "a `const fn` cannot be followed: it may run in the compiler, where there are no scopes; supported \
                 are `fn`, `async fn`, `unsafe fn` and `extern fn`{advice}"
            );
            return Err(Error::new_spanned(constness, message));
        }
        let scope = Scope::of(&self.signature, args, in_impl);
        let body = if self.signature.asyncness.is_some() {
            self.async_body(&scope)
        } else if let Some(body) = map_future_at_end(&self.body, |future| scope.wrap_future(future)) {
            body
        } else {
            self.sync_body(&scope)
        };
        Ok(self.with_body(&body))
    }

    /// Returns the same function with a different body.
    pub(crate) fn with_body(self, body: &TokenStream) -> TokenStream {
        let Self { outer, visibility, defaultness, signature, inner, braces, .. } = self;
        // The group keeps the span of the user's braces, so that compile errors about the function point to the user's
        // code.
        let mut block = Group::new(Delimiter::Brace, quote!(#(#inner)* #body));
        block.set_span(braces);
        quote!(#(#outer)* #visibility #defaultness #signature #block)
    }

    /// Returns the body preceded by a guard, or as an argument to memtrack-core's macro if there may be tensors to
    /// read.
    fn sync_body(&self, scope: &Scope<'_>) -> TokenStream {
        let (inputs, output) = match scope.args.form().records_tensors() {
            true => (call::tensor_inputs(&self.signature), call::tensor_output(&self.signature)),
            false => Default::default(),
        };
        let (enter, body) = (scope.enter_expression(), &self.body);
        if inputs.is_empty() && output.is_none() {
            let guard = Ident::new("_memtrack_scope", Span::mixed_site());
            return quote!(let #guard = #enter; #body);
        }
        let mut block = Group::new(Delimiter::Brace, body.clone());
        block.set_span(self.braces);
        let krate = &scope.krate;
        quote!(#krate::__private::call! { [#enter] [#(#inputs)*] [#output] #block })
    }

    /// Returns the body as a future that carries its scope. An unreachable `return` fixes the block's output type, so
    /// that `?`, coercions and error messages are the same as in the original function.
    fn async_body(&self, scope: &Scope<'_>) -> TokenStream {
        // Errors about the output type should point to the type, or to the function's name if no type is written.
        let place = match &self.signature.output {
            ReturnType::Default => self.signature.ident.span(),
            ReturnType::Type(_, ty) => ty.span(),
        };
        let krate = scope.args.krate(place);
        let output = output_type(&self.signature).map(
            |output| quote_spanned!(place=> if false { return #krate::__private::output::<#output>(); }),
        );
        let body = &self.body;
        let mut block = Group::new(Delimiter::Brace, quote!(#output #body));
        block.set_span(self.braces);
        let keywords = quote_spanned!(self.braces=> async move);
        // Only memtrack-core knows whether it was built with the recorder. If it was not, its macro omits the wrapper.
        let (krate, enter) = (&scope.krate, scope.enter_future_path());
        quote!(#krate::__private::async_scope!([#enter] [#keywords] #block))
    }
}

/// The scope of a function, and the expressions that enter it.
struct Scope<'a> {
    krate: TokenStream,
    args: &'a Args,
    name: LitStr,
    is_named_after_type: bool,
}

impl<'a> Scope<'a> {
    fn of(signature: &Signature, args: &'a Args, in_impl: bool) -> Self {
        let function = LitStr::new(&signature.ident.unraw().to_string(), signature.ident.span());
        let is_method = in_impl || signature.receiver().is_some();
        Self {
            krate: args.krate(Span::call_site()),
            args,
            name: args.name.clone().unwrap_or(function),
            is_named_after_type: is_method && args.name.is_none() && args.form().is_named_after_type(),
        }
    }

    /// Returns an expression for the scope's static `Site`. The expression is a separate block, so that the static's
    /// name is not visible in the body.
    fn site_expression(&self) -> TokenStream {
        let Self { krate, name, .. } = self;
        let form = self.args.form();
        quote! {{
            static SITE: #krate::__private::Site =
                #krate::__private::Site::new(#krate::__private::ScopeKind::#form, #name);
            &SITE
        }}
    }

    fn enter_expression(&self) -> TokenStream {
        let site = self.site_expression();
        if self.is_named_after_type { quote!(#site.enter_as::<Self>()) } else { quote!(#site.enter()) }
    }

    /// Returns the path of the method that wraps a future in the scope. The future follows in parentheses.
    fn enter_future_path(&self) -> TokenStream {
        // Put the block in parentheses, because it may be at the start of a statement.
        let site = self.site_expression();
        if self.is_named_after_type { quote!((#site).future_as::<Self, _>) } else { quote!((#site).future) }
    }

    fn wrap_future(&self, future: &TokenStream) -> TokenStream {
        let enter = self.enter_future_path();
        quote!(#enter(#future))
    }
}

/// Returns an async function's output type in a form that can be written in its body, or `None` if there is none (`!`).
pub(crate) fn output_type(signature: &Signature) -> Option<TokenStream> {
    /// Replaces `impl Trait`, which cannot be written in the body, with `_`.
    struct InferImplTrait;
    impl VisitMut for InferImplTrait {
        fn visit_type_mut(&mut self, ty: &mut Type) {
            if let Type::ImplTrait(_) = ty {
                *ty = Type::Infer(syn::TypeInfer {
                    attrs: Vec::new(),
                    underscore_token: Token![_](Span::mixed_site()),
                });
            }
            syn::visit_mut::visit_type_mut(self, ty);
        }
    }
    match &signature.output {
        ReturnType::Default => Some(quote!(())),
        ReturnType::Type(_, ty) if matches!(**ty, Type::Never(_)) => None,
        ReturnType::Type(_, ty) => {
            let mut ty = ty.clone();
            InferImplTrait.visit_type_mut(&mut ty);
            Some(ty.into_token_stream())
        }
    }
}
