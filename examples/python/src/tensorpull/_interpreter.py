"""Refuses to be imported in an interpreter that is not its process's first. Comes before the compiled half, which would wait there for ever for a lock that its thread has."""

from __future__ import annotations

from typing import Any


def _interpreters() -> Any:
    """CPython's own module about them, under whichever name it has; None: this Python has only one."""
    try:
        import _interpreters  # type: ignore[import-not-found, unused-ignore]

        return _interpreters
    except ImportError:
        pass
    try:
        import _xxsubinterpreters  # type: ignore[import-not-found, unused-ignore]

        return _xxsubinterpreters
    except ImportError:
        return None


_known = _interpreters()
if _known is not None and _known.get_current() != _known.get_main():
    raise ImportError("tensorpull is for the main interpreter of a process, and this is another")
