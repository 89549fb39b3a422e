//! Writes the ranks of a generated job, for scripts: `memtrack-make-ranks FOLDER RANKS [STEPS [LEAKING|none [SUFFIX]]]`.

use memtrack_tests::ranks::Job;
use std::path::Path;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, rest @ ..] = &arguments[..] else {
        panic!("memtrack-make-ranks FOLDER RANKS [STEPS [LEAKING|none [SUFFIX]]]");
    };
    let number = |at: usize| rest.get(at).map(|text| text.parse::<u64>().expect("a number"));
    let job = Job::default();
    let job = Job {
        ranks: number(0).unwrap_or(job.ranks),
        steps: number(1).unwrap_or(job.steps),
        leaking: match rest.get(2).map(String::as_str) {
            Some("none") => None,
            Some(rank) => Some(rank.parse().expect("the number of a rank, or none")),
            None => job.leaking,
        },
        ..job
    };
    for path in job.write(Path::new(folder), rest.get(3).map_or("pickle", String::as_str)) {
        println!("{}", path.display());
    }
}
