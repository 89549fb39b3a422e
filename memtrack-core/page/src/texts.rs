//! The texts of a page, which are the strings, frames, stacks and scopes that it uses, each stored once.

use crate::columns::Columns;
use memtrack_frames::ownership::{Owners, Rules};
use memtrack_frames::trim::{is_allocator_entry, is_internal, is_plumbing};
use memtrack_model::Frame;
use memtrack_model::event::StackId;
use memtrack_model::snapshot::{FrameId, Snapshot, StringId};
use memtrack_symbols::Symbolizer;
use std::collections::HashMap;

/// The texts requested so far, in the order of their numbers.
pub(crate) struct Texts<'a> {
    snapshot: &'a Snapshot,
    symbols: &'a mut Symbolizer,
    strings: Vec<String>,
    by_text: HashMap<String, u32, foldhash::fast::RandomState>,
    /// For each string in the snapshot, its number on the page, or 0 if it is empty or has not been requested yet.
    of_string: Vec<u32>,
    /// The numbers of the frames at each key (see [`Snapshot::frame_keys`]) that has been requested.
    by_key: HashMap<u64, Box<[u32]>, foldhash::fast::RandomState>,
    /// For each stack in the snapshot, its number on the page, or 0 if it has not been requested yet.
    of_stack: Vec<u32>,
    frames: Vec<PageFrame>,
    /// A recording's frames by function, file and line. Several addresses may have the same.
    by_names: HashMap<(String, String, u64), u32, foldhash::fast::RandomState>,
    /// The stacks, as the numbers of their frames.
    stacks: Vec<Box<[u32]>>,
    /// A recording's stacks by their frames. Several lists of addresses may have the same.
    by_frames: HashMap<Box<[u32]>, u32, foldhash::fast::RandomState>,
}

/// A frame of the page.
struct PageFrame {
    frame: Frame,
    /// The line as the file contains it, which may exceed 32 bits; 0 if it is unknown.
    line: u64,
}

/// PyTorch's text for an unknown file.
const UNKNOWN_FILE: &str = "??";

impl<'a> Texts<'a> {
    /// Creates a page's table of texts, before any text has been requested.
    pub(crate) fn of(snapshot: &'a Snapshot, symbols: &'a mut Symbolizer) -> Self {
        Self {
            snapshot,
            symbols,
            strings: vec![String::new()],
            by_text: HashMap::from_iter([(String::new(), 0)]),
            of_string: vec![0; snapshot.strings.len()],
            by_key: HashMap::default(),
            of_stack: vec![0; snapshot.named.len().max(snapshot.stacks.len())],
            frames: Vec::new(),
            by_names: HashMap::default(),
            stacks: vec![Box::default()],
            by_frames: HashMap::default(),
        }
    }

    /// Returns the number of a string in the snapshot.
    pub(crate) fn add_string(&mut self, id: StringId) -> u32 {
        match self.of_string.get(id.index()) {
            None => 0,
            Some(&known) if known != 0 => known,
            Some(_) => {
                let number = self.intern(&self.snapshot.strings.get(id));
                self.of_string[id.index()] = number;
                number
            }
        }
    }

    /// Returns the number of a text, which need not be in the snapshot.
    pub(crate) fn intern(&mut self, text: &str) -> u32 {
        if let Some(&known) = self.by_text.get(text) {
            return known;
        }
        let number = self.strings.len() as u32;
        self.strings.push(text.to_owned());
        self.by_text.insert(text.to_owned(), number);
        number
    }

    /// Returns the number of a stack in the snapshot, or 0 if the stack has no frames.
    pub(crate) fn add_stack(&mut self, id: StackId) -> u32 {
        match self.of_stack.get(id.index()) {
            None => return 0,
            Some(&known) if known != 0 => return known,
            Some(_) => {}
        }
        let mut frames = Vec::new();
        for &key in self.snapshot.frame_keys(id).iter() {
            if !self.by_key.contains_key(&key) {
                let numbers = self.add_frames(key);
                self.by_key.insert(key, numbers);
            }
            frames.extend_from_slice(&self.by_key[&key]);
        }
        if frames.is_empty() {
            return 0;
        }
        let next = self.stacks.len() as u32;
        let frames: Box<[u32]> = frames.into();
        let number = match self.snapshot.pytorch {
            Some(_) => next,
            None => *self.by_frames.entry(frames.clone()).or_insert(next),
        };
        if number == next {
            self.stacks.push(frames);
        }
        self.of_stack[id.index()] = number;
        number
    }

    /// Returns the numbers of the frames at a key.
    fn add_frames(&mut self, key: u64) -> Box<[u32]> {
        let frames = self.symbols.frames(key);
        let number = |frame: &Frame| {
            let next = self.frames.len() as u32;
            let (line, number) = match self.snapshot.pytorch {
                Some(_) => (self.snapshot.frames.line(FrameId(key as u32)), next),
                None => {
                    let line = u64::from(frame.line.unwrap_or(0));
                    let file = frame.file.as_deref().unwrap_or(UNKNOWN_FILE).to_owned();
                    (line, *self.by_names.entry((frame.function.clone(), file, line)).or_insert(next))
                }
            };
            if number == next {
                self.frames.push(PageFrame { frame: frame.clone(), line });
            }
            number
        };
        frames.iter().map(number).collect()
    }

    /// Returns the section with all requested texts and all scopes.
    pub(crate) fn into_columns(mut self) -> Columns {
        let frames = std::mem::take(&mut self.frames);
        let name = |frame: &PageFrame| self.intern(&frame.frame.function);
        let names: Vec<u32> = frames.iter().map(name).collect();
        let file = |frame: &PageFrame| self.intern(frame.frame.file.as_deref().unwrap_or(UNKNOWN_FILE));
        let files: Vec<u32> = frames.iter().map(file).collect();
        let scopes = &self.snapshot.scopes.rows;
        let scope_names: Vec<u32> = scopes.iter().map(|scope| self.intern(&scope.name)).collect();
        let stack_lines = self.stack_lines(&frames);
        let mut columns = Columns::default();
        columns.add_texts("strings", &self.strings);
        columns.add_varints("frame_name", names);
        columns.add_varints("frame_file", files);
        columns.add_varints("frame_line", frames.iter().map(|frame| frame.line));
        columns.add_bytes("frame_noise", frames.iter().map(|frame| u8::from(is_internal(&frame.frame))));
        columns.add_varints("stack_length", self.stacks.iter().map(|stack| stack.len() as u64));
        columns.add_varints("stack_skip", self.count_skipped_frames(&frames));
        columns.add_varints("stack_line", stack_lines);
        columns.add_varints("stack_frames", self.stacks.iter().flatten().copied());
        columns.add_varints("scope_parent", scopes.iter().map(|scope| scope.parent.0));
        columns.add_varints("scope_name", scope_names);
        columns.add_varints("scope_kind", scopes.iter().map(|scope| scope.kind as u32));
        columns
    }

    /// Returns, for each stack, the number of the text for its line in the user's code. For a stack without such a
    /// line, this is the text that reports show instead. A stack without frames has the number 0.
    fn stack_lines(&mut self, frames: &[PageFrame]) -> Vec<u32> {
        let rules = Rules::new();
        let mut owners = Owners::new(&rules);
        let mut line_of = |stack: &[u32]| {
            let of = stack.iter().map(|&frame| &frames[frame as usize].frame);
            (!stack.is_empty()).then(|| owners.owner_of(of).line())
        };
        let lines: Vec<Option<String>> = self.stacks.iter().map(|stack| line_of(stack)).collect();
        lines.into_iter().map(|line| line.map_or(0, |line| self.intern(&line))).collect()
    }

    /// Returns, for each stack, how many of its innermost frames only forward the allocation. Reports omit the same
    /// frames.
    fn count_skipped_frames(&self, frames: &[PageFrame]) -> Vec<u32> {
        let role = |PageFrame { frame, .. }: &PageFrame| {
            (is_allocator_entry(&frame.function), is_plumbing(&frame.function))
        };
        let roles: Vec<(bool, bool)> = frames.iter().map(role).collect();
        let role_of = |frame: &u32| roles[*frame as usize];
        let skipped = |stack: &[u32]| {
            let outside = stack.iter().rposition(|frame| role_of(frame).0).map_or(0, |entry| entry + 1);
            let first = stack[outside..].iter().position(|frame| !role_of(frame).1);
            first.map_or(0, |first| (outside + first) as u32)
        };
        self.stacks.iter().map(|stack| skipped(stack)).collect()
    }
}
