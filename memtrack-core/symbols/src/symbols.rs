//! Resolves return addresses to functions and lines. This is done lazily, and once per distinct address. Reports call a
//! [`Symbolizer`] after the recording, preferably in another process. It uses only the binaries that were recorded. If
//! such a binary is missing, its addresses are shown as binary and offset.

use crate::demangle::{PublicNames, demangle, is_c_name};
use crate::locate::Locator;
use crate::qualify::{name_closures, qualify};
use addr2line::Loader;
use memtrack_model::paths::{file_name, is_library, split_file_name, with_slashes};
use memtrack_model::snapshot::{FrameId, Module, Snapshot, is_omission_of_outer_frames};
use memtrack_model::{Binary, BinaryPart, Frame, NameFrames};
use std::collections::HashMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

/// The maximum number of inlined functions at an address.
const MAX_INLINED: usize = 256;

/// What is shown in place of frames that were not recorded.
const OMITTED_FRAMES: &str = "(outer frames not recorded)";

/// Resolves return addresses to functions, files and lines, caching the results.
#[derive(Default)]
pub struct Symbolizer {
    /// The binaries, sorted by start address.
    binaries: Vec<LoadedBinary>,
    locator: Locator,
    known: HashMap<u64, Rc<[Frame]>, foldhash::fast::RandomState>,
}

/// A binary that the program loaded.
struct LoadedBinary {
    module: Module,
    binary: Arc<Binary>,
    /// The state of the lookup, or `None` until the first lookup of an address in the binary.
    state: Option<State>,
}

enum State {
    Found(Box<Symbols>),
    NotFound,
}

/// The symbols of a binary whose file has been found.
struct Symbols {
    path: PathBuf,
    loader: Loader,
    /// The public names of functions that have several names, or `None` until the first lookup of a C function.
    public: Option<PublicNames>,
}

impl std::fmt::Debug for Symbolizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let modules: Vec<_> = self.binaries.iter().map(|binary| &binary.module).collect();
        f.debug_struct("Symbolizer").field("modules", &modules).field("known", &self.known.len()).finish()
    }
}

impl Symbolizer {
    /// Creates a symbolizer for addresses in `modules`. Nothing is read until the first address is looked up.
    pub fn new(modules: &[Module]) -> Self {
        // The recorder lists the program first.
        let program = modules.first().map_or("", |module| &module.path);
        let loaded = |(place, module): (usize, &Module)| {
            let part = if place == 0 && !is_library(program) {
                BinaryPart::Program
            } else if belongs_to(&module.path, program) {
                BinaryPart::WithProgram
            } else {
                BinaryPart::Library
            };
            let binary = Arc::new(Binary { path: module.path.clone(), part });
            LoadedBinary { module: module.clone(), binary, state: None }
        };
        let mut binaries: Vec<_> = modules.iter().enumerate().map(loaded).collect();
        binaries.sort_by_key(|binary| binary.module.start);
        Self { binaries, ..Self::default() }
    }

    /// Creates a symbolizer for the stacks in `snapshot`. Addresses are looked up in the snapshot's modules. Names that
    /// the snapshot already contains, as snapshots from PyTorch do, are used unchanged. [`Snapshot::frame_keys`]
    /// returns the keys to look up.
    pub fn of(snapshot: &Snapshot) -> Self {
        let folders = &snapshot.symbol_folders;
        let symbolizer = folders.iter().fold(Self::new(&snapshot.modules), Self::with_folder);
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
                binary: snapshot.frames.binary(frame).cloned(),
            };
            symbolizer.with_frames(frame.0.into(), vec![named])
        })
    }

    /// Also searches for binaries by build id in `folder` and its subfolders. `folder` may be a single file.
    pub fn with_folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.locator.add_folder(folder.into());
        self
    }

    /// Uses `frames` for `return_address` instead of looking up the address.
    pub fn with_frames(mut self, return_address: u64, mut frames: Vec<Frame>) -> Self {
        if let Some(place) = self.binary_index(return_address.saturating_sub(1)) {
            let binary = &self.binaries[place].binary;
            frames.iter_mut().for_each(|frame| {
                frame.binary.get_or_insert_with(|| Arc::clone(binary));
            });
        }
        self.known.insert(return_address, frames.into());
        self
    }

    /// Returns the functions at `return_address`, from the innermost inlined function to the function that contains the
    /// code. The result is never empty. For an address outside all modules, the name is the address itself; for
    /// [`OUTER_FRAMES_OMITTED`](memtrack_model::snapshot::OUTER_FRAMES_OMITTED), it says that.
    pub fn frames(&mut self, return_address: u64) -> Rc<[Frame]> {
        if let Some(frames) = self.known.get(&return_address) {
            return Rc::clone(frames);
        }
        let frames: Rc<[Frame]> = self.resolve(return_address).into();
        self.known.insert(return_address, Rc::clone(&frames));
        frames
    }

    /// Returns the functions in an entire stack, innermost first.
    pub fn stack(&mut self, return_addresses: &[u64]) -> Vec<Frame> {
        return_addresses.iter().flat_map(|&address| self.frames(address).to_vec()).collect()
    }

    /// Returns the recorded binaries that have been needed so far but were not found.
    pub fn missing(&self) -> impl Iterator<Item = &Module> {
        let missing = self.binaries.iter().filter(|binary| matches!(binary.state, Some(State::NotFound)));
        missing.map(|binary| &binary.module)
    }

    fn resolve(&mut self, return_address: u64) -> Vec<Frame> {
        if is_omission_of_outer_frames(return_address) {
            return vec![Frame { function: OMITTED_FRAMES.to_owned(), ..Frame::default() }];
        }
        // A return address may already belong to the next function or line, whereas the call is right before it.
        let call = return_address.saturating_sub(1);
        let Some(loaded) = self.binary_index(call).map(|place| &mut self.binaries[place]) else {
            return vec![Frame { function: format!("{return_address:#x}"), ..Frame::default() }];
        };
        let module = &loaded.module;
        let state = loaded.state.get_or_insert_with(|| {
            let symbols = self.locator.find(module).and_then(Symbols::read);
            symbols.map_or(State::NotFound, |symbols| State::Found(Box::new(symbols)))
        });
        let offset = call.wrapping_sub(module.bias);
        let mut frames = match state {
            State::Found(symbols) => {
                let frames = symbols.look_up(offset);
                if frames.is_empty() { vec![unnamed_frame(module, offset, false)] } else { frames }
            }
            State::NotFound => vec![unnamed_frame(module, offset, true)],
        };
        frames.iter_mut().for_each(|frame| frame.binary = Some(Arc::clone(&loaded.binary)));
        frames
    }

    /// Returns the index of the binary that contains the code at an address.
    fn binary_index(&self, address: u64) -> Option<usize> {
        let after = self.binaries.partition_point(|loaded| loaded.module.start <= address);
        self.binaries[..after].iter().rposition(|loaded| address < loaded.module.end)
    }
}

impl NameFrames for Symbolizer {
    fn frames(&mut self, key: u64) -> Rc<[Frame]> {
        Self::frames(self, key)
    }
}

/// Returns whether a library belongs to the program. This is the case if it is in or below the program's folder, or if
/// the program is in `bin` and the library is in the neighboring `lib` or `lib64`.
fn belongs_to(library: &str, program: &str) -> bool {
    let [library, program] = [library, program].map(with_slashes);
    let Some((folder, _)) = split_file_name(&program).filter(|(folder, _)| !folder.is_empty()) else {
        return false;
    };
    let below = |folder: &str| library.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'));
    let beside = folder.strip_suffix("/bin").filter(|prefix| !prefix.is_empty());
    let beside =
        beside.is_some_and(|prefix| below(&format!("{prefix}/lib")) || below(&format!("{prefix}/lib64")));
    below(folder) || beside
}

impl Symbols {
    fn read(path: PathBuf) -> Option<Self> {
        let loader = Loader::new(&path).ok()?;
        Some(Self { path, loader, public: None })
    }

    /// Looks up an address of the file in the line tables, and also in the symbol table if the line tables do not have
    /// the full name.
    fn look_up(&mut self, address: u64) -> Vec<Frame> {
        let mut frames = Vec::new();
        if let Ok(mut inlined) = self.loader.find_frames(address) {
            while let (Ok(Some(frame)), true) = (inlined.next(), frames.len() < MAX_INLINED) {
                let location = frame.location.as_ref();
                let name = frame.function.as_ref().and_then(|name| name.raw_name().ok());
                frames.push(Frame {
                    function: name.map_or_else(String::new, |name| demangle(&name)),
                    file: location.and_then(|location| location.file).map(str::to_owned),
                    line: location.and_then(|location| location.line),
                    binary: None,
                });
            }
        }
        if frames.is_empty() {
            frames.push(Frame::default());
        }
        // Reduced debug information lacks the paths of functions, or lacks the functions altogether.
        if let Some(outermost) = frames.last_mut().filter(|frame| !frame.function.contains("::"))
            && let Some(symbol) = self.symbol_name(address)
        {
            outermost.function = symbol;
        }
        name_closures(&mut frames);
        for frame in &mut frames {
            if let Some(name) = frame.file.as_deref().and_then(|file| qualify(&frame.function, file)) {
                frame.function = name;
            }
        }
        frames.retain(|frame| !frame.function.is_empty());
        frames
    }

    /// Returns the readable name of the symbol at an address. If the function has several names, this is the public
    /// one.
    fn symbol_name(&mut self, address: u64) -> Option<String> {
        let symbol = self.loader.find_symbol_info(address)?;
        if !is_c_name(symbol.name()) {
            return Some(demangle(symbol.name()));
        }
        let public = self.public.get_or_insert_with(|| PublicNames::read(&self.path));
        Some(demangle(public.name_at(symbol.address()).unwrap_or_else(|| symbol.name())))
    }
}

/// Returns a frame that is named by binary and offset. Used for addresses that have no name or whose binary was not
/// found.
fn unnamed_frame(module: &Module, offset: u64, with_id: bool) -> Frame {
    let file = Some(file_name(&module.path)).filter(|name| !name.is_empty()).unwrap_or("?");
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

    fn module(path: &str, start: u64) -> Module {
        Module { path: path.into(), bias: start, start, end: start + 0x1000, ..Module::default() }
    }

    #[test]
    fn omitted_frames_are_named_in_each_process() {
        use memtrack_model::snapshot::OUTER_FRAMES_OMITTED;
        let mut symbols = Symbolizer::new(&[]);
        for address in [OUTER_FRAMES_OMITTED, OUTER_FRAMES_OMITTED + (7 << 48)] {
            assert_eq!(symbols.frames(address)[0].function, OMITTED_FRAMES);
        }
        assert_eq!(symbols.frames(0x1000)[0].function, "0x1000");
    }

    #[test]
    fn frames_state_relation_of_binary_to_program() {
        let modules = [
            module("/home/kim/proj/build/bin/app", 0x8000),
            module("/home/kim/proj/build/lib/libcore.so", 0x1000),
            module("/home/kim/proj/build/bin/plugins/a.so", 0x2000),
            module("/home/kim/other/lib/liba.so", 0x3000),
            module("/usr/lib/libz.so.1", 0x4000),
        ];
        let mut symbols = Symbolizer::new(&modules).with_frames(0x4008, vec![Frame::default()]);
        let mut part = |address| {
            let frames = symbols.frames(address);
            frames[0].binary.as_ref().map(|binary| (binary.path.clone(), binary.part))
        };
        for (address, path, expected) in [
            (0x8008, 0, BinaryPart::Program),
            (0x1008, 1, BinaryPart::WithProgram),
            (0x2008, 2, BinaryPart::WithProgram),
            (0x3008, 3, BinaryPart::Library),
            (0x4008, 4, BinaryPart::Library),
        ] {
            assert_eq!(part(address), Some((modules[path].path.clone(), expected)));
        }
        assert_eq!(part(0x9000_0000), None);
    }

    #[test]
    fn program_in_root_folder_has_no_own_libraries() {
        assert!(!belongs_to("/usr/lib/libz.so.1", "/app"));
        assert!(!belongs_to("/lib/libz.so.1", "/bin/app"));
        assert!(belongs_to("/app/libcore.so", "/app/run"));
        assert!(belongs_to("D:\\app\\core.dll", "D:\\app\\run.exe"));
    }
}
