//! The tables of stacks and frames. A stack has a number that is unique within its rank, and a row for each frame,
//! innermost first, so that engines need no list types. In a recording, a return address has a row for each function
//! that was inlined there.

use crate::table::{Column, Kind, ROWS_PER_GROUP, Rows, Table, TableWriter, Value};
use foldhash::{HashMap, HashMapExt};
use memtrack_model::event::StackId;
use memtrack_model::snapshot::Snapshot;
use memtrack_model::{Frame, NameFrames};
use std::io::{self, Write};
use std::rc::Rc;

/// The frames of stacks, with one row for each frame of each stack.
pub static STACKS: Table = Table {
    name: "stacks",
    columns: &[
        Column::new("stack", Kind::Int).delta(),
        Column::new("depth", Kind::Int).delta(),
        Column::new("frame", Kind::Int),
    ],
};

/// The distinct frames, each with its function, file and line.
pub static FRAMES: Table = Table {
    name: "frames",
    columns: &[
        Column::new("frame", Kind::Int).delta(),
        Column::new("function", Kind::Text),
        Column::new("file", Kind::Text).nullable(),
        Column::new("line", Kind::Int).nullable(),
    ],
};

/// The stacks in a snapshot, each with a flag that is set if another table refers to the stack.
pub(crate) struct Stacks<'a> {
    snapshot: &'a Snapshot,
    used: Vec<bool>,
}

impl<'a> Stacks<'a> {
    pub(crate) fn of(snapshot: &'a Snapshot) -> Self {
        let stacks = snapshot.stacks.len().max(snapshot.named.len());
        Self { snapshot, used: vec![false; stacks] }
    }

    /// Marks a stack as referred to by a table.
    pub(crate) fn mark_used(&mut self, stack: StackId) {
        if let Some(used) = self.used.get_mut(stack.index()) {
            *used = true;
        }
    }

    /// Marks the stacks of all events.
    pub(crate) fn mark_events_used(&mut self) {
        for &stack in &self.snapshot.events.stack {
            self.mark_used(stack);
        }
    }

    /// Writes the stacks that are used, and returns their frames.
    pub(crate) fn write<W: Write + Send>(
        &self,
        names: &mut dyn NameFrames,
        output: W,
        facts: &[(&str, String)],
    ) -> io::Result<Frames> {
        let mut frames = Frames::default();
        let mut of_key: HashMap<u64, Rc<[u32]>> = HashMap::new();
        let mut writer = TableWriter::new(output, &STACKS, facts)?;
        let mut rows = Rows::of(&STACKS);
        let used = self.used.iter().enumerate().skip(1).filter(|(_, used)| **used);
        for (stack, _) in used {
            let mut depth = 0_u64;
            for &key in self.snapshot.frame_keys(StackId(stack as u32)).iter() {
                let numbers = of_key.entry(key).or_insert_with(|| {
                    names.frames(key).iter().map(|frame| frames.get_or_add(frame)).collect()
                });
                for &frame in numbers.iter() {
                    rows.push([Value::from(stack as u64), depth.into(), u64::from(frame).into()]);
                    depth += 1;
                }
            }
            if rows.len() >= ROWS_PER_GROUP {
                writer.write_group(std::mem::replace(&mut rows, Rows::of(&STACKS)).into_columns())?;
            }
        }
        if rows.len() > 0 {
            writer.write_group(rows.into_columns())?;
        }
        writer.finish()?;
        Ok(frames)
    }
}

/// Distinct frames, numbered in the order in which they were first seen.
#[derive(Default)]
pub(crate) struct Frames {
    numbers: HashMap<Frame, u32>,
    frames: Vec<Frame>,
}

impl Frames {
    fn get_or_add(&mut self, frame: &Frame) -> u32 {
        if let Some(&number) = self.numbers.get(frame) {
            return number;
        }
        let number = self.frames.len() as u32;
        self.frames.push(frame.clone());
        self.numbers.insert(frame.clone(), number);
        number
    }

    /// Writes the frames.
    pub(crate) fn write<W: Write + Send>(&self, output: W, facts: &[(&str, String)]) -> io::Result<()> {
        let mut rows = Rows::of(&FRAMES);
        for (number, frame) in self.frames.iter().enumerate() {
            rows.push([
                Value::from(number as u64),
                frame.function.as_str().into(),
                frame.file.as_deref().into(),
                frame.line.map(u64::from).into(),
            ]);
        }
        rows.write(output, facts)
    }
}
