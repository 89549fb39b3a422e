use super::*;
use crate::ranks::{DeviceDigest, EndDigest, MomentDigest, RankDigest, StepDigest, Timeline};
use crate::top::By;
use memtrack_model::answer::DeviceAnswer;
use memtrack_model::snapshot::Since;

const MIB: u64 = 1 << 20;
const SECOND_NS: u64 = 1_000_000_000;

/// A rank with one value of live memory, in MiB, for each of several equal spans of time, which last for `seconds` in
/// total. If the rank has steps, its steps have the same values.
struct Rank {
    number: u64,
    mib: Vec<u64>,
    seconds: f64,
    begin_ns: Option<u64>,
    has_steps: bool,
}

fn rank(number: u64, mib: &[u64]) -> Rank {
    Rank {
        number,
        mib: mib.to_vec(),
        seconds: mib.len() as f64,
        begin_ns: Some(5 * SECOND_NS),
        has_steps: false,
    }
}

impl Rank {
    fn digest(&self) -> RankDigest {
        let bytes: Vec<u64> = self.mib.iter().map(|mib| mib * MIB).collect();
        let peak = MomentDigest {
            requested_bytes: bytes.iter().copied().max().unwrap_or(0),
            error: Estimate::exact(0.0),
            reserved_bytes: None,
            event: Some(1),
            seconds: Some(0.0),
            phase: None,
            operator: None,
        };
        let step = |(at, &bytes): (usize, &u64)| StepDigest {
            number: at as u64,
            begin_seconds: Some(at as f64),
            end_seconds: Some(at as f64 + 1.0),
            peak_requested_bytes: bytes,
            peak_reserved_bytes: None,
            end_requested_bytes: bytes,
        };
        let steps = if self.has_steps { bytes.iter().enumerate().map(step).collect() } else { Vec::new() };
        let device = DeviceDigest {
            device: DeviceAnswer::from_name("device 0"),
            ordinal: 0,
            events: 1,
            dropped: 0,
            peak,
            reserved: None,
            waste_bytes: None,
            end: EndDigest { requested_bytes: bytes.last().copied().unwrap_or(0), ..EndDigest::default() },
            out_of_memory: Vec::new(),
            at_peak: Vec::new(),
            at_end: Vec::new(),
            steps,
            timeline: Timeline {
                begin_seconds: 0.0,
                bin_seconds: self.seconds / bytes.len() as f64,
                requested_bytes: bytes,
                reserved_bytes: None,
            },
        };
        RankDigest {
            file: format!("rank{}.pickle", self.number),
            rank: Some(self.number),
            job: None,
            world: None,
            is_pytorch: true,
            complete: true,
            program: String::new(),
            pid: 0,
            events: 1,
            begin_ns: self.begin_ns,
            since: Since::FirstEvent,
            end_seconds: Some(self.seconds),
            step_name: self.has_steps.then(|| "step".to_owned()),
            devices: vec![device],
        }
    }
}

fn heat_map(ranks: &[Rank], columns: usize, rows: usize) -> HeatMap {
    let digests = ranks.iter().map(Rank::digest).collect();
    let ranks = Ranks::of(digests, By::Line, Vec::new()).unwrap();
    HeatMap::of(&ranks, &ranks.memories[0], columns, rows)
}

/// Returns the maximum of each cell in MiB.
fn cell_maxima(heat: &HeatMap) -> Vec<Vec<Option<u64>>> {
    heat.rows
        .iter()
        .map(|row| row.cells.iter().map(|cell| cell.map(|cell| cell.most / MIB)).collect())
        .collect()
}

/// Creates ranks with `steps` steps each. The last rank grows by 10 MiB per step from step `since` on.
fn leaking_ranks(ranks: u64, steps: u64, since: u64) -> Vec<Rank> {
    let one = |number: u64| {
        let more = |step: u64| if number + 1 == ranks { 10 * (step + 1).saturating_sub(since) } else { 0 };
        let mib: Vec<u64> = (0..steps).map(|step| 100 + more(step)).collect();
        Rank { has_steps: true, ..rank(number, &mib) }
    };
    (0..ranks).map(one).collect()
}

#[test]
fn steps_are_columns_where_all_ranks_mark_them() {
    let ranks = leaking_ranks(4, 6, 2);
    let found = heat_map(&ranks, 512, 1024);
    let numbers = (0..6).map(|step| (step, step)).collect();
    assert_eq!(found.columns, HeatColumns::Steps { name: "step".into(), numbers, steps: 6 });
    assert_eq!(cell_maxima(&found)[0], [Some(100); 6]);
    assert_eq!(cell_maxima(&found)[3], [100, 100, 110, 120, 130, 140].map(Some));
    assert_eq!((found.most, found.furthest_off), (140 * MIB, 40 * MIB));
    assert_eq!(found.usual, [Some((100 * MIB, 100 * MIB)); 6]);
    assert_eq!(found.columns.label(3), "step 3");

    let mut ranks = ranks;
    ranks[1].has_steps = false;
    assert!(matches!(heat_map(&ranks, 512, 1024).columns, HeatColumns::SinceFirst { .. }));
    // There are too few steps for columns.
    assert!(matches!(heat_map(&leaking_ranks(4, 3, 2), 512, 1024).columns, HeatColumns::SinceFirst { .. }));
}

#[test]
fn outlier_starts_at_first_step_marked_by_rule() {
    let found = heat_map(&leaking_ranks(4, 6, 2), 512, 1024);
    let history = &found.histories[0];
    assert_eq!((history.rank, history.is_more, history.since, history.odd_columns), (3, true, Some(2), 4));
    assert_eq!(history.description(&found.columns).unwrap(), "holds more than the others since step 2");
    let odd: Vec<bool> = found.rows[3].cells.iter().map(|cell| cell.unwrap().is_odd).collect();
    assert_eq!(odd, [false, false, true, true, true, true]);

    let from_the_first = heat_map(&leaking_ranks(4, 6, 0), 512, 1024);
    let words = from_the_first.histories[0].description(&from_the_first.columns).unwrap();
    assert_eq!(words, "holds more than the others from the beginning on");
    // This rank is an outlier at its peak and usual again afterwards.
    let mut ranks = leaking_ranks(4, 6, 9);
    ranks[3].mib[4] = 300;
    let found = heat_map(&ranks, 512, 1024);
    assert_eq!((found.histories[0].since, found.histories[0].first_odd), (None, Some(4)));
    let words = found.histories[0].description(&found.columns).unwrap();
    assert_eq!(words, "holds more than the others in 1 of 6 columns of steps, first in step 4");
}

#[test]
fn early_blip_is_not_start_and_short_gap_is_not_end() {
    let mut ranks: Vec<Rank> = (0..4).map(|number| rank(number, &[100; 512])).collect();
    ranks[2].mib[10] = 200;
    ranks[2].mib[300..].fill(200);
    ranks[2].mib[400..405].fill(100);
    let found = heat_map(&ranks, 512, 1024);
    assert_eq!((found.histories[0].first_odd, found.histories[0].since), (Some(10), Some(300)));
}

#[test]
fn steps_share_columns_without_losing_peak() {
    let mut ranks = leaking_ranks(3, 1000, 2000);
    ranks[1].mib[777] = 500;
    let found = heat_map(&ranks, 64, 1024);
    assert_eq!(found.columns.count(), 63);
    let HeatColumns::Steps { numbers, .. } = &found.columns else { panic!("{:?}", found.columns) };
    assert_eq!((numbers[0], numbers[62]), ((0, 15), (992, 999)));
    assert_eq!(cell_maxima(&found)[1][777 / 16], Some(500));
    assert_eq!(found.columns.label(48), "steps 768 to 783");
    assert!(found.columns.sentences()[1].contains("16 steps"), "{:?}", found.columns.sentences());
}

#[test]
fn shared_row_shows_highest_rank_and_furthest_from_median() {
    let mut ranks: Vec<Rank> = (0..1000).map(|number| rank(number, &[100, 100, 100, 100])).collect();
    ranks[500].mib[2] = 10;
    ranks[501].mib[2] = 150;
    let found = heat_map(&ranks, 512, 64);
    assert_eq!((found.ranks_per_row, found.rows.len()), (16, 63));
    assert_eq!(found.rows[62].members, 992..1000);
    let cell = found.rows[500 / 16].cells[2].unwrap();
    assert_eq!((cell.most / MIB, cell.furthest / MIB, cell.is_odd), (150, 10, true));
    assert!(found.is_folded());
}

#[test]
fn ranks_are_aligned_by_agreeing_clocks_or_first_events() {
    let late = |by: u64| Rank { begin_ns: Some(5 * SECOND_NS + by), ..rank(1, &[7, 8, 9, 9]) };
    let begin = || rank(0, &[1, 2, 3, 4]);
    let found = heat_map(&[begin(), late(2 * SECOND_NS)], 4, 10);
    assert_eq!(found.columns, HeatColumns::Clock { columns: 4, seconds: 1.5 });
    // A bin that only partly overlaps a column counts in that column as well.
    assert_eq!(cell_maxima(&found), [[Some(2), Some(3), Some(4), None], [None, Some(7), Some(9), Some(9)]]);
    let found = heat_map(&[begin(), late(60 * SECOND_NS)], 4, 10);
    assert_eq!(found.columns, HeatColumns::SinceFirst { columns: 4, seconds: 1.0 });
    assert_eq!(cell_maxima(&found), [[1, 2, 3, 4].map(Some), [7, 8, 9, 9].map(Some)]);
    assert_eq!(found.columns.label(2), "at 2 s");
}

#[test]
fn shorter_file_has_nothing_after_its_end() {
    let short = Rank { seconds: 2.0, ..rank(1, &[7, 8, 9, 9]) };
    let found = heat_map(&[rank(0, &[1, 2, 3, 4]), short], 4, 10);
    assert_eq!(cell_maxima(&found)[1], [Some(8), Some(9), None, None]);
    assert_eq!(found.distributions[3].map(|distribution| distribution.count), Some(1));
}

#[test]
fn files_without_times_are_cut_by_their_events() {
    let ranks = [Rank { begin_ns: None, ..rank(0, &[1, 2, 3, 4]) }, rank(1, &[5, 5, 5, 6])];
    let found = heat_map(&ranks, 2, 10);
    assert_eq!(found.columns, HeatColumns::Parts { columns: 2 });
    assert_eq!(cell_maxima(&found), [[Some(2), Some(4)], [Some(5), Some(6)]]);
    assert_eq!(found.columns.axis_labels(8).len(), 5);
}

#[test]
fn events_at_one_moment_have_one_column() {
    let ranks = [Rank { seconds: 0.0, ..rank(0, &[3]) }, Rank { seconds: 0.0, ..rank(1, &[4]) }];
    let found = heat_map(&ranks, 512, 10);
    assert_eq!(cell_maxima(&found), [[Some(3)], [Some(4)]]);
    assert_eq!(found.columns.axis_labels(8), []);
}

#[test]
fn axis_labels_are_round_numbers_within_axis() {
    let texts = |columns: &HeatColumns| -> Vec<String> {
        columns.axis_labels(8).into_iter().map(|(at, text)| format!("{at:.1} {text}")).collect()
    };
    let numbers = (95..120).map(|step| (step, step)).collect();
    let steps = HeatColumns::Steps { name: "step".into(), numbers, steps: 25 };
    assert_eq!(texts(&steps), ["0.5 95", "5.5 100", "10.5 105", "15.5 110", "20.5 115"]);
    let time = HeatColumns::Clock { columns: 100, seconds: 0.0123 };
    assert_eq!(
        texts(&time),
        ["0.0 0.0 s", "16.3 0.2 s", "32.5 0.4 s", "48.8 0.6 s", "65.0 0.8 s", "81.3 1.0 s", "97.6 1.2 s"]
    );
}

#[test]
fn estimates_are_never_outliers_at_a_moment() {
    let mut digests: Vec<RankDigest> = leaking_ranks(4, 6, 2).iter().map(Rank::digest).collect();
    digests[3].devices[0].peak.error = Estimate {
        counted: false,
        value: (140 * MIB) as f64,
        standard_error: 1.0,
        low: (139 * MIB) as f64,
        high: (141 * MIB) as f64,
        bound: (141 * MIB) as f64,
    };
    let ranks = Ranks::of(digests, By::Line, Vec::new()).unwrap();
    let found = HeatMap::of(&ranks, &ranks.memories[0], 512, 10);
    assert_eq!(found.histories.len(), 1);
    assert_eq!(found.histories[0].description(&found.columns), None);
}
