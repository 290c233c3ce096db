"""Memory that models land in again: a round's model takes the place of one that nobody uses any more.

Fresh memory is cleared by the system page by page, which takes longer than the transfer. So the blocks of large tensors are kept when the last user lets go of them, up to a number of bytes,
and the first model of a process can have memory that was cleared while FLARE started.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import os
import threading
import weakref
from collections import deque
from typing import Any, Callable, Deque, Dict, List, NamedTuple, Optional, Tuple

from .. import _native
from .._tensors import make_or_refuse, numpy_dtype, torch_dtype
from .._trees import arrive
from .._types import Receipt, TensorDict
from ._files import fetch
from ._offer import Refused

#: Of free blocks, unless a setting says otherwise.
KEEP_BYTES = 1 << 30
#: Of a huge page. A smaller tensor's memory is torch's.
_PAGE = 2 << 20


class Block(NamedTuple):
    """Memory for one tensor."""

    memory: mmap.mmap
    begin: int
    size: int

    def let_go(self) -> None:
        """The system has its pages back at once: what they are a part of may stay."""
        self.memory.madvise(mmap.MADV_DONTNEED, self.begin, self.size)


def _size_for(nbytes: int) -> int:
    """Of a block that has so many bytes at a multiple of a huge page, wherever it begins."""
    return (nbytes + _PAGE - 1) // _PAGE * _PAGE + _PAGE


def _fresh(size: int) -> mmap.mmap:
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


class Prepared:
    """`nbytes` of memory that a thread of its own lets the system clear; blocks can be cut from it meanwhile."""

    def __init__(self, nbytes: int) -> None:
        self._memory = _fresh(_size_for(nbytes))
        if hasattr(mmap, "MADV_HUGEPAGE"):
            self._memory.madvise(mmap.MADV_HUGEPAGE)
        self._lock = threading.Lock()
        self._taken = self._cleared = 0
        self._thread = threading.Thread(target=self._clear, name="tensorpull-prepare", daemon=True)
        self._thread.start()

    def _clear(self) -> None:
        import numpy

        first = numpy.frombuffer(self._memory, numpy.uint8).ctypes.data
        while True:
            with self._lock:  # what is cut already may have a tensor's bytes in it
                begin = max(self._cleared, self._taken)
                n = min(_PAGE, len(self._memory) - begin)
                if n == 0:
                    return
                ctypes.memset(first + begin, 0, n)  # without the interpreter's lock
                self._cleared = begin + n

    def cut(self, size: int) -> Optional[Block]:
        """A block of this size; None: there is not so much left."""
        with self._lock:
            if len(self._memory) - self._taken < size:
                return None
            self._taken += size
            return Block(self._memory, self._taken - size, size)

    def end(self) -> None:
        """Nothing more is cut, and the system has the rest back."""
        with self._lock:
            rest = Block(self._memory, self._taken, len(self._memory) - self._taken)
            self._taken = len(self._memory)
        self._thread.join()
        if rest.size:
            rest.memory.madvise(mmap.MADV_DONTNEED, rest.begin, rest.size)


_prepared: Optional[Prepared] = None
_prepares = threading.Lock()


def prepare(nbytes: int) -> None:
    """Begins to clear memory for the first model of this process, once. 0: does nothing."""
    global _prepared
    with _prepares:
        if nbytes > 0 and _prepared is None:
            _prepared = Prepared(nbytes)


def _without_its_thread() -> None:
    """A child of fork() has no thread that clears, and its copy of the lock may be held by it for ever."""
    global _prepared, _prepares
    _prepared, _prepares = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_without_its_thread)


class Kept:
    """Blocks that are free, of at most `most` bytes in all."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._lock = threading.Lock()
        self._free: List[Block] = []
        self._back: Deque[Block] = deque()  # a finalizer may run within `take`, so it takes no lock

    def _sort(self) -> int:
        """Takes in what has come back, and lets go of the oldest above the limit; the bytes that are free."""
        while self._back:
            self._free.append(self._back.popleft())
        free = sum(block.size for block in self._free)
        while free > self.most:
            block = self._free.pop(0)
            block.let_go()
            free -= block.size
        return free

    def _give(self, block: Block, _: Any = None) -> None:
        self._back.append(block)
        if self._lock.acquire(False):  # the thread that has it sorts
            try:
                self._sort()
            finally:
                self._lock.release()

    def take(self, nbytes: int, lasting: Any = None) -> Any:
        """An array of bytes, at a multiple of a huge page. Its memory comes back here when nothing refers to the array, as torch's tensors from it do. Until then `lasting` is referred to."""
        import numpy

        size = _size_for(nbytes)
        with self._lock:
            self._sort()
            fits = next((i for i, block in enumerate(self._free) if block.size == size), None)
            block = self._free.pop(fits) if fits is not None else None
        prepared = _prepared
        if block is None and prepared is not None:
            block = prepared.cut(size)
        if block is None:
            block = Block(_fresh(size), 0, size)
        begin = -numpy.frombuffer(block.memory, numpy.uint8, 1, block.begin).ctypes.data % _PAGE
        array = numpy.frombuffer(block.memory, numpy.uint8, nbytes, block.begin + begin)
        weakref.finalize(array, self._give, block, lasting).atexit = False
        return array

    def free_bytes(self) -> int:
        """Of the blocks that nobody uses."""
        with self._lock:
            return self._sort()


def is_plain(dtype: Any) -> bool:
    """One of NumPy's own that tensorpull carries, in this machine's byte order. FLARE's chunks bring others differently, or alone."""
    return bool(dtype.isbuiltin == 1 and dtype.isnative and _native.numpy_format(dtype.str) is not None)


def kept_maker(made: Dict[str, Any], kept: Kept, framework: str, lasting: Any = None) -> Callable[[str, str, Tuple[int, ...]], Tuple[int, int]]:
    """As `numpy_maker` and `torch_maker`, with the memory of `kept` for tensors of at least two huge pages. Refuses arrays that FLARE's chunks cannot bring.
    `lasting` is referred to as long as one of them is there."""
    kinds = _TorchTensors() if framework == "torch" else _Arrays()

    def make(name: str, dtype: str, shape: Tuple[int, ...]) -> Tuple[int, int]:
        kind, shape = kinds.dtype(name, dtype, shape)

        def empty() -> Any:
            nbytes = kind.itemsize * math.prod(shape)
            if not 2 * _PAGE <= nbytes <= kept.most:
                made_small = kinds.empty(shape, kind)
                if lasting is not None:
                    weakref.finalize(made_small, _nothing, lasting).atexit = False
                return made_small
            return kinds.over(kept.take(nbytes, lasting), kind).reshape(shape)

        tensor = make_or_refuse(name, shape, empty)
        made[name] = tensor
        return kinds.address(tensor), tensor.nbytes

    return make


def _nothing(_: Any) -> None:
    """What a finalizer calls that is there for what it refers to."""


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
    through: Any, where: Tuple[Any, ...], ref: Any, kept: Kept, framework: str, lasting: Any = None, *, per_request_timeout: Optional[float], chunk_size: int, retries: int,
    max_bytes: int, abort: Any, version: Optional[int] = None, ssl: Any = None,
) -> Any:  # fmt: skip
    """Pulls into new tensors of the framework, as `download_tensors` does. `lasting` is referred to as long as one of them is there."""
    made: Dict[str, Any] = {}
    receipt, metadata = fetch(through, where, ref, kept_maker(made, kept, framework, lasting), made.clear, per_request_timeout, chunk_size, retries, max_bytes, abort, version, ssl)
    if _prepared is not None:
        _prepared.end()  # later models land in this one's memory
    arrived = arrive(made, metadata)
    landed = TensorDict(arrived.tensors)
    landed.metadata, landed.structure, landed.receipt = arrived.metadata, arrived.structure, Receipt(*receipt)
    return landed
