"""Files of tensors: safetensors files are read and written here, without NumPy; npy and npz files with it.

Everything in a file is hostile until it has been checked: lengths, names, offsets.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import stat
from typing import Any, Dict, List, NamedTuple, Tuple

from .._native import numpy_format
from .text import capped, printable

#: Bits of an element.
BITS = {
    "BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
    "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32, "C64": 64, "F64": 64, "I64": 64, "U64": 64,
}  # fmt: skip
LONGEST_HEADER = 100_000_000


class Rejected(Exception):
    """The file is not valid, or cannot be read: `code` is "io" then."""

    def __init__(self, code: str, why: str, tensor: str = "", at: int = 0) -> None:
        super().__init__(code)
        self.code, self.why, self.tensor, self.at = code, why, tensor, at

    def sentence(self, path: str) -> str:
        if self.code == "io":
            return f"{printable(path)} cannot be read: {self.why}"
        place = f", tensor '{printable(capped(self.tensor))}'" if self.tensor else ""
        return f"{printable(path)} is rejected ({self.code}{place}): {self.why}"


class Entry(NamedTuple):
    name: str
    dtype: str
    shape: Tuple[int, ...]
    begin: int  #: bytes into the file's data
    end: int
    address: int

    @property
    def elements(self) -> int:
        n = 1
        for extent in self.shape:
            n *= extent
        return n


class TensorFile:
    """A file of tensors that is mapped into memory, so it may be larger than that. It must not become shorter while it is used: see `is_whole()`."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.metadata: Dict[str, str] = {}
        self.entries: List[Entry] = []
        self.keep: List[Any] = []
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as e:
            raise Rejected("io", e.strerror or str(e)) from None
        except ValueError:
            raise Rejected("io", "a name has no zero byte") from None
        try:
            about = os.fstat(self._descriptor)
            if not stat.S_ISREG(about.st_mode):
                raise Rejected("io", "it is no regular file")
            self.bytes = about.st_size
            start = os.pread(self._descriptor, 9, 0)
            if start[:6] == b"\x93NUMPY":
                self.format = "npy"
            elif start[:4] in (b"PK\3\4", b"PK\5\6") and start[4:] != b"\0\0\0\0{":
                self.format = "npz"
            else:
                self.format = "safetensors"
            try:
                if self.format == "safetensors":
                    self._read_safetensors()
                else:
                    self._read_numpy()
            except OSError as e:
                raise Rejected("io", e.strerror or str(e)) from None
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def is_whole(self) -> bool:
        """Whether the file is still as long as it was."""
        try:
            return os.fstat(self._descriptor).st_size >= self.bytes
        except OSError:
            return False

    @property
    def described(self) -> List[Tuple[Any, ...]]:
        """The tensors as the compiled half takes them."""
        return [(e.name, e.dtype, e.shape, None, e.address, 0) for e in self.entries]

    def view(self, entry: Entry) -> memoryview:
        return memoryview((ctypes.c_char * (entry.end - entry.begin)).from_address(entry.address)) if entry.address else memoryview(b"")

    def _read_safetensors(self) -> None:
        if self.bytes < 8:
            raise Rejected("bad_file", "it is shorter than the length of a header", at=self.bytes)
        length = int.from_bytes(os.pread(self._descriptor, 8, 0), "little")
        if length > LONGEST_HEADER:
            raise Rejected("does_not_fit", "its header is longer than any of safetensors, or it is no safetensors, npy or npz file")
        if length > self.bytes - 8:
            raise Rejected("bad_file", "its header is longer than the file", at=8)
        header = b""
        while len(header) < length:
            more = os.pread(self._descriptor, length - len(header), 8 + len(header))
            if not more:
                raise Rejected("io", "it became shorter while it was read")
            header += more
        if header[:1] != b"{":
            raise Rejected("bad_file", "its header is no JSON object", at=8)
        try:
            parsed = json.loads(header.decode("utf-8"), object_pairs_hook=_without_doubles, parse_constant=_no_number, parse_float=_no_number, parse_int=_whole)
        except RecursionError:
            raise Rejected("bad_file", "its header is nested too deeply") from None
        except UnicodeDecodeError as e:
            raise Rejected("bad_file", "its header is no UTF-8", at=8 + e.start) from None
        except ValueError:  # JSONDecodeError is one, and so is a number of thousands of digits
            raise Rejected("bad_file", "its header is no valid JSON", at=8) from None
        metadata = parsed.pop("__metadata__", {})
        if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
            raise Rejected("bad_file", "its metadata are not pairs of texts")
        try:
            "".join((*metadata, *metadata.values())).encode()
        except UnicodeEncodeError:
            raise Rejected("bad_file", "its metadata are not Unicode text") from None
        self.metadata = metadata
        data = self.bytes - 8 - length
        base = 0
        if data:
            mapped = mmap.mmap(self._descriptor, 0, access=mmap.ACCESS_COPY)
            self.keep.append(mapped)
            base = ctypes.addressof(ctypes.c_char.from_buffer(mapped)) + 8 + length
        for name, about in parsed.items():
            self.entries.append(_entry(name, about, base))
        self.entries.sort(key=lambda e: (e.begin, e.end))
        at = 0
        for entry in self.entries:
            if entry.begin != at:
                raise Rejected("bad_file", "its bytes do not begin where those of the tensor before it end", entry.name)
            at = entry.end
        if at != data:
            raise Rejected("bad_file", f"its tensors have {at} bytes, and the file has {data} behind the header")

    def _read_numpy(self) -> None:
        try:
            import numpy
        except ImportError:
            raise Rejected("io", f"a file of the format {self.format} is read with NumPy, which is not here (pip install numpy)") from None
        arrays: Dict[str, Any] = {}
        try:
            if self.format == "npy":
                name = os.path.basename(self.path)
                arrays[name[:-4] if name.endswith(".npy") else name] = numpy.load(self.path, mmap_mode="c", allow_pickle=False)
            else:
                with numpy.load(self.path, allow_pickle=False) as archive:
                    arrays = {name: archive[name] for name in archive.files}
        except OSError:
            raise
        except MemoryError:
            raise
        except Exception as e:  # NumPy, zipfile and zlib have many
            raise Rejected("bad_file", str(e).split("\n")[0][:200] or type(e).__name__) from None
        at = 0
        for name in sorted(arrays, key=lambda n: n.encode(errors="surrogateescape")):
            array = arrays[name]
            known = numpy_format(array.dtype.str) if array.dtype.names is None else None
            if known is None:
                raise Rejected("unsupported_dtype", f"NumPy's {array.dtype}", name)
            if not array.flags.c_contiguous or known[1]:
                array = numpy.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(array.shape)
            self.keep.append(array)
            self.entries.append(Entry(name, known[0], tuple(array.shape), at, at + array.nbytes, array.__array_interface__["data"][0] if array.nbytes else 0))
            at += array.nbytes


def _without_doubles(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a name comes twice")
    return made


def _no_number(text: str) -> Any:
    raise ValueError(f"{text[:20]} is no whole number")


def _whole(text: str) -> int:
    return int(text) if text[0] != "-" and len(text) <= 20 else _no_number(text)


def _entry(name: str, about: Any, base: int) -> Entry:
    def whole(value: Any) -> bool:
        return type(value) is int and 0 <= value < 2**63

    try:
        name.encode()
    except UnicodeEncodeError:
        raise Rejected("bad_file", "a tensor's name is not Unicode text", ascii(name)) from None
    if not isinstance(about, dict) or set(about) != {"dtype", "shape", "data_offsets"}:
        raise Rejected("bad_file", "a tensor has a dtype, a shape and data_offsets, and nothing else", name)
    dtype, shape, offsets = about["dtype"], about["shape"], about["data_offsets"]
    if not isinstance(dtype, str) or dtype not in BITS:
        raise Rejected("unsupported_dtype", "its dtype is none of safetensors", name)
    if not isinstance(shape, list) or not all(whole(extent) for extent in shape) or not isinstance(offsets, list) or len(offsets) != 2 or not all(whole(n) for n in offsets):
        raise Rejected("bad_file", "its shape and data_offsets are not lists of whole numbers", name)
    bits = BITS[dtype]
    for extent in shape:
        bits *= extent
        if bits >= 2**66 and 0 not in shape:
            raise Rejected("size_overflow", "its size is more than 64 bits can say", name)
    begin, end = offsets
    if bits % 8 or end - begin != bits // 8:
        raise Rejected("bad_file", "its data_offsets do not fit its dtype and shape", name)
    return Entry(name, dtype, tuple(shape), begin, end, base + begin if end > begin else 0)
