"""Recording harms no program: it causes no hang and no crash, writes only into its own file, keeps its numbers right, and stays
within bounds of memory and time however long the program runs.

Usage: python3 harm.py CHECKOUT [MEMTRACK] [--only NAME ...] [--scenarios FOLDER] [--list]

CHECKOUT is the folder of memtrack's workspace, MEMTRACK its command (built if missing). Each scenario is a small program in
FOLDER (by default harm/ beside this file), in Rust with memtrack_core or in C under `memtrack run --host`. It runs first
unmonitored, which must end well, and then monitored. --only takes whole names or beginnings of names.

FOLDER contains src/bin/*.rs, c/*.c and scenarios.py, which lists the scenarios (scenario.py) and what must hold for each.
"""
import argparse
import hashlib
import json
import os
import resource
import runpy
import shutil
import signal
import subprocess
import sys
import tempfile

from scenario import Scenario

HERE = os.path.dirname(os.path.abspath(__file__))
KIT = os.path.join(HERE, "harm")
WORK = os.path.join(tempfile.gettempdir(), "memtrack-harm")
MANIFEST = """[workspace]

[package]
name = "harm"
version = "0.0.0"
edition = "2024"
publish = false

[dependencies]
libc = "0.2"
memtrack-core = {{ path = {core} }}

[profile.release]
debug = "line-tables-only"
incremental = false
"""


def options():
    if len(sys.argv) < 2:
        print(__doc__.strip())
        sys.exit(2)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout")
    parser.add_argument("memtrack", nargs="?")
    parser.add_argument("--only", nargs="+", metavar="NAME", default=[])
    parser.add_argument("--scenarios", metavar="FOLDER", default=KIT)
    parser.add_argument("--list", action="store_true", help="list the scenarios and run nothing")
    return parser.parse_args()


def stop(message):
    print(message)
    sys.exit(2)


def build(command, what):
    result = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if result.returncode != 0:
        stop(f"{what} does not build:\n{result.stdout.decode(errors='replace')[-4000:]}")


def refresh(path, content):
    """Writes a file if its content changed: cargo rebuilds from newer files."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if not os.path.exists(path) or open(path, "rb").read() != content:
        open(path, "wb").write(content)


def target_folder():
    return os.environ.get("CARGO_TARGET_DIR") or os.path.join(WORK, "target")


def build_rust(checkout, folder):
    """Builds the Rust programs and returns their folder."""
    package = os.path.join(WORK, "package-" + hashlib.sha1(f"{checkout}\n{folder}".encode()).hexdigest()[:8])
    shutil.rmtree(os.path.join(package, "src", "bin"), ignore_errors=True)
    core = json.dumps(os.path.join(checkout, "memtrack-core"))
    refresh(os.path.join(package, "Cargo.toml"), MANIFEST.format(core=core).encode())
    lock = os.path.join(checkout, "Cargo.lock")
    if os.path.exists(lock) and not os.path.exists(os.path.join(package, "Cargo.lock")):
        shutil.copy(lock, package)
    refresh(os.path.join(package, "src", "lib.rs"), open(os.path.join(KIT, "src", "lib.rs"), "rb").read())
    programs = os.path.join(folder, "src", "bin")
    shutil.copytree(programs, os.path.join(package, "src", "bin"))  # preserves the files' times
    target = target_folder()
    build(["cargo", "build", "--release", "--manifest-path", os.path.join(package, "Cargo.toml"), "--target-dir", target],
          "the Rust part")
    return os.path.join(target, "release")


def build_c(folder, libraries):
    """Builds the C programs and libraries and returns their folder."""
    built = os.path.join(WORK, "c-" + hashlib.sha1(folder.encode()).hexdigest()[:8])
    os.makedirs(built, exist_ok=True)
    sources = os.path.join(folder, "c")
    compiler = ["cc", "-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", "-I", os.path.join(KIT, "c")]
    for source in sorted(os.listdir(sources)) if os.path.isdir(sources) else []:
        name, kind = os.path.splitext(source)
        if kind == ".c" and not any(source == parts[0] for parts in libraries.values()):
            build([*compiler, os.path.join(sources, source), "-o", os.path.join(built, name), "-ldl"], source)
    for library, (source, *flags) in libraries.items():
        build([*compiler, "-shared", "-fPIC", *flags, os.path.join(sources, source), "-o", os.path.join(built, library)], source)
    return built


def find_memtrack(checkout, given):
    if given:
        return os.path.abspath(given)
    build(["cargo", "build", "--release", "--manifest-path", os.path.join(checkout, "Cargo.toml"), "-p", "memtrack-cli",
           "--target-dir", target_folder()], "the command")
    return os.path.join(target_folder(), "release", "memtrack")


def run_to_end(command, seconds, folder):
    """Runs a command in a folder; returns its exit code (None after a timeout), stdout and stderr. Kills everything that it
    started."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=folder, start_new_session=True,
                                   env={**os.environ, "RUST_BACKTRACE": "0"},
                                   preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, 0)))
        try:
            code = process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            code = None
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
        out.seek(0), err.seek(0)
        return code, out.read(), err.read()


def how_it_ended(code, err):
    number = -code if code < 0 else code - 128 if code > 128 else 0  # 128 + N: a command reports its child's signal
    how = f"ended by {signal.Signals(number).name}" if number in list(signal.Signals) else f"exit code {code}, no verdict"
    message = " ".join(err.decode(errors="replace").split("\n")[:2]).strip()  # for a panic, its place and its message
    return f"{how}: {message[:200]}" if message else how


def judge(commands, seconds):
    """Runs commands in an empty folder; the last one prints the verdict. Returns whether it is unharmed, and the observation."""
    folder = tempfile.mkdtemp(prefix="memtrack-harm-")
    try:
        for command in commands:
            code, out, err = run_to_end(command, seconds, folder)
            if code is None:
                return False, f"did not end within {seconds} s"
            if command is not commands[-1] and code != 0:
                return False, how_it_ended(code, err)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    try:
        answer = json.loads(out.decode(errors="replace").splitlines()[-1])
        unharmed, saw = answer["unharmed"], answer["saw"]
    except (ValueError, IndexError, KeyError, TypeError):
        return False, how_it_ended(code, err)
    if code != (0 if unharmed else 1):
        return False, f"{how_it_ended(code, err)} after: {saw}"
    return unharmed, saw


def run_scenario(scenario, rust, c, memtrack):
    """Returns None for an unharmed scenario, otherwise a line that describes the failure."""
    arguments = [argument.format(built=c) for argument in scenario.arguments]
    program = os.path.join(c, scenario.program)
    if os.path.exists(program):
        bare, monitored = [program, *arguments], [memtrack, "run", "--host", "--", program, *arguments]
    else:
        program = os.path.join(rust, scenario.program)
        bare, monitored = [program, "off", *arguments], [program, "on", *arguments]
    last = [[program, *scenario.afterwards]] if scenario.afterwards else []
    if scenario.baseline:
        for _ in range(scenario.tries):
            fine, saw = judge([bare, *last], scenario.seconds)
            if fine:
                break
        else:
            return f"broken: {scenario.name}: fails without memtrack: {saw}"
    for _ in range(scenario.tries):
        fine, saw = judge([monitored, *last], scenario.seconds)
        if fine:
            return None
    return f"fails: {scenario.name}: {saw}; must hold: {scenario.must}"


def main():
    given = options()
    checkout, folder = os.path.abspath(given.checkout), os.path.abspath(given.scenarios)
    listed = runpy.run_path(os.path.join(folder, "scenarios.py"), init_globals={"Scenario": Scenario})
    scenarios = [s for s in listed["SCENARIOS"] if not given.only or any(s.name.startswith(o) for o in given.only)]
    if given.list:
        for scenario in scenarios:
            print(f"{scenario.name}: {scenario.must}")
        return
    if not scenarios:
        stop("no scenario of that name")
    if not os.path.isdir(os.path.join(checkout, "memtrack-core")):
        stop(f"{checkout} is not a checkout of memtrack")
    rust, c = build_rust(checkout, folder), build_c(folder, listed.get("LIBRARIES", {}))
    needs_command = any(os.path.exists(os.path.join(c, s.program)) for s in scenarios)
    memtrack = find_memtrack(checkout, given.memtrack) if needs_command else None
    failures = []
    for scenario in scenarios:
        line = run_scenario(scenario, rust, c, memtrack)
        if line:
            print(line, flush=True)
            failures.append(line)
    print(f"{len(scenarios) - len(failures)} of {len(scenarios)} scenarios unharmed")
    sys.exit(bool(failures))


main()
