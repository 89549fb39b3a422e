//! From return addresses to functions and lines, lazily and once per distinct address. Reports call a [`Symbolizer`]
//! after the recording, best in another process; it uses only the binaries that were recorded and otherwise names the
//! binary and offset that an address belongs to.

use crate::locate::Locator;
use crate::names::readable;
use crate::qualify::qualified;
use addr2line::Loader;
use memtrack_model::snapshot::{FrameId, Module, Snapshot};
use memtrack_model::{Frame, NameFrames};
use std::borrow::Cow;
use std::collections::HashMap;
use std::path::PathBuf;
use std::rc::Rc;

/// Inlined functions shown for one address at most.
const MAX_INLINED: usize = 256;

/// Names return addresses.
#[derive(Default)]
pub struct Symbolizer {
    /// Sorted by start.
    binaries: Vec<Binary>,
    locator: Locator,
    known: HashMap<u64, Rc<[Frame]>, foldhash::fast::RandomState>,
}

struct Binary {
    module: Module,
    /// None until first needed.
    state: Option<State>,
}

enum State {
    Found(Box<Loader>),
    NotFound,
}

impl std::fmt::Debug for Symbolizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let modules: Vec<_> = self.binaries.iter().map(|binary| &binary.module).collect();
        f.debug_struct("Symbolizer").field("modules", &modules).field("known", &self.known.len()).finish()
    }
}

impl Symbolizer {
    /// A symbolizer for addresses in `modules`. Nothing is read until the first address is looked up.
    pub fn new(modules: &[Module]) -> Self {
        let mut binaries: Vec<_> =
            modules.iter().map(|module| Binary { module: module.clone(), state: None }).collect();
        binaries.sort_by_key(|binary| binary.module.start);
        Self { binaries, ..Self::default() }
    }

    /// A symbolizer for the stacks of `snapshot`: by its modules where it has addresses, by its own names where it
    /// brings them or is from PyTorch. [`Snapshot::frame_keys`] gives what to ask it for.
    pub fn of(snapshot: &Snapshot) -> Self {
        let symbolizer = Self::new(&snapshot.modules);
        if snapshot.pytorch.is_none() {
            let known = snapshot.names.frames.iter().filter(|(_, frames)| !frames.is_empty());
            return known.fold(symbolizer, |symbolizer, (&address, frames)| {
                symbolizer.with_frames(address, frames.clone())
            });
        }
        let rows = 0..snapshot.frames.len() as u32;
        rows.map(FrameId).fold(symbolizer, |symbolizer, frame| {
            let named = Frame {
                function: snapshot.strings.get(snapshot.frames.name(frame)).into_owned(),
                file: Some(snapshot.strings.get(snapshot.frames.filename(frame)).into_owned()),
                line: u32::try_from(snapshot.frames.line(frame)).ok(),
            };
            symbolizer.with_frames(frame.0.into(), vec![named])
        })
    }

    /// Also searches `folder` and the folders in it for binaries, by build id.
    pub fn with_folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.locator.add_folder(folder.into());
        self
    }

    /// Takes the names of `return_address` as given, instead of looking for them.
    pub fn with_frames(mut self, return_address: u64, frames: Vec<Frame>) -> Self {
        self.known.insert(return_address, frames.into());
        self
    }

    /// The functions at `return_address`: the innermost inlined one first, the one it was compiled into last. Never
    /// empty; an address outside all modules is named by its number.
    pub fn frames(&mut self, return_address: u64) -> Rc<[Frame]> {
        if let Some(frames) = self.known.get(&return_address) {
            return Rc::clone(frames);
        }
        let frames: Rc<[Frame]> = self.resolve(return_address).into();
        self.known.insert(return_address, Rc::clone(&frames));
        frames
    }

    /// The functions of a whole stack, innermost first.
    pub fn stack(&mut self, return_addresses: &[u64]) -> Vec<Frame> {
        return_addresses.iter().flat_map(|&address| self.frames(address).to_vec()).collect()
    }

    /// The recorded binaries that were asked for so far and not found.
    pub fn missing(&self) -> impl Iterator<Item = &Module> {
        let missing = self.binaries.iter().filter(|binary| matches!(binary.state, Some(State::NotFound)));
        missing.map(|binary| &binary.module)
    }

    fn resolve(&mut self, return_address: u64) -> Vec<Frame> {
        // A return address may be the first of the next function or line; the call is before it.
        let call = return_address.saturating_sub(1);
        let after = self.binaries.partition_point(|binary| binary.module.start <= call);
        let within = self.binaries[..after].iter().rposition(|binary| call < binary.module.end);
        let Some(binary) = within.map(|at| &mut self.binaries[at]) else {
            return vec![Frame { function: format!("{return_address:#x}"), ..Frame::default() }];
        };
        let module = &binary.module;
        let state = binary.state.get_or_insert_with(|| {
            let loader = self.locator.find(module).and_then(|path| Loader::new(path).ok());
            loader.map_or(State::NotFound, |loader| State::Found(Box::new(loader)))
        });
        let offset = call.wrapping_sub(module.bias);
        match state {
            State::Found(loader) => {
                let frames = lookup(loader, offset);
                if frames.is_empty() { vec![unnamed(module, offset, false)] } else { frames }
            }
            State::NotFound => vec![unnamed(module, offset, true)],
        }
    }
}

impl NameFrames for Symbolizer {
    fn frames(&mut self, key: u64) -> Rc<[Frame]> {
        Self::frames(self, key)
    }
}

/// What the line tables say about an address of the file, and the symbol table where they say nothing or too little.
fn lookup(loader: &Loader, address: u64) -> Vec<Frame> {
    let mut frames = Vec::new();
    if let Ok(mut inlined) = loader.find_frames(address) {
        while let (Ok(Some(frame)), true) = (inlined.next(), frames.len() < MAX_INLINED) {
            let location = frame.location.as_ref();
            let name = frame.function.as_ref().and_then(|name| name.demangle().ok().map(Cow::into_owned));
            frames.push(Frame {
                function: name.map_or_else(String::new, |name| readable(&name).to_owned()),
                file: location.and_then(|location| location.file).map(str::to_owned),
                line: location.and_then(|location| location.line),
            });
        }
    }
    if frames.is_empty() {
        frames.push(Frame::default());
    }
    // Reduced debug information leaves out the functions' paths, or the functions.
    if let Some(outermost) = frames.last_mut().filter(|frame| !frame.function.contains("::"))
        && let Some(symbol) = loader.find_symbol(address)
    {
        outermost.function = demangled(symbol);
    }
    for frame in &mut frames {
        if let Some(name) = frame.file.as_deref().and_then(|file| qualified(&frame.function, file)) {
            frame.function = name;
        }
    }
    frames.retain(|frame| !frame.function.is_empty());
    frames
}

/// A symbol of Rust's old or new mangling, or of C++, as people read it; others as they are.
fn demangled(symbol: &str) -> String {
    readable(&addr2line::demangle_auto(Cow::Borrowed(symbol), None)).to_owned()
}

/// The name of an address in a binary that has no name for it (or was not found).
fn unnamed(module: &Module, offset: u64, with_id: bool) -> Frame {
    let file = module.path.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or("?");
    let short = |id: &str| id.chars().take(12).collect::<String>();
    let id = match (with_id, module.build_id.as_str()) {
        (false, _) => String::new(),
        (true, "") => " [no build id]".to_owned(),
        (true, id) => format!(" [build id {}]", short(id)),
    };
    Frame { function: format!("{file}+{offset:#x}{id}"), ..Frame::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_of_every_mangling_become_readable() {
        assert_eq!(
            demangled("_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE"),
            "core::fmt::Write::write_fmt"
        );
        assert_eq!(demangled("_RNvNtCs1234_7mycrate3foo3bar"), "mycrate::foo::bar");
        assert_eq!(demangled("_RINvCs1234_7mycrate3foohE"), "mycrate::foo::<u8>");
        assert_eq!(demangled("_ZN3foo3barEv"), "foo::bar()");
        assert_eq!(demangled("malloc"), "malloc");
    }
}
