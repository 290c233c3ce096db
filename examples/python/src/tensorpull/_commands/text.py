"""What commands print: names that may contain any bytes, sizes, times; and streams that may be closed or full."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from typing import Any, Callable, Optional, Union

Name = Union[str, bytes]
#: What points to the right or to the left, or is invisible.
_UNSEEN = ((0xAD, 0xAD), (0x61C, 0x61C), (0x200B, 0x200F), (0x2028, 0x202E), (0x2060, 0x206F), (0xFEFF, 0xFEFF), (0xFFF0, 0xFFFB), (0xE0000, 0xE0FFF))
_PLAIN = {"\n": "\\n", "\t": "\\t", "\\": "\\\\"}


class OutputFailed(Exception):
    """Standard output cannot be written."""


def printable(name: Name) -> str:
    """Text that is safe on a terminal. Control characters, those that change the direction of writing or are invisible, and bytes that are no UTF-8 become
    \\x or \\u."""
    text = name.decode(errors="surrogateescape") if isinstance(name, bytes) else name
    out = []
    for c in text:
        point = ord(c)
        if c in _PLAIN:
            out.append(_PLAIN[c])
        elif 0xDC80 <= point <= 0xDCFF:  # a byte that was no UTF-8
            out.append(f"\\x{point - 0xDC00:02x}")
        elif point < 0x20 or 0x7F <= point < 0xA0:
            out.append(f"\\x{point:02x}")
        elif 0xD800 <= point <= 0xDFFF or any(first <= point <= last for first, last in _UNSEEN):
            out.append(f"\\u{{{point:x}}}")
        else:
            out.append(c)
    return "".join(out)


def capped(name: str, most_bytes: int = 55) -> str:
    """The name's first bytes, as the library has names in its errors. A character that the cut would halve goes as a whole."""
    data = name.encode(errors="surrogateescape")
    return name if len(data) <= most_bytes else data[:most_bytes].decode(errors="ignore")


def size(number: float) -> str:
    if number == 1:
        return "1 byte"
    units = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")
    unit = 0
    while number >= 999.5 and unit + 1 < len(units):
        number, unit = number / 1024, unit + 1
    return f"{number:.0f} {units[unit]}" if unit == 0 or number >= 99.95 else f"{number:.1f} {units[unit]}"


def clock(seconds: float) -> str:
    s = int(min(max(seconds, 0), 3.6e8) + 0.5)
    return f"{s // 60}:{s % 60:02}" if s < 3600 else f"{s // 3600}:{s // 60 % 60:02}:{s % 60:02}"


def time(seconds: float) -> str:
    return clock(seconds) if seconds >= 99.5 else f"{seconds:.0f} s" if seconds >= 9.95 else f"{seconds:.2f} s"


def count(n: int, of: str) -> str:
    return f"{n} {of}" + ("" if n == 1 else "s")


def shell_word(text: str) -> str:
    """A word quoted for a shell, whatever it contains."""
    if printable(text) == text:
        return shlex.quote(text)
    out = "".join(
        chr(octet) if 0x20 <= octet < 0x7F and chr(octet) not in "'\\" else f"\\x{octet:02x}" for octet in text.encode(errors="surrogateescape")
    )
    return f"$'{out}'"


def say_plain(line: str) -> None:
    """A line for people. Nobody is there if standard error is closed."""
    if sys.stderr is None:
        return
    try:
        print(line.encode(sys.stderr.encoding or "ascii", "backslashreplace").decode(sys.stderr.encoding or "ascii"), file=sys.stderr, flush=True)
    except (OSError, ValueError):
        pass


def say(tool: str, line: str) -> None:
    say_plain(f"{tool}: {line}")


def out(text: str) -> None:
    """Writes to standard output at once, in UTF-8. What is no Unicode is written as the bytes that it was."""
    try:
        if sys.stdout is None:
            raise OutputFailed
        sys.stdout.flush()
        data = memoryview(text.encode(errors="surrogateescape"))
        while data:
            data = data[os.write(1, data) :]
    except (OSError, ValueError, UnicodeEncodeError):
        raise OutputFailed from None


class Interruption:
    """Ctrl-C and SIGTERM: the first one asks the command to finish cleanly, the second one ends it."""

    def __init__(self) -> None:
        self.by: Optional[int] = None
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._hear)

    def _hear(self, number: int, _: Any) -> None:
        self.by = number
        signal.signal(number, signal.SIG_DFL)

    def __bool__(self) -> bool:
        return self.by is not None

    @property
    def status(self) -> int:
        """The exit status that shells show for it."""
        return 128 + int(self.by or 0)


def run(tool: str, command: Callable[[], int], unwritable: int = 1) -> int:
    """Runs a command. What would be a traceback becomes one line."""
    try:
        status = command()
    except KeyboardInterrupt:
        status = 130
    except OutputFailed:
        say(tool, "standard output could not be written")
        status = unwritable
    except MemoryError:
        say(tool, "there is not enough memory")
        status = 1
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except (OSError, ValueError):
        pass
    return status
