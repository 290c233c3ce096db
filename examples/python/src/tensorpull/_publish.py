"""What publishing takes, for an owner of many connections and for a session alike."""

from __future__ import annotations

import operator
import secrets
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from . import _native
from ._changed import digests_said
from ._difference import code, code_each, id_beside, publish_coded, said_of_each, tensors_said, to_publish
from ._errors import Error
from ._options import PublishSettings, milliseconds, reference_id, text, whole
from ._tensors import Tensors, empty_like
from ._trees import DIFFERENCE, NARROWED, FlatTree, as_flat, carry, said
from ._types import Outcome, Progress, Reference, Status


def as_outcome(values: Sequence[Any], recipients: Optional[Dict[str, str]] = None, reasons: Optional[Dict[str, str]] = None) -> Outcome:
    verdict, references, expected, counts, lasted = values
    return Outcome(verdict, references, expected, Status._make(counts), lasted, recipients or {}, dict(reasons or {}))


def status_of(publisher: Any, ref_id: str, beside: str) -> Status:
    """The counts of a reference, and of the bytes of the differences `beside` it too. "": there is none."""
    counts = Status._make(publisher.status(reference_id(ref_id)))
    for one in beside.split():
        try:
            counts = counts._replace(bytes_sent=counts.bytes_sent + publisher.status(one)[-1])
        except Error:  # it was not published, or is not remembered any more
            pass
    return counts


def bases_of(tensors: Any, base: Any) -> Tuple[Any, ...]:
    """Several bases of a dict are a list of dicts; a list of tensors has one, which is a list itself."""
    if not isinstance(tensors, Mapping) or not isinstance(base, (list, tuple)):
        return () if base is None else (base,)
    if not base or not all(isinstance(one, Mapping) for one in base):
        raise TypeError("base is an earlier version, or for a dict a list of these, the last first")
    return tuple(base)


def names_in(recipients: Any) -> Tuple[Any, Tuple[str, ...]]:
    """What `publish` takes for recipients, and the names that are in it."""
    if isinstance(recipients, (str, bytes)) or not isinstance(recipients, Iterable):
        return recipients, ()
    names = tuple(recipients)
    return names, names


def copied(tensors: Any) -> Any:
    """The same in new memory of the CPU: a flat dict, or that of a tree."""
    flat = as_flat(tensors)
    described, made = Tensors(flat).described, FlatTree(empty_like(flat))
    _native.copy_tensors(described, Tensors(made).described)
    made.structure = getattr(flat, "structure", None)
    return made if made.structure is not None else dict(made)


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
    known: Optional[Mapping[str, str]] = None,
    narrow: bool = False,
    copy: bool = False,
    trees: Optional[List[Any]] = None,
) -> Reference:
    """Publishes through `add` of the compiled half. The arguments are those of `Downloader.add_tensors`. `known`: digests and a difference that are there already, as the metadata says them. `trees`: gets the
    tree that proves what is published."""
    chunk_size = whole(chunk_size, "chunk_size", _native.max_chunk_bytes)
    if metadata is not None and not isinstance(metadata, Mapping):
        raise TypeError(f"metadata is a dict of str; not {metadata!r}")
    heard(settled, "settled")
    heard(progress, "progress")
    if not isinstance(narrow, bool):
        raise TypeError(f"narrow is True or False; not {narrow!r}")
    step, key, chosen = None, DIFFERENCE, None
    bases = bases_of(tensors, base)
    if narrow:
        if len(bases) > 1:
            raise ValueError("narrow takes one base: what a step leaves out is of that")
        tensors = to_publish(tensors, base)
        step, key, chosen, bases = tensors.step, NARROWED[tensors.bits], tensors.chosen, ()
    if copy:
        tensors = copied(tensors)
    carried = carry(tensors, metadata)
    described = Tensors(carried.tensors)
    pairs = said(carried, described.described, described.ties, keep_order)
    beside: Dict[str, Any] = {}  # what is published beside it, by its ID
    if tensor_digests or narrow or bases:
        digests = dict(_native.tensor_digests(described.described))
        pairs.update(digests_said(digests))
    pairs.update(known or {})
    how = PublishSettings()
    if ref_id == "":
        raise ValueError("ref_id is empty; None is an ID of the owner's choice")
    how.id = reference_id(ref_id) if ref_id is not None else ""
    how.recipients, called = _expected(recipients)
    how.named = list(called)
    how.least = whole(least, "least", 2**32 - 1)
    how.version = 0 if version is None else whole(version, "version", 2**64 - 1)
    expected = how.recipients or len(how.named)
    if expected and how.least > expected:
        raise ValueError(f"least is at most the number of recipients, which is {expected}; not {how.least}")
    how.acquire_ms = milliseconds(acquire_timeout, "acquire_timeout", never=0, least=1)
    how.recipient_idle_ms = milliseconds(recipient_idle_timeout, "recipient_idle_timeout", never=0, least=1)
    how.transaction_idle_ms = milliseconds(transaction_idle_timeout, "transaction_idle_timeout", never=0, least=1)
    how.progress_interval_ms = milliseconds(progress_interval, "progress_interval")
    if bases or step is not None:
        how.id = how.id or secrets.token_hex(16)
    if len(bases) > 1:
        each = code_each(described.described, digests, [as_flat(one) for one in bases])
        ids = {of: id_beside(how.id, digests, f"{key} {of}") for of in each}
        beside = {ids[of]: coded for of, coded in each.items()}
        pairs.update(said_of_each(ids) if ids else {})
    else:
        coded = code(described.described, digests, as_flat(bases[0])) if bases else step
        if coded is not None:
            pairs[key] = id_beside(how.id, digests, key)
            pairs.update(tensors_said(chosen, digests))
            beside = {pairs[key]: coded}
    if settled is not None:
        how.settled = lambda values: settled(as_outcome(values))
    if progress is not None:
        how.progress = lambda event: progress(Progress(*event[:9])._replace(name=called.get(event[2], "")))
    if trees is not None:
        trees.append(_native.ProofTree(described.described, list(pairs.items())))
    digits, version, fingerprint, nbytes = add(described.described, list(pairs.items()), described.keep, how)
    for ref, coded in beside.items():
        publish_coded(add, ref, coded, digits)
    made = Reference(digits, version, fingerprint, nbytes, chunk_size)
    made._beside = " ".join(beside)
    return made


def _expected(recipients: Any) -> Tuple[int, Dict[int, str]]:
    """How many recipients, or their names by their numbers. A str alone would be one recipient for each of its letters."""
    try:
        return whole(operator.index(recipients), "recipients", 2**32 - 1), {}
    except TypeError:
        pass
    if isinstance(recipients, (str, bytes)) or not isinstance(recipients, Iterable):
        raise TypeError(f"recipients is a number, or the recipients' names as in ['site-1', 'site-2']; not {recipients!r}")
    names = [text(name, "each of recipients", "a name") for name in recipients]
    called: Dict[int, str] = {}
    for name in names:
        number = _native.recipient_named(name)
        if not name or number in called:
            raise ValueError(f"each of recipients has a name, and one of its own; not {name!r}")
        called[number] = name
    return 0, called
