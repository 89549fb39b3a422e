//! Finds the uses of each piece of memory.

use crate::analysis::Profile;
use crate::category::Category;
use crate::curve::{Curve, State};
use crate::modules::calls::{Calls, record_end_times};
use crate::pieces::{Piece, pieces};
use crate::places::{Places, StepPart};
use crate::recorded::PRODUCER;
use foldhash::HashMap;
use memtrack_blocks::estimate::{Estimate, Sum};
use memtrack_model::optrace::{DeviceIndex, RecordId, RecordKind};

/// A range of states, given by its first and last state, both inclusive.
pub(super) type States = (State, State);

/// A use of a piece of memory by an operator that has the piece among its arguments or results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Use {
    /// The outermost operator that encloses the use. Inner operators do not matter, because the program cannot change what
    /// happens inside an operator.
    pub(super) record: RecordId,
    pub(super) begin_ns: i64,
    pub(super) end_ns: i64,
    pub(super) part: StepPart,
}

/// An interval in which a piece is live but not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gap {
    /// The states in which the piece would not need to be live.
    pub(super) states: States,
    /// The uses immediately before and after the gap.
    pub(super) before: Option<Use>,
    pub(super) after: Option<Use>,
}

impl Gap {
    pub(super) const fn contains(&self, state: State) -> bool {
        self.states.0 <= state && state <= self.states.1
    }
}

/// The effect of an outermost operator on the device's memory.
#[derive(Clone, Copy, Debug, Default)]
struct Footprint {
    /// The number of allocations and frees.
    changes: u64,
    /// The piece that the operator uses, or the last one if it uses several.
    piece: Option<u32>,
    /// Whether the operator uses several pieces.
    has_several_pieces: bool,
}

/// The pieces of a device's memory and their uses.
pub(super) struct Memory<'a> {
    pub(super) profile: &'a Profile<'a>,
    device: DeviceIndex,
    pub(super) places: Places,
    pub(super) calls: Calls,
    pub(super) pieces: Vec<Piece>,
    /// The uses of each piece, sorted by start. Uses by the operator that allocated the piece are left out.
    uses: Vec<Vec<Use>>,
    /// The first and last state in which each piece is live.
    lives: Vec<States>,
    /// The piece that belongs to each storage.
    pub(super) piece_of_storage: Vec<Option<u32>>,
    /// The end time of each record, in ns.
    pub(super) ends: Vec<i64>,
    /// The footprint of each outermost operator.
    footprints: HashMap<RecordId, Footprint>,
    /// The start and end times of each optimizer step, sorted by start.
    steps: Vec<(i64, i64)>,
}

impl<'a> Memory<'a> {
    pub(super) fn of(profile: &'a Profile<'a>, device: DeviceIndex, curve: &Curve) -> Self {
        let trace = profile.trace();
        let places = Places::of(trace);
        let calls = Calls::of(profile, &places);
        let ends = record_end_times(trace);
        let pieces = pieces(profile, device);
        let mut piece_of_storage = vec![None; profile.storages().len()];
        for (number, piece) in (0..).zip(&pieces) {
            if let Some(storage) = piece.storage {
                piece_of_storage[storage as usize] = Some(number);
            }
        }
        let mut memory = Self {
            profile,
            device,
            lives: pieces.iter().map(|piece| live_states(piece, curve)).collect(),
            uses: vec![Vec::new(); pieces.len()],
            places,
            calls,
            pieces,
            piece_of_storage,
            ends,
            footprints: HashMap::default(),
            steps: Vec::new(),
        };
        memory.find_steps();
        memory.add_uses();
        memory.add_uses_by_coarse_operators();
        for piece in 0..memory.pieces.len() {
            // An optimizer step counts as using the memory that it updates until the step is over.
            let category = memory.pieces[piece].category_at(i64::MAX);
            if matches!(category, Category::Parameter | Category::Gradient | Category::OptimizerState) {
                memory.uses[piece] = memory.uses[piece].iter().map(|of| memory.extend_to_step(of)).collect();
            }
            memory.uses[piece].sort_by_key(|of| of.begin_ns);
        }
        memory
    }

    /// Finds the optimizer steps. Some traces state the phase of every record, so a step is a run of consecutive records
    /// of a thread in the optimizer's phase.
    fn find_steps(&mut self) {
        let mut running: HashMap<u64, usize> = HashMap::default();
        for (number, record) in (0..).zip(&self.profile.trace().records) {
            if self.places.get(number).part != StepPart::Optimizer {
                running.remove(&record.thread);
                continue;
            }
            let end_ns = self.ends[number as usize].max(record.time_ns);
            let step = *running.entry(record.thread).or_insert(self.steps.len());
            match self.steps.get_mut(step) {
                Some((_, end)) => *end = (*end).max(end_ns),
                None => self.steps.push((record.time_ns, end_ns)),
            }
        }
    }

    /// Adds the uses of each piece by operators, and the operators' footprints.
    fn add_uses(&mut self) {
        let trace = self.profile.trace();
        for (number, record) in (0..).zip(&trace.records) {
            let outer = self.outermost_operator(number);
            match &record.what {
                RecordKind::Op(_) => {}
                RecordKind::Memory(of) => {
                    if of.device == self.device && outer != number {
                        self.footprints.entry(outer).or_default().changes += 1;
                    }
                    continue;
                }
                _ => continue,
            }
            let use_of = self.use_by(outer);
            for (_, storage) in self.profile.references(number) {
                let Some(piece) = storage.and_then(|storage| self.piece_of_storage[storage as usize]) else {
                    continue;
                };
                let footprint = self.footprints.entry(outer).or_default();
                footprint.has_several_pieces |= footprint.piece.is_some_and(|other| other != piece);
                footprint.piece = Some(piece);
                let is_own = self.allocating_operator(piece) == Some(outer);
                let uses = &mut self.uses[piece as usize];
                if !is_own && uses.last() != Some(&use_of) {
                    uses.push(use_of);
                }
            }
        }
    }

    /// Returns the use of memory by an operator.
    fn use_by(&self, record: RecordId) -> Use {
        Use {
            record,
            begin_ns: self.profile.trace().records[record as usize].time_ns,
            end_ns: self.ends[record as usize],
            part: self.places.get(record).part,
        }
    }

    /// Adds the uses by coarse operators. A recording of a Rust program represents the backward pass and an
    /// optimizer step as one operator each. Such an operator does not report its inputs, so it is assumed to
    /// use all memory that is live when it starts.
    fn add_uses_by_coarse_operators(&mut self) {
        let trace = self.profile.trace();
        if trace.header.producer.0 != PRODUCER {
            return;
        }
        let is_coarse = |number: RecordId| {
            matches!(trace.records[number as usize].what, RecordKind::Op(_))
                && self.outermost_operator(number) == number
                && matches!(self.places.get(number).part, StepPart::Backward | StepPart::Optimizer)
        };
        let coarse = (0..trace.records.len() as RecordId).filter(|&number| is_coarse(number));
        let coarse: Vec<Use> = coarse.map(|record| self.use_by(record)).collect();
        for (piece, uses) in self.pieces.iter().zip(&mut self.uses) {
            let begin = piece.begin_ns.unwrap_or(i64::MIN);
            let first = coarse.partition_point(|of| of.begin_ns < begin);
            let live_at_start =
                coarse[first..].iter().take_while(|of| piece.end_ns.is_none_or(|end| of.begin_ns < end));
            uses.extend(live_at_start);
        }
    }

    /// Returns the outermost operator that encloses a record, or the record if there is none.
    pub(super) fn outermost_operator(&self, record: RecordId) -> RecordId {
        self.places.get(record).operator.unwrap_or(record)
    }

    /// Returns the first and last state in which a piece is live.
    pub(super) fn live_states(&self, piece: u32) -> States {
        self.lives[piece as usize]
    }

    /// Returns the uses of a piece, not counting those by the operator that allocated it.
    pub(super) fn uses(&self, piece: u32) -> &[Use] {
        &self.uses[piece as usize]
    }

    pub(super) fn allocating_operator(&self, piece: u32) -> Option<RecordId> {
        self.places.get(self.pieces[piece as usize].allocated_by?).operator
    }

    /// Returns whether an operator does nothing with the device's memory other than allocate and use this
    /// piece.
    pub(super) fn touches_only(&self, operator: RecordId, piece: u32) -> bool {
        self.footprints.get(&operator).is_none_or(|footprint| {
            footprint.changes <= 1
                && !footprint.has_several_pieces
                && footprint.piece.is_none_or(|only| only == piece)
        })
    }

    /// Returns the intervals in which a piece is live but not in use. Only uses for which `counted` returns
    /// true are taken into account.
    pub(super) fn find_gaps(&self, piece: u32, curve: &Curve, counted: impl Fn(&Use) -> bool) -> Vec<Gap> {
        let (first, last) = self.live_states(piece);
        let mut gaps = Vec::new();
        let life = &self.pieces[piece as usize];
        let mut begin = match (life.begin_ns, self.allocating_operator(piece)) {
            // A piece is in use until the operator that allocated it ends.
            (Some(_), Some(maker)) => curve.state_after(self.ends[maker as usize]) + 1,
            _ => first,
        };
        let mut before: Option<Use> = None;
        for of in self.uses(piece).iter().filter(|of| counted(of)) {
            let end = curve.state_before(of.begin_ns).checked_sub(1);
            if let Some(end) = end.filter(|&end| begin <= end) {
                gaps.push(Gap { states: (begin, end.min(last)), before, after: Some(*of) });
            }
            begin = begin.max(curve.state_after(of.end_ns) + 1);
            before = Some(before.map_or(*of, |before| if before.end_ns > of.end_ns { before } else { *of }));
        }
        gaps.push(Gap { states: (begin, last), before, after: None });
        gaps.retain(|gap| gap.states.0 <= gap.states.1);
        gaps
    }

    /// Extends a use inside an optimizer step to the whole step, because the step needs its memory until it
    /// ends.
    fn extend_to_step(&self, of: &Use) -> Use {
        let after = self.steps.partition_point(|&(begin_ns, _)| begin_ns <= of.begin_ns);
        match after.checked_sub(1).map(|place| self.steps[place]) {
            Some((begin_ns, end_ns)) if end_ns >= of.end_ns => Use { begin_ns, end_ns, ..*of },
            _ => *of,
        }
    }

    pub(super) fn pieces_live_in(&self, state: State) -> impl Iterator<Item = &Piece> {
        let pieces = self.pieces.iter().zip(&self.lives);
        pieces.filter(move |(_, life)| life.0 <= state && state <= life.1).map(|(piece, _)| piece)
    }

    /// Returns the total size of the pieces that are live in a state but in which no tensor was seen, and the
    /// error of that size.
    pub(super) fn bytes_without_tensors(&self, state: State) -> (u64, Estimate) {
        let (mut bytes, mut sum, mut blocks) = (0_u64, Sum::default(), Sum::default());
        for piece in self.pieces_live_in(state).filter(|piece| piece.storage.is_none()) {
            bytes = bytes.saturating_add(piece.bytes);
            piece.add_to(self.profile, &mut sum, &mut blocks);
        }
        (bytes, self.estimate_error(bytes, &sum))
    }

    /// Returns the error of a byte count, given the sum over the sampled blocks.
    pub(super) fn estimate_error(&self, bytes: u64, sum: &Sum) -> Estimate {
        let estimate = self.profile.attribution().map(|attribution| attribution.bytes(self.device, sum));
        estimate.filter(|estimate| !estimate.is_exact()).unwrap_or(Estimate::exact(bytes as f64))
    }

    /// Returns the total size of these pieces.
    pub(super) fn bytes_of<'p>(&self, pieces: impl IntoIterator<Item = &'p u32>) -> u64 {
        let bytes = pieces.into_iter().map(|&piece| self.pieces[piece as usize].bytes);
        bytes.fold(0, u64::saturating_add)
    }

    /// Returns a piece's category in a state.
    pub(super) fn category(&self, piece: u32, curve: &Curve, state: State) -> Category {
        self.pieces[piece as usize].category_at(curve.begin_ns(state).unwrap_or(i64::MIN))
    }
}

fn live_states(piece: &Piece, curve: &Curve) -> States {
    let first = curve.state_after(piece.begin_ns.unwrap_or(-1));
    let last = piece.end_ns.map_or(curve.last(), |end_ns| curve.state_after(end_ns).saturating_sub(1));
    (first, last)
}
