"""PyTorch's tensors and NumPy's arrays: `tensorpull.nvflare.decomposers.tensor.TensorDecomposer`."""

from __future__ import annotations

import tempfile
from typing import Any, Dict, Mapping, Tuple

from nvflare.app_common.utils.tensor_disk_offload_context import _TENSOR_DISK_OFFLOAD_ROOT_DIR
from nvflare.app_opt.pt.decomposers import TensorDecomposer as FlaresDecomposer
from nvflare.app_opt.pt.lazy_tensor_dict import LazyTensorDict
from nvflare.app_opt.pt.tensor_downloader import DiskTensorConsumer, TensorConsumer, TensorDownloadable
from nvflare.fuel.utils.fobs import FOBSContextKey

from .._files import land_in_files
from .._lazy import Later, aggregators_ask_first, real
from .._offer import Refused
from .._process import is_server, setting
from .._transfer import Decomposing, Offering, Pulling, warn_once


class OfferedTensors(Offering, TensorDownloadable):
    """A model of PyTorch, offered."""

    framework = "torch"


class PulledTensors(Pulling, TensorConsumer):
    """A model of PyTorch, pulled into new tensors."""


class AwaitedTensors(Later, PulledTensors):
    """A model of PyTorch, pulled when something asks for one of its tensors."""


class PulledFiles(Pulling, DiskTensorConsumer):
    """A model of PyTorch, pulled into safetensors files of FLARE's folder; no tensor is made."""

    takes_turns = False

    def land(self, place: Any, through: Any, where: Any, ref: Any, **how: Any) -> Any:
        return land_in_files(through, where, ref, self._temp_dir, **how)

    def outcome(self) -> Tuple[Any, Any]:
        if self.error:
            self.cleanup()
            return self.error, None
        self.release()
        return None, LazyTensorDict(key_to_file=self.result or {}, temp_dir=self._temp_dir)


class TensorDecomposer(Decomposing, FlaresDecomposer):
    """FLARE's decomposer of tensors and the one of arrays, with models that are pulled by tensorpull if both ends have it and can reach each other."""

    flares: Any = FlaresDecomposer
    offering = OfferedTensors

    def __init__(self) -> None:
        super().__init__()
        try:
            self.arrays()
        except Refused:
            raise
        except Exception as e:  # this version of FLARE has its own ones elsewhere
            self.logger.warning(f"tensorpull: NumPy's arrays travel by FLARE's chunks in this process: {type(e).__name__}: {e}")

    def arrays(self) -> Any:
        """Most recipes send a model of PyTorch as NumPy's arrays (`server_expected_format`): the same for those."""
        from .array import ArrayDecomposer

        return ArrayDecomposer()

    def to_downloadable(self, items: Dict[str, Any], max_chunk_size: int, fobs_ctx: Dict[str, Any]) -> Any:
        return super().to_downloadable(real(items), max_chunk_size, fobs_ctx)

    def consumer(self, cell: Any, fobs_ctx: Mapping[str, Any]) -> Pulling:
        everywhere = cell.get_fobs_context()
        if not fobs_ctx.get(FOBSContextKey.TENSOR_DISK_OFFLOAD, everywhere.get(FOBSContextKey.TENSOR_DISK_OFFLOAD, False)):
            return (AwaitedTensors if self._may_wait(cell) else PulledTensors)(None, {})
        root = fobs_ctx.get(_TENSOR_DISK_OFFLOAD_ROOT_DIR, everywhere.get(_TENSOR_DISK_OFFLOAD_ROOT_DIR))
        if not root:
            raise RuntimeError(f"{_TENSOR_DISK_OFFLOAD_ROOT_DIR} is not set in FLARE's context")
        return PulledFiles(tempfile.mkdtemp(prefix="nvflare_tensors_", dir=root))

    def _may_wait(self, cell: Any) -> bool:
        """The server's setting, if FLARE's sum is the one that it is known to be."""
        if not setting("lazy", False) or not is_server(cell.get_fqcn()):
            return False
        why = aggregators_ask_first()
        if why:
            warn_once(self.logger, f"updates are pulled before anything asks for them, as without tensorpull_lazy: {why}")
        return not why
