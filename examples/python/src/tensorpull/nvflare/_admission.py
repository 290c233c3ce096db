"""At most so many updates in the memory of FLARE's server at the same time: the next one is pulled when an earlier one's memory is free.

Without it the server holds as many updates as sites answer at the same time, and keeps their memory for the next ones. So its peak grows over the rounds, until all sites have answered
together once.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from typing import Any, Callable, Deque, Dict, Optional

#: Seconds without any change after which the turns are over: a workflow that collects all updates before it adds the first lets go of none.
PATIENCE = 30.0
#: Whether updates are let go when FLARE has processed them (Memory). Otherwise FLARE keeps the last one until it processes the next one, and so it does not count.
let_go_at_once = False


class Turn:
    """One site's. It lasts as long as something refers to it: the pull, and then the memory of what the pull has brought."""

    pulls = 1  # that go on: an update of arrays and of tensors is two
    landed: Optional[float] = None  # when the last of them ended, well or not


class Turns:
    """`most`: sites whose updates are there at the same time, and one more without Memory; 0: any number."""

    def __init__(self, most: int, logger: Any) -> None:
        self.most = most
        self._logger = logger
        self._changed = threading.Condition(threading.Lock())
        self._held: "Dict[str, weakref.ref[Turn]]" = {}
        self._waiting: Deque[object] = deque()
        self._ended = time.monotonic()

    def take(self, site: str, stopped: Callable[[], bool]) -> Optional[Turn]:
        """In the order in which they ask, except that a site whose turn it is has it at once: an update of arrays and of tensors is two pulls. None: nobody waits here, or it was stopped."""
        me = object()
        with self._changed:
            self._waiting.append(me)
            try:
                while self.most > 0 and not stopped():
                    turn = self._if_free(site, me)
                    if turn is not None:
                        return turn
                    self._changed.wait(0.05)  # the end of a turn may come in a finalizer, which takes no lock
                return None
            finally:
                self._waiting.remove(me)
                self._changed.notify_all()

    def pull_ended(self, turn: Turn) -> None:
        """One of the turn's pulls, well or not."""
        with self._changed:
            turn.pulls -= 1
            if turn.pulls == 0:
                turn.landed = time.monotonic()

    def _if_free(self, site: str, me: object) -> Optional[Turn]:
        there = {who: turn for who, turn in ((who, ref()) for who, ref in self._held.items()) if turn is not None}
        self._held = {who: self._held[who] for who in there}
        if site in there:
            there[site].pulls += 1
            there[site].landed = None
            return there[site]
        if self._waiting[0] is not me:
            return None
        if len(there) < self.most + (0 if let_go_at_once else 1):
            turn = Turn()
            self._held[site] = weakref.ref(turn, self._end)
            return turn
        since = [turn.landed for turn in there.values()]
        if all(since) and time.monotonic() - max(self._ended, *filter(None, since)) > PATIENCE:
            self.most = 0
            self._logger.warning(
                f"tensorpull: updates wait no longer for earlier ones: {len(there)} landed more than {PATIENCE:.0f} s ago and are still there, so this job collects them (tensorpull_updates)"
            )
        return None

    def _end(self, _: Any) -> None:
        self._ended = time.monotonic()
        if self._changed.acquire(False):
            try:
                self._changed.notify_all()
            finally:
                self._changed.release()
