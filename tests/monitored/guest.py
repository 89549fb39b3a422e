#!/usr/bin/env python3
"""guest.py CHECKOUT MEMTRACK [--scenarios FOLDER] [--only NAME ...] [--list]: a program does not notice memtrack.

Each folder of guest/ has a run.sh that runs a program without and with memtrack and prints PASS or FAIL at the end, after its
observations. A scenario is skipped if it lacks something (exit code 2: a package, a device, rights). Scenarios with a Rust program use
$LIVES, which is built here from the checkout. Needs gcc and g++; some need Debian packages, which they name. Standard library only."""
import argparse
import os
import subprocess
import sys
import tempfile

here = os.path.dirname(os.path.abspath(__file__))


def build_lives(checkout):
    """Builds the Rust program against the checkout and returns its path."""
    work = os.path.join(tempfile.gettempdir(), "memtrack-guest")
    os.makedirs(os.path.join(work, "src", "bin"), exist_ok=True)
    source = open(os.path.join(here, "guest", "rust", "src", "bin", "lives.rs")).read()
    path = os.path.join(work, "src", "bin", "lives.rs")
    if not os.path.exists(path) or open(path).read() != source:
        open(path, "w").write(source)
    open(os.path.join(work, "Cargo.toml"), "w").write(
        '[workspace]\n[package]\nname = "guest"\nversion = "0.0.0"\nedition = "2024"\n[dependencies]\nlibc = "0.2"\n'
        f'memtrack-core = {{ path = "{checkout}/memtrack-core" }}\n[profile.release]\ndebug = "line-tables-only"\n')
    target = os.environ.get("MEMTRACK_HARM_TARGET", os.path.join(work, "target"))
    done = subprocess.run(["cargo", "build", "--release", "--quiet"], cwd=work, env=dict(os.environ, CARGO_TARGET_DIR=target), capture_output=True, text=True)
    if done.returncode:
        print("the Rust part does not build:", done.stderr.strip()[-600:])
        sys.exit(1)
    return os.path.join(target, "release", "lives")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout")
    parser.add_argument("memtrack", nargs="?")
    parser.add_argument("--scenarios", default=os.path.join(here, "guest"))
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    folder = os.path.abspath(options.scenarios)
    names = [n for n in sorted(os.listdir(folder)) if os.path.exists(os.path.join(folder, n, "run.sh")) and (not options.only or n in options.only)]
    if options.list:
        print("\n".join(names))
        return
    checkout = os.path.abspath(options.checkout)
    environment = dict(os.environ, MEMTRACK=os.path.abspath(options.memtrack))
    if any("$LIVES" in open(os.path.join(folder, n, "run.sh")).read() for n in names):
        environment["LIVES"] = build_lives(checkout)
    passed = failed = skipped = 0
    for name in names:
        try:
            done = subprocess.run(["bash", os.path.join(folder, name, "run.sh")], env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=400, errors="replace")
            lines, code = done.stdout.strip().splitlines(), done.returncode
        except subprocess.TimeoutExpired:
            lines, code = ["FAIL: did not end within 400 s"], 1
        verdict = "skipped" if code == 2 else "unharmed" if lines and lines[-1].startswith("PASS") else "fails"
        passed, failed, skipped = passed + (verdict == "unharmed"), failed + (verdict == "fails"), skipped + (verdict == "skipped")
        output = "; ".join(lines[-4:])[:300]
        print(f"{verdict}: {name}" + (f": {output}" if verdict != "unharmed" else ""), flush=True)
    print(f"{passed} of {passed + failed} scenarios unharmed" + (f", {skipped} skipped" if skipped else ""))
    sys.exit(failed != 0)


main()
