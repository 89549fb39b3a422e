#!/bin/bash
# Takes 15 seconds. The collector is stopped for 13 seconds, as by a debugger, while a program allocates; then it continues, and so does
# the recording.
. "$(dirname "$0")/../env.sh"
gcc -O1 -fno-builtin -o p "$HERE/main.c" || exit 2
"$M" run --host -o r -- ./p go end 2>err & w=$!
until [ -e begun ]; do sleep 0.05; done
c=$(pgrep -P $w memtrack-collec) || { echo "no collector"; exit 2; }
kill -STOP $c; touch go; sleep 13; kill -CONT $c; sleep 0.5; touch end; wait $w; b=$?
"$M" summary r >s 2>&1; late=$("$M" top r 2>&1 | grep -c late)
echo "memtrack $b, blocks after the stop that are recorded: $late"
[ $b = 0 ] && [ $late -gt 0 ] && echo PASS || echo FAIL
