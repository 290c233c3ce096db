"""Federated averaging while the updates arrive: sum(weight * update) / sum(weight), without holding an update. With the model that they began from,
it is base + sum(weight * (update - base)) / sum(weight): what no update has changed keeps its bits."""

from __future__ import annotations

import contextlib
import threading
from math import inf
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Tuple, Union

from . import _native
from ._download import NoDifference, writable
from ._download import pull as download
from ._errors import Error
from ._log import place
from ._options import DEFAULT_CHUNK_BYTES, PER_REQUEST_TIMEOUT, RETRIES, chunk_bytes, pull_settings, reference_id, text, whole, within
from ._route import Addresses, addresses_of, kept, over_addresses, throughout
from ._session import Session
from ._tensors import Tensors, empty_like
from ._tls import TLS
from ._trees import is_tensor
from ._types import Abort, AverageOptions, OfOneProcess, Receipt, Tell, TensorDict, Unpack, Update

_KINDS = ("divide_by_reached", "error", "staged")


class WeightedAverage(OfOneProcess):
    """The mean of models of one schema. Each `pull` adds one client's update as its chunks arrive, each checked by a digest of its own.

    `base`: the old model, which the updates began from; give it wherever it is at hand. The differences to it are summed: an element that has its old
    value in all updates has its old bits in the result, -0.0 too, and small steps keep their digits. Without it the values are summed, and about half
    of the float32 elements that nobody has changed have other bits after ten updates. Its tensors are borrowed and may not change from the first
    update of a round to `result()`. Their values should be near those of the updates: errors are some roundings of the greater of both.
    `out`: the result goes into these tensors; they are written by `result()` only, so they may be those of `base`, which is the new model from then
    on. `like`: a dict of tensors with the names, dtypes and shapes of the updates; new ones are made for the result. They are made like `base` if
    nothing else is given.
    `partial`: what an update means that stops half-way. "error": `result()` raises "partial_update", unless the update comes again and
    completes. "divide_by_reached": what arrived counts, each element is divided by the weight that reached it. "staged": updates land
    first, in a model's memory, and are added when they are complete.
    Memory: 4 bytes an element for the sums (8: float64, integers), one chunk, 112 bytes for each of `max_peers`; "staged": one model more.
    bool is refused.
    `refuse_no_numbers`: an update with a NaN or an infinity, where the base has another value, fails as "value_out_of_range" with the peer's name, before the chunk that
    has it is added. False: one of a single client makes the result's element one.
    `longest`, for "staged" with `base`: norm clipping. A difference to `base` that is longer is shortened to this Euclidean norm when it has landed, before it is added, so no second
    update is in memory; `updates` has the norm as it was. Tensors of integers beside others are not shortened. `clip(longest)` sets it anew, such as to the last round's median norm.
    `heaviest`: a weight above this counts as this. A number of samples is its client's word, and one of billions would decide the mean.

    An update counts exactly once in a round, known by `peer` and `round` of its `pull`. It counts once its last byte is checked, whether or
    not the client hears that; `updates` tells. The same peer again, also with another reference, adds nothing and is taken, so that the
    client ends well; so is an update of an earlier round. One that stopped half-way goes on from there if the same version comes again
    with the same weight; another one is refused ("update_changed"). If nothing of it was added, which "staged" never does with a part, it
    begins anew, and another one is taken in its place.
    """

    def __init__(
        self,
        like: Optional[Mapping[str, Any]] = None,
        *,
        base: Optional[Mapping[str, Any]] = None,
        out: Optional[Mapping[str, Any]] = None,
        partial: str = "error",
        chunk_size: int = DEFAULT_CHUNK_BYTES,
        max_peers: int = 4096,
        refuse_no_numbers: bool = True,
        longest: Optional[float] = None,
        heaviest: float = 2.0**60,
    ) -> None:
        if longest is not None and (partial != "staged" or base is None):
            raise ValueError('longest wants partial="staged" and base: the difference of a whole update has a norm')
        if partial not in _KINDS:
            raise ValueError(f"partial is one of {', '.join(_KINDS)}; not {partial!r}")
        if chunk_size == 0:
            raise ValueError("an average wants chunks: what has been added cannot be taken back")
        if base is not None:
            flat_tensors(base)
            if like is None and out is None:
                like = base
        if like is not None and out is None:
            flat_tensors(like)
            out = empty_like(like)
        elif out is None or like is not None:
            raise ValueError("either like, or out, or base alone")
        self._chunk_size = chunk_bytes(chunk_size, "")
        tensors = writable(out)
        before = Tensors(base) if base is not None else None
        self._tensors = tensors
        self._to = dict(out)  # the caller's own may have other tensors later
        self._lock = threading.RLock()  # a progress callback may ask how far the average is
        self._pulling = False
        self._partial = partial
        self._clips = longest is not None
        self._peers: Dict[int, str] = {}  # the compiled half knows a peer by a number
        self._most_peers = whole(max_peers, "max_peers", 2**32 - 1, least=1)
        average = {"staged": _native.AverageStaged, "error": _native.AverageError}.get(partial, _native.AverageDivide)
        self._base = None if base is None else dict(base)
        with sums_wanted():
            self._native: _native.Average = average(
                tensors.described, before.described if before else None, (tensors.keep, before.keep if before else None), self._chunk_size, self._most_peers,
                bool(refuse_no_numbers), 0.0 if longest is None else _length(longest), _heaviest(heaviest),
            )  # fmt: skip

    def pull(
        self,
        address: Union[Addresses, Session],
        ref_id: str,
        weight: float,
        *,
        peer: str,
        round: int,
        per_request_timeout: Optional[float] = PER_REQUEST_TIMEOUT,
        progress: Tell = None,
        progress_interval: float = 0.1,
        abort: Abort = None,
        version: Optional[int] = None,
        recipient: Optional[str] = None,
        window: int = 0,
        retries: int = RETRIES,
        believe: bool = False,
        ssl: Optional[TLS] = None,
        narrowed: bool = False,
        timeout: Optional[float] = None,
        wait: Optional[float] = None,
    ) -> Receipt:
        """Adds what is published under `ref_id`, times `weight` (from 2**-60 to 2**60). `narrowed`: the client has published `narrowed(model, base)` with this average's `base`, or a
        difference to it, and that is pulled, in a quarter of the bytes or fewer; what has changed lands in new memory first. `timeout`: seconds for all of it. `peer` says which site's update it is, and `round` for which round it
        was made (from 1, at most the current one); the rest is as for `download_tensors`, but a web server has no updates, since it sends no digest
        of each chunk. In the place of an address there may be a `Session`, of whose other end it is pulled, if this average is "staged": over a session
        the digest of the whole is all that is checked. An update that fails is an `Error`, and the average goes on as `partial` says. Several threads take turns; RuntimeError in a callback
        of a pull of this average, which has the turn."""
        if not isinstance(peer, str) or not peer:
            raise ValueError(f"peer is the client's name; not {peer!r}")
        made_for = whole(round, "round", 2**64 - 1)
        if not 1 <= made_for <= self.round:
            raise ValueError(f"round is a number from 1 to {self.round}, the current round; not {round!r}")
        session = address if isinstance(address, Session) else None
        if session is not None and self._partial != "staged":
            raise ValueError('over a session only an average with partial="staged" pulls: what it has taken before the digest of the whole is known can be undone')
        if session is not None and ssl is not None:
            raise ValueError("ssl is for addresses: a session has its connection")
        address = () if isinstance(address, Session) else kept(address)
        if narrowed and self._base is None:
            raise ValueError("narrowed wants base: the model that the step is to")
        told = progress if session is not None else throughout(progress, address)
        limit = within(timeout, wait, abort, address)
        settings = pull_settings(
            ref_id, per_request_timeout, self._chunk_size, told, progress_interval, limit.__enter__(), version, recipient, window, retries,
            believe=believe,
        )
        text(peer, "peer", "the client's name")
        factor = number_above_0(weight, peer)
        with limit, self._turn(settings.abort):
            if self._pulling:
                raise RuntimeError("a callback of a pull of this average cannot pull into it: that pull has to end first")
            self._pulling = True
            if len(self._peers) >= self._most_peers:
                self._forget_peers()
            self._peers[_native.recipient_named(peer)] = peer

            def pull(source: Any) -> Receipt:
                try:
                    if narrowed:
                        return download(
                            source, ref_id, per_request_timeout, self._chunk_size, told, settings.abort, base=self._base, progress_interval=progress_interval, version=version,
                            recipient=recipient, window=window, retries=retries, believe=believe, take=add,
                        ).receipt  # fmt: skip
                except NoDifference:  # it is added as any other
                    pass
                return Receipt(*self._native.pull(source, ref_id, factor, peer, made_for, settings))

            now = self.round

            def add(tensors: Mapping[str, Any], version: int) -> None:
                if self.round != now:  # a callback has ended the round: an update that counts nowhere was not taken
                    raise Error("cancelled", "the round has ended meanwhile", peer)
                self._native.add(Tensors(tensors, apart=True).described, version, factor, peer, made_for)

            try:
                return pull(session._session) if session is not None else over_addresses(address, ssl, pull, None, told)[0]
            except Error as e:
                refused = next((update.refused for update in self.updates if update.peer == peer), "")
                raise _in_words(e, peer, refused, self._clips) from None
            finally:
                self._pulling = False

    @contextlib.contextmanager
    def _turn(self, stopped: Optional[Callable[[], bool]]) -> Iterator[None]:
        """The lock. Error("cancelled") if it is stopped before another thread's pull has ended."""
        while not self._lock.acquire(timeout=-1 if stopped is None else 0.05):
            if stopped is not None and stopped():
                raise Error("cancelled", "another thread pulls into this average, and this was not waited for")
        try:
            yield
        finally:
            self._lock.release()

    def result(self) -> TensorDict:
        """The averages, in the tensors of `out` or new ones: the same ones each time. More updates may follow."""
        with self._lock:
            self._tensors.mark_changed()
            self._native.finish()
            return TensorDict(self._to)

    def clip(self, longest: float) -> None:
        """Sets `longest` for the updates that have landed from now on."""
        if self._partial != "staged" or self._base is None:
            raise ValueError('clip wants partial="staged" and base')
        with self._lock:
            self._native.clip(_length(longest))
            self._clips = True

    def reset(self) -> None:
        """Begins the next round, which forgets the peers of this one. In a callback of a pull: that ends as "cancelled"."""
        with self._lock:
            self._native.reset()
            self._forget_peers()

    def _forget_peers(self) -> None:
        """All that have no update in this round."""
        self._peers = {who: self._peers[who] for who, *_ in self._native.updates}

    @property
    def round(self) -> int:
        """The number of the current round: 1, and one more after each `reset`."""
        return self._native.round

    @property
    def updates(self) -> List[Update]:
        """What has become of this round's updates: one `Update` for each peer that has come, in their order. Waits while another thread pulls."""
        with self._lock:
            return [Update(self._peers[told[0]], *told[1:]) for told in self._native.updates]

    @property
    def whole_updates(self) -> int:
        """Updates that were added as a whole."""
        with self._lock:
            return self._native.whole_updates

    @property
    def partial_updates(self) -> int:
        """Updates of which a part was added."""
        with self._lock:
            return self._native.partial_updates

    @property
    def whole_weight(self) -> float:
        """The sum of the weights of the whole updates."""
        with self._lock:
            return self._native.whole_weight


def _length(longest: Any) -> float:
    if isinstance(longest, (str, bytes)) or not hasattr(longest, "__float__") or not 0 < float(longest) < inf:
        raise ValueError(f"longest is a length above 0; not {longest!r}")
    return float(longest)


def _heaviest(weight: Any) -> float:
    if isinstance(weight, (str, bytes)) or not hasattr(weight, "__float__") or not 2.0**-60 <= float(weight) <= 2.0**60:
        raise ValueError(f"heaviest is a weight, from 2**-60 to 2**60; not {weight!r}")
    return float(weight)


def _in_words(e: Error, peer: str, refused: str, clips: bool) -> Error:
    about = e.name[:-3] if e.name.endswith("...") else e.name  # the compiled half has cut a long name
    if not about or not peer.startswith(about):
        return e
    if e.code == "value_out_of_range":
        where = f" in the tensor {refused!r}" if refused else ""
        also = ", or a difference that is too long to be shortened" if clips else " (refuse_no_numbers=False takes it)"
        return e.saying(f"the update has a NaN or an infinity{where}{also}", peer)
    if e.code == "invalid_argument":
        return e.saying("an average takes weights from 2**-60 to 2**60: sums are of 32 bits for most dtypes", peer)
    return e


def flat_tensors(tensors: Any) -> None:
    if not isinstance(tensors, Mapping):
        raise TypeError(f"a dict of tensors, not {type(tensors).__name__}")
    for name, tensor in tensors.items():
        if not is_tensor(tensor):
            raise TypeError(f"{name!r} is no tensor, and an average is of a flat dict: tensorpull.flatten({{...}}) makes one of a tree")


@contextlib.contextmanager
def sums_wanted() -> Iterator[None]:
    """An error about a dtype that cannot be added says what helps."""
    try:
        yield
    except Error as e:
        if e.code != "unsupported_dtype":
            raise
        raise e.saying("elements of this dtype have no mean: leave the tensor out, or give it as numbers") from None


def number_above_0(weight: Any, peer: str) -> float:
    if isinstance(weight, (str, bytes)) or not hasattr(weight, "__float__"):
        raise TypeError(f"weight is a number; not {weight!r}")
    if not 0 < float(weight) < inf:
        raise Error("invalid_argument", f"a weight is a finite number above 0, and not {weight!r}: leave out whose update is not to count", peer)
    return float(weight)


def weighted_average(
    updates: Iterable[Tuple[Addresses, str, float]],
    like: Optional[Mapping[str, Any]] = None,
    *,
    base: Optional[Mapping[str, Any]] = None,
    out: Optional[Mapping[str, Any]] = None,
    partial: str = "error",
    chunk_size: int = DEFAULT_CHUNK_BYTES,
    skip_failed: bool = False,
    refuse_no_numbers: bool = True,
    longest: Optional[float] = None,
    heaviest: float = 2.0**60,
    **options: Unpack[AverageOptions],
) -> TensorDict:
    """Pulls each of `updates`, (address, ref_id, weight), into one average, one after the other, and returns the result.

    `like`, `base`, `out`, `partial`, `chunk_size`, `refuse_no_numbers`, `longest` and `heaviest` are those of `WeightedAverage`, `options` those of its `pull`; a reference that is listed
    twice counts once, however it is written and wherever it is. The same ID with another version is another update; one without a version is
    that of any with the same ID before it, and "update_changed" if other bytes come. With `skip_failed` an update that fails is left out as `partial` says ("error": if nothing of it has arrived, and
    otherwise there is no result; "staged": always; "divide_by_reached": what of it had arrived counts); without, its `Error` is raised.
    """
    average = WeightedAverage(like, base=base, out=out, partial=partial, chunk_size=chunk_size, refuse_no_numbers=refuse_no_numbers, longest=longest, heaviest=heaviest)
    known: Dict[str, Dict[str, str]] = {}  # by ID, the references that have it, and what each is called as a peer
    came: Dict[str, int] = {}
    for address, ref_id, weight in updates:
        address, digits = kept(address), reference_id(ref_id).lower()
        same = known.setdefault(digits[:32], {})
        first = next((one for one in same if one.startswith(digits) or digits.startswith(one)), digits)
        peer = same.setdefault(first, f"{', '.join(map(place, addresses_of(address)))} {digits}")
        try:
            version = average.pull(address, ref_id, weight, peer=peer, round=1, **options).version
            if came.setdefault(peer, version) != version:
                raise Error("update_changed", "this is not what has counted under the same reference", peer)
        except Error as e:
            if not skip_failed or e.code == "cancelled":
                raise
    return average.result()
