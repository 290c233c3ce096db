"""The two ends of FLARE's download: a process that has a model offers it, and one that wants it pulls it. If that cannot be, FLARE's own chunks go on."""

from __future__ import annotations

import os
import threading
import time
import traceback
from typing import Any, Callable, Dict, Mapping, Optional, Set, Tuple, Union

import tensorpull
from nvflare.fuel.f3.cellnet.fqcn import FQCN
from nvflare.fuel.f3.streaming.download_service import ProduceRC, download_object
from nvflare.fuel.f3.streaming.obj_downloader import ObjectDownloader
from nvflare.fuel.utils.fobs import FOBSContextKey

from .. import _native
from .._peers import vouched
from . import _relayed, _offer, _trainers
from ._lent import Theirs
from ._memory import Room, Rooms, Sealed, land_in_room
from ._changes import ASKS_TO_KEEP, LONGEST, SOON, Changes
from ._pool import KEEP_BYTES, land_in_kept, prepare
from ._models import Model
from ._offer import KEY, Refused
from ._process import (
    CONNECT_TIMEOUT, HELLO, LEAST_BYTES, ONLY_SIGNED, Off, Place, Refuge, flares_setting, is_server, job_of, meeting_at, most_bytes, place_of, setting, site_setting, takes_signed_alone,
)  # fmt: skip
from ._registration import take_over
from ._admission import Turn

#: Bytes of the shortest chunk that is asked for, whatever an owner suggests.
LEAST_CHUNK = 4096
#: Bytes of a chunk of FLARE's, where none is asked for.
_CHUNK = 2 << 20
#: What FLARE's own chunks begin with.
_BEGINNING = {"start": 0, "count": 0}
#: The name under which a publication says what it is: the word of its offer, or, over a connection that its owner makes, FLARE's reference. A pull of another one is refused.
REFERENCE = "nvflare.ref"
#: What a framework's tensors are called in the log.
KINDS = {"numpy": "NumPy's arrays", "torch": "PyTorch's tensors"}
#: How FLARE's settings of them begin.
PREFIXES = {"numpy": "np", "torch": "tensor"}
#: FLARE's own seconds for one request, if no setting says another number; and ours.
FLARES_PATIENCE, PATIENCE = 600.0, 30.0
#: What stands for the server's door, of which a site knows no address yet, among the addresses that nobody has answered at.
SERVERS_DOOR = "the server's door"
#: Seconds for which a signed offer counts: a site pulls when it gets it, and its clock may be another one.
EXPIRES = 3600.0
#: What ends a try and leaves the transfer to FLARE's chunks: whatever goes wrong here, the job goes on. Each is logged.
_GOES_ON = Exception
#: The warnings that this process has given.
_said: Set[str] = set()


def _with(word: Dict[str, Any]) -> Dict[str, Any]:
    return {**_BEGINNING, KEY: word}


def warn_once(logger: Any, what: str, more: str = "") -> None:
    """A warning the first time, and then a word for those that read everything: each task says the same again."""
    if what in _said or len(_said) >= 256:  # a reason that is another one each time does not fill this
        logger.info(f"tensorpull: {what}{more}")
    else:
        _said.add(what)
        logger.warning(f"tensorpull: {what}{more}")


def patience(told: Optional[float]) -> float:
    """Seconds without progress, after which FLARE's chunks go on: what FLARE has been told with a prefix, or the setting that its page names, which it does not read."""
    if told and told != FLARES_PATIENCE:
        return float(told)
    alone = flares_setting("streaming_per_request_timeout")
    return alone if alone is not None and alone > 0 else PATIENCE


class Offering:
    """Comes before one of FLARE's Downloadables: its first answer offers the model, and the others are FLARE's if nobody takes the offer."""

    framework = ""

    def __init__(self, tensors: Dict[str, Any], max_chunk_size: int, cell: Any) -> None:
        super().__init__(tensors, max_chunk_size)
        self._cell, self._chunk = cell, max_chunk_size
        self._flare_ref = ""
        self._once = threading.Lock()
        self._published: Optional[Tuple[tensorpull.Reference, str, str]] = None  # with the address and the word
        self._with_changes: Optional[Tuple[tensorpull.Reference, str, str]] = None  # the same, for sites that keep the model before
        self._model: Optional[Tuple[Place, Model]] = None  # where it is known as shared
        self._update: Optional[Changes] = None  # of a site's: what has changed since the model that it keeps
        self._update_is_served = False  # by the thread that has its session, which alone may withdraw it
        self._refusal = ""
        self._offered: Set[str] = set()  # to whom
        self._calls: Dict[str, str] = {}  # of a requester: "" while it is under way, then why it failed
        self._waits: Dict[str, Dict[str, Any]] = {}  # of a requester that is a site: where the model waits for it
        self._waiting: Dict[str, threading.Lock] = {}
        self._gone = threading.Event()

    def set_transaction(self, tx_id: str, ref_id: str) -> None:
        self._flare_ref = ref_id
        super().set_transaction(tx_id, ref_id)

    def _there(self) -> Dict[str, Any]:
        """The tensors. Called with the lock."""
        if self._gone.is_set() or self.base_obj is None:
            raise Refuge("the model is no longer there")
        if self._refusal:
            raise Refuge(self._refusal)
        return dict(self.base_obj)

    def _publish(self, place: Place, requester: str) -> Optional[Tuple[tensorpull.Reference, str, str]]:
        """Once for all sites that ask for this one of FLARE's references, and once more for those that keep the model before. Sites with references of their own to the same tensors share
        the pass over the bytes that the digest takes. None: what has changed since that model is not there yet."""
        with self._once:
            tensors = self._there()
            if self._model is None:
                self._model = place, place.models.take(tensors)
            model = self._model[1]
        changes = place.earlier.changes(requester, self.framework, model, tensors) if place.earlier else None
        if changes is not None and not changes.there.wait(SOON) and changes.may_come():
            return None
        metadata = {REFERENCE: model.word, **({ASKS_TO_KEEP: "1"} if place.earlier else {})}
        with self._once:
            tensors = self._there()
            owner, address = place.owner()
            if changes is not None and changes.said:
                if self._with_changes is None:
                    self._with_changes = changes.publish(owner._owner, tensors, metadata), address, model.word
                return self._with_changes
            if self._published is None:
                try:
                    with model.lock:
                        # FLARE's budgets say how long it stays
                        signs = place.sign is not None  # then all is read anew: if a change were missed, no chunks of FLARE's would go on
                        ref = owner.add_tensors(
                            tensors, metadata=metadata, transaction_idle_timeout=None, recipient_idle_timeout=None, version=None if signs else model.version, proofs=signs
                        )  # fmt: skip
                        model.version = ref.version
                except _GOES_ON as e:
                    self._refusal = str(e)
                    raise
                self._published = ref, address, model.word
            return self._published

    def _first(self, requester: str) -> Optional[Dict[str, Any]]:
        try:
            place = place_of(self._cell)
            between = _relayed.job_between(place.fqcn, requester)
            job = between or job_of(place.fqcn, requester)
            nbytes = sum(_nbytes(t) for t in self.base_obj.values())
            if nbytes < setting("least_bytes", LEAST_BYTES) and place.sign is None:
                self.logger.debug(f"tensorpull: ref={self._flare_ref} is small, and is not offered")
                return None
            self.check(self.base_obj)
            if between:
                if setting("pairs", _relayed.PAIRS) <= 0:
                    raise Off("models between sites are switched off (tensorpull_pairs)")
                place.refuses(SERVERS_DOOR)
                return _offer.offer_between(job, requester, nbytes, self._chunk)
            if place.is_server:
                published = self._publish(place, requester)
                if published is None:
                    return _offer.word("soon")
                ref, address, word = published
                self._offered.add(requester)
                signed = ""
                if place.sign is not None and ref.root and self._model is not None:
                    signed = place.sign(ref, expires=EXPIRES, round=place.reaches(1 + self._model[1].number), note=_offer.use(job, requester, self._flare_ref))
                return _offer.offer(job, requester, address, ref.id, ref.version, ref.nbytes, self._chunk, self._flare_ref, word, signed)
            with self._once:
                if self._update is None and place.base is not None:
                    self._update = place.base.changes(self.framework, self._there())
                update = self._update
            if update is not None and not update.there.wait(SOON) and update.may_come():
                return _offer.word("soon")
            return _offer.offer(job, requester, None, "", 0, nbytes, self._chunk)
        except Off as e:
            self.logger.info(f"tensorpull: ref={self._flare_ref} is not offered to {requester}: {e}")
        except _GOES_ON as e:
            warn_once(self.logger, f"{KINDS[self.framework]} go to {requester} by FLARE's chunks, and are not offered: {e}", f"; ref={self._flare_ref}")
        return None

    def check(self, items: Dict[str, Any]) -> None:
        """Refuge, if one of them would not arrive as FLARE's chunks bring it. What cannot be published at all is found when it is."""

    def produce(self, state: Optional[Dict[str, Any]], requester: str) -> Tuple[str, Any, Dict[str, Any]]:
        if not state:
            offer = self._first(requester)
            return (ProduceRC.OK, [], _with(offer)) if offer else super().produce(state, requester)
        said = state.get(KEY)
        kind = _offer.what(said)
        if kind == "pulled":
            if _offer.keeps(said):
                self._is_kept(requester)
            return ProduceRC.EOF, None, {}
        if kind == "asks":
            offer = self._first(requester)
            return (ProduceRC.OK, [b""], _with(offer)) if offer else super().produce(dict(_BEGINNING), requester)
        if kind == "call":
            self._call(said, requester)
        if kind == "wanted":
            return ProduceRC.OK, [b""], _with(self._wait_at_the_door(said, requester))
        if kind == "changed" and self._model is not None:  # by whatever counts no changes: the next publication is read anew
            self._model[0].models.forget(self._model[1])
        if kind in ("offer", "offer to call", "offer between sites"):
            warn_once(
                self.logger, f"{KINDS[self.framework]} go to {requester} by FLARE's chunks: it gave the offer back, so it has no tensorpull", f"; ref={self._flare_ref}"
            )  # fmt: skip
        if kind in ("call", "pulling"):  # an answer with an item, so that FLARE counts it as progress
            why = self._calls.get(requester, "")
            return ProduceRC.OK, [b""], _with(_offer.word("failed" if why else "wait"))
        return super().produce({k: v for k, v in state.items() if k != KEY}, requester)

    def _is_kept(self, requester: str) -> None:
        """By a site that was offered it."""
        with self._once:
            model, tensors = self._model, self.base_obj
            offered = requester in self._offered
        if model is not None and tensors is not None and offered and model[0].earlier is not None:
            model[0].earlier.keeps(requester, self.framework, model[1], tensors)

    def _wait_at_the_door(self, said: Any, requester: str) -> Dict[str, Any]:
        """Waits at the server's door for another site; where that is. A connection and a publication for each site, so that each one's confirmation counts."""
        try:
            place = place_of(self._cell)
            job = _relayed.job_between(place.fqcn, requester)
            if not job:
                raise Refused("only another site of this job is served through the door")
            _offer.parse_wanted(said, job, place.fqcn)
            with self._once:
                lock = self._waiting.setdefault(requester, threading.Lock())
            with lock:
                there = self._waits.get(requester)  # FLARE has asked again
                if there is None:
                    there = self._waits[requester] = self._waits_for(place, job, requester)
            return there
        except _GOES_ON as e:
            self._call_failed(requester, e)
            return _offer.word("failed")

    def _waits_for(self, place: Place, job: str, requester: str) -> Dict[str, Any]:
        """Where, as the other site is told."""
        call, door = self._go_to_the_door(place, job, requester)
        threading.Thread(target=self._serve_at_the_door, args=(place, door, call.token, requester), name="tensorpull-call", daemon=True).start()
        return _offer.through(job, requester, call.address, call.token)

    def _go_to_the_door(self, place: Place, job: str, requester: str) -> Tuple[_offer.Call, tensorpull.Session]:
        place.refuses(SERVERS_DOOR)
        answer = _relayed.ask_for_a_place(self._cell, job, requester)
        if answer is None or _offer.what(answer) == "no door":
            place.is_out_of_reach(SERVERS_DOOR)
            raise Refuge("FLARE's server has no door for sites: it has no tensorpull or an older one, or it is switched off there")
        if _offer.what(answer) != "call":
            raise Refuge(f"FLARE's server has no place for it: {_relayed.why_not(answer)}")
        call = _offer.parse_call(answer, job, place.fqcn, place.trust)
        if self._gone.is_set() or self.base_obj is None:
            raise Refuge("the model is no longer there")
        session = place.dial(call.address, self._gone)
        try:
            session.send(_relayed.OFFERS, call.token.encode(), timeout=_relayed.PATIENCE, abort=self._gone)
            _relayed.heard_go(session.receive(timeout=_relayed.PATIENCE, abort=self._gone))
        except BaseException:
            session.close()
            raise
        return call, session

    def _serve_at_the_door(self, place: Place, door: tensorpull.Session, token: str, requester: str) -> None:
        """Waits for the other site, which has to be the one that its certificate names, and is pulled from. The server's process passes on what it cannot read."""
        settled = threading.Event()
        try:
            with door, door.through_tunnel(place.to_site, _relayed.site_of(requester) if place.to_site else "", accepts=True, timeout=_relayed.WAITING, abort=self._gone) as session:
                _relayed.heard_word(session.receive(timeout=_relayed.WAITING, abort=self._gone), token)
                tensors = self.base_obj
                if tensors is None:
                    return
                ref = self._publish_on(session, tensors, settled)
                session.send(_relayed.HERE, b"", [ref], timeout=_relayed.PATIENCE, abort=self._gone)
                session.serve(until=lambda: self._gone.is_set())  # until the other site closes it or FLARE lets go of the model
        except _GOES_ON as e:
            if not settled.is_set():
                self.logger.info(f"tensorpull: ref={self._flare_ref}: the connection that {requester} is served over has ended: {e}")

    def _call(self, said: Any, requester: str) -> None:
        """Connects to the address that FLARE's server asks for, and is pulled from there, on a thread that ends with the transfer."""
        with self._once:
            if requester in self._calls:  # FLARE has asked again
                return
            self._calls[requester] = ""
        try:
            place = place_of(self._cell)
            if place.is_server or not is_server(requester):
                raise Refused("only FLARE's server is called")
            call = _offer.parse_call(said, job_of(place.fqcn, requester), place.fqcn, place.trust)
        except _GOES_ON as e:
            self._call_failed(requester, e)
            return
        threading.Thread(target=self._serve, args=(place, call, requester), name="tensorpull-call", daemon=True).start()

    def _call_failed(self, requester: str, why: Exception) -> None:
        self._calls[requester] = str(why) or type(why).__name__
        if not self._gone.is_set():
            self.logger.warning(f"tensorpull: ref={self._flare_ref}: no connection to {requester} carries it: {why}")

    def _serve(self, place: Place, call: _offer.Call, requester: str) -> None:
        settled = threading.Event()
        try:
            place.refuses(call.address)
            with tensorpull.Session(call.address, timeout=setting("connect_timeout", CONNECT_TIMEOUT), retries=0, abort=self._gone, ssl=place.tls) as session:
                tensors = self.base_obj
                if tensors is None:
                    return
                with self._once:
                    update = self._update if self._update is not None and self._update.said else None
                    self._update_is_served = update is not None
                try:
                    ref = self._publish_on(session, tensors, settled, update)
                    session.send(HELLO, call.token.encode(), [ref], timeout=30.0, abort=self._gone)
                    session.serve(until=lambda: self._gone.is_set())  # until the server closes it or FLARE lets go of the model
                finally:
                    if update is not None:
                        update.end()
        except _GOES_ON as e:
            if not settled.is_set():
                if isinstance(e, tensorpull.Error) and e.code in ("connection_failed", "timed_out", "unknown_host"):
                    place.is_out_of_reach(call.address)
                self._call_failed(requester, e)

    def _publish_on(self, session: tensorpull.Session, tensors: Any, settled: threading.Event, update: Optional[Changes] = None) -> tensorpull.Reference:
        """For the one that is at the connection's other end."""
        metadata, told = {REFERENCE: self._flare_ref}, lambda _: settled.set()
        if update is not None:
            return update.publish(session._session, tensors, metadata, recipients=1, settled=told)
        if isinstance(tensors, Theirs):
            return tensors.publish(session._session, metadata, told)
        return session.add_tensors(tensors, recipients=1, metadata=metadata, settled=told, transaction_idle_timeout=None, recipient_idle_timeout=None)

    def release(self) -> None:
        with self._once:
            self._gone.set()
            published = [made[0] for made in (self._published, self._with_changes) if made]
            self._published = self._with_changes = None
            update, self._update = None if self._update_is_served else self._update, None
        if update is not None:
            update.end()
        if self._model:
            place, model = self._model
            place.models.give_back(model)
            for ref in published:
                try:
                    place.owner()[0].withdraw(ref)
                except _GOES_ON as e:
                    self.logger.debug(f"tensorpull: {e}")
        super().release()


def check_names(tensors: Mapping[str, Any]) -> None:
    """Refused, if they are not called as FLARE calls those of a message."""
    if tensors.keys() != {f"T{i}" for i in range(len(tensors))}:
        raise Refused("its names are not those that FLARE gives")


def _nbytes(tensor: Any) -> int:
    return int(tensor.nbytes)


class Pulling:
    """Comes before one of FLARE's Consumers: takes an offer if it can, and begins FLARE's own chunks if it cannot."""

    supports_pipelining = False  # it changes the state
    takes_turns = True  # whether a site's model lands in memory as soon as it is offered

    def begin(self, cell: Any, source: str, flare_ref: str, framework: str, timeout: float, secure: bool, abort: Any) -> "Pulling":
        self._cell, self._source, self._flare_ref, self._framework = cell, source, flare_ref, framework
        self._timeout, self._secure, self._abort = timeout, secure, abort
        self._ended, self._thread, self._own_chunks, self._stop = threading.Event(), None, False, threading.Event()
        self._wait, self._word = 0.25, flare_ref
        self._got: Any = None
        self._failure: Optional[BaseException] = None
        self._token, self._caller = "", None
        self._most, self._chunk, self._asked = 0, 0, False  # bytes that are offered, and of a chunk; whether another site was asked to go to the door
        self._keeps, self._began = False, time.monotonic()
        self._signed: Optional[tensorpull.SignedReference] = None
        self._signed_alone = takes_signed_alone(cell.get_fqcn(), source)
        try:
            self._least_round = place_of(cell).round if self._signed_alone else 0  # what the server signs from now on is no older
        except _GOES_ON:  # nothing can be pulled, which is found again when it is to begin
            self._least_round = 2**64 - 1
        self._turn: Optional[Turn] = None
        self.room: Optional[Room] = None  # memory for another process, where it lands then
        self.without_offer = False
        self.way, self.bytes, self.kept_bytes, self.chunks = "FLARE's chunks", 0, 0, 0
        return self

    # How bytes land: FLARE's result, and what to call for it.
    def land(self, place: Place, through: Any, where: Tuple[Any, ...], ref: Any, **how: Any) -> Any:
        """Pulls into new tensors of the framework and returns them."""
        if self.room is not None:
            return land_in_room(self.room, self._most, through, where, ref, **how)
        base = place.base if is_server(self._source) else None
        got = base.land(through, where, ref, self._framework, **how) if base else None
        if place.earlier is not None and not where:  # over a connection that the site made
            got = place.earlier.land(self._source, through, ref, self._framework, place.kept, self._turn, **how)
        if got is None:
            got = land_in_kept(through, where, ref, place.kept, self._framework, self._turn, **how)
        self._keeps = base.is_of(self._framework, got, got.metadata.get(ASKS_TO_KEEP) is not None) if base else False
        return got

    def landed(self, got: Dict[str, Any]) -> None:
        """All of it is there, and is what it has to be."""
        self._got = got

    def through(self, download: Callable[[], None]) -> Tuple[Any, Any]:
        """Runs FLARE's download with this consumer; what FLARE is told of it."""
        download()
        return self.outcome()

    def _stopped(self) -> bool:
        return self._stop.is_set() or bool(self._abort is not None and self._abort.triggered)

    def _pull_between(self, place: Place, at: _offer.Through, how: Dict[str, Any]) -> Any:
        """Over a connection to the server's door, which passes on all that another site says. That one has to be who its certificate names."""
        with place.dial(at.address, self._stopped) as door:
            door.send(_relayed.WANTS, at.token.encode(), timeout=_relayed.PATIENCE, abort=self._stopped)
            _relayed.heard_go(door.receive(timeout=_relayed.PATIENCE, abort=self._stopped))
            with door.through_tunnel(place.to_site, _relayed.site_of(self._source) if place.to_site else "", timeout=_relayed.WAITING, abort=self._stopped) as session:
                session.send(_relayed.WANTS, at.token.encode(), timeout=_relayed.PATIENCE, abort=self._stopped)
                ref = _relayed.heard_here(session.receive(timeout=_relayed.WAITING, abort=self._stopped))
                return self.land(place, session, (), ref.id, version=ref.version, **how)

    def _pull(self, place: Place, offer: Union[_offer.Offer, _offer.Through]) -> None:
        try:
            how = dict(
                per_request_timeout=patience(self._timeout), chunk_size=min(max(self._chunk, LEAST_CHUNK), _native.max_chunk_bytes), retries=1, max_bytes=self._most, abort=self._stopped
            )
            if isinstance(offer, _offer.Through):
                got = self._pull_between(place, offer, how)
            elif offer.address is not None:
                _, host, port = _offer.split(offer.address)
                place.reach(offer.address, host, port)
                told: Dict[str, Any] = {"ref": self._signed} if self._signed is not None else {"ref": offer.ref, "version": offer.version}
                got = self.land(place, tensorpull, (offer.address,), **told, **how, **({"ssl": place.tls} if place.tls else {}))
            else:
                door, until = place.door(), time.monotonic() + 30.0
                while self._caller is None and not self._stopped() and time.monotonic() < until:
                    self._caller = door.arrived(self._token, 0.1)
                if self._caller is None:
                    raise Refuge("it did not call")
                if self.takes_turns:
                    self._turn = place.turns.take(self._source, self._stopped)
                got = self.land(place, self._caller.session, (), self._caller.reference, **how)
            if got.metadata.get(REFERENCE) != self._word:
                raise Refused("it is another model than FLARE's reference says")
            check_names(got)
            self.bytes, self.kept_bytes, self.chunks = got.receipt.bytes, got.receipt.kept_bytes, got.receipt.chunks
            self.landed(_apart(got))
        except BaseException as e:  # noqa: BLE001: whatever it is, the thread of FLARE hears it
            self._failure = _alone(e)
        finally:
            if self._turn is not None:
                place.turns.pull_ended(self._turn)
                self._turn = None
            if self._token:
                try:
                    place.door().forget(self._token)
                except _GOES_ON:
                    pass
            self._ended.set()

    def _start(self, said: Any) -> Optional[Dict[str, Any]]:
        """Begins to pull what is offered; the state for FLARE's next request. Raises what makes that impossible."""
        chunk = flares_setting(f"{PREFIXES[self._framework]}_download_chunk_size")
        if chunk is not None and chunk <= 0:
            raise Off("downloads of these are switched off here")
        place = place_of(self._cell)
        between = _relayed.job_between(self._source, place.fqcn)
        if between and self._signed_alone:
            raise Refused("models of other sites are not signed")
        if self._secure and (place.to_site if between else place.tls) is None:
            raise Refuge("FLARE encrypts this message, and there is no TLS here")
        job = between or job_of(place.fqcn, self._source)
        most = most_bytes()
        if between and not self._asked:
            self._most, self._chunk = _offer.parse_offer_between(said, job, place.fqcn, most)
            self._asked = True
            return _with(_offer.wanted(job, self._source))
        offer: Union[_offer.Offer, _offer.Through]
        if between:
            offer = _offer.parse_through(said, job, place.fqcn, place.trust)
            return self._begin(place, offer, _offer.word("pulling"))
        offer = _offer.parse_offer(said, job, place.fqcn, place.trust, most)
        self._most, self._chunk = offer.nbytes, offer.chunk
        state = _offer.word("pulling")
        if offer.address is not None:
            if offer.of != self._flare_ref:
                raise Refused("it is another model than FLARE's reference says")
            self._word = offer.model
            if self._signed_alone:
                self._signed = self._vouched(place, job, offer)
        else:
            if not place.is_server:
                raise Refuge("neither end can be called")
            self._token = place.door().expect()
            state = _offer.call(job, self._source, place.door().address, self._token)
        return self._begin(place, offer, state)

    def _vouched(self, place: Place, job: str, offer: _offer.Offer) -> tensorpull.SignedReference:
        if not offer.signed:
            raise Refused("it is not signed")
        if len(parts := FQCN.split(place.fqcn)) > 1 and job not in parts:  # a message may name any process of the server
            raise Refused("it is of another job")
        ref = tensorpull.Reference(offer.ref, offer.version)
        known = vouched(offer.signed, ref, site_setting("keys"), site_setting("federation") or None, _offer.use(job, place.fqcn, offer.of), self._least_round)
        place.reaches(known.round)
        return known

    def _begin(self, place: Place, offer: Union[_offer.Offer, _offer.Through], state: Dict[str, Any]) -> Dict[str, Any]:
        self.logger.info(f"tensorpull: ref={self._flare_ref} pulls from {offer.address or 'the caller that is expected'}")
        self._thread = threading.Thread(target=self._pull, args=(place, offer), name="tensorpull-pull", daemon=True)
        self._thread.start()
        return _with(state)

    def consume(self, ref_id: str, state: Dict[str, Any], data: Any) -> Dict[str, Any]:
        if self._own_chunks:
            return super().consume(ref_id, state, data)
        said = state.get(KEY) if isinstance(state, dict) else None
        if self._thread is None:
            if said is None:
                self._only_signed("FLARE's chunks are not signed")
                self._own_chunks = self.without_offer = True
                return super().consume(ref_id, state, data)
            if _offer.what(said) == "soon" and time.monotonic() - self._began < 2 * LONGEST:
                return self._asks_again()
            if self._asked and _offer.what(said) == "failed":
                return self._fall_back(Refuge("the other site could not bring it to the server's door"))
            try:
                going = self._start(said)
            except _GOES_ON as e:
                return self._fall_back(e)
            if self._thread is None or self._token:
                return going  # the other end has to hear it before it can call
        elif _offer.what(said) == "failed" and self._caller is None:
            return self._fall_back(Refuge("it cannot call this server"))
        # A sign of life now and again. A site that is to call may fail to, and says so only if it is asked: it is asked sooner.
        life = setting("sign_of_life", 5.0)
        if self._token and self._caller is None:
            life = self._wait = min(self._wait * 2, life)
        until = time.monotonic() + life
        while not self._ended.wait(min(0.1, max(0.0, until - time.monotonic()))) and not self._stopped() and time.monotonic() < until:
            pass
        if not self._ended.is_set():
            return _with(_offer.word("pulling"))
        if self._failure is not None:
            return _with(_offer.word("pulling")) if self._stopped() else self._fall_back(self._failure)
        self.result, self._got, self.way = self._got, None, "tensorpull"
        return _with(_offer.pulled(self._keeps))

    def _asks_again(self) -> Dict[str, Any]:
        """After a while: the server makes what has changed since the model that this site keeps."""
        until = time.monotonic() + self._wait
        self._wait = min(self._wait * 2, 2.0)
        while not self._stopped() and time.monotonic() < until:
            time.sleep(0.05)
        return _with(_offer.word("asks"))

    def _only_signed(self, why: object) -> None:
        """Refused, if nothing but what a key has signed may be taken."""
        if self._signed_alone:
            raise Refused(f"{ONLY_SIGNED}: {why}")

    def _fall_back(self, why: BaseException) -> Dict[str, Any]:
        self._stop.set()
        self._only_signed(why)
        self._own_chunks = True
        if isinstance(why, Off):
            self.logger.info(f"tensorpull: ref={self._flare_ref} goes on with FLARE's chunks: {why}")
        else:
            warn_once(self.logger, f"what comes from {self._source} goes on with FLARE's chunks: {why}", f"; ref={self._flare_ref}")
        if isinstance(why, tensorpull.Error) and why.code == "digest_mismatch":
            return _with(_offer.word("changed"))
        return dict(_BEGINNING)

    def download_failed(self, ref_id: str, reason: str) -> None:
        self._stop.set()
        super().download_failed(ref_id, reason)

    def outcome(self) -> Tuple[Any, Any]:
        """For FLARE, when all has ended: the error, and the model."""
        return self.error, self.result


def _alone(error: BaseException) -> BaseException:
    """Without its frames: they refer to what has landed, and to the consumer that keeps the error, so all of it would stay until cycles are collected."""
    one: Optional[BaseException] = error
    while one is not None:
        traceback.clear_frames(one.__traceback__)
        one.__traceback__ = None
        one = one.__context__
    return error


def _apart(got: Any) -> Dict[str, Any]:
    """Tensors that share memory arrive as one; FLARE's own arrive each on its own, and an aggregator may write to them."""
    seen, result = set(), {}
    for name, tensor in got.items():
        copy = getattr(tensor, "clone", None) or getattr(tensor, "copy", None)
        result[name] = copy() if id(tensor) in seen and copy else tensor
        seen.add(id(tensor))
    return result


class Decomposing:
    """Comes before one of FLARE's decomposers. FLARE's own one is the one that is registered, and what it offers and pulls is this one's."""

    flares: Any  # FLARE's class
    offering: Any  # the class of its offers

    def __init__(self) -> None:
        super().__init__()
        take_over(self, KINDS[self.offering.framework])
        self._rooms = Rooms(self.offering.framework)
        try:
            prepare(min(setting("prepare_bytes", 0), setting("keep_bytes", KEEP_BYTES)))
        except (OSError, OverflowError, RuntimeError) as e:  # no such memory, or no thread
            self.logger.warning(f"tensorpull: no memory is prepared for the first model: {e}")
        _relayed.answer_sites(meeting_at)
        _trainers.wait_for_trainers()

    def consumer(self, cell: Any, fobs_ctx: Mapping[str, Any]) -> Any:
        raise NotImplementedError

    def to_downloadable(self, items: Dict[str, Any], max_chunk_size: int, fobs_ctx: Dict[str, Any]) -> Any:
        return self.offering(items, max_chunk_size, fobs_ctx.get(FOBSContextKey.CELL))

    def download(
        self, from_fqcn: str, ref_id: str, per_request_timeout: float, cell: Any, secure: bool = False, optional: bool = False, abort_signal: Any = None,
        progress_cb: Any = None, fobs_ctx: Optional[Dict[str, Any]] = None,
    ) -> Any:  # fmt: skip
        consumer = self.consumer(cell, fobs_ctx or {}).begin(cell, from_fqcn, ref_id, self.offering.framework, per_request_timeout, secure, abort_signal)
        return self._run(consumer, from_fqcn, ref_id, per_request_timeout, cell, secure, optional, abort_signal, progress_cb)

    def bring(self, from_fqcn: str, ref_id: str, per_request_timeout: float, cell: Any, secure: bool, abort_signal: Any) -> Tuple[Any, Optional[Union[Sealed, "Again"]]]:
        """As `download`, for another process of this machine: the error, or the memory that the model has landed in, or FLARE's chunks if it fits no such memory."""
        consumer = self.consumer(cell, {FOBSContextKey.TENSOR_DISK_OFFLOAD: False}).begin(cell, from_fqcn, ref_id, self.offering.framework, per_request_timeout, secure, abort_signal)
        consumer.room = self._rooms.take()
        error, result = self._run(consumer, from_fqcn, ref_id, per_request_timeout, cell, secure, False, abort_signal, None)
        if error:
            return error, None
        ours = consumer.way == "tensorpull"
        try:
            if ours:
                return None, consumer.room.seal(result)
            consumer.room = None  # a pull that has been given up may still write there
            return None, Room(self.offering.framework).fill(result)
        except _GOES_ON as e:
            warn_once(self.logger, f"{KINDS[self.offering.framework]} go on to the trainer by FLARE's chunks: {e}")
            return None, self.again(consumer.room.tensors(result) if ours else result, cell, per_request_timeout)

    def again(self, tensors: Dict[str, Any], cell: Any, timeout: float) -> "Again":
        """For another process of this machine, by FLARE's chunks from this one: their source has let go of the model when this process had it."""
        return Again(super().to_downloadable(tensors, _CHUNK, {}), cell, timeout)

    def _for_another(self, tensors: Dict[str, Any], cell: Any, ref_id: str, gone: Any) -> Offering:
        offering: Offering = self.offering(tensors, int(flares_setting(f"{PREFIXES[self.offering.framework]}_download_chunk_size") or _CHUNK), cell)
        offering._flare_ref, offering._gone = ref_id, gone
        return offering

    def send(self, tensors: Dict[str, Any], cell: Any, ref_id: str, place: Place, call: _offer.Call, server: str, gone: Any) -> str:
        """Is pulled by FLARE's server, for another process of this machine, until that has `gone`; "" or why not."""
        offering = self._for_another(tensors, cell, ref_id, gone)
        offering._serve(place, call, server)
        return offering._calls.get(server, "")

    def send_between(self, tensors: Dict[str, Any], cell: Any, ref_id: str, place: Place, site: str, gone: Any, waits: Callable[[Dict[str, Any]], None]) -> None:
        """The same, by another site; `waits` is told where."""
        offering, job = self._for_another(tensors, cell, ref_id, gone), _relayed.job_between(place.fqcn, site)
        call, door = offering._go_to_the_door(place, job, site)
        with door:
            waits(_offer.through(job, site, call.address, call.token))
            offering._serve_at_the_door(place, door, call.token, site)

    def _run(
        self, consumer: Any, from_fqcn: str, ref_id: str, per_request_timeout: float, cell: Any, secure: bool, optional: bool, abort_signal: Any, progress_cb: Any
    ) -> Any:
        def go() -> None:
            began = time.time()
            try:
                download_object(
                    from_fqcn=from_fqcn, ref_id=ref_id, consumer=consumer, per_request_timeout=per_request_timeout, cell=cell, secure=secure, optional=optional,
                    abort_signal=abort_signal, progress_cb=progress_cb,
                )  # fmt: skip
            except BaseException:
                consumer.download_failed(ref_id, "it did not end")
                raise
            size = f", {consumer.bytes} bytes" if consumer.bytes else ""
            size += f" and {consumer.kept_bytes} less than all" if consumer.kept_bytes else ""
            size += f", signed for {consumer._signed.federation} and proved" if consumer._signed is not None and not consumer.error else ""
            self.logger.info(
                f"tensorpull: ref={ref_id} from {from_fqcn} by {consumer.way}: {'failed' if consumer.error else 'done'} in {time.time() - began:.3f} s{size}"
            )
            if consumer.without_offer and not consumer.error:
                self._warn_of_no_offer(from_fqcn, cell, consumer.result or {})

        return consumer.through(go)

    def _warn_of_no_offer(self, source: str, cell: Any, result: Dict[str, Any]) -> None:
        """If it is not for its size."""
        why = "it offers nothing, so it has no tensorpull, or its log says why"
        try:
            place = place_of(cell)
            if not _relayed.job_between(source, place.fqcn):
                job_of(place.fqcn, source)
            files = {t[0] for t in result.values() if isinstance(t, tuple)}  # of disk offload
            if sum(map(os.path.getsize, files)) + sum(_nbytes(t) for t in result.values() if not isinstance(t, tuple)) < setting("least_bytes", LEAST_BYTES):
                return
        except Off:
            return
        except _GOES_ON as e:
            why = str(e)
        warn_once(self.logger, f"{KINDS[self.offering.framework]} come from {source} by FLARE's chunks: {why}")


class Again:
    """A model of this process, which FLARE's chunks bring to one other."""

    def __init__(self, downloadable: Any, cell: Any, timeout: float) -> None:
        self._downloader = ObjectDownloader(cell=cell, timeout=timeout, num_receivers=1)
        self.ref = str(self._downloader.add_object(downloadable))

    def end(self) -> None:
        self._downloader.delete_transaction()


__all__ = ["Decomposing", "Offering", "Pulling"]
