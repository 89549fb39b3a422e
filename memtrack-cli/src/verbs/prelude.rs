//! What the verbs' files need from the rest of the command.

pub(super) use crate::Streams;
pub(super) use crate::answers::Answer;
pub(super) use crate::args::*;
pub(super) use crate::context::{Context, mention_missing};
pub(super) use crate::error::{CliError, Exit};
pub(super) use crate::flame;
pub(super) use crate::load::{
    check_places, convert_to_pytorch, load_file, load_pytorch, load_segments, load_with,
};
pub(super) use crate::neighbours::{Kind, read_file, read_head, unusable_file_error};
pub(super) use crate::optrace::{self, OptraceArgs};
pub(super) use crate::output::{
    WrittenAnswer, check_folder, check_output, check_targets, mention_written, write_files, write_output,
};
pub(super) use crate::ownership::{Unmatched, read_rules};
pub(super) use crate::report::{
    layout, mention_inconsistencies, mention_samples, print_devices, report_error, width,
};
pub(super) use crate::scrub;
pub(super) use crate::sizes::{parse_bytes, parse_share};
pub(super) use clap::{Args, ValueEnum};
pub(super) use memtrack_core::__ReplacingFile as ReplacingFile;
pub(super) use memtrack_core::snapshot::{Loaded, Snapshot};
pub(super) use memtrack_core::stack::symbols::Symbolizer;
pub(super) use schemars::JsonSchema;
pub(super) use serde::Serialize;
pub(super) use std::path::{Path, PathBuf};
