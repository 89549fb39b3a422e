//! The figures of a training loop: every step has its markers, and the peak inside an operator is shown although no sample of
//! the series contains it.

use memtrack_core::recorder::Options;
use memtrack_core::scope;
use memtrack_tests::{alone, memtrack};
use std::hint::black_box;
use std::process::Command;

const MIB: usize = 1 << 20;
const STEPS: usize = 200;
/// The step whose loss allocates the most.
const LARGEST: usize = 117;

fn step(number: usize) {
    let kept;
    {
        let _net = scope::root("Net");
        let _linear = scope::operator("linear");
        kept = black_box(vec![1_u8; 14 * MIB]);
    }
    let _loss = scope::operator("loss");
    let bytes = if number == LARGEST { 64 * MIB } else { 20 * MIB };
    drop(black_box(vec![1_u8; bytes]));
    drop(kept);
}

#[test]
fn figures_mark_each_step_and_the_peak_inside_an_operator() {
    alone!();
    let folder = tempfile::tempdir().unwrap();
    memtrack_core::start_monitor_with(&Options::new()).unwrap();
    (0..STEPS).for_each(step);
    let recording = memtrack_core::stop();
    let stats = recording.tracker().stats();

    let starts = stats.earlier_markers.iter().filter(|(name, _)| &**name == "fw_start").count();
    assert_eq!((starts, stats.earlier_markers.len()), (STEPS - 1, 2 * (STEPS - 1)));
    let peak = stats.peak.clone().expect("the recording has it");
    let index = peak.op_index.expect("nothing was folded");
    assert_eq!(&*stats.memories_allocated[index as usize].operator, format!(".loss_{LARGEST}"));
    assert!(peak.is_inside);
    // All other memory of the program is less than 1 MiB.
    assert!((78.0..79.0).contains(&peak.least_mib), "{peak:?}");
    let highest = stats.memories_allocated.iter().map(|sample| sample.mib).fold(0.0, f64::max);
    assert!((14.0..15.0).contains(&highest), "{highest}");

    let written = folder.path().join("figures.html");
    recording.tracker().show_traces(&written).unwrap();
    let saved = folder.path().join("stats.pickle");
    recording.tracker().save_stats(&saved).unwrap();
    let printed = folder.path().join("printed.html");
    let run = Command::new(memtrack()).arg("tracker").arg(&saved).arg("-o").arg(&printed).output().unwrap();
    assert_eq!(run.status.code(), Some(0), "{}", String::from_utf8_lossy(&run.stderr));
    for file in [written, printed] {
        let page = std::fs::read_to_string(&file).unwrap();
        let peak = format!("inside .loss_{LARGEST}: 64.0 MiB above the highest value after an operator");
        assert!(page.contains(&peak), "{}: {peak}", file.display());
        assert!(page.contains("fw_start (200, at 0 to "), "{}", file.display());
        assert!(page.contains("fw_bw_boundary (200, at "), "{}", file.display());
    }
}
