//! The rows of a ranking. Every lifetime on the device goes into the row for its scope and stack, and every distinct pair
//! of scope and stack is named only once.

use super::age::{Span, TrendSums};
use super::exact::ExactSums;
use super::fold::Fold;
use super::groups::{self, Groups, MAX_TEXT_CHARS};
use super::stacks::{Trimmer, requester, stack_lines};
use super::texts::Texts;
use super::{By, CalledPart, RowText, StackLine, TopOptions, TopRow, Trend};
use memtrack_blocks::estimate::{Estimate, KnownTotal, Precision, Sum};
use memtrack_blocks::frees::Frees;
use memtrack_blocks::lifetimes::Lifetime;
use memtrack_frames::attribution::{Attributor, NO_STACK, OLDER_MEMORY, Source};
use memtrack_frames::language::is_script;
use memtrack_frames::ownership::{ForwardLines, Owners, StackOwner, qualified_path, short};
use memtrack_frames::trim::is_internal;
use memtrack_model::event::{DeviceId, ScopeId, StackId};
use memtrack_model::paths::{split_file_name, with_slashes};
use memtrack_model::snapshot::{Snapshot, StringId};
use memtrack_model::units::shorten_middle;
use memtrack_model::{Frame, Phase};
use memtrack_symbols::Symbolizer;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

/// The name of the row for blocks that have no Python line in their stack.
const NO_PYTHON: &str = "(no Python in the stack)";

/// The maximum number of program texts, or of called functions, in a row.
const MAX_TEXTS: usize = 10;

/// The key that identifies a row.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Key {
    Name(String),
    Stack(Vec<u64>),
    /// The numbers of the visible functions in a stack, as assigned by [`Fold`].
    Visible(Vec<u32>),
    /// A line in the user's code.
    Line(Frame),
    /// The line that freed blocks whose allocation is unknown.
    Freed(Frame),
}

/// The running sums of one row.
#[derive(Default)]
pub(super) struct Sums {
    pub(super) allocated: Sum,
    pub(super) live_at_peak: Sum,
    pub(super) count: Sum,
    allocated_bytes: u64,
    pub(super) live_at_peak_bytes: u64,
    blocks: f64,
    pub(super) largest_bytes: u64,
    estimated: bool,
    pub(super) live_estimated: bool,
    /// Bytes and blocks for each of the program's texts.
    pub(super) texts: HashMap<StringId, [u64; 2]>,
    /// Bytes and blocks for each function that the line called, by the function's index in [`Sorter::called`].
    called: HashMap<u32, (u64, f64)>,
    /// For each function in [`Self::called`], and for the line's own allocations (`None`), the first stack, starting at
    /// its first informative frame.
    called_stacks: HashMap<Option<u32>, Vec<u64>>,
    /// The stacks in the row.
    stacks: HashSet<StackId>,
    /// The first stack in the row, starting at its first informative frame.
    stack: Vec<u64>,
    /// Whether the row includes individually recorded blocks, which are not part of the recorder's own sums.
    has_recorded: bool,
    /// Whether the row consists only of the recorder's own sums.
    is_exact: bool,
    /// Whether the row includes blocks that are older than the trace, so that more bytes may be live than were
    /// allocated.
    pub(super) has_older: bool,
    pub(super) trend: TrendSums,
}

/// Sums over all rows, if they are known independently of the samples.
#[derive(Clone, Copy)]
pub(crate) struct KnownTotals {
    pub(super) bytes: KnownTotal,
    pub(super) blocks: KnownTotal,
    pub(super) live_at_peak: KnownTotal,
    /// Whether the rows should extend to the end of the recording, but that end is missing.
    pub(super) lacks_end: bool,
    /// Whether the rows count allocations, which means that no row can have more live bytes than allocated bytes.
    pub(super) count_allocations: bool,
}

impl KnownTotals {
    /// Sums that are all unknown.
    pub(crate) const UNKNOWN: Self = Self {
        bytes: KnownTotal::UNKNOWN,
        blocks: KnownTotal::UNKNOWN,
        live_at_peak: KnownTotal::UNKNOWN,
        lacks_end: false,
        count_allocations: false,
    };

    /// Creates the sums over rows whose blocks are live at the same moment and have at most `most` bytes in total.
    pub(crate) fn live(most: f64, all: &Sum) -> Self {
        Self { bytes: KnownTotal::of(most, all), ..Self::UNKNOWN }
    }
}

impl Sums {
    /// Counts a block that was allocated or that is live at the requested moment.
    pub(super) fn count(&mut self, lifetime: &Lifetime, called: Option<u32>) {
        self.estimated |= lifetime.estimated;
        self.has_recorded = true;
        if let Some(called) = called {
            let (bytes, blocks) = self.called.entry(called).or_default();
            (*bytes, *blocks) = (bytes.saturating_add(lifetime.bytes), *blocks + lifetime.blocks);
        }
        self.allocated_bytes = self.allocated_bytes.saturating_add(lifetime.bytes);
        self.blocks += lifetime.blocks;
        self.allocated.add(lifetime.size_bytes as f64, lifetime.blocks);
        self.count.add(1.0, lifetime.blocks);
        self.largest_bytes = self.largest_bytes.max(lifetime.size_bytes);
    }
}

/// The rows of a ranking, while allocations are being sorted into them.
pub(crate) struct Sorter<'a> {
    snapshot: &'a Snapshot,
    symbols: &'a mut Symbolizer,
    by: By,
    groups: Groups<'a>,
    /// The program's texts, if rows show them.
    pub(super) texts: Texts<'a>,
    pub(super) attributor: Attributor<'a>,
    trimmer: Trimmer,
    /// Whether the device has events. Without events, no block counts as older than the trace.
    has_events: bool,
    frees: Frees<'a>,
    /// Whether blocks of unknown origin are split into rows by the stack that freed them.
    splits_by_free: bool,
    /// The rows of blocks of unknown origin, by the stack that freed them.
    freed: HashMap<StackId, usize, foldhash::fast::RandomState>,
    /// Whether, in rankings by line, blocks without a line in the user's code are split by stack.
    splits_foreign: bool,
    /// Whether rows collect the stacks of the blocks that are added.
    pub(super) collects_stacks: bool,
    fold_hidden: bool,
    fold: Fold,
    pub(super) owners: Owners<'a>,
    /// The functions that lines called, in the order of their numbers.
    called: Vec<Frame>,
    called_numbers: HashMap<String, u32>,
    rows: HashMap<Key, usize>,
    pub(super) sums: Vec<Sums>,
    known: HashMap<(ScopeId, StackId), RowPlace, foldhash::fast::RandomState>,
}

/// The row that an allocation belongs to.
#[derive(Clone, Copy)]
pub(crate) struct RowPlace {
    pub(crate) row: usize,
    pub(super) source: Source,
    /// In rankings by line, the number of the function that the line called, if there is one.
    pub(super) called: Option<u32>,
}

impl RowPlace {
    /// Creates a place for a row that depends neither on a scope nor on a stack.
    fn of(row: usize) -> Self {
        Self { row, source: Source::Unattributed, called: None }
    }
}

impl<'a> Sorter<'a> {
    /// Creates a sorter for the allocations of `device`.
    pub(crate) fn new(
        snapshot: &'a Snapshot,
        symbols: &'a mut Symbolizer,
        by: By,
        device: DeviceId,
        options: &'a TopOptions,
        lifetimes: &[Lifetime],
    ) -> Self {
        // Whether an autograd node is named after a line in the forward pass depends on the rest of the file. Rows that
        // will be matched with those of another file need names that are the same in both files.
        let forwards = match options.for_matching {
            true => Rc::default(),
            false => Rc::new(ForwardLines::of(snapshot, symbols, &options.rules)),
        };
        Self {
            snapshot,
            symbols,
            by,
            groups: Groups::new(snapshot, by, device),
            texts: match (by, options.at) {
                (By::Stack, Some(_)) => Texts::of_device(snapshot, device),
                _ => Texts::default(),
            },
            attributor: Attributor::new(snapshot, &options.patterns),
            trimmer: Trimmer::default(),
            has_events: snapshot.events.rows_of(device).next().is_some(),
            frees: Frees::of(snapshot, lifetimes),
            splits_by_free: !options.for_matching,
            freed: HashMap::default(),
            splits_foreign: false,
            collects_stacks: true,
            fold_hidden: options.fold_hidden,
            fold: Fold::default(),
            owners: Owners::new(&options.rules).with_forward_lines(forwards),
            called: Vec::new(),
            called_numbers: HashMap::new(),
            rows: HashMap::new(),
            sums: Vec::new(),
            known: HashMap::default(),
        }
    }

    /// Sets whether, in rankings by line, blocks without a line in the user's code are split by stack.
    pub(crate) fn split_foreign_by_stack(mut self, splits: bool) -> Self {
        self.splits_foreign = splits;
        self
    }

    /// Returns the rows that are lines in the user's code.
    pub(crate) fn own_lines(&self) -> HashSet<usize> {
        let lines = self.rows.iter().filter(|(key, _)| matches!(key, Key::Line(_)));
        lines.map(|(_, &row)| row).collect()
    }

    /// Replaces the stacks of a row. The row shows the first of `stacks`.
    pub(crate) fn set_stacks(&mut self, row: usize, stacks: &[StackId]) {
        let sums = &mut self.sums[row];
        let Some(keys) = stacks.first().map(|&first| self.snapshot.frame_keys(first)) else { return };
        // The row for blocks without a Python line has no stack.
        let has_no_stack = self.by == By::Python && sums.stack.is_empty();
        if !keys.is_empty() && !has_no_stack {
            sums.stack = self.trimmer.trim(&keys, self.symbols).to_vec();
            sums.stacks = stacks.iter().copied().filter(|stack| !stack.is_none()).collect();
        }
    }

    /// Adds a block to the sums of its row.
    pub(crate) fn count(&mut self, place: RowPlace, lifetime: &Lifetime) {
        self.sums[place.row].count(lifetime, place.called);
    }

    /// Returns the symbolizer.
    pub(crate) fn symbols(&mut self) -> &mut Symbolizer {
        self.symbols
    }

    fn get_or_add_row(&mut self, key: Key) -> usize {
        let next = self.sums.len();
        let row = *self.rows.entry(key).or_insert(next);
        if row == next {
            self.sums.push(Sums::default());
        }
        row
    }

    /// Returns the row of a block, creating it if it does not exist.
    pub(crate) fn find_or_add_row(&mut self, lifetime: &Lifetime) -> RowPlace {
        if let Some(name) = self.groups.group_name(lifetime) {
            // These rankings have few rows, and none of their rows depends on the requesting frame.
            return RowPlace::of(self.get_or_add_row(Key::Name(name)));
        }
        let of_stacks = matches!(self.by, By::Line | By::Stack | By::Python | By::Frame | By::File);
        // A free may carry the stack of the allocation. Only rankings that need no scope can use it, because the scope
        // of a free is the one in which the block was freed.
        let stack = match lifetime.known {
            true => Some(lifetime.stack),
            false if of_stacks => self.frees.allocation_stack(lifetime),
            false => None,
        };
        // Blocks that are older than the trace and have no stack do not belong to the row `NO_STACK`, because their
        // allocations were not recorded.
        let is_older = |stack| lifetime.from.is_none() && self.snapshot.frame_keys(stack).is_empty();
        let stack = stack.filter(|&stack| !(of_stacks && self.has_events && is_older(stack)));
        let Some(stack) = stack else {
            return RowPlace::of(match self.frees.freeing_stack(lifetime) {
                Some(stack) if of_stacks && self.splits_by_free => self.find_or_add_freed_row(stack),
                _ => self.get_or_add_row(Key::Name(OLDER_MEMORY.into())),
            });
        };
        let place = (lifetime.scope, stack);
        if let Some(&known) = self.known.get(&place) {
            return known;
        }
        let (operator, source) = self.attributor.operator(place.0, place.1, self.symbols);
        let (mut called, mut stack) = (None, Vec::new());
        let key = match self.by {
            By::Operator => Key::Name(operator),
            By::Module => Key::Name(self.attributor.module(place.0, place.1, self.symbols)),
            By::Phase => Key::Name(phase_name(self.attributor.phase(place.0, place.1, self.symbols))),
            By::Frame | By::File => {
                let keys = self.snapshot.frame_keys(place.1);
                let stack = stack_lines(self.trimmer.trim(&keys, self.symbols), self.symbols);
                let name = |line: &StackLine| groups::frame_name(&line.frame, self.by);
                Key::Name(requester(&stack).map_or(NO_STACK.into(), name))
            }
            // For these rankings, the function has already returned above with a row from `groups`.
            By::Category | By::Stream | By::Task | By::Pool | By::Metadata | By::Size => Key::Name(operator),
            By::Line => match &self.snapshot.frame_keys(place.1)[..] {
                [] => Key::Name(NO_STACK.into()),
                keys => {
                    let owned = self.owners.owner(keys, self.symbols);
                    called = owned
                        .called
                        .as_ref()
                        .filter(|_| owned.mine.is_some())
                        .map(|frame| self.called_number(frame));
                    stack = self.trimmer.trim(keys, self.symbols).to_vec();
                    let foreign_name = owned.line();
                    match owned.mine {
                        Some(mine) => Key::Line(strip_types(mine)),
                        None if self.splits_foreign => self
                            .fold
                            .visible_functions(&stack, self.symbols)
                            .map_or_else(|| Key::Stack(stack.clone()), Key::Visible),
                        None => Key::Name(foreign_name),
                    }
                }
            },
            By::Stack | By::Python => match &self.snapshot.frame_keys(place.1)[..] {
                [] => Key::Name(NO_STACK.into()),
                addresses => {
                    let trimmed = self.trimmer.trim(addresses, self.symbols);
                    let visible = match self.by {
                        By::Python => self.fold.script_functions(trimmed, self.symbols),
                        _ if self.fold_hidden => self.fold.visible_functions(trimmed, self.symbols),
                        _ => None,
                    };
                    if self.by == By::Python && visible.is_none() {
                        Key::Name(NO_PYTHON.into())
                    } else {
                        stack = trimmed.to_vec();
                        visible.map_or_else(|| Key::Stack(stack.clone()), Key::Visible)
                    }
                }
            },
        };
        let row = self.get_or_add_row(key);
        let sums = &mut self.sums[row];
        if !stack.is_empty() && self.collects_stacks {
            if self.by == By::Line {
                sums.called_stacks.entry(called).or_insert_with(|| stack.clone());
            }
            if sums.stack.is_empty() {
                sums.stack = stack;
            }
            sums.stacks.insert(place.1);
        }
        let found = RowPlace { row, source, called };
        self.known.insert(place, found);
        found
    }

    /// Returns the row for blocks that are known only by the stack that freed them.
    fn find_or_add_freed_row(&mut self, stack: StackId) -> usize {
        if let Some(&row) = self.freed.get(&stack) {
            return row;
        }
        let owned = self.owners.owner(&self.snapshot.frame_keys(stack), self.symbols);
        let frame = owned.mine.or(owned.called).map(strip_types);
        let frame = match self.by {
            By::File => frame.and_then(reduce_to_file),
            _ => frame,
        };
        let row = self.get_or_add_row(frame.map_or(Key::Name(OLDER_MEMORY.into()), Key::Freed));
        self.freed.insert(stack, row);
        row
    }

    /// Returns the number of a function that a line called, assigning one if it is new.
    fn called_number(&mut self, frame: &Frame) -> u32 {
        let next = self.called.len() as u32;
        *self.called_numbers.entry(short(frame)).or_insert_with(|| {
            self.called.push(frame.clone());
            next
        })
    }

    /// Returns the sum of the bytes in all rows.
    pub(crate) fn sum(&self) -> Sum {
        self.sum_of(|row| &row.allocated)
    }

    pub(super) fn sum_of(&self, of: fn(&Sums) -> &Sum) -> Sum {
        self.sums.iter().fold(Sum::default(), |all, row| all.with(of(row)))
    }

    /// Adds the recorder's own sums of scopes to the rows that depend on scopes alone.
    pub(super) fn add_exact_sums(&mut self, exact: &ExactSums) {
        for (name, [bytes, count]) in exact.row_sums() {
            let row = self.get_or_add_row(Key::Name(name.to_owned()));
            let sums = &mut self.sums[row];
            sums.allocated_bytes = sums.allocated_bytes.saturating_add(bytes);
            sums.blocks += count as f64;
            sums.allocated.add(bytes as f64, 1.0);
            sums.count.add(count as f64, 1.0);
            sums.is_exact = !sums.has_recorded;
        }
    }

    /// Returns the rows, sorted by index.
    pub(crate) fn rows_by_index(self, precision: &Precision, known_totals: &KnownTotals) -> Vec<TopRow> {
        let mut rows = self.into_named_rows(usize::MAX, 0, precision, known_totals, None);
        rows.sort_by_key(|&(place, _)| place);
        let mut rows: Vec<TopRow> = rows.into_iter().map(|(_, row)| row).collect();
        disambiguate_names(&mut rows);
        rows
    }

    /// Returns the rows with an index below `shown`, largest first. All other rows contain only blocks that were live
    /// at the halfway point and have been freed since.
    pub(super) fn finish(
        self,
        shown: usize,
        allocated_bytes: u64,
        precision: &Precision,
        known_totals: &KnownTotals,
        span: Option<&Span<'_>>,
    ) -> Vec<TopRow> {
        let rows = self.into_named_rows(shown, allocated_bytes, precision, known_totals, span);
        let mut rows: Vec<TopRow> = rows.into_iter().map(|(_, row)| row).collect();
        disambiguate_names(&mut rows);
        rows.sort_by(|a, b| {
            // In a trace without allocations, all rows have 0 allocated bytes and can only be ranked by live bytes.
            let live = || b.live_at_peak_bytes.cmp(&a.live_at_peak_bytes);
            let order = b.allocated_bytes.cmp(&a.allocated_bytes).then_with(live);
            let order = order.then_with(|| a.name.cmp(&b.name));
            // Different stacks may be equal in all of these respects, so use their addresses to make the order
            // deterministic.
            order.then_with(|| a.stack.iter().map(|l| l.address).cmp(b.stack.iter().map(|l| l.address)))
        });
        rows
    }

    /// Returns the rows with an index below `shown`, along with their indices.
    fn into_named_rows(
        self,
        shown: usize,
        allocated_bytes: u64,
        precision: &Precision,
        known_totals: &KnownTotals,
        span: Option<&Span<'_>>,
    ) -> Vec<(usize, TopRow)> {
        let (mut sums, symbols, snapshot, by) = (self.sums, self.symbols, self.snapshot, self.by);
        let functions = self.called;
        let row = |(key, place): (Key, usize)| {
            let age = span.and_then(|span| {
                let estimated = sums[place].estimated;
                sums[place].trend.block_age(span, estimated)
            });
            let sums = &sums[place];
            let mut freed_at = None;
            let mut stack = stack_lines(&sums.stack, symbols);
            if by == By::Python {
                stack.retain(|line| is_script(&line.frame));
            }
            let rounded =
                |(&number, &(bytes, blocks)): (&u32, &(u64, f64))| (number, [bytes, blocks.round() as u64]);
            let called = sort_largest_first(sums.called.iter().map(rounded));
            let mut owned = StackOwner::default();
            let name = match key {
                Key::Name(name) => name,
                Key::Stack(_) | Key::Visible(_) => {
                    // In rankings by line, a row is not named after a frame that only forwards a call.
                    let informative = stack.iter().find(|line| by == By::Line && !is_internal(&line.frame));
                    informative.or(stack.first()).map_or(String::new(), |line| line.frame.function.clone())
                }
                Key::Line(mine) => {
                    // A line that itself allocates more bytes than any function that it calls is shown without a
                    // function.
                    let of_calls = called.iter().fold(0u64, |sum, &(_, bytes, _)| sum.saturating_add(bytes));
                    let by_itself = sums.allocated_bytes.saturating_sub(of_calls);
                    let most = called.first().filter(|&&(_, bytes, _)| bytes >= by_itself);
                    owned.called = most.map(|&(number, ..)| functions[number as usize].clone());
                    if let Some(shown) = sums.called_stacks.get(&most.map(|&(number, ..)| number)) {
                        stack = stack_lines(shown, symbols);
                    }
                    owned.mine = Some(mine);
                    owned.line()
                }
                Key::Freed(frame) => {
                    let name = format_freed_name(&frame);
                    freed_at = Some(frame);
                    name
                }
            };
            let (bytes, count) = match sums.is_exact {
                true => (Estimate::exact(sums.allocated_bytes as f64), Estimate::exact(sums.blocks)),
                false => (
                    known_totals.bytes.part(precision.bytes(&sums.allocated), &sums.allocated),
                    known_totals.blocks.part(precision.blocks(&sums.count), &sums.count),
                ),
            };
            let row_bytes = known_totals.bytes.rounded(&sums.allocated, sums.allocated_bytes);
            let mut live =
                known_totals.live_at_peak.part(precision.bytes(&sums.live_at_peak), &sums.live_at_peak);
            let mut live_bytes =
                known_totals.live_at_peak.rounded(&sums.live_at_peak, sums.live_at_peak_bytes);
            // A row without samples shows no error here. The number of bytes that it may lack is printed once, below
            // the table.
            if !sums.estimated && sums.live_at_peak_bytes == 0 {
                live = Estimate::exact(0.0);
            }
            // A row without older blocks cannot have more live bytes than allocated bytes.
            if known_totals.count_allocations && !sums.has_older {
                live = live.at_most(bytes.high);
                live_bytes = live_bytes.min(bytes.high.ceil() as u64);
            }
            let share = match allocated_bytes {
                0 => 0.0,
                all => (row_bytes as f64 / all as f64).min(1.0),
            };
            let known = |number: u64| (!sums.estimated).then_some(number);
            let part = |&(number, bytes, blocks): &(u32, u64, u64)| CalledPart {
                name: short(&functions[number as usize]),
                requested_bytes: known(bytes),
                count: known(blocks),
            };
            let row = TopRow {
                name,
                allocated_bytes: row_bytes,
                allocated_error: bytes.with_completeness(!known_totals.lacks_end),
                live_at_peak_bytes: live_bytes,
                live_at_peak_error: live,
                count: known_totals.blocks.rounded(&sums.count, sums.blocks.round() as u64),
                count_error: count.with_completeness(!known_totals.lacks_end),
                largest_bytes: sums.largest_bytes,
                share,
                estimated: sums.estimated,
                live_estimated: sums.live_estimated,
                stacks: if stack.is_empty() { 0 } else { sums.stacks.len() },
                stack,
                owned,
                called: (by == By::Line).then(|| called.iter().take(MAX_TEXTS).map(part).collect()),
                called_in_all: (by == By::Line).then_some(called.len()),
                freed_at,
                trend: Trend { age, growth: span.and_then(|span| sums.trend.growth(span, precision)) },
                texts: largest_texts(snapshot, &sums.texts),
                texts_in_all: sums.texts.len(),
            };
            (place, row)
        };
        self.rows.into_iter().filter(|&(_, place)| place < shown).map(row).collect()
    }
}

/// Returns the texts with the most bytes, largest first.
fn largest_texts(snapshot: &Snapshot, all: &HashMap<StringId, [u64; 2]>) -> Vec<RowText> {
    let largest = sort_largest_first(all.iter().map(|(&text, &sums)| (text, sums)));
    let row = |&(text, bytes, blocks): &(StringId, u64, u64)| RowText {
        text: shorten_middle(&snapshot.strings.get(text), MAX_TEXT_CHARS),
        bytes,
        blocks,
    };
    largest.iter().take(MAX_TEXTS).map(row).collect()
}

/// Sorts by bytes, largest first, and returns each element with its bytes and blocks.
fn sort_largest_first<T: Copy + Ord>(all: impl Iterator<Item = (T, [u64; 2])>) -> Vec<(T, u64, u64)> {
    let mut largest: Vec<_> = all.map(|(one, [bytes, blocks])| (one, bytes, blocks)).collect();
    largest.sort_by_key(|&(one, bytes, _)| (std::cmp::Reverse(bytes), one));
    largest
}

/// Strips the type arguments from a frame's function, so that all instantiations share the row of the line.
pub(crate) fn strip_types(frame: Frame) -> Frame {
    let function = if is_script(&frame) { frame.function } else { qualified_path(&frame.function) };
    Frame { function, ..frame }
}

/// Reduces a frame to its file, if the file is known.
fn reduce_to_file(frame: Frame) -> Option<Frame> {
    let is_known = frame.file.as_deref().is_some_and(|file| !file.is_empty() && file != "??");
    is_known.then_some(Frame { function: String::new(), line: None, ..frame })
}

/// Returns the name of the row for blocks that are known only by the stack that freed them.
pub(crate) fn format_freed_name(frame: &Frame) -> String {
    let older = OLDER_MEMORY.trim_end_matches(')');
    match (&frame.function[..], &frame.file) {
        ("", Some(file)) => format!("{older}, freed in {file})"),
        _ => format!("{older}, freed at {})", short(frame)),
    }
}

/// Adds the folder to line names that would otherwise be the same for different files.
fn disambiguate_names(rows: &mut [TopRow]) {
    let mut times: HashMap<String, usize> = HashMap::new();
    for row in rows.iter().filter(|row| row.owned.mine.is_some() || row.freed_at.is_some()) {
        *times.entry(row.name.clone()).or_default() += 1;
    }
    for row in rows {
        let line = row.owned.mine.as_ref().or(row.freed_at.as_ref());
        let file = line.and_then(|line| line.file.as_deref());
        let folder = file.and_then(split_file_name).map(|(folder, _)| with_slashes(folder));
        if let Some(folder) = folder.filter(|_| times.get(&row.name).is_some_and(|&times| times > 1)) {
            row.name = match &row.freed_at {
                Some(_) => row.name.replacen("freed at ", &format!("freed at {folder}/"), 1),
                None => format!("{folder}/{}", row.name),
            };
        }
    }
}

pub(super) fn phase_name(phase: Option<Phase>) -> String {
    phase.map_or("(no phase)", Phase::name).into()
}
