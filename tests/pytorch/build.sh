#!/bin/sh
# Builds the simulated CUDA runtime and the libraries that PyTorch loads with it. Usage: build.sh VENV
set -eu
site=$(echo "$1"/lib/python3*/site-packages)
here=$(dirname "$0")
out=$here/../../target/pytorch
mkdir -p "$out/lib" "$out/driver"
c++ -std=c++17 -O2 -Wall -shared -fPIC -o "$out/libsimulated_cuda.so" "$here/simulated_cuda.cpp" \
    -I"$site/nvidia/cu13/include" -ldl
# A driver and an NVML that do nothing, because PyTorch opens both libraries.
nm -D --undefined-only "$site/torch/lib/libcaffe2_nvrtc.so" | grep -oE ' cu[A-Z][A-Za-z0-9_]*' | sort -u |
    awk '{ print "int " $1 "(void) { return 0; }" }' | cc -shared -fPIC -x c -o "$out/lib/libcuda.so.1" -
cc -shared -fPIC -o "$out/lib/libnvidia-ml.so.1" "$here/simulated_nvml.c"
# The mock driver of memtrack's tests, for the pluggable allocator.
cp "$here/../../target/release/libmemtrack_mock_cuda.so" "$out/driver/libcuda.so.1"
cp "$out/lib/libnvidia-ml.so.1" "$out/driver"
