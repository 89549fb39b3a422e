//! The texts of a page, which are the strings, frames, stacks and scopes that it uses, each stored once.

use crate::columns::Columns;
use memtrack_frames::ownership::{Owners, Rules};
use memtrack_frames::trim::{is_allocator_entry, is_internal, is_plumbing};
use memtrack_model::Frame;
use memtrack_model::event::StackId;
use memtrack_model::snapshot::{FrameId, Snapshot, StringId};
use std::collections::HashMap;

/// The texts requested so far, in the order of their numbers.
pub(crate) struct Texts<'a> {
    snapshot: &'a Snapshot,
    strings: Vec<String>,
    by_text: HashMap<String, u32, foldhash::fast::RandomState>,
    /// For each string in the snapshot, its number on the page, or 0 if it is empty or has not been requested yet.
    of_string: Vec<u32>,
    /// For each frame in the snapshot, 1 plus its number on the page, or 0 if it has not been requested yet.
    of_frame: Vec<u32>,
    /// For each stack in the snapshot, its number on the page, or 0 if it has not been requested yet.
    of_stack: Vec<u32>,
    frames: Vec<FrameId>,
    stacks: Vec<StackId>,
}

impl<'a> Texts<'a> {
    /// Creates a page's table of texts, before any text has been requested.
    pub(crate) fn of(snapshot: &'a Snapshot) -> Self {
        Self {
            snapshot,
            strings: vec![String::new()],
            by_text: HashMap::from_iter([(String::new(), 0)]),
            of_string: vec![0; snapshot.strings.len()],
            of_frame: vec![0; snapshot.frames.len()],
            of_stack: vec![0; snapshot.named.len()],
            frames: Vec::new(),
            stacks: vec![StackId::NONE],
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
        let frames = self.snapshot.named.get(id);
        match self.of_stack.get(id.index()) {
            Some(&known) if known != 0 => known,
            Some(_) if !frames.is_empty() => {
                let number = self.stacks.len() as u32;
                self.stacks.push(id);
                self.of_stack[id.index()] = number;
                number
            }
            _ => 0,
        }
    }

    /// Returns the section with all requested texts and all scopes.
    pub(crate) fn into_columns(mut self) -> Columns {
        let mut stack_frames: Vec<u32> = Vec::new();
        for stack in std::mem::take(&mut self.stacks) {
            for &frame in self.snapshot.named.get(stack) {
                let number = &mut self.of_frame[frame.index()];
                if *number == 0 {
                    self.frames.push(frame);
                    *number = self.frames.len() as u32;
                }
                stack_frames.push(*number - 1);
            }
            self.stacks.push(stack);
        }
        let frames = std::mem::take(&mut self.frames);
        let table = &self.snapshot.frames;
        let names: Vec<u32> = frames.iter().map(|&frame| self.add_string(table.name(frame))).collect();
        let files: Vec<u32> = frames.iter().map(|&frame| self.add_string(table.filename(frame))).collect();
        let scopes = &self.snapshot.scopes.rows;
        let scope_names: Vec<u32> = scopes.iter().map(|scope| self.intern(&scope.name)).collect();
        let stack_lines = self.stack_lines(&frames);
        let lengths = self.stacks.iter().map(|&stack| self.snapshot.named.get(stack).len() as u64);
        let mut columns = Columns::default();
        columns.add_texts("strings", &self.strings);
        columns.add_varints("frame_name", names);
        columns.add_varints("frame_file", files);
        columns.add_varints("frame_line", frames.iter().map(|&frame| table.line(frame)));
        columns
            .add_bytes("frame_noise", frames.iter().map(|&frame| u8::from(is_internal(&self.frame(frame)))));
        columns.add_varints("stack_length", lengths);
        columns.add_varints("stack_skip", self.count_skipped_frames(&frames));
        columns.add_varints("stack_line", stack_lines);
        columns.add_varints("stack_frames", stack_frames);
        columns.add_varints("scope_parent", scopes.iter().map(|scope| scope.parent.0));
        columns.add_varints("scope_name", scope_names);
        columns.add_varints("scope_kind", scopes.iter().map(|scope| scope.kind as u32));
        columns
    }

    /// Returns, for each stack, the number of the text for its line in the user's code. For a stack without such a
    /// line, this is the text that reports show instead. A stack without frames has the number 0.
    fn stack_lines(&mut self, frames: &[FrameId]) -> Vec<u32> {
        let with_line = |&frame: &FrameId| {
            let line = u32::try_from(self.snapshot.frames.line(frame)).ok().filter(|&line| line > 0);
            Frame { line, ..self.frame(frame) }
        };
        let frames: Vec<Frame> = frames.iter().map(with_line).collect();
        let rules = Rules::new();
        let mut owners = Owners::new(&rules);
        let line_of = |&stack: &StackId| {
            let stack = self.snapshot.named.get(stack);
            let of = stack.iter().map(|frame| &frames[self.of_frame[frame.index()] as usize - 1]);
            (!stack.is_empty()).then(|| owners.owner_of(of).line())
        };
        let lines: Vec<Option<String>> = self.stacks.iter().map(line_of).collect();
        lines.into_iter().map(|line| line.map_or(0, |line| self.intern(&line))).collect()
    }

    fn frame(&self, frame: FrameId) -> Frame {
        let (table, strings) = (&self.snapshot.frames, &self.snapshot.strings);
        let file = strings.get(table.filename(frame)).into_owned();
        Frame { function: strings.get(table.name(frame)).into_owned(), file: Some(file), ..Frame::default() }
    }

    /// Returns, for each stack, how many of its innermost frames only forward the allocation. Reports omit the same
    /// frames.
    fn count_skipped_frames(&self, frames: &[FrameId]) -> Vec<u32> {
        let role = |frame: &FrameId| {
            let function = self.frame(*frame).function;
            (is_allocator_entry(&function), is_plumbing(&function))
        };
        let roles: Vec<(bool, bool)> = frames.iter().map(role).collect();
        let role_of = |frame: &FrameId| roles[self.of_frame[frame.index()] as usize - 1];
        let skipped = |&stack: &StackId| {
            let frames = self.snapshot.named.get(stack);
            let outside = frames.iter().rposition(|frame| role_of(frame).0).map_or(0, |entry| entry + 1);
            let first = frames[outside..].iter().position(|frame| !role_of(frame).1);
            first.map_or(0, |first| (outside + first) as u32)
        };
        self.stacks.iter().map(skipped).collect()
    }
}
