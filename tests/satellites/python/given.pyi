"""What the pages' Python uses and does not make: its types, for test_types.py."""

from typing import Any, Dict

import numpy
import tensorpull
import torch

class Net(torch.nn.Module):
    encoder: torch.nn.Module
    head: torch.nn.Module

class Engine:
    def load_weight(self, name: str, tensor: Any) -> None: ...

engine: Engine
model: Net
optimizer: torch.optim.Optimizer
owner: tensorpull.Downloader
session: tensorpull.Session
ref: tensorpull.Reference
ref_id: tensorpull.Reference
ref_1: str
ref_2: str
shared: Dict[str, torch.Tensor]
last_round: Dict[str, torch.Tensor]
mine: Dict[str, Any]
base: Dict[str, torch.Tensor]
feedback: tensorpull.ErrorFeedback
offset: int
nbytes: int
version: int
np = numpy
