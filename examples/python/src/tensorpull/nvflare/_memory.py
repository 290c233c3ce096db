"""Memory that a site's job process gives its trainer, and that the trainer lets it read.

A model lands in memory without a name, so nothing is left behind when both are gone. It is sealed: the trainer cannot change it, and nobody can shorten it. The job process writes there again
when nobody has the model any more. An update is read from the trainer's own memory, or from memory that nobody can change any more if the system does not allow that.

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
from collections import deque
from typing import Any, Deque, Dict, FrozenSet, Iterable, List, NamedTuple, Optional, Set, Tuple

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
#: Of Linux: against shrinking and growing, against writing, against writing but through a mapping that is there (5.1 and later), and against other seals. Python has no names for them elsewhere.
_SIZE, _WRITE, _FUTURE_WRITE, _SEAL_SEAL, _ADD_SEALS, _GET_SEALS = 2 | 4, 8, 16, 1, 1033, 1034
_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)


def _kinds(framework: str) -> Any:
    return _TorchTensors() if framework == "torch" else _Arrays()


def _bytes_of(kind: Any, shape: Iterable[int]) -> int:
    nbytes: int = kind.itemsize
    for extent in shape:
        nbytes *= extent
    return nbytes


def as_bytes(tensor: Any) -> memoryview:
    import numpy

    if hasattr(tensor, "data_ptr"):
        import torch

        tensor = tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy()
    array: Any = numpy.ascontiguousarray(tensor).reshape(-1).view(numpy.uint8)
    return memoryview(array)


class Sealed:
    """Memory for other processes, and what lies in it: name, dtype, shape and beginning of each tensor. Nobody writes there as long as there is one of these."""

    def __init__(self, room: "Room", rows: Dict[str, Any]) -> None:
        self._room = room
        self.fd, self.framework = room.fd, room.framework
        self.rows = _rows(rows)

    def __del__(self) -> None:
        self._room.is_free()


def _rows(rows: Dict[str, Any]) -> List[Any]:
    return [[name, dtype, list(shape), begin] for name, (dtype, shape, begin) in rows.items()]


class Rooms:
    """Where a site's models land. The next one lands in the memory of the one before if nobody has that any more: fresh memory takes longer than the transfer.
    None is kept beside a model that somebody has, so a site never holds more than without this. No lock: a finalizer gives back."""

    def __init__(self, framework: str) -> None:
        self._framework = framework
        self._free: Deque[Room] = deque(maxlen=1)
        self._used: Set[int] = set()

    def take(self) -> "Room":
        try:
            room = self._free.pop()
        except IndexError:
            room = Room(self._framework, self)
        self._used.add(id(room))
        return room

    def give_back(self, room: "Room") -> None:
        self._used.discard(id(room))
        if not self._used:
            self._free.append(room)

    def has_ended(self, room: "Room") -> None:
        self._used.discard(id(room))


class Room:
    """Memory that tensors land in, or are copied to, and that other processes read afterwards."""

    def __init__(self, framework: str, rooms: Optional[Rooms] = None) -> None:
        self.framework = framework
        self._rooms = weakref.ref(rooms) if rooms is not None else lambda: None
        self.rows: Dict[str, Tuple[str, Tuple[int, ...], int]] = {}
        self._kinds = _kinds(framework)
        self.fd, self._size, self._end = -1, 0, 0
        self._there = 0  # bytes from the beginning that have taken memory
        self._mapped: Optional[mmap.mmap] = None

    def begin(self, most: int) -> None:
        """There is room for so many bytes; they take memory when there is a tensor for them, or have it from the model before."""
        size = most + _ALIGNED * MOST_TENSORS
        if self._mapped is None or self._size < size or self._there > 2 * most:
            self._begin_anew(size)
            self._mapped = mmap.mmap(self.fd, size, flags=mmap.MAP_SHARED)
        self.clear()

    def _begin_anew(self, size: int) -> None:
        self.end()
        self.fd = os.memfd_create("tensorpull", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.fd, size)
        self._size, self._there = size, 0

    def clear(self) -> None:
        self.rows.clear()
        self._end = 0

    def make(self, name: str, dtype: str, shape: Tuple[int, ...]) -> Tuple[int, int]:
        """Where a tensor's bytes land, and how many they are."""
        assert self._mapped is not None
        begin, nbytes = self._next(name, dtype, shape)
        if begin + nbytes > self._there:
            os.posix_fallocate(self.fd, self._there, begin + nbytes - self._there)  # no memory is an error here, and a dead process later
            self._there = begin + nbytes
        return ctypes.addressof(ctypes.c_char.from_buffer(self._mapped)) + begin, nbytes

    def _next(self, name: str, dtype: str, shape: Tuple[int, ...]) -> Tuple[int, int]:
        kind, held = self._kinds.dtype(name, dtype, tuple(shape))
        nbytes, begin = _bytes_of(kind, held), self._end
        if begin + nbytes > self._size:
            raise Refused("it has more bytes than it was said to have")
        self.rows[name] = dtype, tuple(shape), begin
        self._end = begin + _aligned(nbytes)
        return begin, nbytes

    def seal(self, rows: Dict[str, Any]) -> Sealed:
        """These of the tensors that have landed. This process alone can write there, and does not before nobody has them any more."""
        try:
            self._add_seals(_SIZE | _FUTURE_WRITE)
        except OSError:  # an older system: this process neither
            self._unmap()
            self._add_seals(_SIZE | _WRITE)
        return Sealed(self, rows)

    def fill(self, tensors: Dict[str, Any]) -> Sealed:
        """Copies tensors of the framework, and nobody writes there any more. Refused: not all of them are in this machine's memory, one element after the other."""
        self._begin_anew(sum(int(t.nbytes) for t in tensors.values()) + _ALIGNED * MOST_TENSORS)
        self.clear()
        for name, tensor in tensors.items():
            begin, nbytes = self._next(name, dtype_of(tensor, self.framework), tuple(tensor.shape))
            if nbytes:
                self._write(begin, as_bytes(tensor))
        self._add_seals(_SIZE | _WRITE)
        return Sealed(self, self.rows)

    def _write(self, begin: int, data: memoryview) -> None:
        """A file's way: the system need not clear these pages, and need not map them."""
        while data:
            n = os.pwrite(self.fd, data, begin)
            data, begin = data[n:], begin + n

    def _add_seals(self, seals: int) -> None:
        if fcntl.fcntl(self.fd, _GET_SEALS) & seals != seals:
            fcntl.fcntl(self.fd, _ADD_SEALS, seals | _SEAL_SEAL)

    def tensors(self, rows: Dict[str, Any]) -> Opened:
        """Of these rows, for this process alone: they could not be sealed."""
        return _over(self.fd, table_of(_rows(rows), self.framework), self.framework)

    def is_free(self) -> None:
        """Nobody has what lies there any more."""
        rooms = self._rooms()
        if rooms is not None and self._mapped is not None:
            rooms.give_back(self)

    def _unmap(self) -> None:
        if self._mapped is not None:
            self._mapped.close()
            self._mapped = None

    def end(self) -> None:
        self._unmap()
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __del__(self) -> None:
        rooms = self._rooms()
        if rooms is not None:
            rooms.has_ended(self)
        self.end()


def _aligned(nbytes: int) -> int:
    return -(-nbytes // _ALIGNED) * _ALIGNED


def dtype_of(tensor: Any, framework: str) -> str:
    """As tensorpull names it. Refused: the tensor is not in this machine's memory, one element after the other, or is of a type that is not carried."""
    if framework == "torch":
        if tensor.device.type != "cpu" or str(tensor.layout) != "torch.strided" or tensor.is_quantized:
            raise Refused("a tensor is not in this machine's memory, one element after the other")
        named = _TORCH.get(str(tensor.dtype).rpartition(".")[2])
        named = None if named == "F4" else named  # whose shape counts half of the elements
    else:
        named = _native.numpy_format(tensor.dtype.str)[0] if is_plain(tensor.dtype) else None
    if named is None:
        raise Refused(f"{str(tensor.dtype)[:60]} is not carried here")
    return named


def land_in_room(
    room: Room, most: int, through: Any, where: Tuple[Any, ...], ref: Any, *, per_request_timeout: Optional[float], chunk_size: int, retries: int, max_bytes: int, abort: Any,
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


class Row(NamedTuple):
    name: str
    dtype: str
    kind: Any
    shape: Tuple[int, ...]
    nbytes: int
    begin: int


def table_of(rows: Any, framework: str) -> List[Row]:
    """What another process says that there is. Refused: it makes no sense."""
    if type(rows) is not list or len(rows) > MOST_TENSORS:
        raise Refused("its table makes no sense")
    kinds = _kinds(framework)
    read, names = [], set()
    for row in rows:
        if type(row) is not list or len(row) != 4:
            raise Refused("its table makes no sense")
        name, dtype, shape, begin = row
        if type(name) is not str or type(dtype) is not str or type(begin) is not int or type(shape) is not list or len(shape) > 64:
            raise Refused("its table makes no sense")
        if name in names or begin < 0 or not all(type(extent) is int and 0 <= extent < 2**48 for extent in shape):
            raise Refused("its table makes no sense")
        names.add(name)
        kind, held = kinds.dtype(name, dtype, tuple(shape))
        read.append(Row(name, dtype, kind, held, _bytes_of(kind, held), begin))
    return read


def opened(fd: int, rows: Any, framework: str, owner_waits: bool = False) -> Opened:
    """Maps memory that another process has given; the descriptor stays the caller's. Refused: it is not what it has to be. `owner_waits`: that process may write there again, and waits until this
    one has done with it."""
    try:
        seals = fcntl.fcntl(fd, _GET_SEALS)
    except OSError:
        raise Refused("it is no memory that can be sealed") from None
    if seals & _SIZE != _SIZE or not seals & (_WRITE | _FUTURE_WRITE if owner_waits else _WRITE):
        raise Refused("its memory is not sealed: the other process could change it")
    table = table_of(rows, framework)
    end = max((row.begin + row.nbytes for row in table), default=0)
    if end > os.fstat(fd).st_size or any(row.begin % _ALIGNED for row in table):
        raise Refused("a tensor lies outside its memory")
    if end and os.lseek(fd, 0, os.SEEK_HOLE) < end:  # its pages stay: to take one away is to write
        raise Refused("its memory has holes")
    return _over(fd, table, framework)


def _over(fd: int, table: List[Row], framework: str) -> Opened:
    end = max((row.begin + row.nbytes for row in table), default=0)
    return _laid(mmap.mmap(fd, end, flags=mmap.MAP_PRIVATE | _NORESERVE, prot=mmap.PROT_READ | mmap.PROT_WRITE) if end else None, table, framework)


def _laid(mapped: Optional[mmap.mmap], table: List[Row], framework: str) -> Opened:
    kinds = _kinds(framework)
    made = Opened()
    made.mapping = weakref.ref(mapped) if mapped is not None else None
    taken = set()
    for row in table:
        if not row.nbytes:
            made[row.name] = kinds.empty(row.shape, row.kind)
            continue
        tensor = kinds.over(_bytes_at(mapped, row.begin, row.nbytes), row.kind).reshape(row.shape)
        if row.begin in taken:  # FLARE's own arrive each on its own
            tensor = tensor.clone() if framework == "torch" else tensor.copy()
            made.apart |= {row.name}
        taken.add(row.begin)
        made[row.name] = tensor
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


def _peer(connection: socket.socket) -> Tuple[int, int]:
    pid, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return pid, uid


def is_same_user(connection: socket.socket) -> bool:
    """Whether a process of this user, or of the system's own, is at the other end."""
    return _peer(connection)[1] in (os.geteuid(), 0)


def process_of(connection: socket.socket) -> int:
    """The number of the process that has called."""
    return _peer(connection)[0]


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
