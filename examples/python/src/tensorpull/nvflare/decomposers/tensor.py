"""PyTorch's tensors: `tensorpull.nvflare.decomposers.tensor.TensorDecomposer`."""

from __future__ import annotations

import tempfile
import time
from typing import Any, Optional

from nvflare.app_common.utils.tensor_disk_offload_context import _TENSOR_DISK_OFFLOAD_ROOT_DIR
from nvflare.app_opt.pt.decomposers import TensorDecomposer as FlaresDecomposer
from nvflare.app_opt.pt.lazy_tensor_dict import LazyTensorDict
from nvflare.app_opt.pt.tensor_downloader import DiskTensorConsumer, TensorConsumer, TensorDownloadable
from nvflare.fuel.f3.streaming.download_service import download_object
from nvflare.fuel.utils.fobs import FOBSContextKey

from .._files import land_in_files
from .._memory import land_in_kept
from .._transfer import Offering, Pulling, cell_of, report


class OfferedTensors(Offering, TensorDownloadable):
    """A model of PyTorch, offered."""


class PulledTensors(Pulling, TensorConsumer):
    """A model of PyTorch, pulled into new tensors."""

    def land(self, place: Any, through: Any, where: Any, ref: str, **how: Any) -> Any:
        return land_in_kept(through, where, ref, place.kept, **how)


class PulledFiles(Pulling, DiskTensorConsumer):
    """A model of PyTorch, pulled into safetensors files of FLARE's folder; no tensor is made."""

    def land(self, place: Any, through: Any, where: Any, ref: str, **how: Any) -> Any:
        return land_in_files(through, where, ref, self._temp_dir, **how)


class TensorDecomposer(FlaresDecomposer):
    """FLARE's decomposer of tensors, whose models are pulled by tensorpull where both ends have it and can reach each other."""

    def to_downloadable(self, items: dict, max_chunk_size: int, fobs_ctx: dict) -> Any:
        return OfferedTensors(items, max_chunk_size, cell_of(fobs_ctx))

    def download(
        self, from_fqcn: str, ref_id: str, per_request_timeout: float, cell: Any, secure: bool = False, optional: bool = False, abort_signal: Any = None,
        progress_cb: Any = None, fobs_ctx: Optional[dict] = None,
    ) -> Any:  # fmt: skip
        everywhere, here = cell.get_fobs_context(), fobs_ctx or {}
        folder = None
        if here.get(FOBSContextKey.TENSOR_DISK_OFFLOAD, everywhere.get(FOBSContextKey.TENSOR_DISK_OFFLOAD, False)):
            root = here.get(_TENSOR_DISK_OFFLOAD_ROOT_DIR, everywhere.get(_TENSOR_DISK_OFFLOAD_ROOT_DIR))
            if not root:
                raise RuntimeError(f"{_TENSOR_DISK_OFFLOAD_ROOT_DIR} is not set in FLARE's context")
            folder = tempfile.mkdtemp(prefix="nvflare_tensors_", dir=root)
        consumer = PulledFiles(folder) if folder else PulledTensors(None, {})
        consumer.begin(cell, from_fqcn, ref_id, "torch", per_request_timeout, secure, abort_signal)
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
        if not folder:
            return consumer.error, consumer.result
        if consumer.error:
            consumer.cleanup()
            return consumer.error, None
        consumer.release()
        return None, LazyTensorDict(key_to_file=consumer.result or {}, temp_dir=folder)
