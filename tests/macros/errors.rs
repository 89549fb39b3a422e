//! What cannot be followed is refused in words that help. The expected texts lie beside the cases in `ui/`; run with
//! `TRYBUILD=overwrite` to renew them.

#[test]
fn wrong_uses_are_refused_with_help() {
    trybuild::TestCases::new().compile_fail("ui/*.rs");
}
