//! Matches the groups of two files and classifies how each of them changed.

use super::kind_of_group;
use super::moved_lines::{FunctionLine, match_functions};
use super::names::extract_line_numbers;
use super::sides::{Group, GroupKey, Side, SideDevice};
use super::text::MAX_NAMED;
use super::{DeviceDiff, Diff, DiffAt, DiffBy, DiffRow, UnmatchedDevice};
use crate::top::StackLine;
use memtrack_blocks::change::Kind;
use memtrack_blocks::change::{Amount, Change};
use memtrack_model::units::{counted, human_bytes};
use std::cmp::Reverse;
use std::collections::HashMap;

/// Durations that differ by less than this factor do not get a note.
const MIN_NOTED_DURATION_FACTOR: f64 = 1.1;

/// The key by which the groups of two files are matched.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Key<'a> {
    Name(&'a str),
    Stack(Vec<FunctionLine>),
}

/// A group whose name contains line numbers: the line numbers, the name, and the group itself.
type GroupWithLines<'a> = (Vec<u32>, &'a str, &'a Group);

/// Groups that match: first those in the earlier file, then those in the later file.
type Pair<'a> = [Vec<&'a Group>; 2];

pub(super) fn compare_sides(before: &Side, after: &Side, limit: usize) -> Diff {
    let function_lines = match_functions(&before.functions, &after.functions);
    let mut devices = Vec::new();
    for later in &after.devices {
        let Some(earlier) = before.devices.iter().find(|earlier| earlier.device.name == later.device.name)
        else {
            continue;
        };
        let rows = pair_groups([earlier, later], &function_lines).into_iter();
        let rows =
            rows.map(|(name, pair)| build_row([before, after], [earlier, later], name, &pair)).collect();
        devices.push(build_device(earlier, later, rows, limit));
    }
    let unmatched = |of: &Side, other: &Side| -> Vec<UnmatchedDevice> {
        let is_unmatched =
            |device: &&SideDevice| !other.devices.iter().any(|there| there.device.name == device.device.name);
        let unmatched = of.devices.iter().filter(is_unmatched).map(|SideDevice { device, bytes, .. }| {
            UnmatchedDevice { device: device.clone(), bytes: bytes.value, error: bytes.error }
        });
        unmatched.collect()
    };
    let (only_before, only_after) = (unmatched(before, after), unmatched(after, before));
    let differs = |device: &DeviceDiff| device.rows_in_all > 0 || device.bytes.kind() != Kind::Same;
    let mut diff = Diff {
        by: after.by,
        at: after.at,
        different: devices.iter().any(differs) || !only_before.is_empty() || !only_after.is_empty(),
        answer: Vec::new(),
        devices,
        only_before,
        only_after,
        notes: comparison_notes(before, after),
        rules: after.rules.clone(),
    };
    diff.answer = diff.summary_sentences(MAX_NAMED);
    diff
}

/// Returns the pairs of one device, each with the name of its groups. The name is `None` if the groups are identified by
/// their stacks.
fn pair_groups<'a>(
    devices: [&'a SideDevice; 2],
    function_lines: &[Vec<FunctionLine>; 2],
) -> Vec<(Option<String>, Pair<'a>)> {
    let mut same: HashMap<Key<'a>, Pair<'a>> = HashMap::new();
    for (side, device) in devices.into_iter().enumerate() {
        for group in &device.groups {
            let key = match &group.key {
                GroupKey::Name(name) => Key::Name(name),
                GroupKey::Stack(stack) => {
                    Key::Stack(stack.iter().map(|&number| function_lines[side][number as usize]).collect())
                }
            };
            same.entry(key).or_default()[side].push(group);
        }
    }
    let mut pairs = Vec::with_capacity(same.len());
    // Module names may contain line numbers, and those lines may have moved.
    let mut with_lines: HashMap<String, [Vec<GroupWithLines<'a>>; 2]> = HashMap::new();
    for (key, pair) in same {
        let Key::Name(name) = key else {
            pairs.push((None, pair));
            continue;
        };
        let (short, lines) = extract_line_numbers(name);
        let side = usize::from(pair[0].is_empty());
        match (&pair[side][..], pair[1 - side].is_empty() && !lines.is_empty()) {
            (&[group], true) => with_lines.entry(short).or_default()[side].push((lines, name, group)),
            _ => pairs.push((Some(name.to_owned()), pair)),
        }
    }
    for (short, [mut before, mut after]) in with_lines {
        before.sort_by(|a, b| a.0.cmp(&b.0));
        after.sort_by(|a, b| a.0.cmp(&b.0));
        if before.len() == after.len() {
            let both = before.into_iter().zip(after);
            pairs.extend(
                both.map(|((.., here), (_, name, there))| (Some(name.to_owned()), [vec![here], vec![there]])),
            );
        } else if before.is_empty() || after.is_empty() {
            pairs.extend(
                before.into_iter().map(|(_, name, one)| (Some(name.to_owned()), [vec![one], vec![]])),
            );
            pairs
                .extend(after.into_iter().map(|(_, name, one)| (Some(name.to_owned()), [vec![], vec![one]])));
        } else {
            let groups = |side: Vec<GroupWithLines<'a>>| side.into_iter().map(|(.., one)| one).collect();
            pairs.push((Some(short), [groups(before), groups(after)]));
        }
    }
    pairs
}

fn build_row(sides: [&Side; 2], devices: [&SideDevice; 2], name: Option<String>, pair: &Pair<'_>) -> DiffRow {
    let sum = |side: usize, amount: fn(&Group) -> Amount, limit: f64| {
        let all = pair[side].iter().map(|&group| amount(group));
        all.reduce(|sum, one| sum + one).unwrap_or_else(|| match devices[side].detection_limit_bytes {
            0 => Amount::exact(0),
            _ => Amount::without_samples(limit),
        })
    };
    let bytes = |side: usize| sum(side, |group| group.bytes, devices[side].detection_limit_bytes as f64);
    let blocks = |side: usize| sum(side, |group| group.blocks, devices[side].detection_limit_blocks);
    let [before, after] = [common_stack(sides[0], &pair[0]), common_stack(sides[1], &pair[1])];
    let line = |stack: &[StackLine]| stack.first().and_then(|line| line.frame.line).filter(|&line| line > 0);
    let line_before = line(&before).filter(|&before| line(&after).is_some_and(|after| before != after));
    let stack = if after.is_empty() { before } else { after };
    let name =
        name.unwrap_or_else(|| stack.first().map_or_else(String::new, |line| line.frame.function.clone()));
    let members = |side: usize| pair[side].iter().map(|group| group.members).sum();
    let bytes = Change { before: bytes(0), after: bytes(1) };
    let blocks = Change { before: blocks(0), after: blocks(1) };
    DiffRow {
        name,
        change: kind_of_group(&bytes, &blocks),
        bytes,
        blocks,
        before_members: members(0),
        after_members: members(1),
        stack,
        line_before,
    }
}

/// Returns the functions of matching groups, omitting line numbers in which the groups differ.
fn common_stack(side: &Side, groups: &[&Group]) -> Vec<StackLine> {
    let mut lines: Vec<StackLine> = Vec::new();
    for group in groups {
        let GroupKey::Stack(numbers) = &group.key else { continue };
        let frames = numbers.iter().map(|&number| side.functions.frame(number));
        if lines.is_empty() {
            lines = frames.map(|frame| StackLine { address: 0, frame: frame.clone() }).collect();
            continue;
        }
        for (line, frame) in lines.iter_mut().zip(frames) {
            line.frame.line = line.frame.line.filter(|_| line.frame.line == frame.line);
        }
    }
    lines
}

fn build_device(before: &SideDevice, after: &SideDevice, rows: Vec<DiffRow>, limit: usize) -> DeviceDiff {
    let (same, mut rows): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| row.change == Kind::Same);
    let unchanged = same.iter().filter(|row| row.bytes.is_exact() && row.blocks.is_exact()).count();
    rows.sort_by(|a, b| {
        let size = |row: &DiffRow| Reverse((row.bytes.by().unsigned_abs(), row.blocks.by().unsigned_abs()));
        let place = |row: &DiffRow| {
            row.stack.iter().map(|line| (line.frame.file.clone(), line.frame.line)).collect::<Vec<_>>()
        };
        let order = size(a).cmp(&size(b)).then_with(|| a.name.cmp(&b.name));
        order.then_with(|| place(a).cmp(&place(b)))
    });
    let rows_in_all = rows.len();
    let left_out_bytes = rows.iter().skip(limit).map(|row| row.bytes.by()).sum();
    rows.truncate(limit);
    DeviceDiff {
        device: after.device.clone(),
        bytes: Change { before: before.bytes, after: after.bytes },
        blocks: Change { before: before.blocks, after: after.blocks },
        rows,
        rows_in_all,
        left_out_bytes,
        unchanged,
        within_error: same.len() - unchanged,
    }
}

/// Returns caveats about the comparison.
fn comparison_notes(before: &Side, after: &Side) -> Vec<String> {
    let mut notes = Vec::new();
    if before.is_pytorch != after.is_pytorch {
        notes.push(format!(
            "the earlier file is {}, the later one {}: requested bytes and blocks are compared, not \
             rounding by allocators or reserved memory",
            before.kind_text(),
            after.kind_text()
        ));
    }
    let lacking = |there: [bool; 2]| match there {
        [false, true] => Some("earlier"),
        [true, false] => Some("later"),
        _ => None,
    };
    match before.by {
        DiffBy::Line | DiffBy::Stack => {
            if let Some(side) = lacking([before.has_stacks, after.has_stacks]) {
                notes.push(format!(
                    "the {side} file has no stacks: where its memory came from cannot be compared"
                ));
            }
        }
        DiffBy::Operator | DiffBy::Module | DiffBy::Phase => {
            if let Some(side) = lacking([before.has_scopes, after.has_scopes]) {
                notes.push(format!(
                    "the {side} file has no scopes: its names are derived from stacks, and may differ from \
                     those of the other"
                ));
            }
        }
        DiffBy::Category => {}
    }
    for (name, side) in [("earlier", before), ("later", after)] {
        for device in side.devices.iter().filter(|device| device.dropped > 0) {
            let events = counted(device.dropped, "older event");
            notes.push(format!("{events} of the {name} file's {} did not fit the ring", device.device.name));
        }
        let limit = side.devices.iter().map(|device| device.detection_limit_bytes).max().unwrap_or(0);
        if limit > 0 {
            notes.push(format!(
                "small blocks of the {name} file are sampled: groups with less than {} in such blocks may \
                 be missing from it, and differences within the error of the numbers are not shown (with \
                 95 % confidence)",
                human_bytes(limit)
            ));
        }
    }
    if let Some((earlier, later)) = before.seconds.zip(after.seconds)
        && before.at == DiffAt::Total
        && earlier.max(later) > earlier.min(later) * MIN_NOTED_DURATION_FACTOR
    {
        notes.push(format!(
            "the earlier file covers {earlier:.3} s, the later one {later:.3} s: total allocations depend \
             on that"
        ));
    }
    notes
}
