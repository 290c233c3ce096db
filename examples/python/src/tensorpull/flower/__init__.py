"""Flower's models and updates travel by tensorpull; Flower decides which nodes take part, when and for how long, as before.

    # the ServerApp
    with tensorpull.flower.Grid(grid) as grid:
        FedAvg().start(grid=grid, initial_arrays=arrays)

    # the ClientApp
    from tensorpull.flower import ClientApp

It needs Flower 1.42 at those ends that use it; a node without it gets Flower's own records. Nothing of Flower is imported before it is used. ImportError: there is no Flower, or another one than this package knows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._client import ClientApp as ClientApp, mod as mod
    from ._grid import Grid as Grid


def __getattr__(name: str) -> Any:
    if name == "Grid":
        from ._grid import Grid

        return Grid
    if name in ("ClientApp", "mod"):
        from . import _client

        return getattr(_client, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
