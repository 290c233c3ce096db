"""Memory that models land in again: a round's model takes the place of one that nobody uses any more.

Fresh memory is cleared by the system page by page, which takes longer than the transfer. So the blocks of large tensors are kept when the last user lets go of them, up to a number of bytes.
"""

from __future__ import annotations

import math
import mmap
import threading
import weakref
from collections import deque
from typing import Any, Callable, Deque, Dict, List, Optional, Tuple

from .. import _native
from .._tensors import make_or_refuse, numpy_dtype, torch_dtype
from .._trees import arrive
from .._types import Receipt, TensorDict
from ._files import fetch
from ._offer import Refused

#: Of a huge page. A smaller tensor's memory is torch's.
_PAGE = 2 << 20


class Kept:
    """Blocks that are free, of at most `most` bytes in all."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._lock = threading.Lock()
        self._free: List[mmap.mmap] = []
        self._back: Deque[mmap.mmap] = deque()  # a finalizer may run within `take`, so it takes no lock

    def _sort(self) -> int:
        """Takes in what has come back, and lets go of the oldest above the limit; the bytes that are free."""
        while self._back:
            self._free.append(self._back.popleft())
        free = sum(len(block) for block in self._free)
        while free > self.most:
            free -= len(self._free.pop(0))
        return free

    def _give(self, block: mmap.mmap) -> None:
        self._back.append(block)
        if self._lock.acquire(False):  # the thread that has it sorts
            try:
                self._sort()
            finally:
                self._lock.release()

    def take(self, nbytes: int) -> Any:
        """An array of bytes, at a multiple of a huge page. Its memory comes back here when nothing refers to the array, as torch's tensors from it do."""
        import numpy

        size = (nbytes + _PAGE - 1) // _PAGE * _PAGE + _PAGE
        with self._lock:
            self._sort()
            fits = next((i for i, block in enumerate(self._free) if len(block) == size), None)
            block = self._free.pop(fits) if fits is not None else None
        if block is None:
            block = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        whole = numpy.frombuffer(block, numpy.uint8)
        begin = -whole.ctypes.data % _PAGE
        array = numpy.frombuffer(block, numpy.uint8, nbytes, begin)
        weakref.finalize(array, self._give, block).atexit = False
        return array

    def free_bytes(self) -> int:
        """Of the blocks that nobody uses."""
        with self._lock:
            return self._sort()


def is_plain(dtype: Any) -> bool:
    """One of NumPy's own that tensorpull carries, in this machine's byte order. FLARE's chunks bring others differently, or alone."""
    return bool(dtype.isbuiltin == 1 and dtype.isnative and _native.numpy_format(dtype.str) is not None)


def kept_maker(made: Dict[str, Any], kept: Kept, framework: str) -> Callable[[str, str, Tuple[int, ...]], Tuple[int, int]]:
    """As `numpy_maker` and `torch_maker`, with the memory of `kept` for tensors of at least two huge pages. Refuses arrays that FLARE's chunks cannot bring."""
    kinds = _TorchTensors() if framework == "torch" else _Arrays()

    def make(name: str, dtype: str, shape: Tuple[int, ...]) -> Tuple[int, int]:
        kind, shape = kinds.dtype(name, dtype, shape)

        def empty() -> Any:
            nbytes = kind.itemsize * math.prod(shape)
            if not 2 * _PAGE <= nbytes <= kept.most:
                return kinds.empty(shape, kind)
            return kinds.over(kept.take(nbytes), kind).reshape(shape)

        tensor = make_or_refuse(name, shape, empty)
        made[name] = tensor
        return kinds.address(tensor), tensor.nbytes

    return make


class _TorchTensors:
    def dtype(self, name: str, dtype: str, shape: Tuple[int, ...]) -> Tuple[Any, Tuple[int, ...]]:
        return torch_dtype(name, dtype, shape)

    def empty(self, shape: Tuple[int, ...], kind: Any) -> Any:
        import torch

        return torch.empty(shape, dtype=kind)

    def over(self, block: Any, kind: Any) -> Any:
        import torch

        return torch.frombuffer(block, dtype=torch.uint8).view(kind)

    def address(self, tensor: Any) -> int:
        return int(tensor.data_ptr())


class _Arrays:
    def dtype(self, name: str, dtype: str, shape: Tuple[int, ...]) -> Tuple[Any, Tuple[int, ...]]:
        kind = numpy_dtype(name, dtype)
        if not is_plain(kind):
            raise Refused(f"NumPy itself has no {dtype}")
        return kind, shape

    def empty(self, shape: Tuple[int, ...], kind: Any) -> Any:
        import numpy

        return numpy.empty(shape, kind)

    def over(self, block: Any, kind: Any) -> Any:
        return block.view(kind)

    def address(self, array: Any) -> int:
        return int(array.__array_interface__["data"][0])


def land_in_kept(
    through: Any, where: Tuple[Any, ...], ref: str, kept: Kept, framework: str, *, per_request_timeout: Optional[float], retries: int, max_bytes: int, abort: Any,
    version: Optional[int] = None, ssl: Any = None,
) -> Any:  # fmt: skip
    """Pulls into new tensors of the framework, as `download_tensors` does."""
    made: Dict[str, Any] = {}
    receipt, metadata = fetch(through, where, ref, kept_maker(made, kept, framework), made.clear, per_request_timeout, retries, max_bytes, abort, version, ssl)
    arrived = arrive(made, metadata)
    landed = TensorDict(arrived.tensors)
    landed.metadata, landed.structure, landed.receipt = arrived.metadata, arrived.structure, Receipt._make(receipt)
    return landed
