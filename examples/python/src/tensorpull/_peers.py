"""For satellites whose peers meet over another framework's messages: how what a peer told there is checked, and the door at which it calls."""

from __future__ import annotations

import ipaddress
import pathlib
import re
import threading
from typing import Any, Callable, Mapping, Optional, Set, Tuple

from ._errors import Error
from ._proofs import SignedReference, verify_reference
from ._session import Listener, Message, Session

#: Of a secret, and of a reference's ID.
DIGITS = re.compile(r"[0-9a-f]{32}\Z")
_ADDRESS = re.compile(r"(tls|tcp)://(\*|\[[0-9a-fA-F:.]{2,45}\]|[A-Za-z0-9._-]{1,253}):([0-9]{1,5})\Z")
#: Seconds in which a caller has to state its secret.
HANDSHAKE = 5.0
#: Callers that have not done so yet; more wait. Over TLS the listener itself shakes hands with as many before.
UNFINISHED = 64


class Refused(ValueError):
    """What a peer told is not taken: it goes on with the framework's own messages."""


def is_loopback(host: str) -> bool:
    """Whether a host's name or address leads to this machine alone, for peers that may go without TLS there."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def split(address: Any) -> Tuple[str, str, int]:
    """Scheme, host and port of an address, or Refused. A host may be "*"."""
    found = _ADDRESS.match(address) if isinstance(address, str) and len(address) <= 300 else None
    if not found or not 0 < int(found[3]) < 65536:
        raise Refused("its address is none")
    return found[1], found[2].strip("[]").lower(), int(found[3])


def field(said: Mapping[str, Any], name: str, kind: type, pattern: Optional["re.Pattern[str]"] = None) -> Any:
    value = said.get(name)
    if type(value) is not kind:  # a bool is no number here
        raise Refused(f"its {name} is not a {kind.__name__}")
    if pattern is not None and not pattern.match(str(value)):
        raise Refused(f"its {name} makes no sense")
    return value


def vouched(signed: str, reference: str, keys: str, federation: Optional[str], note: str, least_round: int) -> SignedReference:
    """What this end pulls in place of a reference that a peer told, if a key of its own file has signed that, for this use, and in no earlier round. Refused: why not."""
    try:
        known = verify_reference(signed, pathlib.Path(keys), federation=federation, least_round=least_round)
    except (Error, ValueError) as e:
        raise Refused(str(e)) from None
    if known.reference != reference:
        raise Refused("another reference is signed")
    if known.note != note:
        raise Refused(f"the reference is signed for another use: {known.note[:200]}")
    return known


#: Takes a caller's session with the first message on it, and the secret that this states; false: it is not expected, and the session is the door's to close. Refused: so is this, with the reason.
Take = Callable[[Session, Message, str], bool]


class Door:
    """A listener whose callers each state a secret first. One thread accepts, and each caller has one until it is taken; one that states nothing is dropped, and holds up no other."""

    def __init__(self, listener: Listener, take: Take, logger: Any, closing: threading.Event, now_and_again: Callable[[], None] = lambda: None) -> None:
        """`closing` is set when it closes, for what `take` waits for meanwhile."""
        self._closing = closing
        self._listener, self._take, self._logger, self._now_and_again = listener, take, logger, now_and_again
        self._unfinished = threading.Semaphore(UNFINISHED)
        self._lock = threading.Lock()
        self._threads: Set[threading.Thread] = set()
        self._begin("tensorpull-door", self._accept)

    def close(self) -> None:
        """Its threads have ended when this returns, but for one that calls this."""
        self._closing.set()
        while others := self._others():
            for thread in others:
                thread.join()
        self._listener.close()

    def _others(self) -> Set[threading.Thread]:
        with self._lock:
            return self._threads - {threading.current_thread()}

    def _begin(self, name: str, run: Callable[..., None], *arguments: Any) -> None:
        def whole() -> None:
            try:
                run(*arguments)
            finally:
                with self._lock:
                    self._threads.discard(thread)

        thread = threading.Thread(target=whole, name=name, daemon=True)
        with self._lock:
            self._threads.add(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._closing.is_set():
            self._now_and_again()
            if not self._unfinished.acquire(timeout=0.2):
                continue
            session = None
            try:
                session = self._listener.accept(timeout=0.2, abort=self._closing)
            except Error as e:  # of one caller, or of a table that is full for a while
                self._logger.debug("tensorpull: a caller was not accepted: %s", str(e))
                self._closing.wait(0.05)
            if session is None:
                self._unfinished.release()
            else:
                self._begin("tensorpull-caller", self._hear, session)

    def _hear(self, session: Session) -> None:
        taken, why = False, "it did not state a secret that is expected"
        try:
            try:
                message = session.receive(HANDSHAKE, abort=self._closing)
            finally:
                self._unfinished.release()
            taken = message is not None and len(message.body) == 32 and self._take(session, message, message.body.decode("ascii", "replace"))
        except (Error, Refused, RuntimeError) as e:
            why = str(e)
        finally:
            if not taken:
                self._logger.warning("tensorpull: a caller's connection is closed: %s", why)
                session.close()
