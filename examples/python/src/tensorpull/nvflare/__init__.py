"""NVIDIA FLARE's models, of PyTorch or NumPy, travel by tensorpull; FLARE decides which sites take part, when and for how long, as before.

    recipe.add_decomposers(["tensorpull.nvflare.decomposers.tensor.TensorDecomposer"])

It needs NVIDIA FLARE 2.9 at those sites that use it; others go on with FLARE's own chunks. Nothing is imported here before it is used, so that a process without FLARE or
without torch may look around.
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    if name == "Memory":
        from .memory import Memory

        return Memory
    if name == "DifferenceAggregator":
        from .differences import DifferenceAggregator

        return DifferenceAggregator
    if name == "WeighingAggregator":
        from .weighing import WeighingAggregator

        return WeighingAggregator
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
