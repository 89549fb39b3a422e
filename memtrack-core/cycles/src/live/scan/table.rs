//! The table of visited values. Each value is in the table once, regardless of the number of references to it, and the
//! scan holds a strong pointer to it, so that no value is dropped and no address is reused while the scan runs. Values
//! waiting to be visited are in the same list, so visits do not recurse.

use super::super::registry::{self, Registration};
use super::super::roots::{self, Root};
use foldhash::HashMap;
use memtrack_model::references::{Counted, DeviceMemory, Path, Sink, Visitor};
use memtrack_recorder::reentry;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The value has device memory.
pub(super) const MEMORY: u8 = 1;
/// A part of the value was not visited.
pub(super) const INCOMPLETE: u8 = 2;
/// Threads share the value.
pub(super) const SHARED: u8 = 4;
/// The value can be reached from outside.
pub(super) const HELD: u8 = 8;

/// The object through which a value is visited.
enum Holder {
    /// A pointer that the scan holds.
    Value(Box<dyn Counted>),
    /// A declared root, which is never dropped.
    Root(Root),
}

/// Information about a registered value.
pub(super) struct RegisteredValue {
    pub(super) registration: Registration,
    /// The number of weak pointers to it in the registry.
    pub(super) weak: usize,
}

/// The visited values and the declared roots, in parallel columns: a value has the same index in each.
pub(super) struct Table {
    places: HashMap<usize, u32>,
    holders: Vec<Holder>,
    addresses: Vec<usize>,
    pub(super) flags: Vec<u8>,
    pub(super) registered: HashMap<u32, RegisteredValue>,
    /// The targets of the strong pointers, grouped by the value that contains them.
    pub(super) targets: Vec<u32>,
    /// The index in `targets` at which each value's targets start, followed by the total number of targets.
    pub(super) starts: Vec<u32>,
    /// The number of strong pointers to each value, not counting the scan's.
    pub(super) strong: Vec<usize>,
    /// The numbers of the tracked handles that were found in the visited values.
    pub(super) handles: Vec<u64>,
    max_values: usize,
    /// The number of pointers to values beyond the maximum.
    pub(super) left_out: u64,
}

impl Table {
    /// Visits the registered values and declared roots, and all values that can be reached from them, up to
    /// `max_values` values.
    pub(super) fn discover(max_values: usize) -> Self {
        let mut table = Self {
            places: HashMap::default(),
            holders: Vec::new(),
            addresses: Vec::new(),
            flags: Vec::new(),
            registered: HashMap::default(),
            targets: Vec::new(),
            starts: vec![0],
            strong: Vec::new(),
            handles: Vec::new(),
            max_values,
            left_out: 0,
        };
        for root in roots::declared_roots() {
            table.holders.push(Holder::Root(root));
            table.flags.push(0);
            table.addresses.push(0);
        }
        table.add_registered();
        let mut next = 0;
        while next < table.holders.len() {
            table.visit_first(next);
            next += 1;
        }
        let strong = table.holders.iter().map(|holder| match holder {
            Holder::Value(value) => value.strong_count().saturating_sub(1),
            Holder::Root(_) => 1,
        });
        table.strong = strong.collect();
        table
    }

    fn add_registered(&mut self) {
        let mut registered: Vec<(Box<dyn Counted>, Registration)> = Vec::new();
        registry::upgrade_all(|value, registration| registered.push((value, registration)));
        registered.sort_by_key(|(_, registration)| registration.serial);
        self.places.reserve(registered.len());
        self.registered.reserve(registered.len());
        let mut twice = Vec::new();
        for (value, registration) in registered {
            let place = match self.places.get(&value.address()) {
                Some(&place) => {
                    twice.push(value);
                    place
                }
                None if self.holders.len() >= self.max_values => {
                    self.left_out += 1;
                    twice.push(value);
                    continue;
                }
                None => self.add(value),
            };
            self.registered.entry(place).or_insert(RegisteredValue { registration, weak: 0 }).weak += 1;
        }
        drop_pointers(twice);
    }

    /// Adds a value that is not in the table yet.
    fn add(&mut self, value: Box<dyn Counted>) -> u32 {
        let place = self.holders.len() as u32;
        self.places.insert(value.address(), place);
        self.addresses.push(value.address());
        self.flags.push(if value.is_shared_by_threads() { SHARED } else { 0 });
        self.holders.push(Holder::Value(value));
        place
    }

    fn visit_first(&mut self, place: usize) {
        // A visit adds to the table, so the visited value is moved out of it during the visit.
        let nothing = Holder::Root(Root::blank());
        let holder = std::mem::replace(&mut self.holders[place], nothing);
        let mut found = FirstVisit { table: self, flags: 0 };
        if !visit_holder(&holder, &mut found) {
            found.flags |= INCOMPLETE;
        }
        let flags = found.flags;
        self.flags[place] |= flags;
        self.holders[place] = holder;
        self.starts.push(self.targets.len() as u32);
    }

    pub(super) fn len(&self) -> usize {
        self.holders.len()
    }

    /// Returns the number of values, not counting declared roots.
    pub(super) fn value_count(&self) -> u64 {
        self.holders.iter().filter(|holder| matches!(holder, Holder::Value(_))).count() as u64
    }

    pub(super) fn has(&self, place: u32, flag: u8) -> bool {
        self.flags[place as usize] & flag != 0
    }

    /// Returns the targets of a value's strong pointers.
    pub(super) fn targets_of(&self, place: u32) -> &[u32] {
        &self.targets[self.starts[place as usize] as usize..self.starts[place as usize + 1] as usize]
    }

    /// Returns the index of the value at an address, if the table contains it.
    pub(super) fn place_of(&self, address: usize) -> Option<u32> {
        self.places.get(&address).copied()
    }

    /// Returns the address of a value, or 0 for a root.
    pub(super) fn address(&self, place: u32) -> usize {
        self.addresses[place as usize]
    }

    /// Returns the current number of strong pointers to a value, not counting the scan's.
    pub(super) fn strong_count(&self, place: u32) -> usize {
        match &self.holders[place as usize] {
            Holder::Value(value) => value.strong_count().saturating_sub(1),
            Holder::Root(_) => 1,
        }
    }

    /// Returns the current number of weak pointers to a value, not counting the registry's.
    pub(super) fn weak_count(&self, place: u32) -> usize {
        match &self.holders[place as usize] {
            Holder::Value(value) => {
                let registry_weak = self.registered.get(&place).map_or(0, |registered| registered.weak);
                value.weak_count().saturating_sub(registry_weak)
            }
            Holder::Root(_) => 0,
        }
    }

    /// Returns the value's type, or the root's name.
    pub(super) fn value_name(&self, place: u32) -> &'static str {
        match &self.holders[place as usize] {
            Holder::Value(value) => value.type_name(),
            Holder::Root(root) => root.name,
        }
    }

    pub(super) fn is_root(&self, place: u32) -> bool {
        matches!(self.holders[place as usize], Holder::Root(_))
    }

    /// Visits a value again. Returns false if the visit panicked.
    pub(super) fn visit(&self, place: u32, sink: &mut dyn Sink) -> bool {
        visit_holder(&self.holders[place as usize], sink)
    }

    /// Drops the scan's pointers in the order in which the values were found. If the program has dropped a chain of
    /// values during the scan, each value's destructor then finds the next value still held, so the destructors do not
    /// recurse. Destructors are the program's code.
    pub(super) fn drop_pointers(self) {
        let Self { holders, .. } = self;
        drop_pointers(holders.into_iter().filter_map(|holder| match holder {
            Holder::Value(value) => Some(value),
            Holder::Root(_) => None,
        }));
    }
}

/// Drops pointers. If a pointer is the last one to its value, the value is dropped outside [`reentry::enter`].
fn drop_pointers(pointers: impl IntoIterator<Item = Box<dyn Counted>>) {
    for pointer in pointers {
        // A panic in the destructor is ignored, because the value can no longer be used.
        let _ = catch_unwind(AssertUnwindSafe(|| pointer.drop_with(|drop_it| reentry::outside(drop_it))));
    }
}

fn visit_holder(holder: &Holder, sink: &mut dyn Sink) -> bool {
    let mut visitor = Visitor::new(sink);
    let visit = AssertUnwindSafe(|| match holder {
        Holder::Value(value) => value.visit(&mut visitor),
        Holder::Root(root) => root.visit(&mut visitor),
    });
    catch_unwind(visit).is_ok()
}

/// The sink for the first visit to a value.
struct FirstVisit<'a> {
    table: &'a mut Table,
    flags: u8,
}

impl Sink for FirstVisit<'_> {
    fn wants_paths(&self) -> bool {
        false
    }

    fn strong(&mut self, _: &Path, target: &dyn Counted, handle: Option<u64>) {
        let table = &mut *self.table;
        table.handles.extend(handle);
        let place = match table.places.get(&target.address()) {
            Some(&place) => place,
            None if table.holders.len() < table.max_values => table.add(target.clone_boxed()),
            None => {
                table.left_out += 1;
                self.flags |= INCOMPLETE;
                return;
            }
        };
        if table.targets.len() == u32::MAX as usize {
            table.left_out += 1;
            self.flags |= INCOMPLETE;
            return;
        }
        table.targets.push(place);
    }

    fn weak(&mut self, _: &Path, _: usize) {}

    fn memory(&mut self, _: &Path, _: DeviceMemory) {
        self.flags |= MEMORY;
    }

    fn opaque(&mut self, _: &Path, _: &str) {
        self.flags |= INCOMPLETE;
    }

    fn show(&mut self, _: &Path, _: &dyn fmt::Debug) {}
}
