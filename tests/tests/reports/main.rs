//! The numbers and the wording of reports, from the library and from the command.

mod advice;
mod ages;
mod categories_read;
mod category_colors;
mod freed;
mod modules;
mod optrace_pytorch;
mod owners;
mod sampled;
mod scrub;
mod speed;
mod top_numbers;
mod top_pytorch;
mod top_stacks;
mod tracker_errors;
mod tracker_figures;
mod tracker_file;
mod tracker_summary;
mod viz_texts;
mod width;
mod words;

memtrack_tests::tests_wait!();
