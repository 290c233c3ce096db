"""An update of PyTorch that stays with its site until something on FLARE's server asks for one of its tensors. Then all of it is pulled.

FLARE's sum cannot be taken back: `WeightedAggregationHelper` adds in place, tensor by tensor. So no tensor of an update is given out before all of them have come and have the digest that
the site told when it called. From then on none of them can fail.
"""

from __future__ import annotations

import inspect
import threading
import time
import weakref
from typing import Any, Callable, Dict, Optional, Tuple

import tensorpull
import torch
from nvflare.app_common.aggregators.weighted_aggregation_helper import WeightedAggregationHelper

from .._listing import Listing
from .._tensors import torch_dtype
from ._offer import Refused
from ._process import Place
from ._transfer import REFERENCE, Pulling, check_names

#: Seconds after which an update that nobody has asked for is pulled all the same: its site is to go on.
PATIENCE = 60.0


class Values:
    """What becomes of an update: its tensors, or why there are none."""

    def __init__(self) -> None:
        self.there = threading.Event()
        self._once = threading.Lock()
        self.tensors: Dict[str, Any] = {}
        self.why = ""

    def settle(self, tensors: Dict[str, Any], why: str = "") -> None:
        """The first word counts."""
        with self._once:
            if not self.there.is_set():
                self.tensors, self.why = tensors, why
                self.there.set()


class Update:
    """What FLARE puts its references from (`make_lazy_ref`), in place of a dict of tensors. Once nothing refers to it, its site is told that nobody wants it."""

    def __init__(self, source: str, kinds: Dict[str, Tuple[Any, Tuple[int, ...]]], values: Values, ask: Callable[[], None], unwanted: Callable[[], None]) -> None:
        self._source, self._kinds, self._values, self._ask = source, kinds, values, ask
        weakref.finalize(self, unwanted).atexit = False

    def __len__(self) -> int:
        return len(self._kinds)

    def __contains__(self, name: object) -> bool:
        return name in self._kinds

    def __getitem__(self, name: str) -> Any:
        """The tensor, the same one each time. RuntimeError: the update could not be had, and no tensor of it was given out."""
        if name not in self._kinds:
            raise KeyError(name)
        self._ask()
        self._values.there.wait()
        if self._values.why:
            raise RuntimeError(f"tensorpull: the update of {self._source} could not be had, so nothing of it counts: {self._values.why}")
        return self._values.tensors[name]

    def get(self, name: str, default: Any = None) -> Any:
        """As of a dict."""
        return self[name] if name in self else default

    def make_lazy_ref(self, name: str) -> "Awaited":
        """What FLARE puts in the tensor's place."""
        return Awaited(self, name, *self._kinds[name])


#: What is known of a tensor that is not there yet.
_KNOWN = {
    torch.Tensor.shape.__get__, torch.Tensor.dtype.__get__, torch.Tensor.nbytes.__get__, torch.Tensor.ndim.__get__, torch.Tensor.size, torch.Tensor.dim, torch.Tensor.numel,
    torch.Tensor.nelement, torch.Tensor.element_size,
}  # fmt: skip


class Awaited(torch.Tensor):
    """A tensor that is asked for when something is done with it. Aggregators that know FLARE's references call `materialize`; filters and others use it as the tensor that it will be."""

    @staticmethod
    def __new__(cls, update: Update, name: str, dtype: Any, shape: Tuple[int, ...]) -> "Awaited":
        made = torch.Tensor._make_wrapper_subclass(cls, shape, dtype=dtype)
        made._update, made._name = update, name
        return made

    def __init__(self, *_: Any) -> None:
        pass

    def materialize(self) -> Any:
        """The tensor, the same one each time."""
        return self._update[self._name]

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _KNOWN:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **(kwargs or {}))
        return func(*real(args), **real(kwargs or {}))

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*real(args), **real(kwargs or {}))


# FLARE serialises by the name of a type, and a tensor may be sent on to another site.
Awaited.__module__, Awaited.__qualname__ = "torch", "Tensor"


def real(value: Any) -> Any:
    """The same with the tensors that are meant, also in lists and dicts."""
    if isinstance(value, Awaited):
        return value.materialize()
    if type(value) in (list, tuple):
        return type(value)(map(real, value))
    if type(value) is dict:
        return {k: real(v) for k, v in value.items()}
    return value


class Later(Pulling):
    """Comes before FLARE's consumer of tensors: takes an offer, lets the site call, and waits with the rest until something asks."""

    takes_turns = False  # what asks may have FLARE's lock, for which an update waits that has landed

    def begin(self, *given: Any) -> "Later":
        super().begin(*given)
        self._asked, self._unwanted, self._answered = threading.Event(), threading.Event(), threading.Event()
        self._values = Values()
        self._update: Optional[Update] = None
        self._told: Optional[Listing] = None
        self._kinds: Dict[str, Tuple[Any, Tuple[int, ...]]] = {}
        self._raised: Optional[BaseException] = None
        return self

    def land(self, place: Place, through: Any, where: Tuple[Any, ...], ref: Any, **how: Any) -> Any:
        if not where:  # over a connection that the site made
            self._promise(through.list_tensors(ref, how["per_request_timeout"], how["abort"], retries=how["retries"]), ref, how["max_bytes"])
            until = time.monotonic() + PATIENCE
            while not self._asked.wait(0.1) and not self._stopped() and time.monotonic() < until:
                pass
        return super().land(place, through, where, ref, **how)

    def _promise(self, told: Listing, ref: Any, most: int) -> None:
        """What the site says of its tensors is known before FLARE hears of the update. Refused: it is none of FLARE's, or there is nothing to compare the bytes with."""
        if not getattr(ref, "version", 0) or told.version != ref.version:
            raise Refused("it does not say which bytes it has")
        check_names(told.tensors)
        if sum(t.nbytes for t in told.tensors.values()) > most:
            raise Refused("it is larger than it said")
        self._kinds = {name: torch_dtype(name, t.dtype, tuple(t.shape)) for name, t in told.tensors.items()}
        self._told = told
        self._update = Update(self._source, self._kinds, self._values, self._asked.set, self._nobody)
        self._answered.set()

    def landed(self, got: Dict[str, Any]) -> None:
        if self._told is not None:
            self._check(got)
            self._values.settle(got)
        super().landed(got)

    def _nobody(self) -> None:
        if not self._values.there.is_set():
            self._unwanted.set()
            self._stop.set()

    def consume(self, ref_id: str, state: Dict[str, Any], data: Any) -> Dict[str, Any]:
        if self._unwanted.is_set():
            raise Refused("nothing on this server refers to it any more")
        return super().consume(ref_id, state, data)

    def through(self, download: Callable[[], None]) -> Tuple[Any, Any]:
        """FLARE's download goes on behind FLARE's back until the update has come. If it came in another way, or cannot come, FLARE hears that at once."""
        threading.Thread(target=self._run, args=(download,), name="tensorpull-later", daemon=True).start()
        self._answered.wait()
        update, self._update = self._update, None
        if update is not None:
            return None, update
        if self._raised is not None:
            raise self._raised
        return self.outcome()

    def _run(self, download: Callable[[], None]) -> None:
        try:
            download()
            if self._told is not None and not self._values.there.is_set():
                if self.error:
                    raise Refused(self.error)
                self._check(self.result or {})
                if not self._is_told(self.result):
                    raise Refused("FLARE's chunks brought other bytes than the site's digest says")
                self._values.settle(self.result)
        except BaseException as e:  # noqa: BLE001: the thread of FLARE that asks hears it
            self._raised = e
            self._values.settle({}, str(e) or type(e).__name__)
        self._answered.set()

    def _check(self, got: Dict[str, Any]) -> None:
        """They are as FLARE was told. Refused, if not."""
        if {name: (t.dtype, tuple(t.shape)) for name, t in got.items()} != self._kinds:
            raise Refused("it told of other tensors than it has")

    def _is_told(self, tensors: Dict[str, Any]) -> bool:
        """Whether what FLARE's chunks brought are the bytes that the site told: its trainer may have gone on since it was asked."""
        assert self._told is not None
        told = self._told.tensors
        image = tensorpull.PublishedImage({name: tensors[t.name] for name, t in told.items()}, {REFERENCE: self._word})
        return image.version == self._told.version and all(t.name == name or _bytes(tensors[name]) == _bytes(tensors[t.name]) for name, t in told.items())


def _bytes(tensor: Any) -> bytes:
    return bytes(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())


_MARK = "tensorpull"


def aggregators_ask_first() -> str:
    """FLARE's sum asks for a whole update before it adds the first of its values, also of those that came in the message itself. Why that cannot be; "" if it is so."""
    add = WeightedAggregationHelper.add
    if hasattr(add, _MARK):
        return ""
    if list(inspect.signature(add).parameters) != ["self", "data", "weight", "contributor_name", "contribution_round"]:
        return "FLARE's WeightedAggregationHelper is another one than that of 2.9"

    def asks(self: Any, data: Any, *given: Any, **more: Any) -> Any:
        for value in data.values():
            real(value)
        return add(self, data, *given, **more)

    setattr(asks, _MARK, add)
    WeightedAggregationHelper.add = asks
    return ""
