"""What publishing takes, for an owner of many connections and for a session alike."""

from __future__ import annotations

import operator
import secrets
import threading
import weakref
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Set, Tuple

from . import _native
from ._changed import digests_said
from ._difference import code, id_beside, publish_coded, to_publish
from ._errors import Error
from ._options import PublishSettings, milliseconds, reference_id, text, whole
from ._tensors import Tensors
from ._trees import DIFFERENCE, NARROWED, as_flat, carry, said
from ._types import Outcome, Progress, Reference, Status


def as_outcome(values: Sequence[Any]) -> Outcome:
    verdict, references, expected, counts, lasted = values
    return Outcome(verdict, references, expected, Status._make(counts), lasted)


def heard(callback: Any, what: str) -> None:
    """Refuses what cannot be called."""
    if callback is not None and not callable(callback):
        raise TypeError(f"{what} is a callable; not {callback!r}")


def publish(
    add: Callable[..., Tuple[str, int, int, int]],
    tensors: Any,
    chunk_size: int,
    recipients: Any,
    least: int,
    ref_id: Optional[str],
    metadata: Optional[Mapping[str, str]],
    settled: Optional[Callable[[Outcome], None]],
    progress: Optional[Callable[[Progress], None]],
    progress_interval: float,
    acquire_timeout: Optional[float],
    recipient_idle_timeout: Optional[float],
    transaction_idle_timeout: Optional[float],
    keep_order: bool = True,
    version: Optional[int] = None,
    tensor_digests: bool = False,
    base: Any = None,
    beside_of: Optional["Beside"] = None,
    known: Optional[Mapping[str, str]] = None,
    narrow: bool = False,
) -> Reference:
    """Publishes through `add` of the compiled half. The arguments are those of `Downloader.add_tensors`. `beside_of` is wanted for `base` and `narrow`. `known`: digests and a difference that are
    there already, as the metadata says them."""
    chunk_size = whole(chunk_size, "chunk_size", _native.max_chunk_bytes)
    if metadata is not None and not isinstance(metadata, Mapping):
        raise TypeError(f"metadata is a dict of str; not {metadata!r}")
    heard(settled, "settled")
    heard(progress, "progress")
    if not isinstance(narrow, bool):
        raise TypeError(f"narrow is True or False; not {narrow!r}")
    step = None
    if narrow:
        tensors = to_publish(tensors, base)
        step, base = tensors.step, None
    carried = carry(tensors, metadata)
    described = Tensors(carried.tensors)
    pairs = said(carried, described.described, described.ties, keep_order)
    beside, beside_key = "", NARROWED[tensors.bits] if narrow else DIFFERENCE
    if tensor_digests or narrow or base is not None:
        digests = dict(_native.tensor_digests(described.described))
        pairs.update(digests_said(digests))
    pairs.update(known or {})
    how = PublishSettings()
    if ref_id == "":
        raise ValueError("ref_id is empty; None is an ID of the owner's choice")
    how.id = reference_id(ref_id) if ref_id is not None else ""
    how.recipients, how.named = _expected(recipients)
    how.least = whole(least, "least", 2**32 - 1)
    how.version = 0 if version is None else whole(version, "version", 2**64 - 1)
    expected = how.recipients or len(how.named)
    if expected and how.least > expected:
        raise ValueError(f"least is at most the number of recipients, which is {expected}; not {how.least}")
    how.acquire_ms = milliseconds(acquire_timeout, "acquire_timeout", never=0, least=1)
    how.recipient_idle_ms = milliseconds(recipient_idle_timeout, "recipient_idle_timeout", never=0, least=1)
    how.transaction_idle_ms = milliseconds(transaction_idle_timeout, "transaction_idle_timeout", never=0, least=1)
    how.progress_interval_ms = milliseconds(progress_interval, "progress_interval")
    if base is not None or step is not None:
        how.id = how.id or secrets.token_hex(16)
        assert beside_of is not None
        new, old, beside_id = described.described, as_flat(base) if base is not None else {}, id_beside(how.id, digests, beside_key)
        beside = hold_beside(beside_of, beside_id, lambda: publish_coded(add, beside_id, step if step is not None else code(new, digests, old)))
    if beside:
        pairs[beside_key] = beside
    if settled is not None or beside:
        how.settled = lambda values: _over(values, settled, beside, beside_of)
    if progress is not None:
        how.progress = lambda event: progress(Progress._make(event))
    try:
        digits, version, fingerprint, nbytes = add(described.described, list(pairs.items()), described.keep, how)
    except BaseException as e:
        _end(beside, beside_of)
        if not beside or getattr(e, "code", "") != "table_full":
            raise
        del pairs[beside_key]  # there is a place for the whole alone
        digits, version, fingerprint, nbytes = add(described.described, list(pairs.items()), described.keep, how)
    return Reference(digits, version, fingerprint, nbytes, chunk_size)


def hold_beside(beside_of: "Beside", ref_id: str, publish_it: Callable[[], Optional[str]]) -> str:
    """The ID of a difference that is published for one more whole, which lets go of it in the end; "": there is none."""
    beside_of.hold(ref_id)  # before it is there: a whole that ends meanwhile leaves it alone
    made = None
    try:
        made = publish_it()
    finally:
        if made is None:
            beside_of.let_go(ref_id)
    return made or ""


def _over(values: Sequence[Any], settled: Optional[Callable[[Outcome], None]], beside: str, beside_of: Optional["Beside"]) -> None:
    """What is published beside a whole ends with it."""
    _end(beside, beside_of)
    if settled is not None:
        settled(as_outcome(values))


def _end(beside: str, beside_of: Optional["Beside"]) -> None:
    if beside and beside_of is not None:
        beside_of.let_go(beside)


def _expected(recipients: Any) -> Tuple[int, List[int]]:
    """How many recipients, or the numbers of their names. A str alone would be one recipient for each of its letters."""
    try:
        return whole(operator.index(recipients), "recipients", 2**32 - 1), []
    except TypeError:
        pass
    if isinstance(recipients, (str, bytes)) or not isinstance(recipients, Iterable):
        raise TypeError(f"recipients is a number, or the recipients' names as in ['site-1', 'site-2']; not {recipients!r}")
    names = [text(name, "each of recipients", "a name") for name in recipients]
    seen: Set[str] = set()
    for name in names:
        if not name or name in seen:
            raise ValueError(f"each of recipients has a name, and one of its own; not {name!r}")
        seen.add(name)
    return 0, [_native.recipient_named(name) for name in names]


class Beside:
    """What an owner publishes beside its wholes. A difference has one ID for one version under one reference, so wholes that follow each other may have the same one: it is withdrawn
    when the last of them has ended. Knows the owner as long as it is there: what is published has this. Any thread may call."""

    def __init__(self, owner: Any) -> None:
        self._owner = weakref.ref(owner)
        self._wholes: Dict[str, int] = {}
        self._lock = threading.Lock()

    def hold(self, ref_id: str) -> None:
        """One more whole has it."""
        with self._lock:
            self._wholes[ref_id] = self._wholes.get(ref_id, 0) + 1

    def let_go(self, ref_id: str) -> None:
        """A whole that had it has ended."""
        with self._lock:
            left = self._wholes.pop(ref_id, 1) - 1
            if left > 0:
                self._wholes[ref_id] = left
                return
        owner = self._owner()
        if owner is not None:
            try:
                owner.withdraw(ref_id)
            except (Error, ValueError):  # it is closed, or has forgotten it
                pass
