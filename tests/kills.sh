#!/bin/sh
# Ends a program that streams its recording, at a random instant, by SIGKILL, abort, SIGSEGV, failed allocation or full
# disk, and checks each time that the file can be opened and contains all events up to the documented delay (half a second)
# before the end. The machine must be otherwise idle.
# Usage: tests/kills.sh [TIMES]     1,000 by default: about twenty minutes
cd "$(dirname "$0")/.." || exit 1
MEMTRACK_KILLS=${1:-1000} exec cargo test --release -p memtrack-tests --test recorder kills -- --nocapture
