"""NumPy's arrays: `tensorpull.nvflare.decomposers.array.ArrayDecomposer`, for processes that register it before FLARE registers its own."""

from __future__ import annotations

from typing import Any, Mapping

from nvflare.app_common.decomposers.numpy_decomposers import NumpyArrayDecomposer
from nvflare.app_common.np.np_downloader import ArrayConsumer, ArrayDownloadable

from .._transfer import Decomposing, Offering, Pulling


class OfferedArrays(Offering, ArrayDownloadable):
    """A model of NumPy, offered."""


class PulledArrays(Pulling, ArrayConsumer):
    """A model of NumPy, pulled into new arrays."""


class ArrayDecomposer(Decomposing, NumpyArrayDecomposer):
    """FLARE's decomposer of arrays, with models that are pulled by tensorpull.

    FLARE registers its own one when a process starts, and the first registration of a type stays. So a job cannot name this class: `fobs.register` of it does nothing there.
    """

    offering = OfferedArrays
    framework = "numpy"

    def consumer(self, cell: Any, fobs_ctx: Mapping[str, Any]) -> PulledArrays:
        return PulledArrays(None, {})
