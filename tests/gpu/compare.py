"""Compares PyTorch's statistics with memtrack's summary of the same run. PyTorch's segments are allocations of the driver, and
libraries can allocate more. So memtrack must report at least as many bytes, but not many more. With cudaMallocAsync, PyTorch
counts the bytes that the driver's pool reserves; memtrack records only the bytes that are allocated from the pool."""
import json
import os
import sys

SLACK = 512 << 20  # workspaces of libraries that do not go through PyTorch's allocator

with open(sys.argv[1]) as file:
    torch = json.load(file)
with open(sys.argv[2]) as file:
    device = json.load(file)["devices"][0]
recorded = device["peak"]["requested_bytes"]
reserved = torch["reserved_peak"]
pooled = "cudaMallocAsync" in os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "")
fine = recorded <= reserved + SLACK if pooled else reserved <= recorded <= reserved + SLACK
print(f"torch {torch['torch']}: reserved at most {reserved}, in {torch['segments']} segments")
print(f"memtrack: driver memory at most {recorded}, difference {recorded - reserved}: {'fine' if fine else 'NOT FINE'}")
sys.exit(not fine)
