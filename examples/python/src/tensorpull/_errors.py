"""The exception of this package, and the built-in ones that it is too."""

from __future__ import annotations

import errno
import os
import socket
from typing import Any, Dict, Tuple, Type

_BROKEN = ("connection_failed", "connection_lost", "truncated", "handshake_failed")
_FILES = ("io", "disk_full", "bad_file", "misplaced_tensor", "trailing_bytes", "cut_file")


class Error(Exception):
    """What went wrong, as a value that programs can look at.

    `code`    one of `ErrorCode`, for example "unknown_reference" or "timed_out": help(tensorpull.ErrorCode) has each with its cause and what to do
    `message` one sentence for people
    `name`    the tensor, file, address or client that it is about, or ""; what the compiled half names is cut after 55 bytes
    `landed`  of a download: how many bytes had arrived. 0: the tensors in `out` are as they were; otherwise they are unspecified
    `system`  errno if the operating system gave one, otherwise 0; of "withdrawn" a number of the owner's
    `at`      a number that says where, if it is no download; its meaning is the code's

    It is also the built-in exception that people expect: TimeoutError ("timed_out"), ConnectionError ("connection_failed", "connection_lost", "truncated", "handshake_failed"; of its
    subclasses that of `system`), socket.gaierror ("unknown_host"), and OSError (any other with `system`, and those of files, such as "io", "disk_full", "bad_file") with its `errno` and
    `filename`, as the subclass that errno has: FileNotFoundError, FileExistsError, PermissionError and so on.
    """

    def __new__(cls, *arguments: Any, **named: Any) -> "Error":
        kind = _classes[_also(*_first(arguments, named))] if cls is Error else cls
        return super(Error, kind).__new__(kind, *arguments)

    def __init__(self, code: str, message: str, name: str = "", landed: int = 0, system: int = 0, at: int = 0) -> None:
        if not -(2**31) <= system < 2**31:
            raise ValueError(f"system is a number of 32 bits; not {system}")
        super().__init__(code, message, name, landed, system, at)
        _keep(self, (code, message, name, landed, system, at))
        self.code = code
        self.message = message
        self.name = name
        self.landed = landed
        self.system = system
        self.at = at
        if isinstance(self, OSError):
            _describe(self, code, message, name, system)

    def __reduce__(self) -> Tuple[Any, ...]:
        return Error, self.args

    def __str__(self) -> str:
        about = f" ({self.name})" if self.name else ""
        system = f": {os.strerror(self.system)}" if self.system > 0 and self.code != "withdrawn" else f": exit status {-self.system}" if self.system < 0 else ""
        landed = f", after {self.landed} bytes" if self.landed else ""
        return f"{self.message}{about}{system}{landed} [{self.code}]"

    def saying(self, message: str, name: str = "") -> "Error":
        """The same error in other words."""
        return Error(self.code, message, name or self.name, self.landed, self.system, self.at)


_NUMBERS = {"disk_full": errno.ENOSPC, "timed_out": errno.ETIMEDOUT, "unknown_host": socket.EAI_NONAME}


def _keep(to: BaseException, arguments: Tuple[Any, ...]) -> None:
    to.args = arguments  # an OSError has kept the first two


def _describe(to: OSError, code: str, message: str, name: str, system: int) -> None:
    to.errno = system if system > 0 else _NUMBERS.get(code)
    to.strerror = os.strerror(system) if system > 0 else message
    to.filename = (name or None) if code in _FILES else None


def _first(arguments: Tuple[Any, ...], named: Dict[str, Any]) -> Tuple[str, int]:
    code = arguments[0] if arguments else named.get("code", "")
    system = arguments[4] if len(arguments) > 4 else named.get("system", 0)
    return str(code), system if isinstance(system, int) else 0


def _also(code: str, system: int) -> Type[BaseException]:
    """The built-in exception that an error is, too."""
    if code == "timed_out":
        return TimeoutError
    if code == "unknown_host":
        return socket.gaierror
    if code == "withdrawn":
        return Exception
    known: Type[BaseException] = type(OSError(system, "")) if system > 0 else OSError
    if code in _BROKEN:
        return known if issubclass(known, ConnectionError) and known in _classes else ConnectionError
    if code not in _FILES and system <= 0:
        return Exception
    return known if known in _classes else OSError


#: One for each: `except FileNotFoundError` catches what `except tensorpull.Error` does.
_classes: Dict[Type[BaseException], Type[Error]] = {Exception: Error}
for _each in (
    OSError, TimeoutError, ConnectionError, ConnectionRefusedError, ConnectionResetError, ConnectionAbortedError, BrokenPipeError, FileNotFoundError,
    FileExistsError, PermissionError, IsADirectoryError, NotADirectoryError, BlockingIOError, socket.gaierror,
):  # fmt: skip
    _classes[_each] = type("Error", (Error, _each), {"__module__": "tensorpull", "__qualname__": "Error", "__doc__": f"An `Error` that is a {_each.__name__}, too."})
