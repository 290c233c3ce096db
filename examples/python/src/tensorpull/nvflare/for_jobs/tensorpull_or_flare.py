"""A job's own file: `Decomposer` is this package's where it can be imported, and FLARE's where it cannot, so that one site without it does not end the job.

`tensorpull.nvflare.add_to(recipe)` puts it into the job. It imports nothing that such a site lacks.
"""

import importlib
import logging
import os

_CLASSES = (  # the first that can be imported; the second where there is no PyTorch
    ("tensorpull.nvflare.decomposers.tensor", "TensorDecomposer"),
    ("tensorpull.nvflare.decomposers.array", "ArrayDecomposer"),
    ("nvflare.app_opt.pt.decomposers", "TensorDecomposer"),
    ("nvflare.app_common.decomposers.numpy_decomposers", "NumpyArrayDecomposer"),
)


def _first():
    why = None
    for module, name in _CLASSES:
        try:
            found = getattr(importlib.import_module(module), name)
        except Exception as e:  # noqa: BLE001: an installation that is broken is as good as none
            why = why or e
            continue
        if module.startswith("nvflare.") and os.environ.get("NVFLARE_TENSORPULL_KEYS"):
            raise ImportError("this site takes signed models alone (NVFLARE_TENSORPULL_KEYS), and cannot import tensorpull.nvflare") from why
        if module.startswith("nvflare."):
            logging.getLogger("tensorpull").warning(f"tensorpull: models travel by FLARE's chunks in this process, which cannot import tensorpull.nvflare: {why}")
        return found
    raise ImportError("neither tensorpull nor NVIDIA FLARE has a decomposer here") from why


Decomposer: type = _first()
