"""NumPy's arrays: `tensorpull.nvflare.decomposers.array.ArrayDecomposer`, for jobs of which a site has no PyTorch. `TensorDecomposer` does the same, and PyTorch's tensors besides."""

from __future__ import annotations

from typing import Any, Dict, Mapping

from nvflare.app_common.decomposers.numpy_decomposers import NumpyArrayDecomposer
from nvflare.app_common.np.np_downloader import ArrayConsumer, ArrayDownloadable

from .._pool import is_plain
from .._process import Refuge
from .._transfer import Decomposing, Offering, Pulling


class OfferedArrays(Offering, ArrayDownloadable):
    """A model of NumPy, offered."""

    framework = "numpy"

    def check(self, items: Dict[str, Any]) -> None:
        for array in items.values():
            if not is_plain(array.dtype):
                raise Refuge(f"an array of {str(array.dtype)[:60]} is among them, which tensorpull does not bring as it is")


class PulledArrays(Pulling, ArrayConsumer):
    """A model of NumPy, pulled into new arrays."""


class ArrayDecomposer(Decomposing, NumpyArrayDecomposer):
    """FLARE's decomposer of arrays, with models that are pulled by tensorpull if both ends have it and can reach each other."""

    flares: Any = NumpyArrayDecomposer
    offering = OfferedArrays

    def consumer(self, cell: Any, fobs_ctx: Mapping[str, Any]) -> PulledArrays:
        return PulledArrays(None, {})
