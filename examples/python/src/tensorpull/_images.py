"""Images by byte ranges, for programs that bring their own transport: what a `Downloader` would send, and what a download would land in."""

from __future__ import annotations

import os
import sys
from typing import Any, Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional, Tuple, Union

from . import _native
from ._errors import Error
from ._options import whole
from ._tensors import Tensors, numpy_maker, torch_maker
from ._trees import arrive, carry, own, said
from ._types import Framework, TensorDict

Bytes = Union[bytes, bytearray, memoryview]


class TensorRange(NamedTuple):
    """Where a tensor's bytes are in an image."""

    name: str
    dtype: str
    shape: Tuple[int, ...]
    begin: int  #: of the image's bytes
    nbytes: int


class PublishedImage:
    """The bytes of a dict of tensors as they are published: a safetensors file that is nowhere on a disk. Nothing is copied before it is read.

    The tensors must not change as long as this is read: `version` is the digest of the bytes, computed here, in one pass. Reading is safe from several threads, and the
    interpreter's lock is not held meanwhile. `tensors`, `metadata` and `keep_order` are what `Downloader.add_tensors` takes.
    """

    def __init__(self, tensors: Any, metadata: Optional[Mapping[str, str]] = None, keep_order: bool = True) -> None:
        carried = carry(tensors, metadata)
        described = Tensors(carried.tensors)
        pairs = said(carried, described.described, described.ties, keep_order)
        self._image = _native.ImageReader(described.described, list(pairs.items()), described.keep)

    @property
    def nbytes(self) -> int:
        """Of the image, its header included."""
        return self._image.bytes

    @property
    def header_bytes(self) -> int:
        """The image's first bytes, which say what follows."""
        return self._image.header_bytes

    @property
    def version(self) -> int:
        """The digest of all bytes: what a `Reference` calls its version, and `Landing.finish` compares with."""
        return self._image.version

    @property
    def tensors(self) -> List[TensorRange]:
        """Where each tensor is, in the order of the image."""
        return [TensorRange(name, dtype, shape, self.header_bytes + begin, nbytes) for name, dtype, shape, begin, nbytes in self._image.tensors]

    def read(self, offset: int = 0, n: int = -1) -> bytes:
        """The image's bytes from `offset` on, n of them, or as many as there are; all if n is negative. Behind the end: "out_of_range"."""
        start = whole(offset, "offset", 2**64 - 1)
        left = max(0, self.nbytes - start)
        return self._image.read(start, left if n < 0 else min(whole(n, "n", 2**63 - 1), left))

    def readinto(self, offset: int, buffer: Any) -> int:
        """The same into a writable, contiguous buffer. Returns how many bytes of it were written."""
        return self._image.read_into(whole(offset, "offset", 2**64 - 1), memoryview(buffer))


class Landing:
    """Tensors that are made, or filled, from ranges of an image of `nbytes` bytes.

    The header comes first, in order: `write(0, ...)`, and so on, until `header_left` is 0. What follows comes in any order, in ranges of any length, each byte once.
    `finish(version)` refuses gaps, compares the digest, and returns the tensors: nothing is given out before. A range that is outside the image or overlaps another is refused and
    changes nothing ("out_of_range", "bad_request"), and so is one that would leave too many gaps ("too_large", `name` is "ranges").
    After a wrong header or a wrong digest the landing is over, and what was made is let go of.

      framework  "numpy" (the default) or "torch": new tensors, within `max_bytes`, `max_header_bytes` and `max_tensors`, as for `download_tensors`
      out        a dict of tensors that exist, contiguous and in the CPU's memory: the header has to describe these and no others ("schema_mismatch"), those that are
                 one memory as tied. They are unspecified after an error.
    Safe from several threads; bytes are copied without the interpreter's lock. A handler of a signal may ask how far it is, also while `write` or `finish` goes on in its thread;
    there these two are a RuntimeError.
    """

    def __init__(
        self,
        nbytes: int,
        framework: Optional[Framework] = None,
        *,
        out: Optional[Mapping[str, Any]] = None,
        max_bytes: Optional[int] = None,
        max_header_bytes: int = 16 << 20,
        max_tensors: int = 1_000_000,
    ) -> None:
        if out is not None and framework is not None:
            raise ValueError("framework says what new tensors are; out has its own")
        if framework not in (None, "numpy", "torch"):
            raise ValueError(f'framework is "numpy" or "torch", not {framework!r}')
        if max_bytes is None:
            max_bytes = _memory()
        self._made: Dict[str, Any] = {}
        self._out: Optional[Dict[str, Any]] = None
        self._nbytes = whole(nbytes, "nbytes", 2**64 - 1)
        make: Callable[[str, str, Tuple[int, ...]], Tuple[int, int]]
        clear: Callable[[], None] = self._made.clear
        self._filled: Optional[Dict[str, Any]] = None
        if out is not None:
            # here for what imports this module only to read
            from ._download import writable

            tensors = writable(out)
            for one in tensors.described:
                if one[3] is not None or one[5] != 0 or len(one) > 6:
                    raise Error("unsupported_layout", "a landing fills tensors that are contiguous, in the CPU's memory and in its order of bytes", one[0])
            tensors.mark_changed()
            self._tensors = tensors
            self._out = dict(out)  # the caller's own may have other tensors later
            there = {one[0]: one for one in tensors.described}
            filled: Dict[str, Any] = {}
            self._filled, self._there, self._ties = filled, there, tensors.ties

            def make(name: str, dtype: str, shape: Tuple[int, ...]) -> Tuple[int, int]:
                one = there.get(name)
                if one is None:
                    raise Error("schema_mismatch", "the image has a tensor that out does not have", name)
                if one[1] != dtype or tuple(one[2]) != tuple(shape):
                    what = "dtype" if one[1] != dtype else "shape"
                    raise Error("schema_mismatch", f"a tensor of out has another {what}: it is {kind(one[1], one[2])} here, and {kind(dtype, shape)} in the image", name)
                filled[name] = one
                return one[4], _bytes_of(one)

            clear = filled.clear
        else:
            make = torch_maker(self._made) if framework == "torch" else numpy_maker(self._made)
        self._landing = _native.RangeLanding(
            self._nbytes, make, clear, whole(max_bytes, "max_bytes", 2**63 - 1), whole(max_header_bytes, "max_header_bytes", 2**63 - 1),
            whole(max_tensors, "max_tensors", 2**63 - 1),
        )  # fmt: skip

    @property
    def nbytes(self) -> int:
        return self._nbytes

    @property
    def header_left(self) -> int:
        """How many bytes of the header are awaited next; 8 at first, which say how long it is; 0: it is complete."""
        return self._landing.header_left

    @property
    def written(self) -> int:
        """Bytes that have arrived."""
        return self._landing.written

    @property
    def first_missing(self) -> int:
        """The first byte that has not arrived; `nbytes` if all have."""
        return self._landing.first_missing

    def write(self, offset: int, data: Bytes) -> None:
        """Takes the image's bytes from `offset` on; `data` is anything contiguous. Copies them to where they belong."""
        self._landing.write(whole(offset, "offset", 2**64 - 1), memoryview(data))

    def finish(self, version: int) -> TensorDict:
        """All bytes are there: compares their digest with `version`, and returns the tensors. 0: nobody knows the version, and nothing is compared.
        "out_of_range" if bytes are missing (`at` is the first), "digest_mismatch"."""
        over = self._landing.over
        if self._filled is not None and self.header_left == 0 and not over:
            for name in self._there:
                if name not in self._filled:
                    raise Error("schema_mismatch", "out has a tensor that the image does not have", name)
            # one memory under two names would be given out for a tensor that the image does not have
            said_of = self._landing.metadata
            for alias, kept in self._ties.items():
                if said_of.get(alias) != kept:
                    raise Error("schema_mismatch", "tensors to land in are one memory, and the image does not have them tied", alias)
        self._landing.finish(whole(version, "version", 2**64 - 1))
        if self._out is not None:
            result = TensorDict(self._out)
            result.metadata = own(self._landing.metadata)
            return result
        arrived = arrive(self._made, self._landing.metadata)
        result = TensorDict(arrived.tensors)
        result.metadata, result.structure = arrived.metadata, arrived.structure
        return result


def read_header(data: Bytes) -> Optional[Tuple[int, int]]:
    """Of the first bytes of an image, 8 at least: (bytes of the header, bytes of the whole image, if the header is complete, or else 0). None: fewer than 8.
    "bad_frame": no header of an image. It is checked in full, and no tensor is made."""
    view = memoryview(data).cast("B")
    if len(view) < 8:
        return None
    length = 8 + int.from_bytes(view[:8], "little")
    if len(view) < length:
        return length, 0
    return length, _native.image_bytes(bytes(view[:length]))


def kind(dtype: str, shape: Iterable[int]) -> str:
    """A dtype and a shape, for people."""
    return f"{dtype} ({', '.join(map(str, shape))})"


def _bytes_of(one: Any) -> int:
    return _native.tensor_bytes(one[1], one[2])


def _memory() -> int:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return sys.maxsize
