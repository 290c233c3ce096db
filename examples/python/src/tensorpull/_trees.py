"""Nested dicts and lists as dicts of dotted names and back, and the order of names. Both travel in the metadata, since an image has no order of its own.

Metadata keys that begin with "tensorpull." are this package's: "tensorpull.tree" is a tree's structure as JSON, "tensorpull.order" a
flat dict's order as numbers, "tensorpull.digests" what each tensor's digest is (_changed.py), "tensorpull.difference" the reference of
what has changed since an earlier version (_difference.py), "tensorpull.narrowed" that of a step in 8 bits, "tensorpull.narrowed_4" that of one in 4, "tensorpull.narrowed_tensors" which tensors it has. What a peer sends under them is checked like anything else that a peer sends.
"""

from __future__ import annotations

import json
import math
import struct
import sys
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Set, Tuple

from ._errors import Error

#: Containers within containers, the outermost included.
MAX_DEPTH = 64
#: Tensors whose order is kept, and places in a tree: leaves and containers.
MAX_NAMES = 1_000_000
#: Characters of a structure, and of an order.
MAX_TEXT = 8 << 20
#: Characters of all dotted names of a tree together, those of containers and numbers too: a long key counts for each place below it.
MAX_PATHS = 64 << 20
#: Bits of a whole number that is a leaf.
MAX_INT_BITS = 1024

RESERVED = "tensorpull."
TREE, _ORDER, DIGESTS, DIFFERENCE = "tensorpull.tree", "tensorpull.order", "tensorpull.digests", "tensorpull.difference"
#: Of several differences, each to another base.
DIFFERENCES = "tensorpull.differences"
#: Of steps, by the bits of an element.
NARROWED = {8: "tensorpull.narrowed", 4: "tensorpull.narrowed_4"}
#: Which tensors a step has, if its sender has named them: of each tensor, in the order of the image, "1" or "0".
NARROWED_TENSORS = "tensorpull.narrowed_tensors"
_TENSOR: List[Any] = []  # how a structure says "here is a tensor"


class FlatTree(Dict[str, Any]):
    """A tree's tensors by dotted names, in the tree's order; `structure` is all that the tree has besides."""

    structure: Optional[str] = None


def flatten(tree: Any) -> FlatTree:
    """A nested dict, list or tuple, such as an optimizer's state, as a dict of its tensors: `{"state": {0: {"step": t}}}` has `"state.0.step"`.

    Keys are of type str or int. Leaves are tensors, and int, float, bool, str, bytes and None, which go into `structure` exactly: a float bit for bit, an int of up
    to 1,024 bits. NumPy's numbers come back as Python's, and a torch.Size as a tuple. Any other leaf is a TypeError that names its place. An OrderedDict or another kind of dict comes back as a dict; a kind of tuple with a name is refused.
    ValueError: two places with one dotted name ("a.b" beside {"a": {"b": ...}}), a container within itself, more than 64 within each other, more than 1,000,000 places.
    Nothing is copied. `unflatten` is the inverse.
    """
    return _Flattening(tree).done()


def unflatten(tensors: Mapping[str, Any], structure: Optional[str] = None) -> Any:
    """The tree of a dict that `flatten` has made, or of what was downloaded of a tree: its containers, its numbers, and these tensors.

    `structure`: that of `tensors`, if it is not given. ValueError if there is none: a flat dict was published. Error("bad_frame"): it does not fit the tensors' names.
    """
    if structure is None:
        structure = getattr(tensors, "structure", None)
    if structure is None:
        raise ValueError("these tensors have no structure: they were published as a flat dict")
    return _parsed(structure).tree(tensors)


def local_shards(tree: Any) -> Any:
    """The same nested dicts, lists and tuples with each DTensor replaced by the shard that this process has, under the same name. Nothing is copied: landing in a shard
    lands in its DTensor. Each process publishes its own, and pulls from its peer with the same place in the mesh; which place that is, the caller has to know."""
    return _shards(tree, 0)


def _shards(node: Any, depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise ValueError(f"more than {MAX_DEPTH} containers within each other")
    if hasattr(node, "to_local") and hasattr(node, "placements"):
        local = node.to_local()
        return local.wait() if hasattr(local, "wait") else local
    if isinstance(node, dict):
        return {key: _shards(child, depth + 1) for key, child in node.items()}
    return type(node)(_shards(child, depth + 1) for child in node) if type(node) in (list, tuple) else node


def is_tensor(value: Any) -> bool:
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    return (torch is not None and isinstance(value, torch.Tensor)) or (numpy is not None and isinstance(value, numpy.ndarray)) or is_foreign(value)


def is_foreign(value: Any) -> bool:
    """Whether it is a tensor of another library, which lends its memory by DLPack."""
    if not hasattr(type(value), "__dlpack__") or not hasattr(type(value), "__dlpack_device__"):
        return False
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    return not (torch is not None and isinstance(value, torch.Tensor)) and not (numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic)))


def as_flat(tensors: Any) -> Mapping[str, Any]:
    """What add_tensors and `out` take, as a flat dict: a dict of tensors as it is, a tree flattened."""
    if isinstance(tensors, Mapping) and all(isinstance(name, str) and is_tensor(value) for name, value in tensors.items()):
        return tensors
    if not isinstance(tensors, (dict, list, tuple)):
        raise TypeError(f"a dict of tensors, or a dict, list or tuple of such, not {type(tensors).__name__}")
    return flatten(tensors)


class _Flattening:
    def __init__(self, tree: Any) -> None:
        self._tensors = FlatTree()
        self._paths: Dict[str, None] = {}
        self._characters = 0
        self._open: Dict[int, None] = {}
        if type(tree) not in (list, tuple) and not isinstance(tree, dict):
            raise TypeError(f"a tree is a dict, list or tuple, not {type(tree).__name__}")
        self._structure = self._node(tree, None)

    def done(self) -> FlatTree:
        self._tensors.structure = json.dumps(self._structure, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
        if len(self._tensors.structure) > MAX_TEXT:
            raise ValueError(f"the tree's structure is more than {MAX_TEXT} characters")
        return self._tensors

    def _node(self, node: Any, path: Optional[str]) -> Any:
        where = repr(path) if path is not None else "the outermost one"
        kind = "d" if isinstance(node, dict) else "l" if type(node) is list else "t" if type(node) is tuple or _is_size(node) else None
        if kind is None:
            if is_tensor(node):
                self._tensors[str(path)] = node
                return _TENSOR
            return _as_json(node, where)
        if id(node) in self._open:
            raise ValueError(f"{where} is within itself")
        if len(self._open) == MAX_DEPTH:
            raise ValueError(f"{where}: more than {MAX_DEPTH} containers within each other")
        self._open[id(node)] = None
        made: List[Any] = [kind]
        for key, child in node.items() if kind == "d" else enumerate(node):
            if type(key) not in (str, int):
                raise TypeError(f"keys are of type str or int, not {type(key).__name__}: {key!r} of {where}")
            below = str(key) if path is None else f"{path}.{key}"
            if below in self._paths:
                raise ValueError(f"two places have the dotted name {below!r}")
            self._paths[below] = None
            if len(self._paths) > MAX_NAMES:
                raise ValueError(f"more than {MAX_NAMES} places in a tree")
            self._characters += len(below)
            if self._characters > MAX_PATHS:
                raise ValueError(f"the tree's dotted names are more than {MAX_PATHS} characters together")
            value = self._node(child, below)
            made.append([_as_json(key, where), value] if kind == "d" else value)
        del self._open[id(node)]
        return made


def _as_json(leaf: Any, where: str) -> Any:
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(leaf, (numpy.bool_, numpy.integer, numpy.floating)) and type(leaf.item()) in (bool, int, float):
        leaf = leaf.item()
    if leaf is None or type(leaf) in (bool, str):
        return leaf
    if type(leaf) is bytes:
        return ["b", leaf.hex()]
    if type(leaf) is int:
        if leaf.bit_length() > MAX_INT_BITS:
            raise ValueError(f"{where} is a whole number of more than {MAX_INT_BITS} bits")
        return leaf
    if type(leaf) is float:
        # JSON's numbers give a finite float back bit for bit
        return leaf if math.isfinite(leaf) else ["f", struct.pack(">d", leaf).hex()]
    raise TypeError(f"{where} is no tensor, int, float, bool, str, bytes or None, but a {type(leaf).__module__}.{type(leaf).__qualname__}")


def _wrong(why: str, name: str = "") -> Error:
    return Error("bad_frame", f"the metadata of what was published does not fit it: {why}", name)


class _parsed:
    """A structure from anywhere."""

    def __init__(self, text: str) -> None:
        if len(text) > MAX_TEXT:
            raise _wrong(f"a structure of more than {MAX_TEXT} characters")
        try:
            self._root = json.loads(text, parse_constant=_no_constant)
        except (ValueError, RecursionError):
            raise _wrong("a structure that is no JSON") from None

    def tree(self, tensors: Mapping[str, Any], required: Optional[Iterable[str]] = None) -> Any:
        """Each place of a tensor has one of `tensors`, and each of `required` (all of them, if that is None) is at one place."""
        self._tensors = tensors
        self._paths: Set[str] = set()
        self._characters = 0
        self.order: List[str] = []
        if not self._is_container(self._root):
            raise _wrong("a structure without a container")
        made = self._node(self._root, None, 0)
        placed = set(self.order)
        for name in tensors if required is None else required:
            if name not in placed:
                raise _wrong("a tensor that is not in the structure", name)
        return made

    @staticmethod
    def _is_container(node: Any) -> bool:
        return isinstance(node, list) and len(node) > 0 and node[0] in ("d", "l", "t")

    def _node(self, node: Any, path: Optional[str], depth: int) -> Any:
        if node == [] and isinstance(node, list) and path is not None:
            if path not in self._tensors:
                raise _wrong("a structure with a tensor that is not there", path)
            self.order.append(path)
            return self._tensors[path]
        if not isinstance(node, list):
            if type(node) is int and node.bit_length() > MAX_INT_BITS:
                raise _wrong("a whole number that is too large", path or "")
            if type(node) is dict:
                raise _wrong("an object in the structure", path or "")
            return node
        if len(node) == 2 and node[0] == "f":
            return _float(node[1], path)
        if len(node) == 2 and node[0] == "b":
            return _bytes(node[1], path)
        if not self._is_container(node):
            raise _wrong("a container of no known kind", path or "")
        if depth == MAX_DEPTH:
            raise _wrong(f"more than {MAX_DEPTH} containers within each other", path or "")
        pairs: Iterable[Tuple[Any, Any]] = enumerate(node[1:])
        if node[0] == "d":
            for pair in node[1:]:
                if not isinstance(pair, list) or len(pair) != 2 or type(pair[0]) not in (str, int):
                    raise _wrong("a dict whose elements are no pairs of key and value", path or "")
            pairs = ((pair[0], pair[1]) for pair in node[1:])
        made: List[Tuple[Any, Any]] = []
        for key, child in pairs:
            if type(key) is int and key.bit_length() > MAX_INT_BITS:
                raise _wrong("a key that is too large a number", path or "")
            below = str(key) if path is None else f"{path}.{key}"
            if below in self._paths:
                raise _wrong("two places with one dotted name", below)
            self._paths.add(below)
            self._characters += len(below)
            if len(self._paths) > MAX_NAMES or self._characters > MAX_PATHS:
                raise _wrong("a structure that is too large")
            made.append((key, self._node(child, below, depth + 1)))
        if node[0] == "d":
            return dict(made)
        return [value for _, value in made] if node[0] == "l" else tuple(value for _, value in made)


def _float(text: Any, path: Optional[str]) -> float:
    if isinstance(text, str) and len(text) == 16:
        try:
            value: float = struct.unpack(">d", bytes.fromhex(text))[0]
            return value
        except (ValueError, struct.error):
            pass
    raise _wrong("a number that is none", path or "")


def _bytes(text: Any, path: Optional[str]) -> bytes:
    try:
        if isinstance(text, str) and text == (value := bytes.fromhex(text)).hex():
            return value
    except ValueError:
        pass
    raise _wrong("bytes that are none", path or "")


def _is_size(node: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and type(node) is torch.Size


def _no_constant(text: str) -> Any:
    raise ValueError(text)


class _AnyTensor(Dict[str, Any]):
    """Has each name, and the mark of a tensor under it."""

    def __contains__(self, name: object) -> bool:
        return True

    def __missing__(self, name: str) -> Any:
        return _TENSOR


def leaves(structure: str) -> Dict[str, Any]:
    """What a tree has besides tensors and containers, by dotted names."""
    found: Dict[str, Any] = {}

    def look(node: Any, path: str) -> None:
        if isinstance(node, (dict, list, tuple)) and node is not _TENSOR:
            for key, child in node.items() if isinstance(node, dict) else enumerate(node):
                look(child, f"{path}.{key}")
        elif node is not _TENSOR:
            found[path[1:]] = node

    look(_parsed(structure).tree(_AnyTensor(), ()), "")
    return found


class Carried(NamedTuple):
    """A dict to publish, and the metadata that says what an image cannot."""

    tensors: Mapping[str, Any]
    metadata: Dict[str, str]


def carry(tensors: Any, metadata: Optional[Mapping[str, str]]) -> Carried:
    """A dict or a tree for publishing, with the caller's metadata and, of a tree, its structure."""
    pairs = {str(key): str(value) for key, value in (metadata or {}).items()}
    for key, value in pairs.items():
        if key.startswith(RESERVED):
            raise ValueError(f"metadata keys that begin with {RESERVED!r} are this package's own: {key!r}")
        try:
            (key + value).encode()
        except UnicodeEncodeError:
            raise ValueError(f"metadata is Unicode text, and that of {ascii(key)} is not") from None
    flat = as_flat(tensors)
    structure = getattr(flat, "structure", None)
    if structure is not None and flat is tensors:
        try:
            unflatten(flat)
        except Error as e:
            raise ValueError(f"this dict has changed since it was made of a tree ({e.name!r}); publish dict(...) of it") from None
    for name in flat:
        if name in (TREE, _ORDER, DIGESTS, DIFFERENCE, DIFFERENCES, NARROWED_TENSORS, *NARROWED.values()):
            raise Error("reserved_name", "this name means something else in metadata", name)
    if structure is not None:
        pairs[TREE] = structure
    return Carried(flat, pairs)


def said(carried: Carried, described: List[Tuple[Any, ...]], ties: Mapping[str, str], keep_order: bool) -> Dict[str, str]:
    """All metadata of a publication: the ties, the caller's, and the order of a flat dict.

    An order has each name's number among the names that a recipient has, in the order of their UTF-8; none is said if a recipient has this order anyway.
    """
    tensors, pairs = carried
    for alias, kept in ties.items():
        if pairs.get(alias, kept) != kept:
            raise ValueError(f"metadata says something else under the name of the tensor {alias!r}, which is tied to {kept!r}")
    pairs = {**ties, **pairs}
    if not keep_order or TREE in pairs:
        return pairs
    kept_names = {one[0] for one in described}
    more = [alias for alias, kept in pairs.items() if alias not in tensors and kept in kept_names and alias != "format"]
    names = [*tensors, *more]
    in_image = [one[0] for one in described]
    if len({one[1] for one in described}) <= 1 and names == in_image + sorted(set(names).difference(in_image), key=str.encode):
        return pairs
    if len(names) > MAX_NAMES:
        raise Error("too_large", f"the order of more than {MAX_NAMES} tensors is not kept; publish with keep_order=False")
    numbers = {name: i for i, name in enumerate(sorted(names, key=str.encode))}
    return {**pairs, _ORDER: " ".join(str(numbers[name]) for name in names)}


class Arrived(NamedTuple):
    """What a download has brought: tensors in their order, the owner's own metadata, and a tree's structure."""

    tensors: Dict[str, Any]
    metadata: Dict[str, str]
    structure: Optional[str]


def own(metadata: Mapping[str, str]) -> Dict[str, str]:
    """The caller's metadata: without this package's."""
    return {key: value for key, value in metadata.items() if not key.startswith(RESERVED)}


def arrive(made: Mapping[str, Any], metadata: Mapping[str, str]) -> Arrived:
    """Ties names to tensors as the metadata says, and puts them in their order. Error("bad_frame"): this package's metadata is there and does not fit."""
    pairs = own(metadata)
    named = dict(made)
    for alias, kept in pairs.items():
        if kept in made and alias not in made and alias != "format":
            named[alias] = made[kept]
    structure, order = metadata.get(TREE), metadata.get(_ORDER)
    if structure is not None:
        if order is not None:
            raise _wrong("a structure and an order")
        for alias, kept in pairs.items():
            _no_chain(alias, kept, named, pairs)
        try:
            parsed = _parsed(structure)
            parsed.tree(named, made)
        except Error as e:
            raise _only_ties_missing(e, named, pairs) from None
        return Arrived({name: named[name] for name in parsed.order}, pairs, structure)
    if order is not None:
        for alias, kept in pairs.items():
            _no_chain(alias, kept, named, pairs)
        named = _ordered(named, order)
    return Arrived(named, pairs, None)


def _no_chain(alias: str, kept: str, named: Mapping[str, Any], own: Mapping[str, str]) -> None:
    """A tie leads to a tensor, not to another tie: so there is no cycle, and nothing is followed."""
    if alias not in named and kept in own and own[kept] in (*named, *own):
        raise _wrong(f"{alias!r} is tied to {kept!r}, which is no tensor", alias)


def _only_ties_missing(e: Error, named: Mapping[str, Any], own: Mapping[str, str]) -> Error:
    if e.name in own and e.name not in named:
        return _wrong(f"{e.name!r} is tied to {own[e.name]!r}, which is no tensor", e.name)
    return e


def _ordered(named: Dict[str, Any], order: str) -> Dict[str, Any]:
    numbers = order.split(" ") if 0 < len(order) <= MAX_TEXT else []
    if len(numbers) != len(named):
        raise _wrong(f"an order of {len(numbers)} names, of which there are {len(named)}")
    sorted_names = sorted(named, key=str.encode)
    ordered: Dict[str, Any] = {}
    for number in numbers:
        if not number.isascii() or not number.isdigit() or len(number) > 7 or int(number) >= len(sorted_names):
            raise _wrong("an order with a number that is no name's")
        name = sorted_names[int(number)]
        if name in ordered:
            raise _wrong("an order that has a name twice", name)
        ordered[name] = named[name]
    return ordered
