//! The state of a run at one point in time: its statistics, its segments, and the last line of a result.

use super::result::{ResultLine, SegmentLine, Summary};
use super::run::Run;
use crate::{AllocatorError, Backend, SegmentInfo};
use std::collections::BTreeMap;

impl Run {
    /// Returns the statistics of every device.
    pub(super) fn collect_stats(&self) -> Result<Vec<BTreeMap<String, i64>>, AllocatorError> {
        self.devices().map(|device| self.allocator.memory_stats(device)).collect()
    }

    /// Adds the segments and the settings to a line.
    pub(super) fn add_snapshot(&self, line: &mut ResultLine<'_>) {
        let mut segments: Vec<SegmentLine> =
            self.allocator.memory_snapshot().iter().map(|segment| self.segment_to_line(segment)).collect();
        segments.sort_by_key(|segment| (segment.device, segment.seg, segment.off));
        line.segments = Some(segments);
        line.allocator_settings = Some(self.allocator.allocator_settings());
    }

    fn segment_to_line(&self, segment: &SegmentInfo) -> SegmentLine {
        let segment_numbers = &self.segment_numbers[usize::from(segment.device.0)];
        let (ordinal, offset) = segment_numbers.find(segment.address);
        let blocks = segment.blocks.iter();
        SegmentLine {
            device: segment.device.0,
            seg: ordinal,
            off: offset,
            total_size: segment.total_size,
            allocated_size: segment.allocated_size,
            active_size: segment.active_size,
            requested_size: segment.requested_size,
            stream: segment.stream.0,
            segment_type: segment.segment_type(),
            segment_pool_id: segment.pool,
            is_expandable: segment.is_expandable,
            blocks: blocks
                .map(|block| {
                    let at = offset + (block.address - segment.address);
                    (at, block.size, block.requested_size, block.state.name())
                })
                .collect(),
        }
    }

    /// Returns the last line of a result, which describes the final state.
    pub(super) fn final_line(&mut self, i: usize) -> Result<ResultLine<'static>, AllocatorError> {
        let mut line = ResultLine { i, op: "end", ..ResultLine::default() };
        line.trace_lengths = Some(self.recorded.clone());
        line.stats = Some(self.collect_stats()?);
        let infos = self.devices().map(|device| self.allocator.mem_get_info(device));
        let infos = infos.map(|info| info.map(|info| (info.free_bytes, info.total_bytes)));
        line.mem_get_info = Some(infos.collect::<Result<_, _>>()?);
        let summary = |device, abbreviated| self.allocator.memory_summary(device, abbreviated);
        let summaries = self
            .devices()
            .map(|device| Ok(Summary { full: summary(device, false)?, abbreviated: summary(device, true)? }));
        line.summary = Some(summaries.collect::<Result<_, AllocatorError>>()?);
        self.allocator.record_memory_history(None);
        self.add_snapshot(&mut line);
        Ok(line)
    }
}
