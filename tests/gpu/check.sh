#!/usr/bin/env bash
# Runs the checks that need a machine with an NVIDIA GPU, and prints a table for docs/RUN.md. It needs only built binaries:
#   cargo build --release -p memtrack-cli -p memtrack-tests --bins
#   tests/gpu/check.sh [FOLDER OF THE BINARIES, by default target/release]
# Exits with 1 if memtrack's sums are wrong.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
bin=${1:-$here/../../target/release}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
failed=0

for needed in memtrack gpu_check; do
  if [ ! -x "$bin/$needed" ]; then
    echo "check.sh: $bin/$needed is missing: cargo build --release -p memtrack-cli -p memtrack-tests --bins" >&2
    exit 2
  fi
done

echo "== machine"
uname -srm
"$bin/memtrack" --version
"$bin/memtrack" gpus || exit 3

echo
echo "== cudarc, the hook linked in"
"$bin/gpu_check" || failed=1

echo
echo "== PyTorch under memtrack run"
if python3 -c 'import torch; raise SystemExit(not torch.cuda.is_available())' 2>/dev/null; then
  for config in expandable_segments:False expandable_segments:True backend:cudaMallocAsync; do
    echo "-- PYTORCH_CUDA_ALLOC_CONF=$config"
    rm -f "$out/torch.memtrack"
    if PYTORCH_CUDA_ALLOC_CONF=$config "$bin/memtrack" run -o "$out/torch.memtrack" -- \
        python3 "$here/torch_check.py" "$out/stats.json" \
      && "$bin/memtrack" summary "$out/torch.memtrack" --device 0 --json >"$out/summary.json"; then
      PYTORCH_CUDA_ALLOC_CONF=$config python3 "$here/compare.py" "$out/stats.json" "$out/summary.json" || failed=1
    else
      echo "failed"
      failed=1
    fi
  done
else
  echo "left out: python3 has no torch with CUDA"
fi

exit $failed
