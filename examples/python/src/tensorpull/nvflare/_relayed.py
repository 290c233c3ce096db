"""Models between two sites, of which neither has a port: both dial the door of FLARE's server, and its process passes the bytes on.

The site that has the model asks the server for a place over FLARE's own connection, and gets the door's address and a word (`ask_for_a_place`). It dials the door, says the word, and tells it
to the other site in the state of FLARE's download. That one dials too and says the word. The door has noted which two sites a word is for, and each of them shows its certificate.

From then on the door reads nothing. The two sites have TLS between them, with the certificates of their startup kits, and each looks for the other's name in the certificate that it is shown.
"""

from __future__ import annotations

import secrets
import threading
import time
import weakref
from typing import Any, Callable, Dict, NamedTuple, Optional, Set

import tensorpull
from nvflare.fuel.f3.cellnet.core_cell import CoreCell
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey, ReturnCode
from nvflare.fuel.f3.cellnet.fqcn import FQCN
from nvflare.fuel.f3.cellnet.utils import make_reply, new_cell_message
from nvflare.fuel.utils.fobs import FOBSContextKey
from nvflare.fuel.utils.log_utils import get_obj_logger

from . import _offer

#: What an end says at the door: the one that has the model, and the one that wants it. Both say the word. Through the tunnel the second one says it again.
OFFERS, WANTS = 0x74700002, 0x74700003
#: What the door answers: "go", and it passes all on that follows; or why not, in ASCII.
GO, NO = 0x74700004, 0x74700005
#: What the end that has the model answers through the tunnel, with a reference.
HERE = 0x74700006
#: Pairs of sites at the same time, if no setting says another number.
PAIRS = 16
#: Seconds from the word until both of its sites have come.
WAITING = 120.0
#: Seconds without a byte in either direction, after which a tunnel ends.
IDLE = 60.0
#: Bytes of memory of one tunnel.
MEMORY = 1 << 20
#: Seconds that a site waits for what the server and its door answer.
PATIENCE = 10.0
#: Where a site asks the server for a place, over FLARE's own connection.
CHANNEL, TOPIC = "tensorpull", "place_for_two_sites"


class NoPlace(Exception):
    """The door has none for these two, and why."""


class Pair:
    """Two sites that a word is for. What it holds is closed once, by whoever takes it out of the door's table."""

    def __init__(self, owner: str, recipient: str) -> None:
        self.owner, self.recipient = owner, recipient  # names of sites, as their certificates have them
        self.until = time.monotonic() + WAITING
        self.came = False  # the owner has said the word
        self.session: Optional[tensorpull.Session] = None  # of the owner, once it was told to wait
        self.passing = False

    def has_gone(self) -> bool:
        """Whether the owner that waits has hung up."""
        try:
            if self.session is not None:
                self.session.serve(until=lambda: False, timeout=0)
            return False
        except (tensorpull.Error, ValueError):  # ValueError: it was closed
            return True
        except RuntimeError:  # it is being told that it may wait
            return False

    def close(self) -> None:
        if self.session is not None:
            try:
                self.session.close()
            except RuntimeError:  # another thread uses it, and ends it
                pass


class Pairs:
    """Who may meet at the door, and the tunnels between them: at most `most` pairs, of which one owner has at most half."""

    def __init__(self, most: int, names: bool, bytes_per_second: int, closed: Callable[[], bool]) -> None:
        """`names`: whether the callers have certificates. `bytes_per_second`: to each recipient; 0: no limit. `closed`: whether the door is."""
        self._most, self._names, self._rate, self._closed = most, names, bytes_per_second, closed
        self._changed = threading.Condition()
        self._pairs: Dict[str, Pair] = {}
        self._threads: Set[threading.Thread] = set()
        self._next = 0.0  # when it looks after them again
        self.logger = get_obj_logger(self)

    def place_for(self, owner: str, recipient: str) -> str:
        """A word for these two sites. NoPlace: the door is full, or so much of it is this owner's."""
        self.look_after()
        with self._changed:
            if len(self._pairs) >= self._most:
                raise NoPlace(f"its door is full: {self._most} pairs of sites")
            if sum(pair.owner == owner for pair in self._pairs.values()) >= max(1, self._most // 2):
                raise NoPlace(f"half of its door is {owner}'s already")
            word = secrets.token_hex(16)
            self._pairs[word] = Pair(owner, recipient)
            return word

    def look_after(self) -> None:
        """Drops the pairs that have not met in time, and those whose owner has gone away. To be called now and again."""
        now = time.monotonic()
        with self._changed:
            if now < self._next:
                return
            self._next = now + 1.0
            gone = {word: pair for word, pair in self._pairs.items() if not pair.passing and (now > pair.until or pair.has_gone())}
            for word in gone:
                del self._pairs[word]
        for pair in gone.values():
            self.logger.info(f"tensorpull: {pair.owner} and {pair.recipient} did not meet at the door")
            pair.close()

    def _is(self, session: tensorpull.Session, site: str) -> bool:
        """Whether the caller is this site. Without TLS the word is all that there is, and only this machine can call."""
        return not self._names or session.peer_name == site

    def owner_came(self, session: tensorpull.Session, word: str) -> None:
        """NoPlace: this word is not for this caller. Else the session is the door's."""
        with self._changed:
            pair = self._pairs.get(word)
            if pair is None or not self._is(session, pair.owner):
                raise NoPlace("the word is not for this site")
            if pair.came:
                raise NoPlace("the word was said already")
            pair.came = True
        told = False
        try:
            session.send(GO, timeout=PATIENCE, abort=self._closed)  # it may act on it before this call is over, and nobody else uses the session until then
            told = True
        finally:
            with self._changed:
                if self._pairs.get(word) is not pair:
                    told = False
                elif told:
                    pair.session = session
                else:
                    del self._pairs[word]
                self._changed.notify_all()
        if not told:
            raise NoPlace("the time is over")

    def recipient_came(self, session: tensorpull.Session, word: str) -> None:
        """NoPlace: this word is not for this caller, or the owner is not there. Else the session is the door's, and a thread passes the model on."""
        with self._changed:
            pair = self._pairs.get(word)
            if pair is None or not self._is(session, pair.recipient):
                raise NoPlace("the word is not for this site")
            if pair.came:
                self._changed.wait_for(lambda: pair.session is not None or self._pairs.get(word) is not pair, PATIENCE)
            if pair.passing:
                raise NoPlace("the word was said already")
            if pair.session is None or self._pairs.get(word) is not pair:
                raise NoPlace("the site that has the model is not there")
            thread = threading.Thread(target=self._pass_on, args=(word, pair, session), name="tensorpull-tunnel", daemon=True)
            thread.start()  # it waits for this lock before it uses either session
            pair.passing = True
            self._threads.add(thread)

    def _pass_on(self, word: str, pair: Pair, recipient: tensorpull.Session) -> None:
        began = time.monotonic()
        with self._changed:
            owner = pair.session
        assert owner is not None
        try:
            with recipient:
                if pair.has_gone():
                    recipient.send(NO, b"the site that has the model has gone away", timeout=PATIENCE)
                    raise NoPlace("the first has gone away")
                recipient.send(GO, timeout=PATIENCE, abort=self._closed)
                passed = owner.tunnel_to(recipient, memory=MEMORY, timeout=IDLE, abort=self._closed, bytes_per_second=self._rate)
            self.logger.info(f"tensorpull: {passed.forth} bytes from {pair.owner} to {pair.recipient} through the door in {time.monotonic() - began:.3f} s")
        except (tensorpull.Error, NoPlace, ValueError, RuntimeError) as e:
            self.logger.info(f"tensorpull: the door passes nothing more from {pair.owner} to {pair.recipient}: {e}")
        finally:
            with self._changed:
                self._pairs.pop(word, None)
                self._threads.discard(threading.current_thread())
            pair.close()

    def close(self) -> None:
        """After the door has closed: its tunnels have ended when this returns, which takes them 0.1 s."""
        with self._changed:
            waiting = [pair for pair in self._pairs.values() if not pair.passing]
            self._pairs = {word: pair for word, pair in self._pairs.items() if pair.passing}
            threads = list(self._threads)
        for pair in waiting:
            pair.close()
        for thread in threads:
            thread.join()


def site_of(fqcn: str) -> str:
    """The site of a cell, which its certificate names."""
    return FQCN.split(fqcn)[0]


def job_between(owner: str, recipient: str) -> str:
    """The job of two cells of sites, of which the first one may be an external trainer's; "" if they are not of one job."""
    one, other = FQCN.split(owner), FQCN.split(recipient)
    same = len(one) in (2, 3) and len(other) == 2 and one[1] == other[1] and one[0] != other[0] and FQCN.ROOT_SERVER not in (one[0], other[0])
    return one[1] if same else ""


class Meeting(NamedTuple):
    """The door of the server's process, for sites: the job, its address, and who may meet there."""

    job: str
    address: str
    pairs: Pairs


_SIMULATED = "simulate_job"


def job_of_server(fqcn: str) -> str:
    """The job of a cell of the server: "server.JOB"; a simulator's is "server" alone."""
    parts = FQCN.split(fqcn)
    return parts[1] if len(parts) > 1 else _SIMULATED


def answer_sites(here: Callable[[Any], Optional[Meeting]]) -> None:
    """From now on the server's cells of this process answer sites that ask for a place. `here(cell)` opens the door, when the first of them asks; None: it is switched off."""
    try:
        for core in list(CoreCell.ALL_CELLS.values()):
            if site_of(core.get_fqcn()) == FQCN.ROOT_SERVER and core not in _answering:
                core.register_request_cb(CHANNEL, TOPIC, lambda request, core=core: make_reply(ReturnCode.OK, body=answer(request, core, here)))
                _answering.add(core)
    except Exception as e:  # noqa: BLE001: another version of FLARE, whose sites go on with its chunks
        get_obj_logger(Pairs).warning(f"tensorpull: models between two sites go by FLARE's chunks: {type(e).__name__}: {e}")


_answering: "weakref.WeakSet[Any]" = weakref.WeakSet()


def answer(request: Any, core: Any, here: Callable[[Any], Optional[Meeting]]) -> Dict[str, Any]:
    """What a site that has asked is told: where to call and what to say, or why not."""
    try:
        owner = request.get_header(MessageHeaderKey.ORIGIN)
        job = job_of_server(core.get_fqcn())
        recipient = _offer.parse_ask_for_a_place(request.payload, job, owner)
        if job_between(owner, recipient) != job:
            raise NoPlace("they are not two sites of this job")
        meeting = here(core.get_fobs_context().get(FOBSContextKey.CELL))
        if meeting is None:
            return _offer.word("no door")
        return _offer.call(job, owner, meeting.address, meeting.pairs.place_for(site_of(owner), site_of(recipient)))
    except Exception as e:  # noqa: BLE001: whatever a peer has said
        return {"v": _offer.VERSION, "is": "no", "why": str(e)[:200]}


def ask_for_a_place(cell: Any, job: str, recipient: str) -> Any:
    """What the server answers, unchecked; None: nobody there knows what is asked, or nobody answers."""
    server = FQCN.ROOT_SERVER if job == _SIMULATED else FQCN.join([FQCN.ROOT_SERVER, job])
    request = new_cell_message({}, _offer.ask_for_a_place(job, cell.get_fqcn(), recipient))
    reply = cell.core_cell.send_request(channel=CHANNEL, topic=TOPIC, target=server, request=request, timeout=PATIENCE, optional=True)
    return reply.payload if reply.get_header(MessageHeaderKey.RETURN_CODE) == ReturnCode.OK else None


def heard_go(message: Optional[tensorpull.Message]) -> None:
    """NoPlace, if the door has not said "go"."""
    if message is None:
        raise NoPlace("the server's door says nothing")
    if message.kind != GO:
        raise NoPlace(f"the server's door refuses: {_line(message.body[:200].decode('ascii', 'replace'))}")


def heard_word(message: Optional[tensorpull.Message], word: str) -> None:
    """NoPlace, if the other site does not say it through the tunnel."""
    if message is None or message.kind != WANTS or message.body != word.encode():
        raise NoPlace("the other site does not say the word")


def heard_here(message: Optional[tensorpull.Message]) -> tensorpull.Reference:
    """What the other site has published. NoPlace: it has said something else."""
    if message is None or message.kind != HERE or len(message.references) != 1:
        raise NoPlace("the other site does not say what it has")
    return message.references[0]


def _line(text: str) -> str:
    return "".join(c for c in text[:200] if " " <= c <= "~")


def why_not(said: Any) -> str:
    """Why the server has no place, for the log: a line of ASCII, of bounded length."""
    why = said.get("why") if type(said) is dict else None
    return _line(why) if type(why) is str else "its answer makes no sense"
