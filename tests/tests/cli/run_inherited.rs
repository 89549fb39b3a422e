//! `memtrack run`: a program inherits the signals, descriptors and limits that the command was started with.

use memtrack_tests::child::ends_well;
use memtrack_tests::run::{Bench, stderr_text};
use std::fs;
use std::process::{Command, Output};

/// A program that prints on standard error what it inherited, and whether it survives a write to a pipe without a reader.
const SOURCE: &str = r#"
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

int main(void) {
    for (int number = 0; number < 3; number++)
        fprintf(stderr, "descriptor %d: %s\n", number, fcntl(number, F_GETFD) < 0 ? "closed" : "open");
    sigset_t blocked;
    sigprocmask(SIG_BLOCK, 0, &blocked);
    for (int number = 1; number < 32; number++) {
        struct sigaction action;
        sigaction(number, 0, &action);
        const char *what = action.sa_handler == SIG_IGN ? "ignored" : action.sa_handler == SIG_DFL ? "default" : "handled";
        fprintf(stderr, "signal %d: %s%s\n", number, what, sigismember(&blocked, number) ? ", blocked" : "");
    }
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    mode_t mask = umask(0);
    fprintf(stderr, "files %lu of %lu, umask %o, nice %d\n", limit.rlim_cur, limit.rlim_max, mask, getpriority(PRIO_PROCESS, 0));
    int ends[2];
    if (pipe(ends)) return 2;
    close(ends[0]);
    fprintf(stderr, "written: %zd\n", write(ends[1], "x", 1));
    return 5;
}
"#;

/// Runs a command in a shell after `setting`.
fn after(setting: &str, command: &Command) -> Output {
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("{setting} exec \"$@\""), "sh"]).arg(command.get_program());
    shell.args(command.get_args()).current_dir(command.get_current_dir().expect("the bench's"));
    for (name, value) in command.get_envs() {
        shell.env(name, value.expect("none is removed"));
    }
    shell.output().expect("there is a shell")
}

#[test]
fn a_program_inherits_signals_descriptors_and_limits() {
    let bench = Bench::new();
    fs::write(bench.path("begins.c"), SOURCE).expect("it can be written");
    ends_well(Command::new("cc").args(["-O1", "begins.c", "-o", "begins"]).current_dir(bench.folder.path()));
    let settings = [
        "",
        "trap '' PIPE;",
        "trap '' CHLD;",
        "trap '' INT QUIT HUP TERM USR1 USR2;",
        "exec 0<&-;",
        "exec 1>&-;",
        "exec 0<&- 1>&-;",
        "umask 027; ulimit -n 300;",
    ];
    for setting in settings {
        let mut alone = Command::new(bench.path("begins"));
        let alone = after(setting, alone.current_dir(bench.folder.path()));
        for host in [&[][..], &["--host", "-o", "heap", "--force"]] {
            let output = after(setting, bench.command().args(host).args(["--", "./begins"]));
            let text: String = stderr_text(&output)
                .lines()
                .filter(|line| !line.starts_with("memtrack:"))
                .collect::<Vec<_>>()
                .join("\n");
            assert_eq!(text.trim(), stderr_text(&alone).trim(), "{setting} {host:?}");
            assert_eq!(output.status, shell_status(&alone), "{setting} {host:?}: {}", stderr_text(&output));
        }
    }
}

/// Returns the exit status that a shell reports, which is 128 + N for a program killed by signal N.
fn shell_status(output: &Output) -> std::process::ExitStatus {
    use std::os::unix::process::ExitStatusExt;
    let code = output.status.code().unwrap_or_else(|| 128 + output.status.signal().unwrap_or(0));
    std::process::ExitStatus::from_raw(code << 8)
}
