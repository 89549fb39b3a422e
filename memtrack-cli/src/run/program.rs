//! Finds the program to run, and checks that a library can be preloaded into it. Where the loader would silently preload
//! nothing, this fails with the reason.
//!
//! **Why not the crate `which`?** It only reports whether a program exists. Shells distinguish a name that is not found
//! (exit code 127) from a folder or a file that may not be executed (126), and so does this command.

use crate::error::CliError;
use crate::neighbours::{self, read_head};
use object::elf::{DT_STRSZ, DT_STRTAB, DynamicTag, EM_AARCH64, EM_X86_64, FileHeader64, PT_INTERP};
use object::read::elf::{Dyn as _, FileHeader as _, ProgramHeader as _};
use object::{Endian as _, Endianness, FileKind, ReadCache, ReadRef};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The exit code of shells for a program that is not found.
const NOT_FOUND: u8 = 127;
/// The exit code of shells for a program that cannot be executed.
pub(crate) const CANNOT_RUN: u8 = 126;

/// Returns the path at which a shell would find the program `name`.
///
/// # Errors
/// Fails if the program is not found (127) or cannot be executed (126).
pub(crate) fn find(name: &OsStr) -> Result<PathBuf, CliError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let candidates: Vec<PathBuf> = if name.as_bytes().contains(&b'/') {
        vec![name.into()]
    } else {
        std::env::split_paths(&path).map(|folder| folder.join(name)).collect()
    };
    let mut found = None;
    for candidate in candidates {
        let Ok(data) = candidate.metadata() else { continue };
        if data.is_file() && rustix::fs::access(&candidate, rustix::fs::Access::EXEC_OK).is_ok() {
            return Ok(candidate);
        }
        found.get_or_insert((candidate, data.is_dir()));
    }
    let shown = name.to_string_lossy();
    let source = Path::new(name);
    let hint = match neighbours::Kind::detect(source, &read_head(source)) {
        Some(neighbours::Kind::Python) => format!("; it is Python source: memtrack run -- python3 {shown}"),
        _ => String::new(),
    };
    Err(match found {
        Some((_, true)) => CliError::Program(CANNOT_RUN, format!("{shown}: is a folder")),
        Some(_) => CliError::Program(CANNOT_RUN, format!("{shown}: no permission to execute it{hint}")),
        None => CliError::Program(NOT_FOUND, format!("{shown}: not found{hint}")),
    })
}

/// Checks that a library can be preloaded into the program, or into the interpreter of a script.
///
/// # Errors
/// Fails with the reason why no library can be preloaded.
pub(crate) fn check(path: &Path) -> Result<(), CliError> {
    let mut at = path.to_owned();
    // An interpreter can itself be a script; the kernel follows only a few levels.
    for _ in 0..5 {
        let refuse = |why: &str| Err(CliError::Program(CANNOT_RUN, format!("{}: {why}", at.display())));
        let absent = |what: &str, file: &Path| {
            let name = file.to_string_lossy().escape_debug().to_string();
            refuse(&format!("its {what} {name} does not exist"))
        };
        // A program that may be executed but not read cannot be checked here.
        let Ok(mut file) = File::open(&at) else { return Ok(()) };
        let privileged = file
            .metadata()
            .is_ok_and(|data| data.mode() & 0o4000 != 0 && data.uid() != rustix::process::geteuid().as_raw());
        if privileged {
            return refuse(
                "runs with another user's rights (setuid), so the loader preloads no libraries into it",
            );
        }
        match kind(&mut file) {
            Kind::Script(interpreter) if is_absent(&interpreter) => {
                return absent("interpreter", &interpreter);
            }
            Kind::Script(interpreter) => at = interpreter,
            Kind::Dynamic(loader) if loader.to_string_lossy().contains("musl") => {
                return refuse("uses the C library musl; memtrack's hook needs glibc");
            }
            Kind::Static => return refuse("is linked statically, so no library can be preloaded into it"),
            Kind::Dynamic(loader) if is_absent(Path::new(&loader)) => {
                return absent("loader", Path::new(&loader));
            }
            Kind::Foreign => return refuse("is built for another kind of processor than memtrack"),
            Kind::Dynamic(_) | Kind::Unknown => return Ok(()),
        }
    }
    Ok(())
}

/// Returns the sanitizer that a program is built with, or `None`. Sanitizer runtimes replace the heap's functions
/// themselves, and most refuse to start if another library is preloaded before them.
pub(crate) fn sanitizer(path: &Path) -> Option<&'static str> {
    let mut file = File::open(path).ok()?;
    let data = ReadCache::new(&mut file);
    let names = dynamic_names(&data).ok()??;
    let sanitizers = [
        ("AddressSanitizer", ["libasan.so", "__asan_init"]),
        ("ThreadSanitizer", ["libtsan.so", "__tsan_init"]),
        ("MemorySanitizer", ["libmsan.so", "__msan_init"]),
        ("LeakSanitizer", ["liblsan.so", "__lsan_init"]),
    ];
    let has = |name: &str| names.windows(name.len()).any(|window| window == name.as_bytes());
    sanitizers.into_iter().find_map(|(sanitizer, names)| names.into_iter().any(has).then_some(sanitizer))
}

/// Returns the names of libraries and symbols that a 64-bit ELF file refers to, or `None` if it is linked statically.
fn dynamic_names<'data>(data: impl ReadRef<'data>) -> object::Result<Option<&'data [u8]>> {
    let header = FileHeader64::<Endianness>::parse(data)?;
    let endian = header.endian()?;
    let segments = header.program_headers(endian, data)?;
    for segment in segments {
        let Some(entries) = segment.dynamic(endian, data)? else { continue };
        let value = |tag: DynamicTag| {
            let entry = entries.iter().find(|entry| entry.d_tag(endian) == tag);
            entry.map(|entry| entry.d_val(endian))
        };
        let (Some(address), Some(bytes)) = (value(DT_STRTAB), value(DT_STRSZ)) else { return Ok(None) };
        return Ok(segments
            .iter()
            .find_map(|segment| segment.data_range(endian, data, address, bytes).ok()?));
    }
    Ok(None)
}

/// Returns whether there is no file of this name.
fn is_absent(file: &Path) -> bool {
    file.metadata().is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// Returns the error for a program that [`check`] accepted but the kernel did not execute.
pub(crate) fn exec_error(name: &OsStr, error: &io::Error) -> CliError {
    let why = if error.raw_os_error() == Some(libc::ENOEXEC) {
        "is not an executable for this system, and has no `#!` line that names its interpreter".to_owned()
    } else {
        format!("cannot be run: {error}")
    };
    CliError::Program(CANNOT_RUN, format!("{}: {why}", name.to_string_lossy()))
}

enum Kind {
    /// A dynamically linked executable, and the loader that it names.
    Dynamic(OsString),
    Static,
    Foreign,
    Script(PathBuf),
    Unknown,
}

/// The longest path of a loader or interpreter, in bytes.
const MAX_NAME_BYTES: u64 = 4096;

fn kind(file: &mut (impl Read + Seek)) -> Kind {
    let mut head = [0_u8; 2];
    if file.read_exact(&mut head).is_ok() && head == *b"#!" {
        return script(file).map_or(Kind::Unknown, Kind::Script);
    }
    let data = ReadCache::new(file);
    match FileKind::parse(&data) {
        Ok(FileKind::Elf64) => elf(&data).unwrap_or(Kind::Unknown),
        Ok(FileKind::Elf32) => Kind::Foreign,
        _ => Kind::Unknown,
    }
}

/// Returns the kind of a 64-bit ELF file, or an error if the file is damaged.
fn elf<'data>(data: impl ReadRef<'data>) -> object::Result<Kind> {
    let header = FileHeader64::<Endianness>::parse(data)?;
    let endian = header.endian()?;
    let machine = if cfg!(target_arch = "aarch64") { EM_AARCH64 } else { EM_X86_64 };
    if endian.is_big_endian() || header.e_machine(endian) != machine {
        return Ok(Kind::Foreign);
    }
    for segment in header.program_headers(endian, data)? {
        if segment.p_type(endian) == PT_INTERP && segment.p_filesz(endian) > MAX_NAME_BYTES {
            return Ok(Kind::Unknown);
        }
        if let Some(name) = segment.interpreter(endian, data)? {
            return Ok(Kind::Dynamic(OsString::from_vec(name.to_vec())));
        }
    }
    Ok(Kind::Static)
}

/// Returns the interpreter that a script's first line names, if any.
fn script(file: &mut (impl Read + Seek)) -> Option<PathBuf> {
    file.seek(SeekFrom::Start(2)).ok()?;
    let mut line = Vec::new();
    BufReader::new(file.take(MAX_NAME_BYTES)).read_until(b'\n', &mut line).ok()?;
    // The kernel ends the name at these bytes. A carriage return is part of the name, so such an interpreter is not found.
    let name = line.split(|byte| b" \t\n\0".contains(byte)).find(|word| !word.is_empty())?;
    Some(OsString::from_vec(name.to_vec()).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    fn elf(machine: u8, segment: Option<&[u8]>) -> Cursor<Vec<u8>> {
        let mut file = vec![0; 64];
        file[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        (file[18], file[32], file[54], file[56]) = (machine, 64, 56, u8::from(segment.is_some()));
        if let Some(name) = segment {
            let mut entry = vec![0; 56];
            (entry[0], entry[8], entry[32]) = (3, 120, name.len() as u8);
            file.extend(entry);
            file.extend(name);
        }
        Cursor::new(file)
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn file_kinds_are_distinguished() {
        assert!(matches!(kind(&mut elf(62, None)), Kind::Static));
        assert!(matches!(kind(&mut elf(40, None)), Kind::Foreign));
        let mut of_32_bits = elf(62, None);
        of_32_bits.get_mut()[4] = 1;
        assert!(matches!(kind(&mut of_32_bits), Kind::Foreign));
        let Kind::Dynamic(loader) = kind(&mut elf(62, Some(b"/lib/ld-musl-x86_64.so.1\0"))) else {
            panic!("it names a loader")
        };
        assert_eq!(loader, "/lib/ld-musl-x86_64.so.1");
        let mut script = Cursor::new(b"#! /usr/bin/env  python3\nprint(1)\n".to_vec());
        assert!(matches!(kind(&mut script), Kind::Script(path) if path == Path::new("/usr/bin/env")));
        assert!(matches!(kind(&mut Cursor::new(b"\x7fELF\x02".to_vec())), Kind::Unknown));
        let mut cut = elf(62, Some(b"/lib64/ld-linux-x86-64.so.2\0"));
        cut.get_mut().truncate(130);
        assert!(matches!(kind(&mut cut), Kind::Unknown));
    }
}
