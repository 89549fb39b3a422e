//! The bounds of the derived implementation. Field types that depend on a type parameter must implement the trait, but
//! the parameters themselves need not: a `Param<Tensor<B>>` requires nothing of its backend `B`. If a field's type
//! contains the derived type itself, however, the bounds are on the parameters, because a bound on the field's type
//! would make the compiler recurse endlessly.

use proc_macro2::{Ident, TokenStream, TokenTree};
use quote::ToTokens;
use syn::visit_mut::{self, VisitMut};
use syn::{Generics, Path, PathArguments, Type, WherePredicate, parse_quote};

/// Containers that own their contents. The contents need not be `'static`.
const OWNING_CONTAINERS: [&str; 14] = [
    "Box",
    "Option",
    "Result",
    "Vec",
    "VecDeque",
    "LinkedList",
    "BTreeMap",
    "HashMap",
    "Cell",
    "RefCell",
    "OnceCell",
    "Mutex",
    "RwLock",
    "OnceLock",
];

/// Adds the bounds to `generics`, the generics of the type `name`. `visited` contains the types of its visited fields.
pub(super) fn add_bounds(generics: &mut Generics, name: &Ident, visited: &[Type], trait_path: &TokenStream) {
    let parameters: Vec<Ident> = generics.type_params().map(|parameter| parameter.ident.clone()).collect();
    let mut bounds: Vec<WherePredicate> = Vec::new();
    for ty in visited {
        let tokens = ty.to_token_stream();
        let Some(rest) = strip_own_arguments(ty, name) else {
            if mentions(tokens, &|word| parameters.contains(word)) {
                bounds.push(parse_quote!(#ty: #trait_path));
            }
            continue;
        };
        let is_known = |word: &Ident| {
            word == name
                || word == "Self"
                || parameters.contains(word)
                || OWNING_CONTAINERS.iter().any(|owning| word == owning)
        };
        // Any word that is not known may be a counted pointer, which requires its target to be `'static`.
        let is_behind_pointer = mentions(tokens, &|word| !is_known(word));
        for parameter in &parameters {
            if mentions(rest.clone(), &|word| word == parameter) {
                bounds.push(parse_quote!(#parameter: #trait_path));
            }
            if is_behind_pointer {
                bounds.push(parse_quote!(#parameter: 'static));
            }
        }
    }
    if bounds.is_empty() {
        return;
    }
    let text = |bound: &WherePredicate| bound.to_token_stream().to_string();
    let predicates = &mut generics.make_where_clause().predicates;
    for bound in bounds {
        if !predicates.iter().any(|known| text(known) == text(&bound)) {
            predicates.push(bound);
        }
    }
}

/// Returns the type with the generic arguments removed from each occurrence of the derived type `name` (`Node<T>`
/// becomes `Node`), or `None` if the derived type does not occur.
fn strip_own_arguments(ty: &Type, name: &Ident) -> Option<TokenStream> {
    struct StripArguments<'a> {
        name: &'a Ident,
        found: bool,
    }
    impl VisitMut for StripArguments<'_> {
        fn visit_path_mut(&mut self, path: &mut Path) {
            let is_self = path.is_ident("Self");
            match path.segments.last_mut() {
                Some(last) if is_self || last.ident == *self.name => {
                    self.found = true;
                    last.arguments = PathArguments::None;
                }
                _ => visit_mut::visit_path_mut(self, path),
            }
        }
    }
    let mut ty = ty.clone();
    let mut strip = StripArguments { name, found: false };
    strip.visit_type_mut(&mut ty);
    strip.found.then(|| ty.to_token_stream())
}

/// Returns whether `tokens` contain an identifier that `wanted` accepts.
pub(super) fn mentions(tokens: TokenStream, wanted: &dyn Fn(&Ident) -> bool) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Ident(word) => wanted(&word),
        TokenTree::Group(group) => mentions(group.stream(), wanted),
        _ => false,
    })
}
