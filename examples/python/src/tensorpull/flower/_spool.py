"""Files that have arrived, of which one array is read at a time: a server's folder of updates, of which it holds none whole, and a node's last model."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import itertools
import os
import shutil
import stat
import tempfile
import weakref
from typing import Iterator, Optional

_PREFIX = "tensorpull-flower."


class Landed:
    """A file that is to arrive, which is removed when nothing refers to this any more."""

    def __init__(self, spool: "Spool") -> None:
        self.path = spool.name()
        self._gone = weakref.finalize(self, spool.drop, self.path)

    @contextlib.contextmanager
    def opened(self) -> Iterator[int]:
        """A descriptor of it. It is not kept: an update of each of a thousand nodes would take them all."""
        opened = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            yield opened
        finally:
            os.close(opened)


class Kept:
    """A file that stays what it is here, whatever takes its place under its name."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._opened)

    @contextlib.contextmanager
    def opened(self) -> Iterator[int]:
        yield self._opened


class Spool:
    """A folder of this process and this user. It is removed at the end of the process; what a process that was killed has left is removed by the next one."""

    def __init__(self, parent: Optional[str] = None) -> None:
        parent = parent or tempfile.gettempdir()
        self._numbers = itertools.count()
        self._closed = False
        _sweep(parent)
        while True:
            self.path = tempfile.mkdtemp(prefix=_PREFIX, dir=parent)
            self._held: Optional[int] = hold(self.path)
            if self._held is not None:
                break
        atexit.register(self.remove)

    def name(self) -> str:
        return os.path.join(self.path, str(next(self._numbers)))

    def drop(self, path: str) -> None:
        try:
            os.unlink(path)
        except OSError:  # it has not arrived, or went with the folder
            pass
        if self._closed:
            self.close()

    def close(self) -> None:
        """Removes the folder, once there are no files whose arrays somebody still has."""
        self._closed = True
        try:
            os.rmdir(self.path)
        except OSError:
            return
        self.remove()

    def remove(self) -> None:
        held, self._held = self._held, None  # without a lock: a finalizer may run anywhere
        if held is not None:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(held)
            atexit.unregister(self.remove)


def hold(path: str) -> Optional[int]:
    """A lock on a folder of this user, which ends with the process. None: another process has it, it is gone, or it is no such folder."""
    try:
        made = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(made, fcntl.LOCK_EX | fcntl.LOCK_NB)
        mine, there = os.fstat(made), os.lstat(path)
        if stat.S_ISDIR(there.st_mode) and (mine.st_dev, mine.st_ino) == (there.st_dev, there.st_ino) and mine.st_uid == os.getuid():
            return made
    except OSError:
        pass
    os.close(made)
    return None


def _sweep(parent: str) -> None:
    for name in os.listdir(parent):
        if name.startswith(_PREFIX):
            held = hold(os.path.join(parent, name))
            if held is not None:
                shutil.rmtree(os.path.join(parent, name), ignore_errors=True)
                os.close(held)
