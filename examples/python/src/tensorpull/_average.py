"""Federated averaging while the updates arrive: sum(weight * update) / sum(weight), without holding an update."""

from __future__ import annotations

import threading
from typing import Any, Iterable, Mapping, Optional, Tuple

from . import _native
from ._download import writable
from ._errors import Error
from ._options import DEFAULT_CHUNK_BYTES, chunk_bytes, pull_settings, text
from ._tensors import empty_like
from ._types import Receipt, TensorDict

_KINDS = {"divide_by_reached": _native.ReachedAverage, "error": _native.WholeAverage, "staged": _native.StagedAverage}


class WeightedAverage:
    """The mean of models of one schema. Each `pull` adds one client's update as its chunks arrive, each checked by a digest of its own.

    `like`: a dict of tensors with the names, dtypes and shapes of the updates; new ones are made for the result. `out`: the result goes
    into these tensors instead; they are written by `result()` only, so they may be the model that is being averaged.
    `partial`: what an update means that stops half-way. "divide_by_reached": what arrived counts, each element is divided by the weight
    that reached it. "error": `result()` raises "partial_update". "staged": updates land first, in a model's memory, and are added when
    they are complete.
    Memory: 4 bytes an element for the sums (8: float64, integers), one chunk; "staged": one model more. bool is refused.
    """

    def __init__(
        self,
        like: Optional[Mapping[str, Any]] = None,
        *,
        out: Optional[Mapping[str, Any]] = None,
        partial: str = "divide_by_reached",
        chunk_size: int = DEFAULT_CHUNK_BYTES,
    ) -> None:
        if partial not in _KINDS:
            raise ValueError(f"partial is one of {', '.join(_KINDS)}; not {partial!r}")
        if chunk_size == 0:
            raise ValueError("an average wants chunks: what has been added cannot be taken back")
        if like is not None and out is None:
            out = empty_like(like)
        elif out is None or like is not None:
            raise ValueError("either like, or out")
        self._to = out
        self._chunk_size = chunk_bytes(chunk_size, "")
        tensors = writable(self._to)
        self._tensors = tensors
        self._lock = threading.Lock()
        self._native = _KINDS[partial](tensors.described, tensors.keep, self._chunk_size)

    def pull(
        self,
        address: str,
        ref_id: str,
        weight: float,
        *,
        peer: str = "",
        per_request_timeout: Optional[float] = 600.0,
        progress: Any = None,
        progress_interval: float = 0.1,
        abort: Any = None,
        version: Optional[int] = None,
        recipient: Optional[str] = None,
        window: int = 4,
        retries: int = 3,
    ) -> Receipt:
        """Adds what is published under `ref_id`, times `weight` (above 0). `peer` names the client in errors; the rest is as for
        `download_tensors`. An update that fails is an `Error`, and the average goes on as `partial` says. Several threads take turns."""
        settings = pull_settings(
            ref_id, per_request_timeout, self._chunk_size, progress, progress_interval, abort, version, recipient, window, retries
        )
        text(address, "address", "host:port")
        text(peer, "peer", "the client's name")
        if isinstance(weight, (str, bytes)) or not hasattr(weight, "__float__"):
            raise TypeError(f"weight is a number; not {weight!r}")
        with self._lock:
            return Receipt._make(self._native.pull(address, ref_id, float(weight), peer or address, settings))

    def result(self) -> TensorDict:
        """The averages, in the tensors of `out` or new ones: the same ones each time. More updates may follow."""
        with self._lock:
            self._tensors.mark_changed()
            self._native.finish()
            return TensorDict(self._to)

    def reset(self) -> None:
        """Begins the next round."""
        with self._lock:
            self._native.reset()

    @property
    def whole_updates(self) -> int:
        """Updates that were added as a whole."""
        return self._native.whole_updates

    @property
    def partial_updates(self) -> int:
        """Updates of which a part was added."""
        return self._native.partial_updates

    @property
    def whole_weight(self) -> float:
        """The sum of the weights of the whole updates."""
        return self._native.whole_weight


def weighted_average(
    updates: Iterable[Tuple[str, str, float]],
    like: Optional[Mapping[str, Any]] = None,
    *,
    out: Optional[Mapping[str, Any]] = None,
    partial: str = "divide_by_reached",
    chunk_size: int = DEFAULT_CHUNK_BYTES,
    skip_failed: bool = False,
    **options: Any,
) -> TensorDict:
    """Pulls each of `updates`, (address, ref_id, weight), into one average, one after the other, and returns the result.

    `like`, `out`, `partial` and `chunk_size` are those of `WeightedAverage`, `options` those of its `pull`. With `skip_failed` an update
    that fails is left out as far as `partial` says ("divide_by_reached": what of it had arrived counts); without, its `Error` is raised.
    """
    average = WeightedAverage(like, out=out, partial=partial, chunk_size=chunk_size)
    for address, ref_id, weight in updates:
        try:
            average.pull(address, ref_id, weight, **options)
        except Error as e:
            if not skip_failed or e.code == "cancelled":
                raise
    return average.result()
