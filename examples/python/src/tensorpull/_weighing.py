"""Look, then weigh: whole updates are compared with each other before it is decided what each of them is worth."""

from __future__ import annotations

import contextlib
import threading
from math import inf, isfinite
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from . import _native
from ._average import flat_tensors, number_above_0, sums_wanted
from ._download import writable
from ._errors import Error
from ._options import text, whole
from ._tensors import Tensors, empty_like
from ._types import OfOneProcess, TensorDict


class Differences(NamedTuple):
    """What is known of N updates before they are weighed. The order is the same in whatever order they came."""

    peers: Tuple[str, ...]
    weights: Tuple[float, ...]  #: their own
    norms: Any  #: float64 array of N: the Euclidean norm of update less base, of the tensors that are compared
    products: Any  #: float64 array of N x N: the Gram matrix, the dot products of the differences


class clip_norms:
    """A difference that is longer than `longest` is shortened to that, and a weight above `heaviest` counts as that. None: than the median norm and the median weight (of an even number: the
    lower one in the middle), so fewer than half of the updates cannot lengthen the step beyond that of an honest one, nor decide where it leads. `heaviest=math.inf`: the weights are the
    program's own. A norm that is not finite, if such are let through, has weight 0. A function of yours may call it."""

    def __init__(self, longest: Optional[float] = None, heaviest: Optional[float] = None) -> None:
        self.longest: Optional[float] = None if longest is None else float(longest)
        self.heaviest: Optional[float] = None if heaviest is None else float(heaviest)
        if self.longest is not None and not 0 < self.longest < inf:
            raise ValueError(f"longest is a length above 0; not {longest!r}")
        if self.heaviest is not None and not self.heaviest > 0:
            raise ValueError(f"heaviest is a weight above 0; not {heaviest!r}")

    def __call__(self, seen: Differences) -> Tuple[List[float], List[float]]:
        norms = [float(norm) if isfinite(norm) else inf for norm in seen.norms]
        most = self.longest or sorted(norms)[(len(norms) - 1) // 2]
        heavy = self.heaviest or sorted(seen.weights)[(len(norms) - 1) // 2]
        return [min(weight, heavy) if norm < inf else 0.0 for weight, norm in zip(seen.weights, norms)], [most / norm if most < norm < inf else 1.0 for norm in norms]


def _names(names: Optional[Iterable[str]], tensors: Tensors) -> List[str]:
    """By the names under which tensors travel; none: all floating ones."""
    if names is None:
        return []
    if isinstance(names, (str, bytes)) or not isinstance(names, Iterable):
        raise TypeError(f"names is a list of tensors' names; not {names!r}")
    chosen = sorted({text(tensors.ties.get(name, name), "names", "a tensor's name") for name in names})
    if not chosen:
        raise ValueError("names has no name, so nothing would be compared")
    if strangers := set(chosen) - {one[0] for one in tensors.described}:
        raise Error("bad_request", "names has a name that no tensor has", min(strangers))
    return chosen


#: Gives N weights, or N weights and N scales (1 if there are none): the result is base + sum(weight * scale * difference) / sum(weight).
Weigh = Callable[[Differences], Union[Sequence[float], Tuple[Sequence[float], Sequence[float]]]]


class Weighing(OfOneProcess):
    """Whole updates of one round, and what is made of them. An update that is out of proportion, by accident or on purpose, does not decide the mean.
    Norms and products are of the floating tensors, or of those that `names` lists. Of others, such as a counter, the result has the weighted median.

    `base`: the old model, a flat dict of tensors in the CPU's memory. Without it there is only `trimmed_mean` and `wrapping_sum`; give `like` then, a dict of the updates' tensors.
    `out`: the result goes into these tensors, which are written by the last step only and may be those of `base`; otherwise new ones are made. All are borrowed, and may not change
    until there is a result. Memory: what `out` takes, 4 KiB for each of `max_updates`, and 24 bytes for each pair of them. Errors, and nothing is written then: "no_updates";
    "value_out_of_range" with the peer's name (infinities or NaNs); "invalid_argument" (weights that are negative, no numbers, of another number or all zero; what a function raises is
    raised). Threads take turns; a function that weighs may not use this object.
    """

    def __init__(
        self, base: Optional[Mapping[str, Any]] = None, *, like: Optional[Mapping[str, Any]] = None, out: Optional[Mapping[str, Any]] = None, max_updates: int = 64,
        names: Optional[Iterable[str]] = None,
    ) -> None:  # fmt: skip
        if like is not None and (base is not None or out is not None) or (base is None and like is None and out is None):
            raise ValueError("either base, with or without out, or like or out alone")
        for one in (base, like, out):
            if one is not None:
                flat_tensors(one)
        if out is None:
            out = empty_like(base if base is not None else like or {})
        self._tensors = writable(out)
        before = Tensors(base) if base is not None else None
        self._to = dict(out)
        most = whole(max_updates, "max_updates", 2**20, least=1)
        with sums_wanted():
            self._native = _native.WholeUpdates(
                self._tensors.described, before.described if before else None, (self._tensors.keep, before.keep if before else None), most,
                _names(names, self._tensors),
            )
        self._peers: Dict[int, str] = {}
        self._lock = threading.Lock()
        self._holder = 0  # the thread that has it

    def add(self, peer: str, weight: float, tensors: Mapping[str, Any]) -> None:
        """Takes an update that is complete, such as what `download_tensors` has returned. Its tensors are held until `reset`. `weight`: its own, such as its number of samples.
        Errors, and it is not taken: "update_changed" (the peer has one already), "table_full", "invalid_argument" (the weight) with the peer's name; "schema_mismatch",
        "unsupported_layout" with the tensor's."""
        if not isinstance(peer, str) or not peer:
            raise ValueError(f"peer is the client's name; not {peer!r}")
        text(peer, "peer", "the client's name")
        factor = number_above_0(weight, peer)
        flat_tensors(tensors)
        described = Tensors(tensors)
        with self._turn():
            self._native.add(described.described, described.keep, factor, peer)
            self._peers[_native.recipient_named(peer)] = peer

    def remove(self, peer: str) -> None:
        """Lets go of an update, such as one that `result` has refused by its name: the round goes on without it, and what is known of the others stays known. Error: "no_updates" with the
        peer's name (it has none)."""
        with self._turn():
            self._native.remove(text(peer, "peer", "the client's name"))
            del self._peers[_native.recipient_named(peer)]

    @property
    def peers(self) -> List[str]:
        """Whose updates are there: exactly those of which a result is made."""
        with self._turn():
            return [self._peers[who] for who, _ in self._native.updates]

    def look(self) -> Differences:
        """What the updates look like beside `base`. What an earlier look has compared is known to this one and to `result`, so a look after each `add` does the work while other updates
        are on their way. Cost: one pass over all of them if any is new."""
        with self._turn():
            return self._seen(*self._native.look())

    def result(self, weigh: Weigh, *, refuse_no_numbers: bool = True) -> TensorDict:
        """The weighted mean of the differences, added to `base`. `weigh`: `clip_norms()`, or a function of `Differences`. With `refuse_no_numbers=False` the function sees norms that are
        not finite, and gives such updates weight 0. Cost: two passes over all updates, or one after a look."""
        if not callable(weigh):
            raise TypeError(f"weigh is clip_norms() or a function of Differences; not {weigh!r}")

        def ask(norms: bytes, products: bytes) -> Tuple[List[float], List[float]]:
            return weights_of(weigh(self._seen(norms, products)), len(self._native.updates))

        with self._turn():
            self._tensors.mark_changed()
            self._native.finish(ask, bool(refuse_no_numbers))
            return TensorDict(self._to)

    def trimmed_mean(self, cut: int) -> TensorDict:
        """Each element is the mean of its values without the `cut` least and the `cut` greatest. Own weights do not count. At most 64 updates."""
        with self._turn():
            self._tensors.mark_changed()
            self._native.trimmed_mean(whole(cut, "cut", 2**31 - 1))
            return TensorDict(self._to)

    def wrapping_sum(self) -> TensorDict:
        """Each element is the sum of its values modulo 2**32 or 2**64, without weights, of int32, uint32, int64 and uint64: what masks that cancel out in a sum need."""
        with self._turn():
            self._tensors.mark_changed()
            self._native.wrapping_sum()
            return TensorDict(self._to)

    def reset(self) -> None:
        """Lets go of the updates; a new round begins."""
        with self._turn():
            self._native.reset()
            self._peers.clear()

    def _seen(self, norms: bytes, products: bytes) -> Differences:
        import numpy

        updates = self._native.updates
        lengths = numpy.frombuffer(norms, numpy.float64).copy()
        gram = numpy.frombuffer(products, numpy.float64).reshape(len(lengths), -1).copy()
        return Differences(tuple(self._peers[who] for who, _ in updates), tuple(weight for _, weight in updates), lengths, gram)

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        if self._holder == threading.get_ident():
            raise RuntimeError("a function that weighs cannot use the Weighing that has called it")
        with self._lock:
            self._holder = threading.get_ident()
            try:
                yield
            finally:
                self._holder = 0


def weights_of(given: Any, count: int) -> Tuple[List[float], List[float]]:
    weights, scales = given if isinstance(given, tuple) and len(given) == 2 and hasattr(given[0], "__len__") else (given, [1.0] * count)
    made = [float(w) for w in weights], [float(s) for s in scales]
    if len(made[0]) != count or len(made[1]) != count:
        raise ValueError(f"there are {count} updates, and {len(made[0])} weights and {len(made[1])} scales")
    return made
