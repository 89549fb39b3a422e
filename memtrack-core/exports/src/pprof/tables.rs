//! The interned parts of a profile: strings, functions, locations and binaries.

use super::messages::{Function, Line, Location, Mapping};
use crate::stacks::{InlinedFrames, file_of, line_of};
use memtrack_model::Frame;
use memtrack_model::snapshot::Module;
use std::collections::{HashMap, HashSet};

/// The tables of a profile that is being built.
pub(crate) struct Tables {
    pub(crate) strings: Vec<String>,
    string_rows: HashMap<String, i64, foldhash::fast::RandomState>,
    pub(crate) functions: Vec<Function>,
    function_ids: HashMap<(i64, i64), u64, foldhash::fast::RandomState>,
    pub(crate) locations: Vec<Location>,
    location_ids: HashMap<InlinedFrames, u64, foldhash::fast::RandomState>,
    pub(crate) mappings: Vec<Mapping>,
    /// The loaded binaries, sorted by start address, each with a flag that is set if the binary is missing and its
    /// functions therefore have no names. This is empty for PyTorch's files, in which the keys of frames are not
    /// addresses.
    modules: Vec<(Module, bool)>,
    mapping_ids: HashMap<usize, u64>,
}

impl Tables {
    /// Creates the tables for stacks through the binaries in `modules`. `missing` contains the path and the start address of
    /// each binary that is missing.
    pub(crate) fn new(modules: &[Module], missing: &HashSet<(String, u64)>) -> Self {
        let is_missing = |module: &Module| missing.contains(&(module.path.clone(), module.start));
        let mut modules: Vec<_> = modules.iter().map(|module| (module.clone(), is_missing(module))).collect();
        modules.sort_by_key(|(module, _)| module.start);
        Self {
            strings: vec![String::new()],
            string_rows: HashMap::from_iter([(String::new(), 0)]),
            functions: Vec::new(),
            function_ids: HashMap::default(),
            locations: Vec::new(),
            location_ids: HashMap::default(),
            mappings: Vec::new(),
            modules,
            mapping_ids: HashMap::new(),
        }
    }

    /// Returns the index of a string.
    pub(crate) fn intern_string(&mut self, text: &str) -> i64 {
        if let Some(&row) = self.string_rows.get(text) {
            return row;
        }
        let row = self.strings.len() as i64;
        self.strings.push(text.to_owned());
        self.string_rows.insert(text.to_owned(), row);
        row
    }

    /// Returns the ID of the location for the functions at one key.
    pub(crate) fn intern_location(&mut self, functions: &InlinedFrames) -> u64 {
        if let Some(&id) = self.location_ids.get(functions) {
            return id;
        }
        // A return address can lie in the next function, so use the address before it, which belongs to the call.
        let call = functions.key.saturating_sub(1);
        let module = self.modules.partition_point(|(module, _)| module.start <= call).checked_sub(1);
        let module = module.filter(|&row| call < self.modules[row].0.end);
        let mapping_id = module.map_or(0, |row| self.intern_mapping(row));
        let is_unnamed = module.is_some_and(|row| self.modules[row].1);
        // PyTorch's files number their frames, so a key outside all binaries may be a number and is not exported as an address.
        let address = if module.is_some() { call } else { 0 };
        let line = if is_unnamed {
            Vec::new()
        } else {
            functions.frames.iter().map(|frame| self.build_line(frame)).collect()
        };
        let id = self.push_location(Location { id: 0, mapping_id, address, line });
        self.location_ids.insert(functions.clone(), id);
        id
    }

    /// Returns the ID of the location for a text that takes the place of a function.
    pub(crate) fn intern_text(&mut self, text: &str) -> u64 {
        let frame = Frame { function: text.to_owned(), ..Frame::default() };
        let functions = InlinedFrames { key: 0, frames: vec![frame] };
        if let Some(&id) = self.location_ids.get(&functions) {
            return id;
        }
        let line = vec![self.build_line(&functions.frames[0])];
        let id = self.push_location(Location { id: 0, mapping_id: 0, address: 0, line });
        self.location_ids.insert(functions, id);
        id
    }

    fn push_location(&mut self, location: Location) -> u64 {
        let id = self.locations.len() as u64 + 1;
        self.locations.push(Location { id, ..location });
        id
    }

    fn build_line(&mut self, frame: &Frame) -> Line {
        let (name, file) =
            (self.intern_string(&frame.function), self.intern_string(file_of(frame).unwrap_or_default()));
        let next = self.functions.len() as u64 + 1;
        let id = *self.function_ids.entry((name, file)).or_insert(next);
        if id == next {
            // There is no `system_name`, so that tools do not demangle the name. They would treat `<module>` as a C++
            // template.
            self.functions.push(Function { id, name, filename: file });
        }
        Line { function_id: id, line: line_of(frame).map_or(0, i64::from) }
    }

    fn intern_mapping(&mut self, row: usize) -> u64 {
        if let Some(&id) = self.mapping_ids.get(&row) {
            return id;
        }
        let (module, is_missing) = &self.modules[row];
        let (start, limit, has_names) = (module.start, module.end, !is_missing);
        let (path, build_id) = (module.path.clone(), module.build_id.clone());
        let id = self.mappings.len() as u64 + 1;
        let (filename, build_id) = (self.intern_string(&path), self.intern_string(&build_id));
        // If the functions have names, tools need not look them up.
        self.mappings.push(Mapping {
            id,
            memory_start: start,
            memory_limit: limit,
            filename,
            build_id,
            has_functions: has_names,
            has_filenames: has_names,
            has_line_numbers: has_names,
            has_inline_frames: has_names,
        });
        self.mapping_ids.insert(row, id);
        id
    }
}
