#!/usr/bin/env bash
# Exports 64 ranks with Spark, on a cluster of two workers on this machine of which one is killed during the export, and runs
# memtrack-cli/queries in Spark SQL. Run it by hand, because it installs PySpark in FOLDER (0.5 GB), and Debian's Java if
# there is none.
# Usage: tests/tools/spark.sh MEMTRACK FOLDER
set -euo pipefail
[ $# = 2 ] || { sed -n 's/^# U/u/p' "$0" >&2; exit 2; }
memtrack=$(realpath "$1")
work=$(mkdir -p "$2" && cd "$2" && pwd)
tools=$(cd "$(dirname "$0")" && pwd)

if ! command -v java >/dev/null; then
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends openjdk-17-jre-headless >/dev/null
fi
[ -x "$work/venv/bin/python3" ] || python3 -m venv "$work/venv"
"$work/venv/bin/python3" -m pip install --quiet --disable-pip-version-check pyspark==4.3.0
exec "$work/venv/bin/python3" "$tools/spark.py" "$memtrack"
