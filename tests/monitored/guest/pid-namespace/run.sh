#!/bin/bash
# Needs root. A program in another namespace of process ids whose /proc is that of the first: its process id names another process
# there, so it is not recorded.
. "$(dirname "$0")/../env.sh"
unshare --pid --fork true 2>/dev/null || exit 2
t() { unshare --pid --fork sh -c 'sh -c "echo 1; exit 0"; (echo 2); exit 3'; }
t >a.out; a=$?
for_at_most 20 "$M" run --host -o r -- unshare --pid --fork sh -c 'sh -c "echo 1; exit 0"; (echo 2); exit 3' >b.out 2>/dev/null; b=$?
echo "plain $a, memtrack $b; recordings: $(echo r*)"
# unshare itself, and no other: a recording of a later process has its id.
[ $a = $b ] && cmp -s a.out b.out && [ "$(echo r*)" = r ] && echo PASS || echo FAIL
