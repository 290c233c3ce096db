"""A model travels as what has changed since the one before, if both ends have that one still (tensorpull_differences).

A site says at the end of a pull that it keeps the model. The server holds the tensors of the newest model that a site keeps. When that site asks for the next one, what has changed is made
once, for all sites that keep the same. An update of a site is told as what has changed since the model that it keeps, also as a step in 8 bits. What an end takes is told by the digest of the whole, as ever: one that
has something else than the other believes pulls all of it.
"""

from __future__ import annotations

import secrets
import threading
import time
import weakref
from typing import Any, Callable, Dict, Mapping, NamedTuple, Optional, Set, Tuple

import tensorpull
from nvflare.fuel.utils.log_utils import get_obj_logger

from .. import _native
from .._changed import digests_said, kind_of_published
from .._difference import WORTH, Narrowed, code, kind_of, narrowed, nbytes_of, publish_coded
from .._download import pull
from .._listing import look_closely, looking
from .._options import DEFAULT_CHUNK_BYTES
from .._publish import publish
from .._route import over_addresses
from .._session import Session
from .._tensors import Tensors
from .._trees import DIFFERENCE, DIGESTS, NARROWED
from .._types import TensorDict
from ._pool import Kept, kept_maker
from ._models import Model

#: The setting's values: nothing; tensors that have not changed are not sent; those that have changed are sent as a coded difference; and updates as a step in 8 bits, which rounds them.
OFF, TENSORS, CODED, NARROW = "off", "tensors", "coded", "narrowed"
#: The name under which the server's publication asks a site to keep the model.
ASKS_TO_KEEP = "nvflare.keep"
#: Seconds in which a site hears the offer, or that it comes soon.
SOON = 0.25
#: Seconds after which what has changed is not waited for any more, and the site is offered all of it.
LONGEST = 600.0
#: Of what an owner says it has, as `download_tensors` has it.
_MOST_HEADER, _MOST_TENSORS = 16 << 20, 1_000_000


def mode_of(value: Any) -> str:
    """ValueError, if the setting is none of the four."""
    if value not in (OFF, TENSORS, CODED, NARROW):
        raise ValueError(f'tensorpull_differences is "{OFF}", "{TENSORS}", "{CODED}" or "{NARROW}"; not {value!r}')
    return str(value)


class Changes:
    """What has changed from one model to another. A thread of its own makes it, since coding takes 6 to 7 s for each GiB, and FLARE's requests have to be answered sooner."""

    def __init__(self, what: str, tensors: Mapping[str, Any], base: Mapping[str, Any], mode: str, done: Callable[["Changes"], None] = lambda _: None) -> None:
        """`what`: the former's name in the log. `done` is called when `base` is not read any more."""
        self.logger = get_obj_logger(self)
        self.there = threading.Event()
        self.said: Dict[str, str] = {}  # what a publication says of it, once it is there; nothing: it is of no use
        self.lock = threading.Lock()
        self.version: Optional[int] = None  # of publications that say it, once there was one
        self._what, self._began, self._id, self._ended = what, time.monotonic(), secrets.token_hex(16), False
        self._coded: Optional[Tuple[Any, ...]] = None  # until it is published
        self._moved: Optional[Narrowed] = None  # what a step in 8 bits leads to, which is published in the place of what was given
        self._owner: "Optional[weakref.ref[Any]]" = None  # which has it then
        threading.Thread(target=self._make, args=(tensors, base, mode, done), name="tensorpull-changes", daemon=True).start()

    def may_come(self) -> bool:
        """Whether the other end is to wait for it."""
        return not self.there.is_set() and time.monotonic() - self._began < LONGEST

    def _make(self, tensors: Mapping[str, Any], base: Mapping[str, Any], mode: str, done: Callable[["Changes"], None]) -> None:
        said: Dict[str, str] = {}
        coded, moved = None, None
        try:
            if mode == NARROW:
                moved = narrowed(tensors, base)
                coded, tensors = moved.step, moved  # without a step it is what was given, bit for bit
            now = Tensors(tensors).described
            digests = dict(_native.tensor_digests(now))
            before = dict(_native.tensor_digests(Tensors({name: base[name] for name in digests if name in base}, apart=True).described))
            if mode in (CODED, NARROW) and coded is None:
                coded, moved = code(now, digests, base), None
            there = {one[0]: nbytes_of(one) for one in now}
            stays = sum(there[name] for name, digest in digests.items() if before.get(name) == digest)
            if coded or stays > (1 - WORTH) * sum(there.values()):
                said = digests_said(digests)
            what = "a step in 8 bits" if moved else "a coded difference" if coded else "the tensors that have changed" if said else "nothing that is less than all"
            self.logger.info(f"tensorpull: {self._what} is {what}, made in {time.monotonic() - self._began:.3f} s")
        except Exception as e:  # noqa: BLE001: all of it is offered then
            self.logger.warning(f"tensorpull: what has changed since the last model cannot be told, so all of it is offered: {e}")
        with self.lock:
            self._coded, self._moved = (None, None) if self._ended else (coded, moved)
        self.said = said
        done(self)
        self.there.set()

    def publish(
        self, owner: Any, tensors: Mapping[str, Any], metadata: Mapping[str, str], recipients: int = 0,
        settled: Optional[Callable[[tensorpull.Outcome], None]] = None,
    ) -> tensorpull.Reference:  # fmt: skip
        """All of the new model, with the word of what has changed, through an owner or a session of the compiled half. The publications of it share the pass over its bytes."""
        with self.lock:
            coded, self._coded = self._coded, None
            if coded is not None and publish_coded(owner.add, self._id, coded):
                self._owner = weakref.ref(owner)
                self.said = {**self.said, DIFFERENCE if self._moved is None else NARROWED[self._moved.bits]: self._id}
            ref = publish(
                owner.add, tensors if self._moved is None else self._moved, DEFAULT_CHUNK_BYTES, recipients, 0, None, metadata, settled, None, 30.0, None, None, None, version=self.version, known=self.said
            )  # fmt: skip
            self.version = ref.version
            return ref

    def end(self) -> None:
        """Nobody is told of it any more, and its bytes are let go of, as soon as they are there."""
        with self.lock:
            self._ended, self._coded, self._moved = True, None, None
            owner, self._owner = self._owner() if self._owner else None, None
        if owner is not None:
            try:
                owner.withdraw(self._id)
            except (tensorpull.Error, ValueError):  # it is closed
                pass


class _Held(NamedTuple):
    """A model that sites keep, and which."""

    model: Model
    tensors: Dict[str, Any]
    sites: Set[str]


class _Next:
    """The model after it."""

    def __init__(self, model: Model, base: Optional[_Held]) -> None:
        self.model = model
        self.sites = base.sites if base else set()
        self.base = base
        self.changes: Optional[Changes] = None


class Earlier:
    """The server's: the newest model that a site keeps, of each framework, and what has changed from it to the one that is published.

    Holds the tensors of the former, not copies. They are FLARE's own model until it has made the next one; from then on, until a site has pulled that, it is one model more. What is coded
    stays until the model after the next.
    """

    def __init__(self, mode: str) -> None:
        self.logger = get_obj_logger(self)
        self._mode = CODED if mode == NARROW else mode  # a model is many sites', and none of it is rounded
        self._lock = threading.Lock()
        self._newest: Dict[str, _Held] = {}
        self._next: Dict[str, _Next] = {}

    def keeps(self, site: str, framework: str, model: Model, tensors: Mapping[str, Any]) -> None:
        """A site says that it has all of this model, and keeps it."""
        with self._lock:
            newest = self._newest.get(framework)
            if newest is None or newest.model.number < model.number:
                newest = self._newest[framework] = _Held(model, dict(tensors), set())
            if newest.model is model:
                newest.sites.add(site)
            else:  # it has gone back to an older one
                newest.sites.discard(site)

    def changes(self, site: str, framework: str, model: Model, tensors: Mapping[str, Any]) -> Optional[Changes]:
        """What has changed since the model that this site keeps; None: all is to be offered to it."""
        ended: Optional[Changes] = None
        try:
            with self._lock:
                following = self._next.get(framework)
                if following is None or following.model.number < model.number:
                    newest = self._newest.get(framework)
                    ended = following.changes if following else None
                    following = self._next[framework] = _Next(model, newest if newest is not None and newest.model is not model else None)
                if following.model is not model or site not in following.sites:
                    return None
                if following.changes is None and following.base is not None and _alike(following.base.tensors, tensors):
                    following.changes = Changes("the next model", dict(tensors), following.base.tensors, self._mode)
                following.base = None  # the thread has it as long as it needs it
                return following.changes
        finally:
            if ended is not None:
                ended.end()

    def land(
        self, site: str, through: Session, ref: str, framework: str, kept: Kept, lasting: Any, *, per_request_timeout: Optional[float], chunk_size: int, retries: int, max_bytes: int,
        abort: Any
    ) -> Optional[TensorDict]:  # fmt: skip
        """Pulls a site's update into new tensors, which are first a copy of the model that it keeps: what has changed since comes. None: it says nothing of that, or there is no memory, and
        nothing has come. `lasting` is referred to as long as one of the tensors is there."""
        with self._lock:
            newest = self._newest.get(framework)
            base = newest.tensors if newest is not None and site in newest.sites else None
        if base is None:
            return None
        seen = look_closely(through._session, ref, _MOST_HEADER, _MOST_TENSORS, looking(ref, per_request_timeout, abort, retries=retries))
        ours = {one[0]: kind_of(one) for one in Tensors(base, apart=True).described}
        told = {name: kind_of_published(one) for name, one in seen.listing.tensors.items()}
        if DIGESTS not in seen.metadata or told != ours or sum(one.nbytes for one in seen.in_image) > max_bytes:
            return None
        try:
            mine = copied({one.name: base[one.name] for one in seen.in_image}, kept, framework, apart=True, lasting=lasting)
        except (MemoryError, tensorpull.Error) as e:
            self.logger.warning(f"tensorpull: the update of {site} is pulled as a whole: {e}")
            return None
        # those that are one at the site are one here, whatever the model had
        tensors = {name: mine[one.name] for name, one in seen.listing.tensors.items()}
        return _land_in(tensors, through._session, ref, per_request_timeout, chunk_size, retries, abort, None)


def _land_in(
    tensors: Dict[str, Any], source: Any, ref: str, per_request_timeout: Optional[float], chunk_size: int, retries: int, abort: Any, version: Optional[int]
) -> TensorDict:  # fmt: skip
    """Pulls into these tensors what is another than theirs."""
    return pull(
        source, ref, per_request_timeout, chunk_size, abort=abort, out=tensors, max_header_bytes=_MOST_HEADER, max_tensors=_MOST_TENSORS, version=version, retries=retries, base=tensors
    )  # fmt: skip


def _alike(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether they may be two states of one model."""
    return old.keys() == new.keys() and all(str(old[name].dtype) == str(t.dtype) and tuple(old[name].shape) == tuple(t.shape) for name, t in new.items())


class _Copy(NamedTuple):
    tensors: Dict[str, Any]
    landed: Optional[TensorDict]  # what `land` has returned, as long as it has not said what becomes of it


class Base:
    """A site's: a copy of the newest model of each framework that it has pulled and whose owner asked to keep it. Nobody else has its tensors, so no trainer changes them."""

    def __init__(self, kept: Kept, mode: str = CODED) -> None:
        self._kept, self._mode = kept, mode
        self._lock = threading.Lock()
        self._of: Dict[str, _Copy] = {}
        self._models: Dict[str, int] = {}  # how many have come
        self._in_vain: Dict[str, Tuple[int, int]] = {}  # how many updates in a row were nothing less than all, and for how many it is not tried again
        self.logger = get_obj_logger(self)

    def is_of(self, framework: str, landed: TensorDict, asked: bool) -> bool:
        """Whether the copy is of this model from now on: not, if the server has not asked for it, or there is no memory. Cost: one pass, if `land` has not brought it; memory: one model."""
        with self._lock:
            self._models[framework] = self._models.get(framework, 0) + 1
            base = self._of.pop(framework, None)  # its memory may be what the copy takes
        if not asked:
            return False
        if base is None or base.landed is not landed:
            base = None
            try:
                base = _Copy(copied(landed, self._kept, framework), landed)
            except (MemoryError, tensorpull.Error) as e:
                self.logger.warning(f"tensorpull: this model is not kept, and the next one is pulled as a whole: {e}")
                return False
        with self._lock:
            self._of[framework] = base._replace(landed=None)
        return True

    def land(
        self, through: Any, where: Tuple[Any, ...], ref: str, framework: str, *, per_request_timeout: Optional[float], chunk_size: int, retries: int, max_bytes: int,
        abort: Any, version: Optional[int] = None, ssl: Any = None,
    ) -> Optional[TensorDict]:  # fmt: skip
        """Pulls what has changed since the copy into it, and returns new tensors with all of it. None: there is no copy, or not of such a model, and nothing has come."""
        with self._lock:
            there = self._of.pop(framework, None)  # another pull meanwhile gets all; and what ends in the middle is none any more
        base = there.tensors if there else None
        if base is None or sum(int(t.nbytes) for t in {id(t): t for t in base.values()}.values()) > max_bytes:
            return None

        def begin(source: Any) -> TensorDict:
            return _land_in(base, source, ref, per_request_timeout, chunk_size, retries, abort, version)

        try:
            got = begin(through._session) if isinstance(through, Session) else over_addresses(where[0], ssl, begin)[0]
        except tensorpull.Error as e:
            if e.code == "schema_mismatch":
                return None
            raise
        landed = TensorDict(copied(base, self._kept, framework))
        landed.metadata, landed.structure, landed.receipt = got.metadata, got.structure, got.receipt
        with self._lock:
            self._of[framework] = _Copy(base, landed)
        return landed

    def changes(self, framework: str, tensors: Mapping[str, Any]) -> Optional[Changes]:
        """What has changed from the copy to an update that is to be sent; None: there is no copy, or not of such a model, or updates are never less. Meanwhile the copy is away: a model
        that comes is pulled as a whole, and is the next copy."""
        with self._lock:
            there = self._of.get(framework)
            if there is None or not _alike(there.tensors, tensors):
                return None
            tried, rest = self._in_vain.get(framework, (0, 0))
            if rest:
                self._in_vain[framework] = tried, rest - 1
                return None
            del self._of[framework]
            models = self._models.get(framework, 0)

        def done(changes: Changes) -> None:
            with self._lock:
                # Some trainers send differences, and filters add noise: their updates have nothing of the model.
                self._in_vain[framework] = (0, 0) if changes.said else (tried + 1, 2 ** min(tried, 6))
                if self._models.get(framework, 0) == models:
                    self._of.setdefault(framework, there)

        return Changes("this update", dict(tensors), there.tensors, self._mode, done)


def copied(tensors: Mapping[str, Any], kept: Kept, framework: str, apart: bool = False, lasting: Any = None) -> Dict[str, Any]:
    """New tensors with the same bytes, in the memory of `kept`; those that are one are one again, unless they are to be `apart`. `lasting` as in `kept_maker`."""
    made: Dict[str, Any] = {}
    theirs = Tensors(tensors, apart=apart)
    make = kept_maker(made, kept, framework, lasting)
    for name, dtype, shape, *_ in theirs.described:
        make(name, dtype, tuple(shape))
    _native.copy_tensors(theirs.described, Tensors(made, apart=True).described)
    return {name: made[theirs.ties.get(name, name)] for name in tensors}

