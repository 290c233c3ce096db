"""Slices of tensors that are asked for: ranges of their first dimension."""

from __future__ import annotations

import operator
from typing import Any, Dict, List, Mapping, Tuple

from ._errors import Error
from ._images import TensorRange

#: Of the tensor that travels under a name, the indices [begin, end) of its first dimension.
Slice = Tuple[str, int, int]


def sliced(wanted: Mapping[str, TensorRange], names: Any) -> Tuple[Dict[str, TensorRange], List[Slice]]:
    """`wanted`, of which those tensors are shorter for which `names` has a slice, if it is a dict; and these slices. A list of names has none."""
    made = dict(wanted)
    slices: Dict[str, Slice] = {}
    for name, part in names.items() if isinstance(names, Mapping) else ():
        if part is ...:
            continue
        one = wanted.get(name)
        if one is None:
            raise Error("invalid_argument", "no tensor of this name is published", name)
        begin, end = _range_of(name, part, one.shape)
        made[name] = _shorter(one, begin, end)
        if slices.setdefault(one.name, (one.name, begin, end)) != (one.name, begin, end):
            raise Error("invalid_argument", f"this tensor and another name of it, {one.name!r}, are one, and two slices of it are asked for", name)
    for name, one in wanted.items():
        if made[name] is one and one.name in slices:
            raise Error("invalid_argument", f"this tensor and another name of it, {one.name!r}, are one, and all of it and a slice of it are asked for", name)
    return made, list(slices.values())


def _range_of(name: str, part: Any, shape: Tuple[int, ...]) -> Tuple[int, int]:
    """The indices that are meant. Unlike a slice of Python's it has to be there, and not empty."""
    if isinstance(part, tuple):
        raise Error("unsupported_request", "slices are of the first dimension alone: the bytes of another lie apart in what is published", name)
    if not isinstance(part, slice):
        raise TypeError(f"names says slice(begin, end) of each tensor, or ... for all of it; not {part!r} of {name!r}")
    if not shape:
        raise Error("invalid_argument", "a slice is asked for of a scalar: ... is all of it", name)
    if part.step not in (None, 1):
        raise Error("unsupported_request", f"a slice with the step {part.step!r} is asked for: slices are of indices that follow each other", name)
    rows = shape[0]
    begin, end = (at if given is None else _index(given, rows) for given, at in ((part.start, 0), (part.stop, rows)))
    if not 0 <= begin <= rows or not 0 <= end <= rows:
        raise Error("out_of_range", f"indices {part.start!r} to {part.stop!r} are asked for of a first dimension of {rows}", name)
    if begin >= end:
        raise Error("invalid_argument", f"the slice from {part.start!r} to {part.stop!r} of a first dimension of {rows} is empty", name)
    return begin, end


def _index(given: Any, rows: int) -> int:
    at = operator.index(given)
    return at if at >= 0 else at + rows


def _shorter(one: TensorRange, begin: int, end: int) -> TensorRange:
    bits = 8 * one.nbytes // one.shape[0]
    if bits * begin % 8 or bits * end % 8:
        raise Error("out_of_range", "a slice of packed elements begins and ends where a byte does", one.name)
    return one._replace(shape=(end - begin, *one.shape[1:]), begin=one.begin + bits * begin // 8, nbytes=bits * (end - begin) // 8)
