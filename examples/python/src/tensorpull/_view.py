"""Tensors that a program of this machine has published, where they are."""

from __future__ import annotations

from typing import Any, Dict, Optional

from . import _native
from ._options import PER_REQUEST_TIMEOUT, RETRIES, pull_settings, text, whole, within
from ._tensors import make_or_refuse, numpy_dtype, numpy_or_say, torch_dtype
from ._trees import arrive
from ._types import Abort, Framework, Receipt, TensorView


def view_tensors(
    address: str,
    ref_id: str,
    framework: Framework = "numpy",
    *,
    per_request_timeout: Optional[float] = PER_REQUEST_TIMEOUT,
    abort: Abort = None,
    max_header_bytes: int = 16 << 20,
    max_tensors: int = 1_000_000,
    version: Optional[int] = None,
    recipient: Optional[str] = None,
    retries: int = RETRIES,
    unverified: bool = False,
    timeout: Optional[float] = None,
    wait: Optional[float] = None,
) -> TensorView:
    """Opens what is published under `ref_id` at `address`, "shm:path" or "shm:@name", and returns a dict of tensors over the shared memory. Nothing is copied.

    The tensors keep the memory, and it stays readable whatever becomes of the owner: it may withdraw the reference, end, or be killed.

      framework   "numpy": arrays that are read-only. To write to one is a ValueError.
                  "torch": torch has no read-only tensors. These are over a private mapping: a write changes this view alone, at the cost of the pages that
                  are written. Nobody else sees it.
      unverified  computes no digest, so that a view opens in the same time whatever its size. `receipt.outcome` is "completed_unverified" then, and otherwise
                  "completed": the digest was computed over this memory.
    The others are those of `download_tensors`.

    Nobody can change what a `Downloader` has published in shared memory: it is a sealed copy. An owner in C++ may have its model itself there, and go on
    writing to it; `owner_can_write` of what is returned is true then.

    Raises `Error`: "bad_address" for a link that shares no memory, "memory_not_shared" if the owner had no room for the copy; those of `download_tensors`.
    """
    if framework not in ("numpy", "torch"):
        raise ValueError(f'framework is "numpy" or "torch", not {framework!r}')
    if framework == "numpy":
        numpy_or_say()
    with within(timeout, wait, abort) as heard:
        settings = pull_settings(ref_id, per_request_timeout, None, None, 0.1, heard, version, recipient, 4, retries, unverified)
        seen = _native.View(
            text(address, "address", "shm:path"), ref_id, framework == "torch", whole(max_header_bytes, "max_header_bytes", 2**63 - 1),
            whole(max_tensors, "max_tensors", 2**63 - 1), settings,
        )  # fmt: skip
    made: Dict[str, Any] = {}
    over = _torch_over if framework == "torch" else _numpy_over
    for name, dtype, shape, begin, nbytes in seen.tensors:
        made[name] = over(seen, name, dtype, shape, begin, nbytes)
    arrived = arrive(made, seen.metadata)
    result = TensorView(arrived.tensors)
    result.metadata, result.structure = arrived.metadata, arrived.structure
    result.receipt = Receipt(*seen.receipt)
    result.owner_can_write = seen.owner_can_write
    return result


def _numpy_over(seen: Any, name: str, dtype: str, shape: Any, begin: int, nbytes: int) -> Any:
    import numpy

    kind = numpy_dtype(name, dtype)
    if nbytes == 0:
        array = make_or_refuse(name, shape, lambda: numpy.empty(shape, kind))
        array.flags.writeable = False
        return array
    return make_or_refuse(name, shape, lambda: numpy.ndarray(shape, kind, seen, begin))


def _torch_over(seen: Any, name: str, dtype: str, shape: Any, begin: int, nbytes: int) -> Any:
    import torch

    kind, shape = torch_dtype(name, dtype, shape)
    if nbytes == 0:
        return make_or_refuse(name, shape, lambda: torch.empty(shape, dtype=kind))
    return make_or_refuse(name, shape, lambda: torch.frombuffer(seen, dtype=torch.uint8, count=nbytes, offset=begin).view(kind).reshape(shape))
