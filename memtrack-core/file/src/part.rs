//! A recording in parts: a stream with a size limit continues in a new file from time to time, and the oldest files are
//! removed. Each part has all tables and begins with the live blocks and segments, so that the remaining parts are a
//! complete recording from the oldest of them on. The newest part has the name of the recording; the name of any other
//! part is that name followed by the part's number.

use super::chunk;
use super::unfinished::EventCounts;
use memtrack_model::event::{Action, DeviceId, Event, EventFlags, ScopeId, ThreadId};
use memtrack_model::snapshot::{DeviceStatistics, EventTable, LiveBlock, Segment, Snapshot};
use serde::{Deserialize, Serialize};
use std::collections::{HashSet, VecDeque};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// The head of a part.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Part {
    /// The number of the recording that the part belongs to.
    pub recording: u64,
    /// The number of this part.
    pub number: u64,
    /// The number of the part in which the recording began; in a run, the part in which the process began.
    pub first: u64,
    /// Events after this tick are in this part or a later one; the part begins with the blocks that were live at this
    /// tick.
    pub since_ticks: u64,
    /// Whether the part begins with exactly the state after the events of all earlier parts, and contains all later
    /// events. In that case, `since_ticks` excludes none of its events.
    pub is_exact: bool,
    /// The sums over the events of all earlier parts.
    pub devices: Vec<DeviceStatistics>,
}

/// The size of the chunk that ends a part: its head, and the number of the next part.
const END_BYTES: u64 = chunk::HEAD_BYTES as u64 + 8;
/// The maximum number of bytes that are read to find the head of a part.
const MAX_HEAD_BYTES: u64 = 1 << 20;

/// Returns the path of an older part of the recording at `path`.
pub fn part_path(path: &Path, number: u64) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(format!(".part-{number}"));
    name.into()
}

/// Returns the older parts of the recording at `path` that are in the same folder: the files to remove together with the
/// recording. Empty for a file that is not a recording or cannot be read.
pub fn older_parts(path: &Path) -> Vec<PathBuf> {
    let head = |path: &Path| read_head(&mut File::open(path).ok()?).ok()?;
    let Some(newest) = head(path) else { return Vec::new() };
    let paths = part_numbers(path).into_iter().map(|number| part_path(path, number));
    paths.filter(|path| head(path).is_some_and(|head| head.recording == newest.recording)).collect()
}

/// Returns the numbers of the files that are named as parts of `path`, even if they belong to another recording.
pub fn part_numbers(path: &Path) -> Vec<u64> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return Vec::new() };
    let prefix = format!("{}.part-", name.to_string_lossy());
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let number = |entry: std::fs::DirEntry| {
        entry.file_name().to_string_lossy().strip_prefix(&prefix).and_then(|number| number.parse().ok())
    };
    entries.filter_map(number).collect()
}

/// Returns whether a file is a recording that was not finished: its program was killed or is still writing it.
pub fn is_unfinished(file: &mut File) -> io::Result<bool> {
    let bytes = file.metadata()?.len();
    let end = chunk::HEAD_BYTES as u64;
    if bytes <= 16 || !begins_as_recording(file)? {
        return Ok(false);
    }
    file.seek(SeekFrom::End(-(end.min(bytes - 16) as i64)))?;
    let mut last = Vec::new();
    file.take(end).read_to_end(&mut last)?;
    let mut done = Vec::new();
    chunk::append(&mut done, &mut chunk::Budget::default(), chunk::DONE, &[]);
    Ok(last != done)
}

fn begins_as_recording(file: &mut File) -> io::Result<bool> {
    let mut head = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.take(16).read_to_end(&mut head)?;
    Ok(head.len() == 16 && head.starts_with(&super::MAGIC))
}

/// Returns the head of a part; `None` if the file is not a part.
fn read_head(file: &mut File) -> io::Result<Option<Part>> {
    if !begins_as_recording(file)? {
        return Ok(None);
    }
    let mut input = file.take(MAX_HEAD_BYTES);
    let (mut position, mut budget, mut raw) = (16, chunk::Budget::default(), Vec::new());
    while let chunk::ReadOutcome::Chunk(kind) = chunk::read(&mut input, &mut position, &mut budget, &mut raw)?
    {
        match kind {
            chunk::META | chunk::CLOCK => {}
            chunk::PART => return Ok(serde_json::from_slice(&raw).ok()),
            _ => return Ok(None),
        }
    }
    Ok(None)
}

/// Returns whether the end of the file names `next` as the next part.
fn is_followed_by(file: &mut File, next: u64) -> io::Result<bool> {
    if file.metadata()?.len() < 16 + END_BYTES {
        return Ok(false);
    }
    file.seek(SeekFrom::End(-(END_BYTES as i64)))?;
    let (mut budget, mut raw) = (chunk::Budget::default(), Vec::new());
    let found = chunk::read(file, &mut 0, &mut budget, &mut raw)?;
    Ok(matches!(found, chunk::ReadOutcome::Chunk(chunk::NEXT)) && raw == next.to_le_bytes())
}

/// Opens the file at `path` and the earlier parts in the same folder, as one reader.
///
/// # Errors
/// Fails when the file cannot be opened or read.
pub fn open(path: &Path) -> io::Result<impl Read> {
    let mut file = File::open(path)?;
    let mut files = VecDeque::new();
    // Only a regular file can be read twice: first for its head, and then from the start.
    if file.metadata()?.is_file() {
        if let Some(part) = read_head(&mut file)? {
            let open_part = |number: u64| {
                let mut file = File::open(part_path(path, number)).ok()?;
                let head = read_head(&mut file).ok()??;
                let is_next = head.recording == part.recording && head.number == number;
                let is_whole = is_next && is_followed_by(&mut file, number + 1).ok()?;
                file.seek(SeekFrom::Start(0)).ok()?;
                is_whole.then_some(file)
            };
            let numbers = (part.first..part.number).rev();
            numbers.map_while(open_part).for_each(|file| files.push_front(file));
        }
        file.seek(SeekFrom::Start(0))?;
    }
    files.push_back(file);
    Ok(ChainedFiles { files })
}

/// Files as one stream.
struct ChainedFiles {
    files: VecDeque<File>,
}

impl Read for ChainedFiles {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(file) = self.files.front_mut() {
            let read = file.read(buffer)?;
            if read > 0 || buffer.is_empty() || self.files.len() == 1 {
                return Ok(read);
            }
            self.files.pop_front();
        }
        Ok(0)
    }
}

/// The state at the beginning of the oldest part that was read.
#[derive(Default)]
pub(super) struct OpeningState {
    pub(super) part: Part,
    pub(super) blocks: Vec<LiveBlock>,
    pub(super) segments: Vec<Segment>,
}

impl OpeningState {
    /// Inserts allocations of the blocks and segments that were live at the part's beginning before its events. Returns
    /// the sums over all events, including those of earlier parts.
    pub(super) fn insert_into(self, snapshot: &mut Snapshot) -> Vec<DeviceStatistics> {
        let Self { part, blocks, segments } = self;
        if part.number == part.first {
            return EventCounts::of(&snapshot.events).rows();
        }
        snapshot.meta.earlier_parts = part.number - part.first;
        let mut counts = EventCounts::from_rows(&part.devices);
        snapshot.events.sort_by_ticks();
        let mut events = EventTable::with_capacity(snapshot.events.len() + blocks.len());
        let mut insert = |event: Event, is_pending: bool| {
            events.extend_recorded(&[event]);
            if is_pending {
                let ticks = part.since_ticks;
                events.extend_recorded(&[Event { action: Action::FreeRequested, ticks, ..event }]);
            }
        };
        // The blocks that were live at the part's beginning or that an event has named so far, and the same for segments.
        // There are two sets because a block and its segment often have the same address.
        let mut known: [HashSet<(DeviceId, u64)>; 2] = Default::default();
        for block in blocks.iter().filter(|block| block.ticks <= part.since_ticks) {
            known[0].insert((block.device, block.address));
            insert(block.recorded_allocation(), block.pending_free);
        }
        for segment in segments.iter().filter(|segment| segment.ticks <= part.since_ticks) {
            known[1].insert((segment.device, segment.address));
            insert(segment.allocation(), false);
        }
        // Memory that was freed while the tables were being read was also live when the part began. The allocation is
        // made from the free event, which has the same properties.
        let is_after = |event: &Event| part.is_exact || event.ticks > part.since_ticks;
        let recorded = (0..snapshot.events.len()).map(|row| snapshot.events.get_recorded(row));
        for event in recorded.filter(is_after) {
            let (of_segments, began) = match event.action {
                Action::Alloc => (false, None),
                Action::Free | Action::FreeRequested | Action::FreeCompleted => (false, Some(Action::Alloc)),
                Action::SegmentAlloc | Action::SegmentMap => (true, None),
                Action::SegmentFree => (true, Some(Action::SegmentAlloc)),
                Action::SegmentUnmap => (true, Some(Action::SegmentMap)),
                Action::Oom | Action::Snapshot | Action::Annotate | Action::Other => continue,
            };
            let is_first = known[usize::from(of_segments)].insert((event.device, event.address));
            if let Some(action) = began
                .filter(|_| !part.is_exact && is_first && !event.flags.contains(EventFlags::UNKNOWN_BLOCK))
            {
                let (ticks, scope, thread) = (part.since_ticks, ScopeId::NONE, ThreadId::NONE);
                insert(
                    Event { action, ticks, scope, thread, ..event },
                    event.action == Action::FreeCompleted,
                );
            }
        }
        for event in (0..snapshot.events.len()).map(|row| snapshot.events.get_recorded(row)) {
            counts.add(&event);
            // Earlier events are omitted: either the state at the part's beginning includes them, or their blocks were freed.
            if is_after(&event) {
                events.extend_recorded(&[event]);
            }
        }
        snapshot.events = events;
        counts.rows()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Content, ReadReport, RecordingError, RecordingWriter};
    use memtrack_model::event::{StackId, StreamId};
    use memtrack_model::snapshot::Meta;

    fn load_from(input: impl Read) -> Result<(Snapshot, ReadReport), RecordingError> {
        match crate::read(input)? {
            (Content::Recording(snapshot), report) => Ok((*snapshot, report)),
            (Content::Pytorch(_), _) => panic!("no pickle was written"),
        }
    }

    const DEVICE: DeviceId = DeviceId(3);

    fn block(address: u64, ticks: u64) -> LiveBlock {
        LiveBlock {
            device: DEVICE,
            address,
            size_bytes: 8,
            stream: StreamId(0),
            task: Default::default(),
            stack: StackId::NONE,
            scope: ScopeId::NONE,
            ticks,
            flags: EventFlags::default(),
            pending_free: false,
        }
    }

    fn event(ticks: u64, action: Action, address: u64) -> Event {
        Event { action, ..block(address, ticks).allocation() }
    }

    /// Blocks 1 to 9 at ticks 10 to 90; the even ones are freed at once. New parts begin after ticks 30 and 60.
    fn parts() -> [Vec<u8>; 3] {
        let mut counts = EventCounts::default();
        let part = |number: u64, counts: &EventCounts| Part {
            recording: 7,
            number,
            first: 1,
            is_exact: false,
            since_ticks: (number - 1) * 30,
            devices: counts.rows(),
        };
        [1, 2, 3].map(|number| {
            let mut writer = RecordingWriter::new(Vec::new(), &Meta::default(), (0, 0)).unwrap();
            writer.part(&part(number, &counts)).unwrap();
            if number > 1 {
                let addresses = (1..=3 * (number - 1)).filter(|address| address % 2 == 1);
                let live = addresses.map(|address| block(address, address * 10));
                // The table was read a little later, so it contains a block that the part's events allocate.
                let later = block(99, 95);
                writer.opening(&live.chain([later]).collect::<Vec<_>>(), &[]).unwrap();
            }
            let blocks = 3 * number - 2..=3 * number;
            let mut events: Vec<Event> = blocks
                .flat_map(|block| {
                    let free = (block % 2 == 0).then(|| event(block * 10 + 5, Action::Free, block));
                    [event(block * 10, Action::Alloc, block)].into_iter().chain(free)
                })
                .collect();
            if number == 2 {
                // An event from a thread that was late: its block was freed already.
                events.insert(0, event(28, Action::Alloc, 77));
                counts.add(&event(28, Action::Other, 77));
            }
            writer.events(&events).unwrap();
            events.iter().for_each(|event| counts.add(event));
            if number == 3 {
                return writer.output_mut().clone();
            }
            writer.next_part(number + 1).unwrap();
            writer.output_mut().clone()
        })
    }

    fn live_addresses(snapshot: &Snapshot) -> Vec<u64> {
        snapshot.blocks.iter().map(|block| block.address).collect()
    }

    #[test]
    fn remaining_parts_contain_live_blocks_and_sums_of_all_events() {
        let [first, second, third] = parts();
        let all = [&first[..], &second, &third].concat();
        let (whole, report) = load_from(&all[..]).unwrap();
        assert_eq!((report.parts, report.damaged, whole.meta.earlier_parts), (2, false, 0));
        // The free of the late block is in no part.
        assert_eq!(live_addresses(&whole), [1, 3, 5, 7, 9, 77]);
        let (rest, _) = load_from(&[&second[..], &third].concat()[..]).unwrap();
        assert_eq!((live_addresses(&rest), rest.meta.earlier_parts), (vec![1, 3, 5, 7, 9], 1));
        let (newest, report) = load_from(&third[..]).unwrap();
        assert_eq!((live_addresses(&newest), newest.meta.earlier_parts), (vec![1, 3, 5, 7, 9], 2));
        assert!(!report.complete && !report.continues_elsewhere);
        for snapshot in [&whole, &rest, &newest] {
            let counts = snapshot.devices[0];
            assert_eq!(counts.allocations, 10);
            assert_eq!(counts.freed_bytes, 4 * 8);
            assert_eq!(
                counts.dropped,
                if snapshot.meta.earlier_parts == 0 {
                    0
                } else {
                    counts.recorded - snapshot.events.len() as u64
                }
            );
        }
        let (alone, report) = load_from(&second[..]).unwrap();
        assert_eq!(live_addresses(&alone), [1, 3, 5]);
        assert!(report.continues_elsewhere);
    }

    #[test]
    fn parts_of_another_recording_and_damage_end_reading() {
        let [first, second, third] = parts();
        // The second part is missing.
        let (snapshot, report) = load_from(&[&first[..], &third].concat()[..]).unwrap();
        assert!(report.damaged && report.lost_bytes > 0);
        assert_eq!(live_addresses(&snapshot), [1, 3]);
        let all = [&first[..], &second, &third].concat();
        for end in 16..all.len() {
            let (_, report) = load_from(&all[..end]).unwrap();
            assert!(!report.complete);
        }
        for place in 16..all.len() {
            let mut damaged = all.clone();
            damaged[place] ^= 0x41;
            let (_, report) = load_from(&damaged[..]).unwrap();
            assert!(report.damaged || report.lost_bytes > 0, "byte {place}");
        }
    }

    #[test]
    fn recording_with_end_mark_is_finished() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.memtrack");
        let is_unfinished_with = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            is_unfinished(&mut File::open(&path).unwrap()).unwrap()
        };
        let writer = RecordingWriter::new(Vec::new(), &Meta::default(), (0, 0)).unwrap();
        let whole = writer.finish(&[], &[], &[]).unwrap();
        assert!(!is_unfinished_with(&whole));
        assert!(is_unfinished_with(&whole[..whole.len() - 1]) && is_unfinished_with(&whole[..20]));
        assert!(
            !is_unfinished_with(b"") && !is_unfinished_with(b"something else that is longer than a header")
        );
    }
}
