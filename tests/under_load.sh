#!/usr/bin/env bash
# Runs all tests under load: alongside programs that use the processors, memory bandwidth and disk, and on one processor only. A
# test that depends on timing fails in some of these runs. Prints each failure with the test's name; exits with 1 if any failed,
# with 2 on wrong usage or without stress-ng.
# Usage: tests/under_load.sh [-n ROUNDS] [load|pinned] [-- ARGUMENTS OF CARGO TEST]
#   -n ROUNDS   rounds of each part, 5 by default
#   load        only alongside `stress-ng --cpu 4 --vm 2 --io 2` (Debian's package stress-ng)
#   pinned      only on one processor (`taskset -c 0`)
#   ARGUMENTS   instead of `--workspace`, for example: -p memtrack-tests --test recorder kills
# The output of each round stays in target/under_load.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 2

usage() {
  sed -n '/^# Usage/,/^# The output/p' "$0" | sed 's/^# \{0,1\}//' >&2
  exit 2
}

rounds=5
parts=(load pinned)
while [ $# -gt 0 ]; do
  case $1 in
    -n)
      [ $# -ge 2 ] || usage
      rounds=$2
      shift
      ;;
    load | pinned) parts=("$1") ;;
    --)
      shift
      break
      ;;
    *) usage ;;
  esac
  shift
done
case $rounds in '' | *[!0-9]* | 0) usage ;; esac
what=("$@")
[ ${#what[@]} -gt 0 ] || what=(--workspace)

needs() {
  command -v "$1" >/dev/null || {
    echo "$1 is not installed (Debian: apt-get install $2)" >&2
    exit 2
  }
}
for part in "${parts[@]}"; do
  if [ "$part" = load ]; then needs stress-ng stress-ng; else needs taskset util-linux; fi
done

stress=
# stress-ng and its workers are one process group; workers that outlive stress-ng are killed here.
end_stress() {
  [ -n "$stress" ] || return 0
  kill "$stress" 2>/dev/null
  wait "$stress" 2>/dev/null
  kill -KILL -- "-$stress" 2>/dev/null
  stress=
}
running=
clean_up() {
  local code=$?
  trap - EXIT
  # Cargo and the tests are one process group.
  [ -z "$running" ] || kill -- "-$running" 2>/dev/null
  end_stress
  exit "$code"
}
trap clean_up EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

logs=target/under_load
mkdir -p "$logs"
failures=()

# Runs the tests once; $1 is the name of the round, the rest is the command that runs cargo.
round() {
  local name=$1 log="$logs/$1.log" start=$SECONDS code failed
  shift
  # Runs as a process group, so that all of it can be killed; in the background, so that traps run immediately.
  set -m
  "$@" cargo test "${what[@]}" --no-fail-fast </dev/null >"$log" 2>&1 &
  running=$!
  set +m
  wait "$running"
  code=$?
  running=
  # Includes test programs that a signal has ended, for which cargo prints no test.
  mapfile -t failed < <(sed -n -e 's/^test \(.*\) \.\.\. FAILED$/\1/p' \
    -e "s/^ *process didn't exit successfully: \(.*(signal.*\)/\1/p" "$log")
  # Nothing was tested, or a test program died before it could print its results.
  if [ ${#failed[@]} = 0 ] && [ "$code" != 0 ]; then failed=("cargo test itself: see $log"); fi
  echo "$name: $(grep -c '^test .* \.\.\. ok$' "$log") passed, ${#failed[@]} failed, $((SECONDS - start)) s"
  local test
  for test in "${failed[@]}"; do
    echo "  $test"
    failures+=("$name: $test")
  done
}

# Builds the tests first, so that no round includes the build.
cargo test "${what[@]}" --no-run --quiet || exit 1
for part in "${parts[@]}"; do
  for number in $(seq "$rounds"); do
    if [ "$part" = pinned ]; then
      round "pinned-$number" taskset -c 0
      continue
    fi
    set -m
    stress-ng --cpu 4 --vm 2 --io 2 --quiet --temp-path "$logs" &
    stress=$!
    set +m
    round "load-$number" env
    # A round counts only if the load lasted until its end.
    if ! kill -0 "$stress" 2>/dev/null; then
      failures+=("load-$number: stress-ng ended before the tests")
      echo "  stress-ng ended before the tests"
    fi
    end_stress
  done
done

if [ ${#failures[@]} = 0 ]; then
  echo "no failure in $rounds rounds of: ${parts[*]}"
  exit 0
fi
printf '%s\n' "" "failures: ${#failures[@]}" "${failures[@]/#/  }"
printf '%s\n' "each with its output in $logs"
exit 1
