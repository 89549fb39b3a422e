#!/bin/sh
# Compares memtrack's and PyTorch's object graphs of Python programs.
# Usage: cycles.sh VENV OUT [argument of cycles.py ...]; creates the environment VENV (5 GB) if it does not exist.
set -eu
venv=$1
out=$2
shift 2
here=$(cd "$(dirname "$0")" && pwd)
version=${PYTORCH:-2.15.0}
if ! [ -x "$venv/bin/python" ]; then
    "${PYTHON:-python3}" -m venv "$venv"
    "$venv/bin/pip" install --no-cache-dir "torch==$version" numpy
fi
exec "$venv/bin/python" "$here/cycles.py" "$out" "$@"
