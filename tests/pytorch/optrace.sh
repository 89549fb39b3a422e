#!/bin/sh
# Records operator traces of PyTorch with memtrack's script, and compares PyTorch's and memtrack's analyses of them.
# Usage: optrace.sh VENV OUT [argument of optrace.py ...]; creates the environment VENV (5 GB) if it does not exist.
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
exec "$venv/bin/python" "$here/optrace.py" "$out" "$@"
