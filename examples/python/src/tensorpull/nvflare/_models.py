"""Which of FLARE's publications are of one model, so that its bytes are read for the digest once."""

from __future__ import annotations

import hashlib
import itertools
import secrets
import threading
import weakref
from typing import Any, Dict, List, Optional, Tuple

#: Elements of an array that are looked at, since NumPy counts no changes.
SAMPLES = 64
#: Models that nobody publishes at the moment, and whose versions are remembered.
IDLE = 8
_numbers = itertools.count()


class Model:
    """Tensors that are published now, or were. `word` is what each of their publications carries, and `version` is known once the first of them was made."""

    def __init__(self, key: Any, alive: List[Any]) -> None:
        self.key = key
        self.number = next(_numbers)  #: a later one has a larger one
        self.word = secrets.token_hex(16)
        self.version: Optional[int] = None
        self.lock = threading.Lock()
        self.users = 0
        self.held: List[Any] = []  # while it has users, so that no other tensor gets one of their numbers
        self.alive = alive  # weak references: once one is gone, another tensor may have its number


def _same(name: str, t: Any) -> Tuple[Any, ...]:
    """Equal for one tensor as long as it is not known to have changed."""
    if hasattr(t, "__array_interface__"):
        step = -(-t.size // SAMPLES) or 1
        return name, id(t), t.__array_interface__["data"][0], t.dtype.str, t.shape, t.strides, hashlib.blake2b(t.flat[::step].tobytes(), digest_size=16).digest()
    return name, id(t), t.data_ptr(), t._version, t.dtype, tuple(t.shape), t.stride()


class Models:
    """The models that are published, and a few that were and are still there, so that the sites of one task share one pass over the bytes.

    FLARE makes a publication for each site, and their tensors are the same objects. They are one model as long as no operation of torch has changed one of them, and as long as an array
    has the same elements at `SAMPLES` places. What that does not show, such as a change of a few elements or through `.data`, leaves a version that no recipient takes: it gets
    "digest_mismatch" and goes on with FLARE's chunks. Once it has said so, the next publication is read anew (`forget`).
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: Dict[Any, Model] = {}

    def take(self, tensors: Dict[str, Any]) -> Model:
        """The model of these tensors, for `give_back`."""
        alive: List[Any] = []
        try:
            key: Any = tuple(_same(name, t) for name, t in tensors.items())
            alive = [weakref.ref(t) for t in tensors.values()]
        except Exception:  # a tensor that counts no changes
            key = None
        with self._lock:
            self._known = {k: m for k, m in self._known.items() if m.users or all(there() is not None for there in m.alive)}
            model = self._known.pop(key, None) or Model(key, alive)
            model.users += 1
            model.held = list(tensors.values())
            if key is not None:
                self._known[key] = model  # the newest is the last
            idle = [m for m in self._known.values() if not m.users]
            for old in idle[: max(0, len(idle) - IDLE)]:
                del self._known[old.key]
            return model

    def forget(self, model: Model) -> None:
        """Its bytes are others than its version says."""
        with self._lock:
            if self._known.get(model.key) is model:
                del self._known[model.key]

    def give_back(self, model: Model) -> None:
        with self._lock:
            model.users -= 1
            if not model.users:
                model.held = []
