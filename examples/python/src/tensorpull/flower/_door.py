"""The server's listener for nodes that connect: each states the secret of its message first."""

from __future__ import annotations

import threading
from typing import Callable, Optional, Set, Tuple

import tensorpull

from ._seam import logger


#: Seconds in which a caller has to state its secret.
HANDSHAKE = 5.0
#: Callers that have not done so yet; more wait.
UNFINISHED = 64

#: Takes a caller with the kind of its message, its secret and its references; false: it is not expected.
Take = Callable[[tensorpull.Session, int, str, Tuple[tensorpull.Reference, ...]], bool]


class Door:
    """Accepts on one thread, and has one more for each caller."""

    def __init__(self, listen: str, ssl: Optional[tensorpull.TLS], take: Take) -> None:
        self._listener = tensorpull.Listener(listen, ssl=ssl)
        self.address = self._listener.address
        self._take = take
        self.closing = threading.Event()
        self._unfinished = threading.Semaphore(UNFINISHED)
        self._lock = threading.Lock()
        self._callers: Set[threading.Thread] = set()
        self._thread = threading.Thread(target=self._accept, name="tensorpull-door", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Its threads have ended when this returns."""
        self.closing.set()
        self._thread.join()
        self._listener.close()
        with self._lock:
            callers = list(self._callers)
        for caller in callers:
            caller.join()

    def _accept(self) -> None:
        while not self.closing.is_set():
            if not self._unfinished.acquire(timeout=0.2):
                continue
            session = None
            try:
                session = self._listener.accept(timeout=0.2, abort=self.closing)
            except tensorpull.Error as e:  # of one caller, or of a table that is full for a while
                logger.debug("tensorpull: a caller was not accepted: %s", str(e))
                self.closing.wait(0.05)
            if session is None:
                self._unfinished.release()
                continue
            caller = threading.Thread(target=self._hear, args=(session,), name="tensorpull-caller", daemon=True)
            with self._lock:
                self._callers.add(caller)
            caller.start()

    def _hear(self, session: tensorpull.Session) -> None:
        try:
            with session:
                try:
                    message = session.receive(HANDSHAKE, abort=self.closing)
                finally:
                    self._unfinished.release()
                token = message.body.decode("ascii", "replace") if message is not None and len(message.body) == 32 else ""
                if message is None or not token or not self._take(session, message.kind, token, message.references):
                    logger.warning("tensorpull: a caller did not state a secret that is expected; its connection is closed")
        except tensorpull.Error as e:
            logger.debug("tensorpull: a caller has gone: %s", str(e))
        finally:
            with self._lock:
                self._callers.discard(threading.current_thread())
