fn options() -> std::io::Result<()> {
    block!("use memtrack_core::{Options, start_monitor_with};");
    Ok(())
}

fn on_a_signal() -> std::io::Result<()> {
    block!("let _dumps = memtrack_core::dump_on_signal(");
    Ok(())
}

fn before_memory_runs_out() -> std::io::Result<()> {
    block!("use memtrack_core::{Pressure, dump_at};");
    Ok(())
}
