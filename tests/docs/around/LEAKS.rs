fn steps<T>(batches: Vec<T>, train: impl Fn(T)) {
    block!("for batch in batches {");
}

fn leaks(recording: memtrack_core::Recording) -> crate::program::Result<()> {
    block!("use memtrack_core::analysis::leaks::LeakOptions;");
    Ok(())
}
