use super::*;
use memtrack_model::{Binary, BinaryPart};
use std::sync::Arc;

/// A stack in `stacks.txt`.
struct TestStack {
    title: &'static str,
    answer: &'static str,
    frames: Vec<Frame>,
}

fn test_stacks() -> Vec<TestStack> {
    let mut all: Vec<TestStack> = Vec::new();
    for line in include_str!("stacks.txt").lines().skip_while(|line| !line.starts_with("# ")) {
        if let Some(title) = line.strip_prefix("# ") {
            all.push(TestStack { title, answer: "", frames: Vec::new() });
        } else if let Some(answer) = line.strip_prefix("> ") {
            all.last_mut().unwrap().answer = answer;
        } else if !line.is_empty() {
            all.last_mut().unwrap().frames.push(parse_frame(line));
        }
    }
    all
}

/// Parses `FUNCTION` or `FUNCTION @ FILE:LINE`, optionally followed by ` % ` and the binary as `PART PATH`.
fn parse_frame(text: &str) -> Frame {
    if let Some((text, binary)) = text.split_once(" % ") {
        let (part, path) = binary.split_once(' ').unwrap();
        let part = match part {
            "program" => BinaryPart::Program,
            "with-program" => BinaryPart::WithProgram,
            "library" => BinaryPart::Library,
            _ => panic!("no part of a program: {part}"),
        };
        return Frame { binary: Some(Arc::new(Binary { path: path.into(), part })), ..parse_frame(text) };
    }
    let Some((function, place)) = text.split_once(" @ ") else {
        return Frame { function: text.into(), ..Frame::default() };
    };
    let (file, line) = place.rsplit_once(':').unwrap();
    Frame { function: function.into(), file: Some(file.into()), line: line.parse().ok(), binary: None }
}

#[test]
fn real_stacks_are_attributed_to_expected_lines() {
    let test_stacks = test_stacks();
    assert!(test_stacks.len() >= 30, "{}", test_stacks.len());
    let rules = Rules::new();
    let mut wrong = String::new();
    for TestStack { title, answer, frames } in &test_stacks {
        let owned = rules.owner(frames).to_string();
        if owned != *answer {
            wrong += &format!("# {title}\n  expected {answer}\n  found    {owned}\n");
            for frame in frames {
                let Verdict { owner, rule, .. } = rules.judge(frame);
                wrong += &format!("    {:<9} {rule}: {}\n", owner.name(), short(frame));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn longest_user_glob_takes_precedence() {
    let einsum = parse_frame("einsum @ /v/lib/python3.12/site-packages/einops/einops.py:916");
    let judge = |rules: Rules| rules.judge(&einsum);
    assert_eq!(judge(Rules::new()).owner, Owner::Framework);
    let mine = judge(Rules::new().mine("site-packages/einops"));
    assert_eq!((mine.owner, &*mine.rule), (Owner::Mine, "mine site-packages/einops"));
    assert_eq!(judge(Rules::new().mine("site-packages/ein*").not_mine("einops")).owner, Owner::Mine);
    assert_eq!(judge(Rules::new().mine("v/*").not_mine("site-packages/einops/")).owner, Owner::Framework);
    assert_eq!(judge(Rules::new().not_mine("einops").mine("einops")).owner, Owner::Framework);
    assert_eq!(judge(Rules::new().mine("einop")).owner, Owner::Framework, "folders are matched as a whole");
    assert_eq!(
        judge(Rules::new().mine("").mine("/").mine("::")).owner,
        Owner::Framework,
        "nothing matches nothing"
    );
}

#[test]
fn globs_name_functions_by_their_paths() {
    let matmul =
        parse_frame("<candle_core::tensor::Tensor>::matmul @ /home/kim/.cargo/registry/src/x/tensor.rs:7");
    for glob in ["candle_core", "candle_core::", "candle_core::*", "*::Tensor::matmul"] {
        assert_eq!(Rules::new().mine(glob).judge(&matmul).owner, Owner::Mine, "{glob}");
    }
    assert_eq!(Rules::new().mine("candle").judge(&matmul).owner, Owner::Framework);
    let thread = parse_frame("svc::serve");
    assert_eq!(Rules::new().not_mine("svc::serve").judge(&thread).owner, Owner::Framework);
}

#[test]
fn malformed_frames_do_not_panic() {
    for text in [
        "",
        "<",
        "(",
        "operator",
        "é(",
        "a @ :0",
        "b @ /:1",
        "<built-in >",
        "nn.Module: ",
        "->",
        "operator<<",
    ] {
        let _ = (
            Rules::new().mine("é*").judge(&parse_frame(text)),
            Rules::new().owner(&[parse_frame(text)]).to_string(),
        );
    }
    assert_eq!(Rules::new().owner(&[]), StackOwner::default());
}

#[test]
fn glob_names_binary_by_its_path_its_folder_and_its_name() {
    let insert = parse_frame("insert % library /home/kim/deps/lib/libstore.so.1.2");
    let known =
        parse_frame("insert @ /build/pkg/src/insert.c:7 % library /home/kim/deps/lib/libstore.so.1.2");
    for glob in [
        "libstore.so.1.2",
        "libstore.so.1",
        "libstore.so",
        "libstore",
        "libst*",
        "/home/kim/deps/lib/libstore.so.1.2",
        "deps/lib",
        "/home/kim/deps/",
        "lib/libstore.so.*",
    ] {
        assert_eq!(Rules::new().not_mine(glob).judge(&known).owner, Owner::Framework, "{glob}");
        assert_eq!(Rules::new().mine(glob).judge(&insert).owner, Owner::Mine, "{glob}");
        assert!(Rules::new().mine(glob).mentions(&insert), "{glob}");
    }
    for glob in ["store", "libstore.so.2", "libstore.s", "lib/lib", "/deps", "", "/", "libstore::insert"] {
        assert_eq!(Rules::new().not_mine(glob).judge(&known).owner, Owner::Mine, "{glob}");
        assert!(!Rules::new().mine(glob).mentions(&insert), "{glob}");
    }
    let exec = parse_frame("sqlite3_exec % library /lib/x86_64-linux-gnu/libsqlite3.so.0");
    for glob in ["/usr/lib/", "/lib", "libsqlite3.so"] {
        assert_eq!(Rules::new().mine(glob).judge(&exec).owner, Owner::Mine, "{glob}");
    }
}

#[test]
fn program_folder_does_not_apply_to_sources() {
    let push = parse_frame(
        "alloc::vec::Vec<T,A>::push @ /rustc/5980/library/alloc/src/vec/mod.rs:480 % program /home/kim/proj/target/app",
    );
    assert_eq!(Rules::new().mine("proj").judge(&push).owner, Owner::Framework);
    let shared =
        parse_frame("shared::load @ /home/kim/shared/src/load.rs:3 % program /home/kim/proj/target/app");
    for folder in ["proj", "proj/*", "/home/kim/proj/target/*"] {
        assert_eq!(Rules::new().not_mine(folder).judge(&shared).owner, Owner::Mine, "{folder}");
    }
    assert_eq!(Rules::new().not_mine("proj/target/app").judge(&shared).owner, Owner::Framework);
}

#[test]
fn globs_match_windows_paths_with_either_slash() {
    let einsum = parse_frame("einsum @ D:\\lm\\.venv\\Lib\\site-packages\\einops\\einops.py:916");
    let model = parse_frame("forward @ d:\\lm\\model.py:39");
    for glob in
        ["site-packages\\einops", "site-packages/einops", "einops.py", "D:\\lm\\.venv", "d:/lm/.venv/*"]
    {
        assert_eq!(Rules::new().mine(glob).judge(&einsum).owner, Owner::Mine, "{glob}");
    }
    for glob in ["D:\\lm", "D:/lm/", "lm\\model.py", "\\\\?\\D:\\lm"] {
        assert_eq!(Rules::new().not_mine(glob).judge(&model).owner, Owner::Framework, "{glob}");
    }
    assert_eq!(Rules::new().not_mine("C:\\lm").judge(&model).owner, Owner::Mine);
}
