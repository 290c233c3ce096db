"""NumPy's arrays: `tensorpull.nvflare.decomposers.array.ArrayDecomposer`, for processes that register it before FLARE registers its own."""

from __future__ import annotations

import time
from typing import Any, Optional

from nvflare.app_common.decomposers.numpy_decomposers import NumpyArrayDecomposer
from nvflare.app_common.np.np_downloader import ArrayConsumer, ArrayDownloadable
from nvflare.fuel.f3.streaming.download_service import download_object

from .._transfer import Offering, Pulling, cell_of, report


class OfferedArrays(Offering, ArrayDownloadable):
    """A model of NumPy, offered."""


class PulledArrays(Pulling, ArrayConsumer):
    """A model of NumPy, pulled into new arrays."""


class ArrayDecomposer(NumpyArrayDecomposer):
    """FLARE's decomposer of arrays, whose models are pulled by tensorpull.

    FLARE registers its own one when a process starts, and the first registration of a type stays. So a job cannot name this class: `fobs.register` of it does nothing there.
    """

    def to_downloadable(self, items: dict, max_chunk_size: int, fobs_ctx: dict) -> Any:
        return OfferedArrays(items, max_chunk_size, cell_of(fobs_ctx))

    def download(
        self, from_fqcn: str, ref_id: str, per_request_timeout: float, cell: Any, secure: bool = False, optional: bool = False, abort_signal: Any = None,
        progress_cb: Any = None, fobs_ctx: Optional[dict] = None,
    ) -> Any:  # fmt: skip
        consumer = PulledArrays(None, {}).begin(cell, from_fqcn, ref_id, "numpy", per_request_timeout, secure, abort_signal)
        began = time.time()
        try:
            download_object(
                from_fqcn=from_fqcn, ref_id=ref_id, consumer=consumer, per_request_timeout=per_request_timeout, cell=cell, secure=secure, optional=optional,
                abort_signal=abort_signal, progress_cb=progress_cb,
            )  # fmt: skip
        except BaseException:
            consumer.download_failed(ref_id, "it did not end")
            raise
        report(self.logger, consumer, ref_id, from_fqcn, began)
        return consumer.error, consumer.result
