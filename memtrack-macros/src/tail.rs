//! Finds the future that a function returns without being `async` itself. The body of such a function ends in an
//! `async` block, or in a `Box::pin` of one, as `async-trait` generates it. This works on tokens, so that bodies need
//! not be parsed.

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use quote::quote;

/// Returns the body with `map` applied to the `async` block at its end, or `None` if the body does not end in an
/// `async` block.
pub(crate) fn map_future_at_end(
    body: &TokenStream,
    map: impl FnOnce(&TokenStream) -> TokenStream,
) -> Option<TokenStream> {
    let mut tokens: Vec<TokenTree> = body.clone().into_iter().collect();
    if let Some(start) = find_async_block_at_end(&tokens) {
        let block = tokens.drain(start..).collect();
        let mapped = map(&block);
        return Some(quote!(#(#tokens)* #mapped));
    }
    let argument = find_boxed_async_block(&tokens)?;
    let mut mapped = Group::new(Delimiter::Parenthesis, map(&argument.stream()));
    mapped.set_span(argument.span());
    tokens.pop();
    Some(quote!(#(#tokens)* #mapped))
}

/// Returns the start of the `async { … }` or `async move { … }` block that is the last expression in these statements.
fn find_async_block_at_end(tokens: &[TokenTree]) -> Option<usize> {
    let (last, before) = tokens.split_last()?;
    if !is_group(last, Delimiter::Brace) {
        return None;
    }
    let before =
        before.split_last().filter(|(word, _)| is_word(word, "move")).map_or(before, |(_, rest)| rest);
    let (_, statements) = before.split_last().filter(|(word, _)| is_word(word, "async"))?;
    // Unless the block comes first or follows a complete statement, it is part of a larger expression.
    let is_statement = match statements.last() {
        None => true,
        Some(TokenTree::Punct(punct)) => punct.as_char() == ';',
        Some(token) => is_group(token, Delimiter::Brace),
    };
    is_statement.then_some(statements.len())
}

/// Returns the argument of the `Box::pin(async …)` call at the end of these statements.
fn find_boxed_async_block(tokens: &[TokenTree]) -> Option<&Group> {
    let [.., boxed, TokenTree::Punct(colon), TokenTree::Punct(_), pin, TokenTree::Group(argument)] = tokens
    else {
        return None;
    };
    let is_call = is_word(boxed, "Box")
        && colon.as_char() == ':'
        && is_word(pin, "pin")
        && argument.delimiter() == Delimiter::Parenthesis;
    let inside: Vec<TokenTree> = argument.stream().into_iter().collect();
    (is_call && find_async_block_at_end(&inside) == Some(0)).then_some(argument)
}

fn is_word(token: &TokenTree, word: &str) -> bool {
    matches!(token, TokenTree::Ident(ident) if ident == word)
}

fn is_group(token: &TokenTree, delimiter: Delimiter) -> bool {
    matches!(token, TokenTree::Group(group) if group.delimiter() == delimiter)
}
