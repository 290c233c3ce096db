"""The recipient's side: one pull into a dict of tensors."""

from __future__ import annotations

import os
import sys
from typing import Any, Dict, Mapping, Optional

from . import _native
from ._errors import Error
from ._options import pull_settings, text, whole
from ._tensors import Tensors, numpy_maker, torch_maker
from ._types import Receipt, TensorDict


def download_tensors(
    address: str,
    ref_id: str,
    per_request_timeout: Optional[float] = 600.0,
    chunk_size: Optional[int] = None,
    progress: Any = None,
    abort: Any = None,
    *,
    framework: Optional[str] = None,
    out: Optional[Mapping[str, Any]] = None,
    subset: bool = False,
    max_bytes: Optional[int] = None,
    max_header_bytes: int = 16 << 20,
    max_tensors: int = 1_000_000,
    progress_interval: float = 0.1,
    version: Optional[int] = None,
    recipient: Optional[str] = None,
    window: int = 4,
    retries: int = 3,
    unverified: bool = False,
) -> TensorDict:
    """Pulls what is published under `ref_id` at `address` ("host:port") and returns it as a dict of tensors.

    The bytes go from the socket into the tensors' memory; nothing is copied on the way, and the interpreter's lock is not held. Tensors
    are returned only if the digest of what arrived is the published one. Whether the owner has heard of that is `receipt.confirmed`.

    Where the tensors come from:
      framework  "numpy" (the default) or "torch": new tensors are made as the owner describes them, in the CPU's memory, once the
                 description has been checked, and within `max_bytes` (all tensors together; default: this machine's memory; say what you
                 expect), `max_header_bytes` (names and shapes) and `max_tensors`. Above a limit: "too_large", nothing allocated.
      out        a dict of tensors that exist, NumPy's or torch's: they are landed in, and returned. They are contiguous in C's order, in
                 the CPU's memory, writable, and apart from each other; names, dtypes and shapes are those of the owner, or the error is
                 "schema_mismatch" before anything is touched. Of torch's, `requires_grad` and `grad` stay.
      subset     with `out`: its tensors are only some of those that are published.
    Tied tensors (one tensor under several names) are tied again.

    How long it takes:
      per_request_timeout  seconds without progress (an answer, or 1/64 of a chunk) before it is asked again, on a new connection where it
                           has to be; None: for ever
      retries              how often to try again in a row without progress, also if the owner cannot be reached yet
      abort                a threading.Event, anything with `is_set()` or `triggered`, or a callable that returns true; heard within
                           0.1 s. The error is "cancelled", and the owner is told. Ctrl-C is heard as soon.
      progress             a callable that takes a `Progress`, or a bar: `tqdm(unit="B", unit_scale=True)`. At most once in
                           `progress_interval` seconds, and at the end. An exception from it ends the download and is raised here.
    How it is asked for:
      chunk_size  bytes asked for at a time: the recipient's choice. 0: everything in one frame ("does_not_fit" above 536,870,904 bytes).
                  Default: what the reference suggests, or 2 MiB.
      window      requests in flight
      version     only this version ("stale_version" otherwise); default: the reference's, if it is a `Reference`; 0: whatever is there
      recipient   this recipient's name, if the owner expects recipients by name
      unverified  take what is published without a digest, too ("not_verifiable" otherwise): nobody can say whether its bytes are right

    Raises `Error`; what `abort` or `progress` raises; TypeError and ValueError for arguments that make no sense.
    """
    if subset and out is None:
        raise ValueError("subset wants out: which of the tensors, and where they go")
    if out is not None and framework is not None:
        raise ValueError("framework says what new tensors are; out has its own")
    if framework not in (None, "numpy", "torch"):
        raise ValueError(f'framework is "numpy" or "torch", not {framework!r}')
    settings = pull_settings(ref_id, per_request_timeout, chunk_size, progress, progress_interval, abort, version, recipient, window, retries, unverified)
    text(address, "address", "host:port")
    max_header_bytes = whole(max_header_bytes, "max_header_bytes", 2**63 - 1)
    max_tensors = whole(max_tensors, "max_tensors", 2**63 - 1)
    limit = _physical_memory() if max_bytes is None else whole(max_bytes, "max_bytes", 2**63 - 1)

    if out is not None:
        tensors = writable(out)
        tensors.mark_changed()
        receipt = _native.download_into(address, ref_id, tensors.described, subset, settings)
        result = TensorDict(out)
    else:
        made: Dict[str, Any] = {}
        make = torch_maker(made) if framework == "torch" else numpy_maker(made)
        receipt, metadata = _native.download_new(address, ref_id, make, made.clear, limit, max_header_bytes, max_tensors, settings)
        result = TensorDict(made)
        result.metadata = metadata
        for alias, kept in metadata.items():
            if kept in made and alias not in made and alias != "format":
                result[alias] = made[kept]
    result.receipt = Receipt._make(receipt)
    return result


def writable(out: Mapping[str, Any]) -> Tensors:
    """The tensors to land in, described."""
    tensors = Tensors(out, tie_numpy=True)
    if tensors.read_only:
        raise Error("unsupported_layout", "this array may not be written to", tensors.read_only[0])
    return tensors


def _physical_memory() -> int:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return sys.maxsize
