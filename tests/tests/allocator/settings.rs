//! Settings that have no effect in memtrack are still read, checked and reported as in PyTorch. Also tests which environment
//! variables provide the settings.

use memtrack_core::allocator::{Reserve, Settings};
use memtrack_tests::child;
use serde_json::{Value, json};

/// Returns the settings as snapshots contain them.
fn reported(settings: &Settings) -> Value {
    serde_json::to_value(settings.report()).unwrap()
}

#[test]
fn every_key_is_read_and_reported() {
    let table: [(&str, &[(&str, Value)]); 13] = [
        ("pinned_max_round_threshold_mb:4", &[("max_round_threshold", json!(4 << 20))]),
        ("pinned_max_cached_size_mb:8", &[("max_cached_size", json!(8 << 20))]),
        // As in PyTorch, an out-of-range size wraps around.
        ("pinned_max_cached_size_mb:18446744073709551615", &[("max_cached_size", json!(-(1 << 20)))]),
        ("pinned_reserve_segment_size_mb:16", &[]),
        ("pinned_free_catch_all:True", &[]),
        ("pinned_use_background_threads:True", &[]),
        ("pinned_use_background_threads:False", &[]),
        ("pinned_num_register_threads:8", &[("pinned_num_register_threads", json!(8))]),
        ("pinned_use_hip_host_register:True", &[("pinned_use_cuda_host_register", json!(true))]),
        ("release_lock_on_hipmalloc:True", &[("release_lock_on_cudamalloc", json!(true))]),
        ("release_lock_on_cudamalloc:True,release_lock_on_hipmalloc:False", &[]),
        ("expandable_segments_reserve_by_class:[large:0.5,small:2G]", &[]),
        (
            " pinned_max_round_threshold_mb : 1 , release_lock_on_hipmalloc : True",
            &[("max_round_threshold", json!(1 << 20)), ("release_lock_on_cudamalloc", json!(true))],
        ),
    ];
    for (text, changes) in table {
        let settings = Settings::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        let mut expected = reported(&Settings::default());
        expected["PYTORCH_CUDA_ALLOC_CONF"] = text.into();
        for (key, value) in changes {
            assert_ne!(&expected[key], value, "{text}: {key} already has this value");
            expected[key] = value.clone();
        }
        assert_eq!(reported(&settings), expected, "{text}");
        assert_eq!(settings.options(), Settings::default().options(), "{text}");
        assert_eq!(settings.warnings(), [] as [&str; 0], "{text}");
    }
}

#[test]
fn invalid_values_are_refused_with_their_key() {
    let not_a_bool =
        |found: &str| format!("Expected 'True' or 'False' at index 2 in ConfigTokenizer but got '{found}'");
    for (key, value, why) in [
        ("pinned_max_round_threshold_mb", "much", "stoull".to_owned()),
        ("pinned_max_cached_size_mb", "much", "stoull".to_owned()),
        (
            "pinned_reserve_segment_size_mb",
            "0",
            "Pinned reserve segment size has to be greater than 0".to_owned(),
        ),
        ("pinned_free_catch_all", "yes", not_a_bool("yes")),
        ("pinned_use_background_threads", "1", not_a_bool("1")),
        ("release_lock_on_hipmalloc", "true", not_a_bool("true")),
    ] {
        let error = Settings::parse(&format!("{key}:{value}")).unwrap_err();
        assert_eq!((error.key(), error.kind(), error.text()), (key, "ValueError", &*why));
    }
}

/// Options that only CUDA has are read last: an error in one leaves the other options in force, at any position.
#[test]
fn an_error_in_a_cuda_option_leaves_the_others_in_force() {
    let mut settings = Settings::default();
    let text = "expandable_segments_reserve_by_class:0.5,max_split_size_mb:64,pinned_num_register_threads:8";
    let error = settings.apply(text).unwrap_err();
    assert_eq!((error.key(), error.kind()), ("expandable_segments_reserve_by_class", "RuntimeError"));
    assert_eq!(settings.options().max_split_size, 64 << 20);
    assert_eq!(settings.report().pinned_num_register_threads, 1);
    // `large_segment_size_mb` is read first, although it comes second in the text.
    let error = settings.apply("max_split_size_mb:30,large_segment_size_mb:40").unwrap_err();
    assert_eq!(error.text(), "CachingAllocator option max_split_size_mb too small, must be >= 40");
    assert_eq!(settings.options().max_non_split_rounding, 40 << 20);
}

#[test]
fn an_invalid_reserve_is_ignored_with_a_warning() {
    let settings = Settings::parse("expandable_segments_reserve_by_class:[large:lots,small:2G]").unwrap();
    assert_eq!(settings.options().reserve, Reserve::Default);
    let [warning] = settings.warnings() else { panic!("{:?}", settings.warnings()) };
    assert!(warning.starts_with("Ignoring invalid expandable-segment reserve value 'lots'"), "{warning}");
}

const VARIABLES: [&str; 3] = ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF"];

/// Runs in its own process, with the environment that the test below sets.
#[test]
#[ignore = "is run by the test below"]
fn settings_of_the_environment() {
    let found_text = match Settings::from_environment() {
        Ok(settings) => settings.text().to_owned(),
        Err(error) => error.to_string(),
    };
    assert_eq!(found_text, std::env::var("EXPECTED").unwrap());
}

#[test]
fn the_first_variable_that_is_set_is_used() {
    let [cuda, hip, any] = ["max_split_size_mb:64", "max_split_size_mb:65", "max_split_size_mb:66"];
    let wrong = "Unrecognized key 'no_such' in Accelerator allocator config.";
    for (values, expected) in [
        ([None, None, None], ""),
        ([Some(cuda), Some(hip), Some(any)], cuda),
        ([None, Some(hip), Some(any)], hip),
        ([None, None, Some(any)], any),
        // A variable with an empty value counts as set.
        ([Some(""), Some(hip), Some(any)], ""),
        ([Some("no_such:1"), None, Some(any)], wrong),
    ] {
        let mut command = child::this_program(settings_of_the_environment);
        command.env("EXPECTED", expected);
        for (name, value) in VARIABLES.iter().zip(values) {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        println!("{values:?}");
        child::assert_passed(&command.output().unwrap());
    }
}
