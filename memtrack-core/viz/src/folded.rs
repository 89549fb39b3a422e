//! `segments` and `memory` as folded lines, byte for byte the same as PyTorch's. PyTorch also uses the requested size
//! of inactive blocks, which is stale, so the numbers in its `<gaps>` lines (a block's size minus its requested size) can
//! be negative. See [`super::Usage`] for the true sizes.

use super::blocks::Blocks;
use super::inconsistencies::Inconsistencies;
use super::sink::Sink;
use super::stacks::Stacks;
use memtrack_model::snapshot::pytorch::PytorchSnapshot;
use std::io::{self, Write};

/// Writes the folded lines of each segment separately.
///
/// # Errors
/// Fails when `out` cannot be written.
pub fn segments_folded(snapshot: &PytorchSnapshot, out: &mut impl Write) -> io::Result<Inconsistencies> {
    let mut sink = Sink::new(out);
    let mut folder = Folder::new(snapshot);
    for segment in folder.blocks.segments() {
        folder.write_segment(&mut sink, "", segment)?;
    }
    sink.finish()?;
    Ok(folder.odd)
}

/// Writes the folded lines of all segments, with those of the same stream under a common root.
///
/// # Errors
/// Fails when `out` cannot be written.
pub fn memory_folded(snapshot: &PytorchSnapshot, out: &mut impl Write) -> io::Result<Inconsistencies> {
    let mut sink = Sink::new(out);
    let mut folder = Folder::new(snapshot);
    for segment in folder.blocks.segments() {
        folder.prefix.clear();
        folder.prefix.extend_from_slice(b"stream_");
        folder.blocks.push_stream(&mut folder.prefix, segment);
        folder.write_lines(&mut sink, segment)?;
    }
    sink.finish()?;
    Ok(folder.odd)
}

/// A writer of folded lines for the segments of one snapshot.
pub(super) struct Folder<'a> {
    pub(super) blocks: Blocks<'a>,
    pub(super) odd: Inconsistencies,
    stacks: Stacks<'a>,
    prefix: Vec<u8>,
}

impl<'a> Folder<'a> {
    pub(super) fn new(snapshot: &'a PytorchSnapshot) -> Self {
        let stacks = Stacks::of(snapshot);
        Self { blocks: Blocks::of(snapshot), odd: Inconsistencies::default(), stacks, prefix: Vec::new() }
    }

    /// Writes the lines of one segment, each of which starts with `prefix`, the stream and the segment's address.
    pub(super) fn write_segment<W: Write>(
        &mut self,
        sink: &mut Sink<'_, W>,
        prefix: &str,
        segment: usize,
    ) -> io::Result<()> {
        self.prefix.clear();
        self.prefix.extend_from_slice(prefix.as_bytes());
        self.prefix.extend_from_slice(b"stream_");
        self.blocks.push_stream(&mut self.prefix, segment);
        self.prefix.extend_from_slice(b";seg_");
        super::sink::push_decimal(&mut self.prefix, self.blocks.address(segment));
        self.write_lines(sink, segment)
    }

    fn write_lines<W: Write>(&mut self, sink: &mut Sink<'_, W>, segment: usize) -> io::Result<()> {
        let blocks = self.blocks;
        for block in blocks.segment_blocks(segment) {
            let mut accounted = 0;
            if let Some(history) = blocks.history(block) {
                for entry in history {
                    let entry = blocks.read_history_entry(entry);
                    accounted += entry.bytes;
                    self.begin_line(sink, block);
                    match entry.stack {
                        Some(stack) => self.stacks.push(&mut sink.text, stack),
                        None => sink.push_str("<no-context>"),
                    }
                    end_line(sink, entry.bytes)?;
                }
            } else {
                let (requested, stack) = blocks.requested(block, &mut self.odd);
                accounted = requested;
                self.begin_line(sink, block);
                self.stacks.push(&mut sink.text, stack);
                end_line(sink, requested)?;
            }
            let gap = blocks.size(block) - accounted;
            if gap != 0 {
                self.begin_line(sink, block);
                sink.push_str("<gaps>");
                end_line(sink, gap)?;
            }
        }
        Ok(())
    }

    fn begin_line<W: Write>(&self, sink: &mut Sink<'_, W>, block: usize) {
        sink.text.extend_from_slice(&self.prefix);
        sink.text.push(b';');
        self.blocks.push_state(&mut sink.text, block);
        sink.text.push(b';');
    }
}

fn end_line<W: Write>(sink: &mut Sink<'_, W>, bytes: i128) -> io::Result<()> {
    sink.text.push(b' ');
    sink.push_decimal(bytes);
    sink.text.push(b'\n');
    sink.flush_if_full()
}
