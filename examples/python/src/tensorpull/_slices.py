"""Slices of tensors that are asked for: ranges of one of their dimensions."""

from __future__ import annotations

import math
import operator
from typing import Any, Dict, List, Mapping, Tuple

from ._errors import Error
from ._images import TensorRange

#: Of the tensor that travels under a name, the indices [begin, end) of a dimension.
Slice = Tuple[str, int, int, int]


def sliced(wanted: Mapping[str, TensorRange], names: Any) -> Tuple[Dict[str, TensorRange], List[Slice]]:
    """`wanted`, of which those tensors are smaller for which `names` has a slice, if it is a dict; and these slices. A list of names has none."""
    made = dict(wanted)
    slices: Dict[str, Slice] = {}
    for name, part in names.items() if isinstance(names, Mapping) else ():
        if part is ...:
            continue
        one = wanted.get(name)
        if one is None:
            raise Error("invalid_argument", "no tensor of this name is published", name)
        asked = (one.name, *_range_of(name, part, one.shape))
        made[name] = _smaller(one, *asked[1:])
        if slices.setdefault(one.name, asked) != asked:
            raise Error("invalid_argument", f"this tensor and another name of it, {one.name!r}, are one, and two slices of it are asked for", name)
    for name, one in wanted.items():
        if made[name] is one and one.name in slices:
            raise Error("invalid_argument", f"this tensor and another name of it, {one.name!r}, are one, and all of it and a slice of it are asked for", name)
    return made, list(slices.values())


def _range_of(name: str, part: Any, shape: Tuple[int, ...]) -> Tuple[int, int, int]:
    """The indices that are meant, and their dimension. Unlike a slice of Python's it has to be there, and not empty."""
    parts = part if isinstance(part, tuple) else (part,)
    gaps = [i for i, each in enumerate(parts) if each is ...]
    if gaps:  # as many full slices as are missing
        parts = (*parts[: gaps[0]], *[slice(None)] * (len(shape) - len(parts) + 1), *parts[gaps[0] + 1 :])
    if not parts or not all(isinstance(each, slice) for each in parts):
        raise TypeError(f"names says slice(begin, end) of each tensor, a tuple of them as an index of NumPy's, or ... for all of it; not {part!r} of {name!r}")
    if not shape:
        raise Error("invalid_argument", "a slice is asked for of a scalar: ... is all of it", name)
    if len(parts) > len(shape):
        raise Error("out_of_range", f"{len(parts)} dimensions are asked for, and this tensor has {len(shape)}", name)
    ranges = [_indices(name, each, n, dimension) for dimension, (each, n) in enumerate(zip(parts, shape))]
    narrower = [dimension for dimension, (begin, end) in enumerate(ranges) if (begin, end) != (0, shape[dimension])]
    if len(narrower) > 1:
        raise Error("unsupported_request", f"slices of the dimensions {narrower[0]} and {narrower[1]} are asked for: a tensor may be cut in one", name)
    dimension = narrower[0] if narrower else 0
    if ranges[dimension][0] == ranges[dimension][1]:
        raise Error("invalid_argument", "a slice is asked for of a tensor without elements: ... is all of it", name)
    return (*ranges[dimension], dimension)


def _indices(name: str, part: slice, n: int, dimension: int) -> Tuple[int, int]:
    if part.step not in (None, 1):
        raise Error("unsupported_request", f"a slice with the step {part.step!r} is asked for: slices are of indices that follow each other", name)
    begin, end = (at if given is None else _index(given, n) for given, at in ((part.start, 0), (part.stop, n)))
    if not 0 <= begin <= n or not 0 <= end <= n:
        raise Error("out_of_range", f"indices {part.start!r} to {part.stop!r} are asked for of dimension {dimension}, which has {n}", name)
    if begin >= end and not begin == end == n == 0:
        raise Error("invalid_argument", f"the slice from {part.start!r} to {part.stop!r} of dimension {dimension}, which has {n}, is empty", name)
    return begin, end


def _index(given: Any, n: int) -> int:
    at = operator.index(given)
    return at if at >= 0 else at + n


def _smaller(one: TensorRange, begin: int, end: int, dimension: int) -> TensorRange:
    runs = math.prod(one.shape[:dimension])
    bits = 8 * one.nbytes // (runs * one.shape[dimension]) if one.nbytes else 0
    if bits * begin % 8 or bits * end % 8 or (runs > 1 and bits * one.shape[dimension] % 8):
        raise Error("out_of_range", "a slice of packed elements begins and ends where a byte does", one.name)
    shape = (*one.shape[:dimension], end - begin, *one.shape[dimension + 1 :])
    return one._replace(shape=shape, begin=one.begin + bits * begin // 8, nbytes=runs * bits * (end - begin) // 8)
