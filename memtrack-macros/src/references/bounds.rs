//! What the derived implementation asks of type parameters. The types of fields that depend on one must implement the
//! trait, and not the parameters themselves: a `Param<Tensor<B>>` says nothing about its backend `B`. Only of a field whose
//! type contains the derived type itself, the parameters are asked: the compiler would never finish proving it by itself.

use proc_macro2::{Ident, TokenStream, TokenTree};
use quote::ToTokens;
use syn::visit_mut::{self, VisitMut};
use syn::{Generics, Path, PathArguments, Type, WherePredicate, parse_quote};

/// Containers that own what they hold, and need nothing of how long it lives.
const OWNING: [&str; 14] = [
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

/// Adds the bounds to `generics`, of the type `name` whose fields have the types `visited`.
pub(super) fn add(generics: &mut Generics, name: &Ident, visited: &[Type], trait_path: &TokenStream) {
    let parameters: Vec<Ident> = generics.type_params().map(|parameter| parameter.ident.clone()).collect();
    let mut bounds: Vec<WherePredicate> = Vec::new();
    for ty in visited {
        let tokens = ty.to_token_stream();
        let Some(rest) = without_itself(ty, name) else {
            if mentions(tokens, &|word| parameters.contains(word)) {
                bounds.push(parse_quote!(#ty: #trait_path));
            }
            continue;
        };
        let is_known = |word: &Ident| {
            word == name
                || word == "Self"
                || parameters.contains(word)
                || OWNING.iter().any(|owning| word == owning)
        };
        // A counted pointer, which may be alone in holding what it points to.
        let is_held = mentions(tokens, &|word| !is_known(word));
        for parameter in &parameters {
            if mentions(rest.clone(), &|word| word == parameter) {
                bounds.push(parse_quote!(#parameter: #trait_path));
            }
            if is_held {
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

/// The type with each `Name<…>` in it, `name`'s own, without what is in the angle brackets; none if there is no such.
fn without_itself(ty: &Type, name: &Ident) -> Option<TokenStream> {
    struct Strip<'a> {
        name: &'a Ident,
        found: bool,
    }
    impl VisitMut for Strip<'_> {
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
    let mut strip = Strip { name, found: false };
    strip.visit_type_mut(&mut ty);
    strip.found.then(|| ty.to_token_stream())
}

/// Whether one of the words that `wanted` knows is among `tokens`.
pub(super) fn mentions(tokens: TokenStream, wanted: &dyn Fn(&Ident) -> bool) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Ident(word) => wanted(&word),
        TokenTree::Group(group) => mentions(group.stream(), wanted),
        _ => false,
    })
}
