#!/usr/bin/env python3
"""check.py [MEMTRACK] [--only NAME ...] [--real FOLDER]: memtrack's output equals PyTorch's, for all the reference data of this folder.

MEMTRACK is the command; without it, the newest of target/release/memtrack and target/debug/memtrack. Prints the result of each
check, and exits with 1 if anything differs. --only runs some of the checks. --real adds snapshots that cannot be
published (snapshots.py describes the folder). Standard library only."""
import argparse
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
CHECKS = ("tracker", "snapshots", "profiles", "cycles", "allocator", "hostile")


def newest_build():
    built = [os.path.join(ROOT, "target", profile, "memtrack") for profile in ("release", "debug")]
    built = [path for path in built if os.path.exists(path)]
    return max(built, key=os.path.getmtime, default=None)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("memtrack", nargs="?")
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=CHECKS, default=CHECKS)
    parser.add_argument("--real", metavar="FOLDER")
    given = parser.parse_args()
    memtrack = given.memtrack or newest_build()
    if not memtrack or not os.path.exists(memtrack):
        sys.exit("there is no command to check: cargo build --release -p memtrack-cli, or give its path: check.py PATH/TO/memtrack")
    failed = []
    for name in CHECKS:
        if name not in given.only:
            continue
        print(f"{name}:", flush=True)
        more = ["--real", given.real] if name == "snapshots" and given.real else []
        if subprocess.run([sys.executable, os.path.join(HERE, f"{name}.py"), memtrack, *more]).returncode:
            failed.append(name)
    if failed:
        sys.exit("failed: " + ", ".join(failed))


main()
