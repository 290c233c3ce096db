"""Memory that a site's job process and its trainer give each other. It has no name, so nothing is left behind when both are gone, and it is sealed: nobody can change it any more.

Everything that arrives with a descriptor is hostile until it is checked. It is mapped privately, so a write copies its page and nobody else sees it.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import mmap
import os
import select
import socket
import struct
import threading
import weakref
from typing import Any, Dict, FrozenSet, Iterable, List, Optional, Tuple

from .._tensors import _TORCH
from .. import _native
from .._trees import arrive
from .._types import Receipt, TensorDict
from ._files import fetch
from ._offer import Refused
from ._pool import _Arrays, _TorchTensors, is_plain

#: Each tensor begins at a multiple of this.
_ALIGNED = 64
#: Tensors of one piece of memory.
MOST_TENSORS = 1_000_000
#: Bytes of a word.
_MOST_WORD = 256 << 20
#: Of Linux: against shrinking, growing and writing, and against other seals. Python has no names for them elsewhere.
_SEALS, _SEAL_SEAL, _ADD_SEALS, _GET_SEALS = 2 | 4 | 8, 1, 1033, 1034
_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)


def _kinds(framework: str) -> Any:
    return _TorchTensors() if framework == "torch" else _Arrays()


def _bytes_of(kind: Any, shape: Iterable[int]) -> int:
    nbytes: int = kind.itemsize
    for extent in shape:
        nbytes *= extent
    return nbytes


def _as_bytes(tensor: Any) -> memoryview:
    import numpy

    if hasattr(tensor, "data_ptr"):
        import torch

        tensor = tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy()
    array: Any = numpy.ascontiguousarray(tensor).reshape(-1).view(numpy.uint8)
    return memoryview(array)


class Sealed:
    """A descriptor of memory that nobody changes any more, and what lies in it: (name, dtype, shape, where it begins) each."""

    def __init__(self, fd: int, rows: List[Any], framework: str) -> None:
        self.fd, self.rows, self.framework = fd, rows, framework

    def __del__(self) -> None:
        os.close(self.fd)


class Room:
    """Memory that tensors land in, or are copied to, and that is sealed afterwards."""

    def __init__(self, framework: str) -> None:
        self.framework = framework
        self.rows: Dict[str, Tuple[str, Tuple[int, ...], int]] = {}
        self._kinds = _kinds(framework)
        self._fd, self._end = -1, 0
        self._mapped: Optional[mmap.mmap] = None

    def begin(self, most: int) -> None:
        """There is room for so many bytes; they take memory when there is a tensor for them."""
        self.end()
        self._fd = os.memfd_create("tensorpull", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self._fd, most + _ALIGNED * MOST_TENSORS)
        self._mapped = mmap.mmap(self._fd, most + _ALIGNED * MOST_TENSORS, flags=mmap.MAP_SHARED)
        self.clear()

    def clear(self) -> None:
        self.rows.clear()
        self._end = 0

    def make(self, name: str, dtype: str, shape: Tuple[int, ...]) -> Tuple[int, int]:
        """Where a tensor's bytes land, and how many they are."""
        assert self._mapped is not None
        begin, nbytes = self._next(name, dtype, shape)
        if nbytes:
            os.posix_fallocate(self._fd, begin, nbytes)  # no memory is an error here, and a dead process later
        return ctypes.addressof(ctypes.c_char.from_buffer(self._mapped)) + begin, nbytes

    def _next(self, name: str, dtype: str, shape: Tuple[int, ...]) -> Tuple[int, int]:
        assert self._mapped is not None
        kind, held = self._kinds.dtype(name, dtype, tuple(shape))
        nbytes, begin = _bytes_of(kind, held), self._end
        if begin + nbytes > len(self._mapped):
            raise Refused("it has more bytes than it was said to have")
        self.rows[name] = dtype, tuple(shape), begin
        self._end = begin + -(-nbytes // _ALIGNED) * _ALIGNED
        return begin, nbytes

    def fill(self, tensors: Dict[str, Any]) -> None:
        """Copies tensors of the framework. Refused: not all of them are in this machine's memory, one element after the other."""
        self.begin(sum(int(t.nbytes) for t in tensors.values()))
        for name, tensor in tensors.items():
            begin, nbytes = self._next(name, self._named(tensor), tuple(tensor.shape))
            if nbytes:
                self._write(begin, _as_bytes(tensor))

    def _write(self, begin: int, data: memoryview) -> None:
        """A file's way: the system need not clear these pages, and need not map them."""
        while data:
            n = os.pwrite(self._fd, data, begin)
            data, begin = data[n:], begin + n

    def _named(self, tensor: Any) -> str:
        if self.framework == "torch":
            if tensor.device.type != "cpu" or str(tensor.layout) != "torch.strided" or tensor.is_quantized:
                raise Refused("a tensor is not in this machine's memory, one element after the other")
            named = _TORCH.get(str(tensor.dtype).rpartition(".")[2])
            named = None if named == "F4" else named  # whose shape counts half of the elements
        else:
            named = _native.numpy_format(tensor.dtype.str)[0] if is_plain(tensor.dtype) else None
        if named is None:
            raise Refused(f"{str(tensor.dtype)[:60]} is not carried here")
        return named

    def seal(self, rows: Optional[Dict[str, Any]] = None) -> Sealed:
        """What is in it, or these rows of it, and nobody writes there any more."""
        assert self._mapped is not None
        self._mapped.close()
        self._mapped = None
        os.ftruncate(self._fd, max(1, self._end))
        os.posix_fallocate(self._fd, max(1, self._end) - 1, 1)  # all others have been written
        fcntl.fcntl(self._fd, _ADD_SEALS, _SEALS | _SEAL_SEAL)
        fd, self._fd = self._fd, -1
        return Sealed(fd, [[name, dtype, list(shape), begin] for name, (dtype, shape, begin) in (self.rows if rows is None else rows).items()], self.framework)

    def tensors(self, rows: Dict[str, Any]) -> Opened:
        """Of these rows, for this process alone: they could not be sealed."""
        return _over(self._fd, [[name, dtype, list(shape), begin] for name, (dtype, shape, begin) in rows.items()], self.framework)

    def end(self) -> None:
        if self._mapped is not None:
            self._mapped.close()
            self._mapped = None
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        self.end()


def land_in_room(
    room: Room, most: int, through: Any, where: Tuple[Any, ...], ref: str, *, per_request_timeout: Optional[float], chunk_size: int, retries: int, max_bytes: int, abort: Any,
    version: Optional[int] = None, ssl: Any = None,
) -> Any:  # fmt: skip
    """As land_in_kept; what stands for a tensor is its row."""
    room.begin(most)
    receipt, metadata = fetch(through, where, ref, room.make, room.clear, per_request_timeout, chunk_size, retries, max_bytes, abort, version, ssl)
    arrived = arrive(room.rows, metadata)
    landed = TensorDict(arrived.tensors)
    landed.metadata, landed.structure, landed.receipt = arrived.metadata, arrived.structure, Receipt(*receipt)
    return landed


def _bytes_at(memory: Any, begin: int, nbytes: int) -> Any:
    import numpy

    return numpy.frombuffer(memory, numpy.uint8, nbytes, begin)


class Opened(Dict[str, Any]):
    """Tensors in memory that another process has given, mapped privately. They keep the mapping."""

    mapping: Optional["weakref.ref[mmap.mmap]"] = None
    apart: FrozenSet[str] = frozenset()  # those that are not in it: tied ones, which have memory of their own


def opened(fd: int, rows: Any, framework: str) -> Opened:
    """Maps memory that another process has given; the descriptor stays the caller's. Refused: it is not what it has to be."""
    try:
        seals = fcntl.fcntl(fd, _GET_SEALS)
    except OSError:
        raise Refused("it is no memory that can be sealed") from None
    if seals & _SEALS != _SEALS:
        raise Refused("its memory is not sealed: the other process could change it")
    about = os.fstat(fd)  # it cannot change any more
    if about.st_blocks * 512 < about.st_size:
        raise Refused("its memory has holes")
    return _over(fd, rows, framework)


def _over(fd: int, rows: Any, framework: str) -> Opened:
    size = os.fstat(fd).st_size
    if type(rows) is not list or len(rows) > MOST_TENSORS:
        raise Refused("its table makes no sense")
    kinds = _kinds(framework)
    mapped = mmap.mmap(fd, size, flags=mmap.MAP_PRIVATE | _NORESERVE, prot=mmap.PROT_READ | mmap.PROT_WRITE) if size else None
    made = Opened()
    made.mapping = weakref.ref(mapped) if mapped is not None else None
    taken = set()
    for row in rows:
        if type(row) is not list or len(row) != 4:
            raise Refused("its table makes no sense")
        name, dtype, shape, begin = row
        if type(name) is not str or type(dtype) is not str or type(begin) is not int or type(shape) is not list or len(shape) > 64:
            raise Refused("its table makes no sense")
        if name in made or not all(type(extent) is int and 0 <= extent < 2**48 for extent in shape):
            raise Refused("its table makes no sense")
        kind, held = kinds.dtype(name, dtype, tuple(shape))
        nbytes = _bytes_of(kind, held)
        if begin < 0 or begin % _ALIGNED or begin + nbytes > size:
            raise Refused("a tensor lies outside its memory")
        if not nbytes:
            made[name] = kinds.empty(held, kind)
            continue
        tensor = kinds.over(_bytes_at(mapped, begin, nbytes), kind).reshape(held)
        if begin in taken:  # FLARE's own arrive each on its own
            tensor = tensor.clone() if framework == "torch" else tensor.copy()
            made.apart |= {name}
        taken.add(begin)
        made[name] = tensor
    return made


def send(connection: socket.socket, word: Dict[str, Any], fds: Iterable[int] = ()) -> None:
    """A word, and descriptors with it."""
    data = json.dumps(word).encode()
    socket.send_fds(connection, [struct.pack("<I", len(data))], list(fds))
    connection.sendall(data)


def receive(connection: socket.socket) -> Tuple[Dict[str, Any], List[int]]:
    """The next word, and the descriptors that came with it, which are the caller's. EOFError: there is none."""
    head, fds, flags, _ = socket.recv_fds(connection, 4, 1, socket.MSG_CMSG_CLOEXEC)
    try:
        if not head:
            raise EOFError("the other process has gone")
        if len(head) != 4:
            raise Refused("it is no word")
        if flags & socket.MSG_CTRUNC or len(fds) > 1:  # as many as this process may have: the word stays without any
            while fds:
                os.close(fds.pop())
        left = struct.unpack("<I", head)[0]
        if left > _MOST_WORD:
            raise Refused("its word is too long")
        parts = []
        while left:
            part = connection.recv(min(left, 1 << 20))
            if not part:
                raise EOFError("the other process has gone")
            parts.append(part)
            left -= len(part)
        word = json.loads(b"".join(parts))
        if type(word) is not dict:
            raise Refused("it is no word")
        return word, fds
    except BaseException:
        for fd in fds:
            os.close(fd)
        raise


def waits(connection: socket.socket, seconds: Optional[float]) -> bool:
    """Whether there is a word, or the end, within so many seconds; None: it takes its time."""
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(None if seconds is None else seconds * 1000))


def is_same_user(connection: socket.socket) -> bool:
    """Whether a process of this user, or of the system's own, is at the other end."""
    _, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return uid in (os.geteuid(), 0)


class Gone:
    """Whether the other process has closed its connection, for whatever asks an event or one of FLARE's signals."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._gone = threading.Event()

    def is_set(self) -> bool:
        if not self._gone.is_set():
            try:
                if waits(self._connection, 0):  # it says nothing more
                    self._gone.set()
            except (OSError, ValueError):  # it was closed here
                self._gone.set()
        return self._gone.is_set()

    __call__ = is_set
    triggered = property(is_set)
    value = "the trainer has gone"
