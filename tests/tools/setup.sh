#!/usr/bin/env bash
# Installs the programs with which the scripts in this folder open memtrack's output: Debian packages unless they are
# already installed, and packages of PyPI and npm in FOLDER. If a script needs another package, add it to a list here.
# Usage: tests/tools/setup.sh FOLDER     then run scripts with FOLDER/venv/bin/python3
set -euo pipefail
work=$(mkdir -p "$1" && cd "$1" && pwd)

# command:package
debian=(go:golang-go chromium:chromium npm:npm)
python=(duckdb perfetto protobuf pyarrow ruff sqlglot)
npm=(speedscope@1.25.0 playwright-core@1.65.1)

# Three times, because mirrors fail.
retry() {
  local try
  for try in 1 2 3; do
    if "$@"; then return 0; fi
    sleep $((try * 5))
  done
  echo "$0: failed: $*" >&2
  return 1
}
debian_install() {
  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

missing=()
for one in "${debian[@]}"; do
  command -v "${one%%:*}" >/dev/null || missing+=("${one##*:}")
done
[ ${#missing[@]} = 0 ] || retry debian_install "${missing[@]}"

[ -x "$work/venv/bin/python3" ] || python3 -m venv "$work/venv"
retry "$work/venv/bin/python3" -m pip install --quiet --disable-pip-version-check "${python[@]}"

mkdir -p "$work/npm"
retry npm --cache "$work/npm/.cache" --prefix "$work/npm" install --no-audit --no-fund --loglevel=error "${npm[@]}" >/dev/null
