"""Models for run_memory_tracker.py."""
import torch
import torch.nn as nn


def mlp():
    return nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 10)), torch.randn(128, 256)


def convnet():
    return nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1),
                         nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Dropout(0.2), nn.Linear(512, 10)), torch.randn(16, 3, 64, 64)


def encoder():
    layer = nn.TransformerEncoderLayer(64, 4, 256, dropout=0.1, batch_first=True)
    return nn.Sequential(nn.Linear(32, 64), nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.LayerNorm(64), nn.Linear(64, 8)), torch.randn(8, 40, 32)


MODELS = {"mlp": mlp, "convnet": convnet, "encoder": encoder}
