//! `memtrack run --exec`: the command becomes the program, because service managers watch the process that they have started.
//! Another process, the *watcher*, does the rest of the command's work: it waits for the program's end, and prints what the
//! collector sends.
//!
//! **Why is the watcher not a child of the program?** A program that waits for any of its children would get the
//! watcher.
#![allow(unsafe_code)]

use super::collector::{self, CollectorProcess, Job, detach};
use super::inherited::restore_for_exec;
use super::wait::open_process;
use crate::Streams;
use memtrack_core::__collector::exit_status;
use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString};
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::time::Duration;

/// The first byte that the watcher sends to the command: [`READY`] if the path of the shared memory follows, [`FAILED`] if an
/// error message does. The command sends [`FAILED`] to the watcher if the program could not be run.
const READY: u8 = 1;
const FAILED: u8 = 0;

/// The maximum number of queries for the program's exit status, and the interval between them: the kernel provides the
/// status only once the program's parent has waited for it.
const STATUS_TRIES: u32 = 100;
const STATUS_INTERVAL: Duration = Duration::from_millis(2);

/// The command's end of the pipe to the watcher, which `exec` closes.
pub(crate) struct Watcher {
    /// The path under which programs open the shared memory.
    pub(crate) memory: PathBuf,
    command: PipeWriter,
}

impl Watcher {
    /// Starts the watcher and the collector. `report` is called with the answer as JSON when the program has ended.
    ///
    /// # Errors
    /// Fails if the system has no memory or cannot start the processes.
    pub(crate) fn start(job: &Job, report: impl FnOnce(Vec<u8>, &mut Streams<'_>)) -> io::Result<Self> {
        let (mut answer, watcher) = io::pipe()?;
        let (of_command, command) = io::pipe()?;
        let process = std::process::id();
        // SAFETY: the process has a single thread here, so the child can do anything that this process could.
        match unsafe { libc::fork() } {
            -1 => return Err(io::Error::last_os_error()),
            0 => {
                drop((answer, command));
                // SAFETY: as above.
                if unsafe { libc::fork() } == 0 {
                    watch(job, process, watcher, of_command, report);
                }
                // SAFETY: ends the child without the handlers and buffers of the command.
                unsafe { libc::_exit(0) }
            }
            // SAFETY: waits for the child, which ends at once.
            child => unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) },
        };
        drop((watcher, of_command));
        let mut bytes = Vec::new();
        answer.read_to_end(&mut bytes)?;
        match bytes.split_first() {
            Some((&READY, path)) => {
                let memory = OsString::from_vec(path.to_vec()).into();
                Ok(Self { memory, command })
            }
            Some((_, error)) => Err(io::Error::other(String::from_utf8_lossy(error).into_owned())),
            None => Err(io::Error::other("the process that reports cannot be started")),
        }
    }

    /// Notifies the watcher that the program could not be run, so there is nothing to report.
    pub(crate) fn program_failed(mut self) {
        // Fails if the watcher has ended.
        let _ = self.command.write_all(&[FAILED]);
    }
}

/// Executes the program of a command in this process. Returns only if that fails, with the kernel's error. `execvp`,
/// which [`Command`] uses, would instead run a file that is not executable code as a shell script.
pub(crate) fn become_program(command: &Command, name: &OsStr) -> io::Error {
    let as_c = |text: &OsStr| CString::new(text.as_bytes()).map_err(io::Error::from);
    let mut variables: BTreeMap<OsString, OsString> = std::env::vars_os().collect();
    variables.extend(command.get_envs().filter_map(|(key, value)| Some((key.to_owned(), value?.to_owned()))));
    let variable = |(key, value): (OsString, OsString)| as_c(&[key, value].join(OsStr::new("=")));
    let prepared = as_c(command.get_program()).and_then(|path| {
        let arguments: io::Result<Vec<CString>> =
            std::iter::once(name).chain(command.get_args()).map(as_c).collect();
        let variables: io::Result<Vec<CString>> = variables.into_iter().map(variable).collect();
        Ok((path, arguments?, variables?))
    });
    let (path, arguments, variables) = match prepared {
        Ok(prepared) => prepared,
        Err(error) => return error,
    };
    let list = |texts: &[CString]| -> Vec<*const libc::c_char> {
        texts.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect()
    };
    if let Err(error) = restore_for_exec() {
        return error;
    }
    // SAFETY: the arguments are C strings, and null-terminated lists of C strings; all of them exist until the call
    // fails.
    unsafe { libc::execve(path.as_ptr(), list(&arguments).as_ptr(), list(&variables).as_ptr()) };
    io::Error::last_os_error()
}

/// Watches the process until it ends.
fn watch(
    job: &Job,
    process: u32,
    mut watcher: PipeWriter,
    mut command: PipeReader,
    report: impl FnOnce(Vec<u8>, &mut Streams<'_>),
) {
    let program = open_process(process);
    let mut collector = match collector::start(job, process) {
        Ok(collector) => collector,
        Err(error) => {
            let _ =
                watcher.write_all(&[FAILED]).and_then(|()| watcher.write_all(error.to_string().as_bytes()));
            return;
        }
    };
    let sent =
        watcher.write_all(&[READY]).and_then(|()| watcher.write_all(collector.memory.as_os_str().as_bytes()));
    drop(watcher);
    let descriptors = [collector.descriptor(), command.as_raw_fd()];
    let kept: Vec<i32> = descriptors.into_iter().chain(program.as_ref().map(AsRawFd::as_raw_fd)).collect();
    detach(c"memtrack-watch", &kept, true);
    // If the command becomes the program, `exec` closes the pipe and nothing is read.
    let has_failed = sent.is_err() || command.read(&mut [0]).is_ok_and(|bytes| bytes > 0);
    drop(command);
    let Some(program) = program.filter(|_| !has_failed) else { return };
    let (mut input, mut output, mut errors) = (io::empty(), io::sink(), io::stderr());
    let mut streams = Streams { stdin: &mut input, stdout: &mut output, stderr: &mut errors };
    let status = wait_for(&program, &mut collector, &mut streams);
    if let Some(json) = collector.end(process, status, &mut streams) {
        report(json, &mut streams);
    }
}

/// Waits until the program ends. Returns its exit status, or `None` if the kernel does not provide it.
fn wait_for(
    program: &OwnedFd,
    collector: &mut CollectorProcess,
    streams: &mut Streams<'_>,
) -> Option<ExitStatus> {
    let mut is_heard = true;
    loop {
        let readable = |fd: i32| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // A negative descriptor is ignored.
        let channel = if is_heard { collector.descriptor() } else { -1 };
        let mut polled = [readable(program.as_raw_fd()), readable(channel)];
        // SAFETY: `polled` has two structures, which exist until the call returns.
        unsafe { libc::poll(polled.as_mut_ptr(), 2, -1) };
        if polled[1].revents != 0 {
            is_heard = collector.receive(streams);
        }
        if polled[0].revents != 0 {
            break;
        }
    }
    for _ in 0..STATUS_TRIES {
        if let Some(status) = exit_status(program) {
            return Some(ExitStatus::from_raw(status));
        }
        std::thread::sleep(STATUS_INTERVAL);
    }
    None
}
