//! `#[derive(References)]`: passes each field of a struct, or of an enum's variants, to the visitor under its name. A
//! mistake leads to a compile error that points to the offending word. The expansion then still contains an
//! implementation, so that one mistake leads to only one error.

mod attributes;
mod bounds;

use attributes::{FieldArgs, Inspection, TypeArgs, VariantArgs};
use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{Attribute, Data, DeriveInput, Error, Fields, LitStr, Member, Result, Token, Type};

/// Expands the derive.
pub(crate) fn expand(item: TokenStream) -> TokenStream {
    let item: DeriveInput = match syn::parse2(item) {
        Ok(item) => item,
        Err(error) => return error.into_compile_error(),
    };
    let (args, wrong) = TypeArgs::parse(&item.attrs);
    let derived = match wrong {
        None => Expansion::of(&item, &args),
        Some(wrong) => Err(wrong),
    };
    match derived {
        Ok(derived) => derived.expand_impl(&item, &args),
        Err(error) => {
            let mut all = error.into_compile_error();
            all.extend(Expansion::opaque().expand_impl(&item, &args));
            all
        }
    }
}

/// The parts of the derived implementation.
struct Expansion {
    /// The statements of the method `references`.
    body: TokenStream,
    /// The types of fields that are visited through their own implementations.
    visited: Vec<Type>,
    /// Whether the implementation reports nothing except through the fields of the `visited` types.
    only_visited: bool,
}

/// A field that is not skipped: the binding of its value, if one is needed, and the statements that visit it.
struct FieldVisit {
    bound: Option<(Member, Ident)>,
    statements: TokenStream,
}

impl Expansion {
    /// Returns the implementation for a type that reports its state as not inspected.
    fn opaque() -> Self {
        let to = visitor_ident();
        Self { body: quote!(#to.opaque("not inspected");), visited: Vec::new(), only_visited: false }
    }

    fn of(item: &DeriveInput, args: &TypeArgs) -> Result<Self> {
        let krate = args.krate(item.ident.span());
        let mut derived = Self { body: TokenStream::new(), visited: Vec::new(), only_visited: true };
        match &item.data {
            Data::Union(union) => {
                let message = "`#[derive(References)]` goes on a struct or an enum, not on a union, whose active field is \
                               unknown: write `impl References` by hand, or put `#[references(opaque)]` on the union";
                if !args.opaque {
                    return Err(Error::new(union.union_token.span, message));
                }
            }
            Data::Struct(data) => {
                let (pattern, statements) = derived.expand_fields(&data.fields, None, args, &krate)?;
                if !args.opaque {
                    reject_packed(&item.attrs)?;
                    if !statements.is_empty() {
                        let this = self_token();
                        derived.body = quote!(let Self #pattern = #this; #statements);
                    }
                }
            }
            Data::Enum(data) => {
                let mut arms = TokenStream::new();
                let mut wrong = None;
                for variant in &data.variants {
                    match derived.expand_variant(variant, args, &krate) {
                        Ok(arm) => arms.extend(arm),
                        Err(error) => combine_errors(&mut wrong, error),
                    }
                }
                if let Some(wrong) = wrong {
                    return Err(wrong);
                }
                let this = self_token();
                if !arms.is_empty() {
                    derived.body = quote!(match #this { #arms });
                }
            }
        }
        Ok(if args.opaque { Self::opaque() } else { derived })
    }

    fn expand_variant(
        &mut self,
        variant: &syn::Variant,
        args: &TypeArgs,
        krate: &TokenStream,
    ) -> Result<TokenStream> {
        let own = VariantArgs::parse(&variant.attrs)?;
        let name = &variant.ident;
        if own.skip || own.opaque {
            if let Some(place) = variant.fields.iter().find_map(|field| attribute_span(&field.attrs)) {
                let message = "the variant is not inspected, so that its fields have no `#[references(…)]`";
                return Err(Error::new(place, message));
            }
            self.only_visited &= own.skip;
            let (to, why) = (visitor_ident(), format!("not inspected: the variant {}", name.unraw()));
            let statements = own.opaque.then(|| quote!(#to.opaque(#why);));
            return Ok(quote!(Self::#name { .. } => { #statements }));
        }
        let (pattern, statements) = self.expand_fields(&variant.fields, Some(name), args, krate)?;
        Ok(quote!(Self::#name #pattern => { #statements }))
    }

    /// Returns the pattern that binds the visited fields, and the statements that visit them.
    fn expand_fields(
        &mut self,
        fields: &Fields,
        variant: Option<&Ident>,
        args: &TypeArgs,
        krate: &TokenStream,
    ) -> Result<(TokenStream, TokenStream)> {
        let mut wrong = None;
        let mut reported = Vec::new();
        for (member, field) in fields.members().zip(fields) {
            match FieldArgs::parse(&field.attrs) {
                Ok(own) => reported.extend(self.expand_field(member, &field.ty, &own, variant, krate)),
                Err(error) => combine_errors(&mut wrong, error),
            }
            if args.opaque
                && let Some(place) = attribute_span(&field.attrs)
            {
                let message = "the type is `opaque`, so that its fields have no `#[references(…)]`";
                combine_errors(&mut wrong, Error::new(place, message));
            }
        }
        if let Some(wrong) = wrong {
            return Err(wrong);
        }
        let bindings = reported.iter().filter_map(|field| field.bound.as_ref());
        let bindings = bindings.map(|(member, binding)| quote!(#member: #binding));
        let pattern = quote!({ #(#bindings,)* .. });
        Ok((pattern, reported.iter().map(|field| field.statements.clone()).collect()))
    }

    /// Returns the binding and the statements for a field, or `None` if the field is skipped.
    fn expand_field(
        &mut self,
        member: Member,
        ty: &Type,
        own: &FieldArgs,
        variant: Option<&Ident>,
        krate: &TokenStream,
    ) -> Option<FieldVisit> {
        let place = Span::mixed_site().located_at(ty.span());
        let to = visitor_ident();
        let name = match (&own.rename, &member) {
            (Some(name), _) => name.clone(),
            (None, Member::Named(name)) => LitStr::new(&name.unraw().to_string(), place),
            (None, Member::Unnamed(index)) => LitStr::new(&index.index.to_string(), place),
        };
        let binding = match &member {
            Member::Named(name) => format_ident!("field_{}", name.unraw(), span = place),
            Member::Unnamed(index) => format_ident!("field_{}", index.index, span = place),
        };
        let variant = variant.map(|variant| variant.unraw().to_string());
        let step = match &variant {
            Some(variant) => quote!(#krate::references::Step::Variant(#variant, #name)),
            None => quote!(#krate::references::Step::Field(#name)),
        };
        let in_step = |statement: TokenStream| quote!(#to.step(|| #step, |#to| #statement););
        let mut statements = match &own.inspection {
            // A function pointer captures nothing. Skip it here, because function pointers that take references do not
            // implement the trait.
            Inspection::Visit if is_function_pointer(ty) => TokenStream::new(),
            Inspection::Visit => {
                self.visited.push(ty.clone());
                // Write out the type, so that a compile error underlines all of it.
                match &variant {
                    None => quote_spanned!(place=> #to.field::<#ty>(#name, #binding);),
                    Some(variant) => quote_spanned!(place=> #to.variant::<#ty>(#variant, #name, #binding);),
                }
            }
            Inspection::Skip => TokenStream::new(),
            Inspection::Opaque => in_step(quote!(#to.opaque("not inspected"))),
            Inspection::Tensors => in_step(quote_spanned!(place=> #to.tensors(#binding))),
            Inspection::With(with) => in_step(quote_spanned!(with.span()=> #with(#binding, #to))),
        };
        if own.show {
            statements.extend(quote_spanned!(place=> #to.show_at(|| #step, #binding);));
        }
        self.only_visited &= !own.show && matches!(own.inspection, Inspection::Visit | Inspection::Skip);
        let is_bound = own.show || !matches!(own.inspection, Inspection::Opaque);
        (!statements.is_empty())
            .then(|| FieldVisit { bound: is_bound.then_some((member, binding)), statements })
    }

    fn expand_impl(&self, item: &DeriveInput, args: &TypeArgs) -> TokenStream {
        let Self { body, visited, .. } = self;
        let (name, krate, to, this) =
            (&item.ident, args.krate(item.ident.span()), visitor_ident(), self_token());
        let types = quote!(#krate::references);
        let mut generics = item.generics.clone();
        match &args.bound {
            Some(bound) => generics.make_where_clause().predicates.extend(bound.clone()),
            None => bounds::add_bounds(&mut generics, name, visited, &quote!(#types::References)),
        }
        let (impl_generics, type_generics, where_clause) = generics.split_for_impl();
        let never_refers = self.never_refers(item, &types);
        quote! {
            #[automatically_derived]
            #[allow(deprecated)]
            impl #impl_generics #types::References for #name #type_generics #where_clause {
                fn references(&#this, #to: &mut #types::Visitor<'_>) {
                    let _ = &#to;
                    #body
                }

                #never_refers
            }
        }
    }

    /// Returns the method `never_refers`, which identifies types that have no references, such as a struct of numbers.
    fn never_refers(&self, item: &DeriveInput, types: &TokenStream) -> Option<TokenStream> {
        let visited = &self.visited;
        let is_itself = |word: &Ident| *word == item.ident || word == "Self";
        if !self.only_visited || visited.iter().any(|ty| bounds::mentions(ty.to_token_stream(), &is_itself)) {
            return None;
        }
        let probe = Ident::new("probe", Span::mixed_site());
        Some(quote! {
            fn never_refers(#probe: &mut #types::TypeProbe) -> ::core::primitive::bool {
                #[allow(unused_imports)]
                use #types::{ProbeKnown as _, ProbeUnknown as _};
                let _ = &#probe;
                true #(&& (&#types::Type::<#visited>::new()).probe(#probe))*
            }
        })
    }
}

/// Returns the identifier for the visitor in the expansion.
fn visitor_ident() -> Ident {
    Ident::new("to", Span::mixed_site())
}

fn self_token() -> Token![self] {
    Token![self](Span::mixed_site())
}

/// Returns whether a type is a function pointer, possibly in parentheses or in the invisible groups that macros create.
fn is_function_pointer(ty: &Type) -> bool {
    match ty {
        Type::FnPtr(_) => true,
        Type::Group(group) => is_function_pointer(&group.elem),
        Type::Paren(paren) => is_function_pointer(&paren.elem),
        _ => false,
    }
}

/// Rejects packed structs, whose fields cannot be borrowed because they may be unaligned.
fn reject_packed(attributes: &[Attribute]) -> Result<()> {
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("repr")) {
        if bounds::mentions(attribute.meta.to_token_stream(), &|word| word == "packed") {
            let message = "the fields of a packed struct cannot be borrowed: write `impl References` by hand, or put \
                           `#[references(opaque)]` on the struct";
            return Err(Error::new(attribute.path().span(), message));
        }
    }
    Ok(())
}

/// Returns the span of the first `#[references(…)]` attribute.
fn attribute_span(attributes: &[Attribute]) -> Option<Span> {
    attributes.iter().map(Attribute::path).find(|path| path.is_ident("references")).map(Spanned::span)
}

fn combine_errors(all: &mut Option<Error>, error: Error) {
    match all {
        Some(all) => all.combine(error),
        None => *all = Some(error),
    }
}
