#!/bin/sh
# Ends a program that streams its recording, at a random instant, by SIGKILL, abort, SIGSEGV, failed allocation or full
# disk, and checks each time that the file opens and holds what was recorded up to the stated delay (half a second) before.
# The machine must do nothing else meanwhile.
# Usage: tests/kills.sh [TIMES]     1,000 by default: about twenty minutes
cd "$(dirname "$0")/.." || exit 1
MEMTRACK_KILLS=${1:-1000} exec cargo test --release -p memtrack-tests --test recorder kills -- --nocapture
