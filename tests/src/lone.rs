//! Test programs that do not use libtest, because its main thread may allocate at any moment while the test runs. Such a
//! program has `harness = false` in its manifest, and one test.

use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

/// Runs the test on the main thread, unless the arguments exclude it. Accepts the arguments that cargo forwards from its
/// command line, and prints the same text as libtest.
pub fn run(name: &str, test: impl FnOnce()) -> ExitCode {
    let arguments = Arguments::of(env::args().skip(1));
    if arguments.lists {
        println!("{name}: test");
        return ExitCode::SUCCESS;
    }
    let runs = arguments.choose(name);
    println!("\nrunning {} test{}", u8::from(runs), if runs { "" } else { "s" });
    let passed = !runs || catch_unwind(AssertUnwindSafe(test)).is_ok();
    if runs {
        println!("test {name} ... {}", if passed { "ok" } else { "FAILED" });
    }
    println!(
        "\ntest result: {}. {} passed; {} failed; 0 ignored; 0 measured; {} filtered out",
        if passed { "ok" } else { "FAILED" },
        u8::from(runs && passed),
        u8::from(!passed),
        u8::from(!runs),
    );
    // The same exit codes as libtest.
    if passed { ExitCode::SUCCESS } else { ExitCode::from(101) }
}

/// The arguments of libtest that affect a single test.
#[derive(Debug, Default)]
struct Arguments {
    lists: bool,
    is_exact: bool,
    only_ignored: bool,
    filters: Vec<String>,
    skipped: Vec<String>,
}

impl Arguments {
    fn of(mut words: impl Iterator<Item = String>) -> Self {
        let mut arguments = Self::default();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--list" => arguments.lists = true,
                "--exact" => arguments.is_exact = true,
                "--ignored" => arguments.only_ignored = true,
                "--skip" => arguments.skipped.extend(words.next()),
                // These have no effect on one test, but each takes a value.
                "--test-threads" | "--format" | "--color" | "--logfile" | "-Z" => _ = words.next(),
                word if word.starts_with('-') => {}
                _ => arguments.filters.push(word),
            }
        }
        arguments
    }

    fn choose(&self, name: &str) -> bool {
        let matches = |filter: &String| if self.is_exact { name == filter } else { name.contains(&**filter) };
        let is_wanted = self.filters.is_empty() || self.filters.iter().any(matches);
        is_wanted && !self.only_ignored && !self.skipped.iter().any(matches)
    }
}
