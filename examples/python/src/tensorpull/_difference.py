"""What changed since an earlier version, without loss and coded, or in few bits: published beside the whole, whose metadata has its reference.

It is of those tensors alone that have changed and were there before under the same name, with the same dtype and shape. Whether it has brought what it should is told by the digests of
the whole's tensors, as for what a recipient had already (_changed.py): a difference that lies costs a pull of what it was to bring.
"""

from __future__ import annotations

import hashlib
import re
from math import inf, prod
from typing import Any, Callable, Dict, FrozenSet, Iterable, List, Mapping, Optional, Sequence, Tuple

from . import _native
from ._errors import Error
from ._log import logger, short
from ._options import PublishSettings
from ._tensors import FLOATING, Tensors, empty_like
from ._trees import DIFFERENCE, DIFFERENCES, NARROWED, NARROWED_TENSORS, FlatTree, as_flat

#: A difference that is longer than this share of what has changed is not published: the whole is as good.
WORTH = 0.9
#: Less than that is as short without one.
LEAST_BYTES = 1024
#: Elements that share a scale.
_BLOCK = 256
#: A difference that is not there any more, or that is none of what the recipient has, brings nothing, and the tensors are pulled as they are.
_BRINGS_NOTHING = frozenset({"unknown_reference", "withdrawn", "ended", "stale_version", "schema_mismatch", "digest_mismatch", "bad_frame", "not_verifiable", "too_large", "unsupported_layout", "value_out_of_range", "missing_field", "duplicate_name"})

_ID = re.compile("[0-9a-f]{32}")
#: Characters by which a recipient knows its base, before the ID of the difference to it.
_BASE = 16

Description = Tuple[Any, ...]


def _compiled() -> bool:
    """Whether this build has differences."""
    return hasattr(_native, "encode_difference")


def _need_compiled() -> None:
    if not _compiled():
        raise Error("unsupported_request", "this build of tensorpull has no differences")


def code(new: List[Description], digests: Mapping[str, int], base: Mapping[str, Any]) -> Optional[Tuple[Any, ...]]:
    """Codes what of `new` has changed since `base`; what `publish_coded` takes. `digests`: of each tensor of `new`.

    None: nothing that was there has changed, or coding it is not worth it. Cost: one pass over the tensors of `base`, and one over both versions of what has changed, on this thread.
    Memory: the coded bytes.
    """
    return _code(new, digests, base)[1]


def code_each(new: List[Description], digests: Mapping[str, int], bases: Sequence[Mapping[str, Any]]) -> Dict[str, Tuple[Any, ...]]:
    """The same to each of several bases, one after the other, by what a recipient knows its base by; those alone that are worth it."""
    all_of_them = (_code(new, digests, base) for base in bases)
    return {known: coded for known, coded in all_of_them if coded is not None}


def _code(new: List[Description], digests: Mapping[str, int], base: Mapping[str, Any]) -> Tuple[str, Optional[Tuple[Any, ...]]]:
    _need_compiled()
    of = {one[0]: one for one in new}
    old = Tensors({name: tensor for name, tensor in base.items() if name in of}, apart=True)
    alike = [one for one in old.described if kind_of(one) == kind_of(of[one[0]])]
    before = dict(_native.tensor_digests(alike))
    changed = [one for one in alike if before[one[0]] != digests[one[0]]]
    if not is_worth_it(changed):
        return "", None
    coded: Optional[Tuple[Any, ...]] = _native.encode_difference(changed, [of[one[0]] for one in changed], WORTH)
    return _known_by({one[0]: before[one[0]] for one in changed}), coded


def _known_by(digests: Mapping[str, int]) -> str:
    """Of the tensors of a base that have changed since."""
    text = "".join(f"{len(name)} {name} {digest:x}\n" for name, digest in sorted(digests.items()))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_BASE]


class Narrowed(FlatTree):
    """What `narrowed` has made: new tensors by their names, and of a tree its `structure`. It has the step, too, which `add_tensors(narrow=True)` publishes; copies have none."""

    bits = 8  # of an element
    chosen: Optional[FrozenSet[str]] = None  # which tensors are narrowed, if they were named
    step: Optional[Tuple[Any, ...]] = None  # what `publish_coded` takes; None: nothing has moved, or it is not worth it, and these are the new tensors bit for bit

    def __reduce__(self) -> Any:
        return _without_step, (dict(self), self.structure)


def _without_step(tensors: Dict[str, Any], structure: Optional[str]) -> FlatTree:
    made = FlatTree(tensors)
    made.structure = structure
    return made


class ErrorFeedback:
    """What the steps of one sender left out, for all its rounds: `narrowed(..., feedback=)` adds it to the next one. For a sender whose base does not become what it sent, such as a client, whose
    next round begins from the owner's tensors; one that goes on from what `narrowed` gives needs none. Memory: that of the floating tensors, and while `narrowed` runs that of all.

    `left` is its state, a dict of tensors: `ErrorFeedback(left)`, in another process too, goes on with a copy of it."""

    def __init__(self, left: Optional[Mapping[str, Any]] = None) -> None:
        self._left: Dict[str, Any] = {}
        if left:
            was = Tensors(left, apart=True)
            for one in was.described:
                if one[1] not in FLOATING:
                    raise Error("unsupported_dtype", "what a step has left out is of floating tensors", one[0])
            self._left = empty_like(left)
            _native.copy_tensors(was.described, Tensors(self._left, apart=True).described)

    @property
    def left(self) -> Dict[str, Any]:
        """What the steps so far have left out. The next step changes it: save it, or give it to `add_tensors(copy=True)`."""
        return dict(self._left)

    def lost(self, sent: Mapping[str, Any], base: Any) -> None:
        """Nobody has taken the last step: all of it is left out, and added to the next one. `sent`: what `narrowed` gave, and `base`: what it was given."""
        if not isinstance(sent, Narrowed):
            raise TypeError(f"sent is what narrowed() has returned, itself and no copy of it; not {type(sent).__name__}")
        flat = as_flat(base)
        before = Tensors({name: flat[name] for name in self._left if name in flat}, apart=True)
        if set(self._left) - set(flat) or set(self._left) - set(sent):
            raise Error("schema_mismatch", "what was left out is of another model, which had this tensor", min((set(self._left) - set(flat)) | (set(self._left) - set(sent))))
        was = empty_like({name: sent[name] for name in self._left})
        _native.copy_tensors(before.described, Tensors(was, apart=True).described)
        for name, left in self._left.items():
            _subtract(was[name], sent[name])
            left -= was[name]

    def added(self, flat: Mapping[str, Any], described: List[Description], bits: int) -> Tuple[Dict[str, Any], Dict[str, Any]]:
        """Copies in the CPU's memory, with what was left out; and what of it waits for a later step, since it leads below zero."""
        mine = empty_like(flat)
        _native.copy_tensors(described, Tensors(mine).described)
        waiting: Dict[str, Any] = {}
        for name, left in self._left.items():
            if name not in mine or mine[name].dtype != left.dtype or mine[name].shape != left.shape:
                raise Error("schema_mismatch", "what was left out is of another model, which had this tensor", name)
            tensor = mine[name]
            negative = (tensor < 0).any()
            code = 0 if negative or 0 in tensor.shape else float(tensor.max()) / (2 ** (bits - 1) - 1)
            tensor += left
            below = tensor < 0
            if not negative and below.any():  # such as variances, which would be NaN in the next evaluation
                waiting[name] = empty_like({name: tensor})[name]
                waiting[name][...] = tensor
                waiting[name][~below] = 0
                waiting[name][tensor < -code] = -code
                tensor[below] = 0
        return mine, waiting

    def keep(self, meant: Dict[str, Any], waiting: Mapping[str, Any], sent: Mapping[str, Any], described: List[Description]) -> None:
        """`meant` and `waiting`: what added() gave, the first of which is kept."""
        self._left = {one[0]: meant[one[0]] for one in described if one[1] in FLOATING}
        for name, left in self._left.items():
            _subtract(left, sent[name])
            if name in waiting:
                left += waiting[name]


def _subtract(tensor: Any, other: Any) -> None:
    """In place. 0 where the difference is no number: an infinity or NaN that stands still, as masks have, has left nothing out."""
    numbers = (abs(tensor) < inf) & (abs(other) < inf)
    if numbers.all():
        tensor -= other
    else:
        tensor[numbers] -= other[numbers]
        tensor[~numbers] = 0


def narrowed(tensors: Any, base: Any, *, bits: int = 8, feedback: Optional[ErrorFeedback] = None, names: Optional[Iterable[str]] = None) -> Narrowed:
    """`base` after a step towards `tensors` in 8 or 4 bits: what recipients that have `base` make of it, bit for bit. An owner publishes this with `add_tensors(..., narrow=True)`, and goes on
    from it: it is the next round's `base`, so what a step has left out is in the next one.

    Both are what `add_tensors` takes, of the same names, dtypes and shapes. Tensors of F16, BF16, F32 and F64 with two dimensions or more and at least 256 elements are narrowed, with a scale
    for each 256 elements, and the error is at most half of 1/127 of the largest difference among these (in 4 bits, of 1/7), or twice that where half would lead across zero. All others, such as
    variances, biases and counters, and what has not changed, are as in `tensors`; and so is everything if all bytes would travel nevertheless. New tensors in the CPU's memory, of the same kinds; both arguments
    are only read. Memory: that of the new tensors, and a quarter of F32 ones. It runs on this thread.

      feedback   what earlier steps left out is added to `tensors` first, and what this one leaves out is kept there. In a tensor without an element below zero none leads below it: the rest waits, up to a code of its largest element. With an error it stays as it was. Another model's is an error
      names      the tensors that are narrowed, in place of those above, such as ["flat"] of a model that is one vector

    Errors, with the tensor's name: "schema_mismatch" (one is not in both, or is another there); "invalid_argument" (a NaN, an infinity or a difference that is too large, in a tensor that
    has changed); "duplicate_name" (a tensor has the name of another's scales, "w.scales"); "bad_request" and "unsupported_dtype" (one of `names` is no tensor, or of another dtype); those of
    `add_tensors`.
    """
    if type(bits) is not int or bits not in NARROWED:
        raise ValueError(f"bits is 8 or 4; not {bits!r}")
    if feedback is not None and not isinstance(feedback, ErrorFeedback):
        raise TypeError(f"feedback is an ErrorFeedback; not {feedback!r}")
    _need_compiled()
    flat, before = as_flat(tensors), as_flat(base)
    structure, now = getattr(flat, "structure", None), Tensors(flat)
    meant: Dict[str, Any] = {}
    waiting: Dict[str, Any] = {}
    if feedback is not None:
        meant, waiting = feedback.added(flat, now.described, bits)
        flat, now = meant, Tensors(meant)
    for name in (*flat, *before):
        if name not in flat or name not in before:
            raise Error("schema_mismatch", f"there is no such tensor in {'base' if name in flat else 'the new version'}", name)
    old = Tensors({one[0]: before[one[0]] for one in now.described}, apart=True)
    for one, other in zip(now.described, old.described):
        if kind_of(one) != kind_of(other):
            raise Error("schema_mismatch", "its dtype or shape is another in base", one[0])
    made = Narrowed(empty_like(flat))
    made.structure, made.bits, made.chosen = structure, bits, _chosen(names, now)
    moved = Tensors(made)
    _native.copy_tensors(old.described, moved.described)
    was, is_now = dict(_native.tensor_digests(old.described)), dict(_native.tensor_digests(now.described))
    changed = [one for one in now.described if was[one[0]] != is_now[one[0]]]
    moves = {one[0] for one in changed if _is_narrowed(one[0], one[1], one[2], made.chosen)}
    plain, _copies = _contiguous([one for one in changed if one[0] in moves], flat)
    if is_worth_it(plain):
        of = {one[0]: one for one in plain}
        # what has not changed is its own base, so nothing of it is copied
        step = _native.narrow_tensors([of.get(one[0], one) for one in moved.described], moved.described, bits)
        moving = {one[0] for one in step[0]}
        if is_worth_it([one for one in plain if one[0] in moving]):
            made.step = step
    exact = [one for one in changed if one[0] not in moves]
    if made.step is None:  # all of it travels as it is, so nothing is to be gained by rounding it
        exact = now.described
    names_of_exact = {one[0] for one in exact}
    _native.copy_tensors(exact, [one for one in moved.described if one[0] in names_of_exact])
    if feedback is not None:
        feedback.keep(meant, waiting, made, now.described)
    return made


def _chosen(names: Optional[Iterable[str]], tensors: Tensors) -> Optional[FrozenSet[str]]:
    """Those that are named, by the names under which they travel. Refuses what cannot be narrowed."""
    if names is None:
        return None
    if isinstance(names, (str, bytes)) or not isinstance(names, Iterable):
        raise TypeError(f"names is a list of tensors' names; not {names!r}")
    there = {one[0]: one[1] for one in tensors.described}
    chosen = frozenset(tensors.ties.get(name, name) for name in names)
    for name in sorted(chosen, key=str):
        if name not in there:
            raise Error("bad_request", "names has a name that no tensor has", str(name))
        if there[name] not in FLOATING:
            raise Error("unsupported_dtype", "F16, BF16, F32 and F64 are narrowed, and this is none of them", name)
    return chosen


def _is_narrowed(name: str, dtype: str, shape: Sequence[int], chosen: Optional[FrozenSet[str]]) -> bool:
    """Tensors of one dimension have what a rounding error spoils, such as variances, whose range is wide, and scales; and like small ones they save few bytes."""
    if chosen is not None:
        return name in chosen
    return dtype in FLOATING and len(shape) > 1 and prod(shape) >= _BLOCK


def tensors_said(chosen: Optional[FrozenSet[str]], digests: Mapping[str, int]) -> Dict[str, str]:
    """The entry of the metadata that has the tensors of a step, if they were named. `digests`: of each tensor, in the order of the image."""
    return {} if chosen is None else {NARROWED_TENSORS: "".join("01"[name in chosen] for name in digests)}


def in_difference(changed: Mapping[str, Any], published: Sequence[Any], metadata: Mapping[str, str]) -> Dict[str, Any]:
    """Those of the tensors that have changed of which the difference is that the metadata names; none: there is none. `published`: a TensorRange for each tensor, in the order of the image."""
    if not any(key in metadata for key in NARROWED.values()):
        return dict(changed) if DIFFERENCE in metadata else {}
    told = metadata.get(NARROWED_TENSORS)
    if told is not None and len(told) != len(published):
        return {}
    narrow = {one.name for i, one in enumerate(published) if (_is_narrowed(one.name, one.dtype, one.shape, None) if told is None else told[i] == "1")}
    return {name: tensor for name, tensor in changed.items() if name in narrow}


def to_publish(tensors: Any, base: Any) -> Narrowed:
    """What `narrow=True` publishes."""
    if isinstance(tensors, Narrowed):
        if base is not None:
            raise ValueError("what narrowed() has made is published without base: its step is to the base that it was made with")
        return tensors
    if base is None:
        raise ValueError("narrow wants what narrowed() has returned, itself and no copy of it, or base: a difference to what recipients have is narrowed, and weights are not, since they would lose late progress")
    return narrowed(tensors, base)


def _contiguous(described: List[Description], tensors: Mapping[str, Any]) -> Tuple[List[Description], Any]:
    """The same tensors in the CPU's memory, contiguous and in this machine's byte order: copies of those that are not, and what keeps these."""
    others = [one for one in described if one[3] is not None or one[5] or len(one) > 6]
    copies = Tensors({name: tensor for one in others for name, tensor in empty_like({one[0]: tensors[one[0]]}).items()}, apart=True)
    if others:
        _native.copy_tensors(others, copies.described)
    of = {one[0]: one for one in copies.described}
    return [of.get(one[0], one) for one in described], copies


def publish_coded(add: Callable[..., Tuple[str, int, int, int]], ref_id: str, coded: Tuple[Any, ...], beside: str = "") -> bool:
    """Publishes it under this ID through `add` of the compiled half: beside a whole, whose recipients it is for and with which it ends, or until it is withdrawn. False: the owner's table is full,
    or the whole has ended already."""
    how = PublishSettings()
    how.id, how.beside = ref_id, beside
    how.recipient_idle_ms = how.transaction_idle_ms = 0
    try:
        digits, _, _, nbytes = add(*coded, how)
    except Error as e:
        if e.code not in ("table_full", "unknown_reference"):
            raise
        if e.code == "table_full":
            logger.warning("%s: the owner has no room for what has changed, so all of it is pulled", short(beside or ref_id))
        return False
    logger.debug("%s: what has changed takes %d bytes", short(digits), nbytes)
    return True


def said_of_each(ids: Mapping[str, str]) -> Dict[str, str]:
    """The entries of the metadata for several differences: their IDs, by what a recipient knows its base by. Recipients of the release before know the first alone."""
    return {DIFFERENCE: next(iter(ids.values())), DIFFERENCES: " ".join(known + ref_id for known, ref_id in ids.items())}


def _id_for(said: str, described: List[Description]) -> str:
    """The ID that said_of_each() has for this base; "": none."""
    known = _known_by(dict(_native.tensor_digests(described)))
    return next((one[_BASE:] for one in said.split(" ") if one[:_BASE] == known), "")


def id_beside(ref_id: str, digests: Mapping[str, int], kind: str = DIFFERENCE) -> str:
    """As secret as the whole's ID, of which it is made. Each version has another; and several owners of one version have the same, so that their metadata is the same."""
    text = " ".join((kind, ref_id[:32].lower(), *(f"{digest:x}" for digest in digests.values())))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def nbytes_of(described: Description) -> int:
    return int(_native.tensor_bytes(described[1], list(described[2])))


def is_worth_it(changed: List[Description]) -> bool:
    """Whether a difference can save bytes: it has a header of its own."""
    return sum(map(nbytes_of, changed)) >= LEAST_BYTES


def kind_of(described: Description) -> Tuple[str, Tuple[int, ...]]:
    """Dtype and shape."""
    return described[1], tuple(described[2])


def bring(source: Any, whole: str, metadata: Mapping[str, str], tensors: Mapping[str, Any], described: List[Description], settings: Any) -> Tuple[int, bool]:
    """Pulls the difference that the metadata of `whole` names, and applies it to these tensors in place, which are described: they have to be what it is a difference to. Returns the bytes
    that came, and whether they were applied.

    False: there is none, or not of these tensors; they are as they were. Or it is not what it should be: then they are something else. Raises what ends the pull as a whole.
    """
    bits = next((bits for bits, key in NARROWED.items() if key in metadata), 0)
    ref_id = metadata.get(NARROWED.get(bits, DIFFERENCE), "")
    if not bits and _compiled() and described and DIFFERENCES in metadata:
        ref_id = _id_for(metadata[DIFFERENCES], described)
    if not _compiled() or not described or not _ID.fullmatch(ref_id) or ref_id in ("0" * 32, whole[:32].lower()):
        return 0, False
    given, told = (settings.version, settings.believe), settings.progress

    def going(event: Any) -> None:
        if event[0] in ("started", "active"):  # with its end, what it is a part of goes on
            told(event)

    settings.version, settings.believe = 0, True  # what comes of it is compared with the digests of the whole's tensors
    settings.progress = going if told is not None else None
    try:
        if bits:
            plain, copies = _contiguous(described, tensors)
            came = int(_native.download_narrowed(source, ref_id, plain, settings, bits)[1])
            if copies.described:
                _native.copy_tensors(copies.described, [one for one in described if one[0] in {copy[0] for copy in copies.described}])
            return came, True
        return int(_native.download_difference(source, ref_id, described, settings)[1]), True
    except Error as e:
        if e.code not in _BRINGS_NOTHING:
            raise
        logger.warning("%s: the difference to what is here cannot be used (%s); the tensors are pulled as they are", short(ref_id), e.code)
        return e.landed, False
    finally:
        settings.version, settings.believe = given
        settings.progress = told
