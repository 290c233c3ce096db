"""Flower's arrays as tensors that are published without a copy, and arrays whose bytes are read when a strategy or an app asks for them."""

from __future__ import annotations

import io
import json
import math
import os
from typing import Any, Callable, Dict, Iterable, List, Mapping, Tuple, Union

import numpy as np

import tensorpull

from ._offer import Refused
from ._seam import Array, ArrayRecord
from ._spool import Kept, Landed

#: The entry of what is published that has the arrays' names, and which tensor each of them is. Flower's names may be any text, and two of them may be one array.
NAMES = "flower"
#: NumPy's dtypes that arrive as they were, by what a safetensors file calls them.
_DTYPES = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "U16": "uint16", "I16": "int16", "U32": "uint32", "I32": "int32", "U64": "uint64", "I64": "int64",
    "F16": "float16", "F32": "float32", "F64": "float64", "C64": "complex64",
}  # fmt: skip
_KNOWN = frozenset(np.dtype(name) for name in _DTYPES.values())
#: Bytes of a description: names, shapes.
MAX_HEADER_BYTES = 16 << 20


class Pulled(Array):
    """An array that is read anew each time when it is asked for, as one of Flower's is."""

    def __init__(self, dtype: str, shape: Tuple[int, ...], read: Callable[[], Any]) -> None:
        self.__dict__.update(dtype=dtype, shape=shape, stype="numpy.ndarray", _read=read)

    def numpy(self) -> Any:
        return Array.numpy(self) if "_data" in self.__dict__ else self.__dict__["_read"]()

    @property  # type: ignore[override]
    def data(self) -> bytes:
        """As Flower would have it, for those that ask for the bytes after all."""
        return self.__dict__["_data"] if "_data" in self.__dict__ else Array.from_numpy_ndarray(self.__dict__["_read"]()).data

    @data.setter
    def data(self, value: bytes) -> None:
        self.__dict__["_data"] = value
        self.__dict__.pop("_read", None)

    def __eq__(self, other: object) -> bool:
        """As of Flower's, which compares none of another class."""
        return isinstance(other, Array) and all(getattr(self, name) == getattr(other, name) for name in ("dtype", "shape", "stype", "data"))

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> Tuple[Any, ...]:
        return Array, (self.dtype, tuple(self.shape), self.stype, self.data)


# Flower writes the name of the type in front of what it sends on.
Pulled.__qualname__ = "Array"


def identity(record: ArrayRecord) -> Tuple[Any, ...]:
    """Equal for records of the same arrays, as long as both are held: the bytes of Flower's arrays do not change."""
    return tuple((name, id(array.__dict__.get("_read")) if "_read" in array.__dict__ else id(array.data)) for name, array in record.items())


def held(record: ArrayRecord) -> List[Any]:
    """What `identity` names."""
    return [array.__dict__["_read"] if "_read" in array.__dict__ else array.data for array in record.values()]


def size(record: ArrayRecord) -> int:
    """Bytes, about."""
    return sum(math.prod(array.shape) * np.dtype(array.dtype).itemsize if "_read" in array.__dict__ else len(array.data) for array in record.values())


def view(array: Array) -> Any:
    """The values, over the bytes that the array has. Refused: they would not arrive as they are."""
    if type(array) is Pulled and "_read" in array.__dict__:
        return array.numpy()
    if array.stype != "numpy.ndarray":
        raise Refused(f"it is serialised as {array.stype[:40]!r}")
    data = array.data
    head = io.BytesIO(data[: MAX_HEADER_BYTES if len(data) < 65536 else 65536])
    try:
        version = np.lib.format.read_magic(head)
        read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}.get(version)
        if read is None:
            raise Refused(f"its format is version {version}")
        shape, fortran, dtype = read(head)
        if dtype not in _KNOWN or not dtype.isnative:
            raise Refused(f"there is no {dtype}")
        if fortran and len(shape) > 1:
            raise Refused("its order is Fortran's")
        count = math.prod(shape)
        return np.frombuffer(data, dtype, count, head.tell()).reshape(shape) if count else np.empty(shape, dtype)
    except Refused:
        raise
    except (ValueError, TypeError, OverflowError) as e:
        raise Refused(f"its bytes are not NumPy's: {e}") from None


def as_tensors(record: ArrayRecord) -> Tuple[Dict[str, Any], Dict[str, str]]:
    """The tensors to publish, and the metadata. Refused: Flower has to send the record itself."""
    tensors: Dict[str, Any] = {}
    numbers: Dict[int, int] = {}
    names: List[Tuple[str, int]] = []
    for name, array in record.items():
        known = id(array) if "_read" in array.__dict__ else id(array.data)
        if known not in numbers:
            numbers[known] = len(tensors)
            tensors[str(len(tensors))] = view(array)
        names.append((name, numbers[known]))
    text = json.dumps(names, ensure_ascii=True)
    if not names or len(text) > MAX_HEADER_BYTES // 2:
        raise Refused("its names do not fit" if names else "it is empty")
    return tensors, {NAMES: text}


def _names(metadata: Mapping[str, str], tensors: Iterable[str]) -> List[Tuple[str, str]]:
    """Each array's name, and that of its tensor."""
    there = frozenset(tensors)
    try:
        names = json.loads(metadata[NAMES])
    except (KeyError, ValueError, RecursionError):
        raise Refused("its arrays have no names") from None
    if type(names) is not list or not all(type(one) is list and len(one) == 2 and type(one[0]) is str and type(one[1]) is int for one in names):
        raise Refused("its arrays' names make no sense")
    if len({one[0] for one in names}) != len(names) or {str(one[1]) for one in names} != there:
        raise Refused("its arrays' names are not those of its tensors")
    return [(name, str(number)) for name, number in names]


def _record(arrays: Mapping[str, Pulled], names: Iterable[Tuple[str, str]]) -> ArrayRecord:
    made = ArrayRecord()
    for name, tensor in names:
        one = arrays[tensor]
        made[name] = Pulled(one.dtype, one.shape, one.__dict__["_read"])
    return made


def from_memory(got: tensorpull.Downloaded) -> ArrayRecord:
    """The record of what has arrived in memory."""
    for tensor in got.values():
        if tensor.dtype not in _KNOWN:
            raise Refused(f"there is no {tensor.dtype} in Flower")
    return _record({name: Pulled(str(t.dtype), tuple(t.shape), t.copy) for name, t in got.items()}, _names(got.metadata, got))


def from_file(file: Union[Kept, Landed]) -> ArrayRecord:
    """The record of a file that has arrived, which is kept as long as one of its arrays is."""
    with file.opened() as opened:
        length = 8 + int.from_bytes(os.pread(opened, 8, 0), "little")
        if length > MAX_HEADER_BYTES:
            raise Refused("its description is too long")
        head, whole = os.pread(opened, length, 0), os.fstat(opened).st_size
    complete = tensorpull.read_header(head)  # in full: dtypes, shapes, ranges that cover the file
    if complete is None or complete != (length, whole):
        raise Refused("it is no file of tensors")
    header = json.loads(head[8:])
    metadata = header.pop("__metadata__", {})
    arrays = {}
    for name, one in header.items():
        if one["dtype"] not in _DTYPES:
            raise Refused(f"there is no {one['dtype']} in Flower")
        dtype, shape = np.dtype(_DTYPES[one["dtype"]]), tuple(one["shape"])
        arrays[name] = Pulled(str(dtype), shape, _InFile(file, length + one["data_offsets"][0], dtype, shape))
    return _record(arrays, _names(metadata, arrays))


class _InFile:
    """Reads one array of a file that has arrived, and keeps the file meanwhile."""

    def __init__(self, file: Union[Kept, Landed], at: int, dtype: Any, shape: Tuple[int, ...]) -> None:
        self._file, self._at, self._dtype, self._shape = file, at, dtype, shape

    def __call__(self) -> Any:
        made = np.empty(self._shape, self._dtype)
        if made.nbytes:
            with self._file.opened() as opened:
                left, at = made.reshape(-1).view(np.uint8).data, self._at
                while left:
                    n = os.preadv(opened, [left], at)
                    if not n:
                        raise tensorpull.Error("cut_file", "a file that has arrived is shorter now", self._file.path)
                    left, at = left[n:], at + n
        return made
