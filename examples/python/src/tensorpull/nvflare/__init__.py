"""NVIDIA FLARE's models, of PyTorch or NumPy, travel by tensorpull; FLARE decides which sites take part, when and for how long, as before.

    tensorpull.nvflare.add_to(recipe)

It needs NVIDIA FLARE 2.9 at those sites that use it; others go on with FLARE's own chunks. Nothing is imported here before it is used, so that a process without FLARE or
without torch may look around.
"""

from __future__ import annotations

import pathlib
import sys
from typing import Any

#: A file for the folder `custom` of a job, whose class `tensorpull_or_flare.Decomposer` is FLARE's own where this package cannot be imported.
JOBS_FILE = str(pathlib.Path(__file__).parent / "for_jobs" / "tensorpull_or_flare.py")


def add_to(recipe: Any) -> None:
    """Adds this package to a recipe of FLARE, or to a `FedJob`: the server and all sites that can import it use it, and the others go on with FLARE's chunks. The job carries a file of its own,
    so each site has to let it bring code, as any job with a training script does. ValueError: a `FedJob` that has nothing for its clients yet."""
    folder = str(pathlib.Path(JOBS_FILE).parent)
    if folder not in sys.path:  # FLARE loads the class here, too, and gives the file its name among what can be imported
        sys.path.append(folder)
    classes = ["tensorpull_or_flare.Decomposer"]
    if hasattr(recipe, "add_decomposers"):
        recipe.add_server_file(JOBS_FILE)
        recipe.add_client_file(JOBS_FILE)
        recipe.add_decomposers(classes)
    else:
        from nvflare.apis.job_def import SERVER_SITE_NAME
        from nvflare.app_common.widgets.decomposer_reg import DecomposerRegister

        clients = [target for target in recipe._deploy_map if target != SERVER_SITE_NAME]  # FLARE's recipes look here, too
        if not clients:
            raise ValueError("add_to(job) comes after what the job's clients run, job.to_clients(...) or job.to(..., site): what is for all of them would be in the place of each site's own")
        for target in (SERVER_SITE_NAME, *clients):
            recipe.to(JOBS_FILE, target)
            recipe.to(DecomposerRegister(classes), target, id="decomposer_reg")


def __getattr__(name: str) -> Any:
    if name == "Memory":
        from .memory import Memory

        return Memory
    if name == "for_ranks":
        from ._trainer import for_ranks

        return for_ranks
    if name == "DifferenceAggregator":
        from .differences import DifferenceAggregator

        return DifferenceAggregator
    if name == "WeighingAggregator":
        from .weighing import WeighingAggregator

        return WeighingAggregator
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
