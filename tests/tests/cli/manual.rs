//! Manual pages and shell completions, which packagers generate.

use memtrack_tests::memtrack;
use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Output, Stdio};

fn run(arguments: &[&str]) -> Output {
    Command::new(memtrack()).args(arguments).output().expect("memtrack can be started")
}

/// Returns the verbs that `--help` lists.
fn verbs() -> Vec<String> {
    let help = String::from_utf8(run(&["--help"]).stdout).unwrap();
    let listed =
        help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let verbs: Vec<_> = listed.filter_map(|line| Some(line.split_whitespace().next()?.to_owned())).collect();
    assert!(verbs.len() > 20, "{help}");
    verbs.into_iter().filter(|verb| verb != "help").collect()
}

#[test]
fn every_verb_has_a_page() {
    let folder = tempfile::tempdir().unwrap();
    // The folder does not exist, and is created by the command.
    let pages = folder.path().join("share/man/man1");
    let output = run(&["man", pages.to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    let names = fs::read_dir(&pages).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let verbs = verbs();
    let expected = verbs.iter().map(|verb| format!("memtrack-{verb}.1")).chain(["memtrack.1".to_owned()]);
    assert_eq!(names.collect::<BTreeSet<_>>(), expected.collect::<BTreeSet<_>>());
    let whole = fs::read_to_string(pages.join("memtrack.1")).unwrap();
    for verb in &verbs {
        let page = fs::read_to_string(pages.join(format!("memtrack-{verb}.1"))).unwrap();
        for section in [".SH NAME", ".SH SYNOPSIS", ".SH OPTIONS", ".SH EXAMPLES", ".SH \"EXIT STATUS\""] {
            let section = section.replace('"', "");
            let has = page.lines().any(|line| line.replace('"', "") == section);
            assert!(has, "{verb}: {section}: {page}");
        }
        let escaped = verb.replace('-', "\\-");
        assert!(whole.contains(&format!("memtrack\\-{escaped}\\fR(1)")), "{verb}: {whole}");
    }
    // Examples are printed as they are typed.
    let top = fs::read_to_string(pages.join("memtrack-top.1")).unwrap();
    assert!(top.contains("\n  memtrack top train.memtrack \\-\\-by stack \\-n 5 "), "{top}");
}

#[test]
fn existing_pages_are_kept_without_force() {
    let folder = tempfile::tempdir().unwrap();
    let (pages, page) = (folder.path().to_str().unwrap(), folder.path().join("memtrack-top.1"));
    fs::write(&page, "original").unwrap();
    let output = run(&["man", pages]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("add --force"), "{output:?}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    assert!(run(&["man", pages, "--force"]).status.success());
    assert!(fs::read_to_string(&page).unwrap().contains(".SH NAME"));
    // A folder that cannot be created is an error.
    let below_file = page.join("man1");
    let output = run(&["man", below_file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
}

#[test]
fn completions_name_every_verb_in_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = run(&["completions", shell]);
        assert!(output.status.success(), "{shell}");
        let script = String::from_utf8(output.stdout).unwrap();
        for verb in verbs() {
            assert!(script.contains(&verb), "{shell} {verb}");
        }
        assert!(script.contains("--max-fragmentation") || script.contains("max-fragmentation"), "{shell}");
    }
    assert_eq!(run(&["completions", "tcsh"]).status.code(), Some(2));
}

#[test]
#[cfg_attr(not(bash), ignore = "needs bash")]
fn bash_completes_verbs_and_options() {
    let script = run(&["completions", "bash"]).stdout;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("memtrack.bash");
    fs::write(&path, script).unwrap();
    let complete = "source \"$1\"; COMP_WORDS=(memtrack $2 $3); COMP_CWORD=$4; COMPREPLY=(); \
               _memtrack memtrack \"${COMP_WORDS[$4]}\" \"${COMP_WORDS[$4-1]}\"; echo \"${COMPREPLY[@]}\"";
    for (words, expected) in [(["sum", "", "1"], "summary"), (["check", "--max-l", "2"], "--max-leak")] {
        let mut bash = Command::new("bash");
        bash.args(["--norc", "-c", complete, "bash"]).arg(&path).args(words).stdin(Stdio::null());
        let output = bash.output().expect("bash can be started");
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), expected, "{output:?}");
    }
}
