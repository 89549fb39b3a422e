"""PyTorch's statistics beside memtrack's summary of the same run. PyTorch's segments are the driver's allocations, and
libraries may allocate besides: so memtrack must say at least as much, and not much more. With cudaMallocAsync, PyTorch
counts what the driver's pool reserves, of which memtrack sees what is handed out."""
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
