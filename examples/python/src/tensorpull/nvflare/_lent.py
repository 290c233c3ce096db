"""An update in a trainer's own memory, which its site's job process reads while FLARE's server pulls: neither has a copy of it."""

from __future__ import annotations

import ctypes
import errno
import functools
import os
from typing import Any, Dict, List, Optional, Tuple

from .. import _native
from .._options import PublishSettings
from .._types import Reference
from ._memory import Row, as_bytes, dtype_of, table_of
from ._offer import Refused

#: Bytes that are read from another process at a time.
_BLOCK = 1 << 20


class Lent:
    """Tensors of this process for another one to read, and what is where: as of `Sealed`, with addresses."""

    def __init__(self, tensors: Dict[str, Any], framework: str) -> None:
        import numpy

        self.rows: List[Any] = []
        self._there = []
        for name, tensor in tensors.items():
            named, data = dtype_of(tensor, framework), numpy.frombuffer(as_bytes(tensor) if tensor.nbytes else b"", numpy.uint8)
            self.rows.append([name, named, list(tensor.shape), int(data.ctypes.data)])
            self._there.append(data)

    def version(self, metadata: Dict[str, str]) -> int:
        """The digest of what `Theirs` publishes: here no address is another process's."""
        described = [(name, named, tuple(shape), None, address, 0) for name, named, shape, address in self.rows]
        return _native.ImageReader(described, list(metadata.items()), self._there).version


class Theirs(Dict[str, "_Theirs"]):
    """Tensors in the memory of another process, which keeps them there until this one has done with them. They are read a piece at a time: this process has no copy."""

    def __init__(self, pid: int, rows: Any, framework: str, most: int, gone: Any, version: Any = 0) -> None:
        """Refused: there are more than `most` bytes. Unreadable: the system does not let this process read them. `gone()`: the other process has, so another one may have its number.
        `version`: their digest, as the other process says; a wrong one is found by the recipient. 0: it is computed here."""
        if type(version) is not int or not 0 <= version < 2**64:
            raise Refused("its digest makes no sense")
        self._version = version
        table = table_of(rows, framework)
        if sum(row.nbytes for row in table) > most:
            raise Refused("it has more bytes than this machine")
        ahead = _Ahead(pid, gone)
        super().__init__((row.name, _Theirs(row, ahead)) for row in table)
        for row in table:
            for at in {0, row.nbytes - 1} if row.nbytes else ():
                ahead.read(row.begin + at, 1)

    def publish(self, session: Any, metadata: Dict[str, str], settled: Any) -> Reference:
        """For one recipient, through a session of the compiled half."""
        how = PublishSettings()
        how.recipients, how.recipient_idle_ms, how.transaction_idle_ms, how.settled, how.version = 1, 0, 0, settled, self._version
        return Reference(*session.add([one.described for one in self.values()], list(metadata.items()), list(self.values()), how))


class _Theirs:
    """One of them, as the compiled half reads what no address leads to (_devices.py)."""

    def __init__(self, row: Row, ahead: "_Ahead") -> None:
        self._row, self._ahead = row, ahead
        self.nbytes = row.nbytes
        self.described = (row.name, row.dtype, row.shape, None, row.begin, 0, *((self, 1) if row.nbytes else ()))

    def read(self, offset: int, nbytes: int) -> Optional[Tuple[int, int]]:
        try:
            return self._ahead.read(self._row.begin + offset, nbytes, self._row.nbytes - offset)
        except Refused:  # as of a trainer that was killed, which is no mistake of this process
            return None


class _Ahead:
    """Reads another process's memory. A piece is read for many calls, which ask for little each."""

    def __init__(self, pid: int, gone: Any) -> None:
        self._pid, self._gone = pid, gone
        self._block = ctypes.create_string_buffer(_BLOCK)
        self._address = ctypes.addressof(self._block)
        self._begin = self._end = 0

    def read(self, begin: int, nbytes: int, most: int = 0) -> Tuple[int, int]:
        """Where bytes are that lie at `begin` there, and how many; `most`: so many lie in a row."""
        if not self._begin <= begin < self._end:
            here = _Part(self._address, min(max(nbytes, most), _BLOCK))
            there = _Part(begin, here.length)
            n = _readv()(ctypes.c_int(self._pid), ctypes.byref(here), ctypes.c_ulong(1), ctypes.byref(there), ctypes.c_ulong(1), ctypes.c_ulong(0))
            if n <= 0:
                raise Unreadable(os.strerror(ctypes.get_errno()))
            if self._gone():  # after it was read
                raise Refused("the other process has gone")
            self._begin, self._end = begin, begin + n
        return self._address + begin - self._begin, min(nbytes, self._end - begin)


class _Part(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


class Unreadable(Refused):
    """The system does not let this process read the other one's memory."""


@functools.lru_cache(None)
def _readv() -> Any:
    try:
        call = ctypes.CDLL(None, use_errno=True).process_vm_readv
    except AttributeError:  # a C library without it
        raise Unreadable(os.strerror(errno.ENOSYS)) from None
    call.restype = ctypes.c_ssize_t
    return call
