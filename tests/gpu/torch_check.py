"""Runs training steps on device 0 and writes PyTorch's statistics of their memory. Argument: the file for the statistics."""
import json
import sys

import torch

torch.manual_seed(0)
model = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(8)]).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(3):
    model(torch.randn(4096, 1024, device="cuda")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
torch.cuda.synchronize()
stats = torch.cuda.memory_stats()
with open(sys.argv[1], "w") as file:
    json.dump({
        "torch": torch.__version__,
        "reserved_peak": stats["reserved_bytes.all.peak"],
        "reserved": stats["reserved_bytes.all.current"],
        "segments": stats.get("segment.all.allocated"),
    }, file)
