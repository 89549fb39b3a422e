#!/bin/sh
# Object graphs of Python programs by memtrack's script, and what PyTorch makes of the same objects.
# Usage: cycles.sh VENV OUT [argument of cycles.py ...]; makes the environment VENV (5 GB) if it is not there.
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
