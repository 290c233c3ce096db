"""A model travels as what has changed since the one before, if both ends have that one still (tensorpull_differences).

A site says at the end of a pull that it keeps the model. The server holds the tensors of the newest model that a site keeps. When that site asks for the next one, what has changed is made
once, for all sites that keep the same. What a site takes is told by the digest of the whole, as ever: a site that has something else than the server believes pulls all of it.
"""

from __future__ import annotations

import secrets
import threading
import time
from typing import Any, Callable, Dict, Mapping, NamedTuple, Optional, Set, Tuple

import tensorpull
from nvflare.fuel.utils.log_utils import get_obj_logger

from .. import _native
from .._changed import digests_said
from .._difference import WORTH, nbytes_of
from .._download import pull
from .._options import DEFAULT_CHUNK_BYTES
from .._publish import hold_beside, publish
from .._route import over_addresses
from .._session import Session
from .._tensors import Tensors
from .._trees import DIFFERENCE
from .._types import TensorDict
from ._kept import Kept, kept_maker
from ._models import Model

#: The setting's values: nothing; tensors that have not changed are not sent; and those that have changed are sent as a coded difference.
OFF, TENSORS, CODED = "off", "tensors", "coded"
#: The name under which the server's publication asks a site to keep the model.
ASKS_TO_KEEP = "nvflare.keep"
#: Seconds in which a site hears the offer, or that it comes soon.
SOON = 0.25
#: Seconds after which what has changed is not waited for any more, and the site is offered all of it.
LONGEST = 600.0


def mode_of(value: Any) -> str:
    """ValueError, if the setting is none of the three."""
    if value not in (OFF, TENSORS, CODED):
        raise ValueError(f'tensorpull_differences is "{OFF}", "{TENSORS}" or "{CODED}"; not {value!r}')
    return str(value)


class Changes:
    """What has changed from one model to the next. A thread of its own makes it, since coding takes 6 to 7 s for each GiB, and FLARE's requests have to be answered sooner."""

    def __init__(self, owner: tensorpull.Downloader, tensors: Mapping[str, Any], base: Mapping[str, Any], mode: str) -> None:
        self.logger = get_obj_logger(self)
        self.there = threading.Event()
        self.said: Dict[str, str] = {}  # what a publication says of it, once it is there; nothing: it is of no use
        self.lock = threading.Lock()
        self.version: Optional[int] = None  # of publications that say it, once there was one
        self._owner, self._began, self._id, self._ended = owner, time.monotonic(), secrets.token_hex(16), False
        self._coded = False
        threading.Thread(target=self._make, args=(tensors, base, mode), name="tensorpull-changes", daemon=True).start()

    def may_come(self) -> bool:
        """Whether a site is to wait for it."""
        return not self.there.is_set() and time.monotonic() - self._began < LONGEST

    def _make(self, tensors: Mapping[str, Any], base: Mapping[str, Any], mode: str) -> None:
        said: Dict[str, str] = {}
        coded = False
        try:
            now = Tensors(tensors).described
            digests = dict(_native.tensor_digests(now))
            before = dict(_native.tensor_digests(Tensors({name: base[name] for name in digests if name in base}, apart=True).described))
            if mode == CODED:
                coded = bool(hold_beside(self._owner._beside, self._owner._owner.add, self._id, now, digests, base))
            there = {one[0]: nbytes_of(one) for one in now}
            stays = sum(there[name] for name, digest in digests.items() if before.get(name) == digest)
            if coded or stays > (1 - WORTH) * sum(there.values()):
                said = {**digests_said(digests), **({DIFFERENCE: self._id} if coded else {})}
            what = "a coded difference" if coded else "the tensors that have changed" if said else "nothing that is less than all"
            self.logger.info(f"tensorpull: the next model is {what}, made in {time.monotonic() - self._began:.3f} s")
        except Exception as e:  # noqa: BLE001: all of it is offered then
            self.logger.warning(f"tensorpull: what has changed since the last model cannot be told, so all of it is offered: {e}")
        with self.lock:
            self._coded = coded
            if self._ended:
                self._let_go()
        self.said = said
        self.there.set()

    def publish(self, tensors: Mapping[str, Any], metadata: Mapping[str, str]) -> tensorpull.Reference:
        """All of the next model, with the word of what has changed. The publications of it share the pass over its bytes."""
        with self.lock:
            ref = publish(
                self._owner._owner.add, tensors, DEFAULT_CHUNK_BYTES, 0, 0, None, metadata, None, None, 30.0, None, None, None, version=self.version, known=self.said
            )  # fmt: skip
            self.version = ref.version
            return ref

    def end(self) -> None:
        """Nobody is told of it any more, and its bytes are let go of, as soon as they are there."""
        with self.lock:
            self._ended = True
            self._let_go()

    def _let_go(self) -> None:
        if self._coded:
            self._coded = False
            self._owner._beside.let_go(self._id)


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
        self._mode = mode
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

    def changes(self, site: str, framework: str, model: Model, tensors: Mapping[str, Any], owner: Callable[[], tensorpull.Downloader]) -> Optional[Changes]:
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
                    following.changes = Changes(owner(), dict(tensors), following.base.tensors, self._mode)
                following.base = None  # the thread has it as long as it needs it
                return following.changes
        finally:
            if ended is not None:
                ended.end()


def _alike(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether they may be two states of one model."""
    return old.keys() == new.keys() and all(str(old[name].dtype) == str(t.dtype) and tuple(old[name].shape) == tuple(t.shape) for name, t in new.items())


class _Copy(NamedTuple):
    tensors: Dict[str, Any]
    landed: Optional[TensorDict]  # what `land` has returned, as long as it has not said what becomes of it


class Base:
    """A site's: a copy of the newest model of each framework that it has pulled and whose owner asked to keep it. Nobody else has its tensors, so no trainer changes them."""

    def __init__(self, kept: Kept) -> None:
        self._kept = kept
        self._lock = threading.Lock()
        self._of: Dict[str, _Copy] = {}
        self.logger = get_obj_logger(self)

    def is_of(self, framework: str, landed: TensorDict, asked: bool) -> bool:
        """Whether the copy is of this model from now on: not, if the server has not asked for it, or there is no memory. Cost: one pass, if `land` has not brought it; memory: one model."""
        with self._lock:
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
        self, through: Any, where: Tuple[Any, ...], ref: str, framework: str, *, per_request_timeout: Optional[float], retries: int, max_bytes: int, abort: Any,
        version: Optional[int] = None, ssl: Any = None,
    ) -> Optional[TensorDict]:  # fmt: skip
        """Pulls what has changed since the copy into it, and returns new tensors with all of it. None: there is no copy, or not of such a model, and nothing has come."""
        with self._lock:
            there = self._of.pop(framework, None)  # another pull meanwhile gets all; and what ends in the middle is none any more
        base = there.tensors if there else None
        if base is None or sum(int(t.nbytes) for t in {id(t): t for t in base.values()}.values()) > max_bytes:
            return None

        def begin(through: Any, *where: Any) -> TensorDict:
            return pull(
                through, where, ref, per_request_timeout, None, None, abort, None, base, False, None, None, None, 16 << 20, 1_000_000, 0.1, version, None, 0, retries, False, base=base
            )  # fmt: skip

        try:
            got = begin(through._session) if isinstance(through, Session) else over_addresses(where[0], ssl, lambda route: begin(_native, route))[0]
        except tensorpull.Error as e:
            if e.code == "schema_mismatch":
                return None
            raise
        landed = TensorDict(copied(base, self._kept, framework))
        landed.metadata, landed.structure, landed.receipt = got.metadata, got.structure, got.receipt
        with self._lock:
            self._of[framework] = _Copy(base, landed)
        return landed


def copied(tensors: Mapping[str, Any], kept: Kept, framework: str) -> Dict[str, Any]:
    """New tensors with the same bytes, in the memory of `kept`; those that are one are one again."""
    made: Dict[str, Any] = {}
    theirs = Tensors(tensors)
    make = kept_maker(made, kept, framework)
    for name, dtype, shape, *_ in theirs.described:
        make(name, dtype, tuple(shape))
    _native.copy_tensors(theirs.described, Tensors(made, apart=True).described)
    return {name: made[theirs.ties.get(name, name)] for name in tensors}

