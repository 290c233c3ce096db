"""Models between two sites through the door of FLARE's server, in one process: who may meet there, who may not, and what becomes of the job's transfer."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
import types

import numpy as np
import pytest
import processes

pytest.importorskip("nvflare")

from authority import certificates  # noqa: E402
from flare_cell import Silence  # noqa: E402
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey, ReturnCode  # noqa: E402
from nvflare.fuel.f3.cellnet.utils import make_reply  # noqa: E402
from nvflare.fuel.f3.streaming.download_service import ProduceRC  # noqa: E402

import tensorpull  # noqa: E402
from tensorpull import Error, Listener, Session  # noqa: E402
from tensorpull.nvflare import _relayed, _offer, _process, _transfer  # noqa: E402
from tensorpull.nvflare._relayed import GO, HERE, NO, OFFERS, WANTS  # noqa: E402
from tensorpull.nvflare._offer import KEY  # noqa: E402
from tensorpull.nvflare.decomposers.array import OfferedArrays, PulledArrays  # noqa: E402

MODEL = {"T0": np.arange(300_000, dtype=np.float32), "T1": np.ones((3, 4))}


def until(what):
    assert processes.eventually(what)


SITES = ("site-1", "site-2", "site-3")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("certificates")


@pytest.fixture(scope="module")
def ssl(folder):
    """What each shows at the door, and, under "to " and its name, to another site."""
    made = certificates(folder, *SITES)
    to_site = {
        f"to {name}": tensorpull.TLS(ca_file=folder / "ca.pem", cert_file=folder / f"{name}.pem", key_file=folder / f"{name}.key", require_client_certificates=True) for name in SITES
    }
    return {**made, **to_site}


class At:
    """A door, and those that call it."""

    def __init__(self, ssl, pairs=4, rate=0):
        self.ssl = ssl
        scheme = "tls" if "server" in ssl else "tcp"
        listener = Listener(f"{scheme}://127.0.0.1:0", ssl=ssl.get("server"))
        self.door = _process.Door(listener, lambda port: f"{scheme}://127.0.0.1:{port}", pairs, "server" in ssl, rate)
        self.over = threading.Event()
        self.sessions, self.threads = [], []

    def say(self, site, kind, word, session=None):
        """A session that has said it, and what the door has answered."""
        session = session or Session(self.door.address, ssl=self.ssl.get(site), timeout=60)
        self.sessions.append(session)
        session.send(kind, word.encode())
        try:
            return session, session.receive(timeout=60)
        except Error as e:
            return session, e

    def own(self, site, word, model=MODEL, to="site-2"):
        """An owner that waits at the door, or what it was told instead."""
        door, answer = self.say(site, OFFERS, word)
        if getattr(answer, "kind", None) != GO:
            return answer
        owner = types.SimpleNamespace(gone=threading.Event(), heard=None, ref=None, failed=None)

        def ends():
            return self.over.is_set() or owner.gone.is_set()

        def serve():
            try:
                inner = self.ssl.get(f"to {site}")
                with door.through_tunnel(inner, to if inner else "", accepts=True, timeout=60, abort=ends) as session:
                    owner.heard = session.receive(timeout=60, abort=ends)
                    owner.ref = session.add_tensors(model, recipients=1)
                    session.send(HERE, b"", [owner.ref])
                    session.serve(until=ends)
            except Error as e:
                owner.failed = e.code
            door.close()

        owner.thread = processes.JoinedThread(target=serve)
        owner.thread.start()
        self.threads.append(owner.thread)
        return owner

    def pull(self, session, site, word, source="site-1", **how):
        """Through the tunnel that the door has said is there."""
        inner = self.ssl.get(f"to {site}")
        with session.through_tunnel(inner, source if inner else "", timeout=60) as there:
            there.send(WANTS, word.encode())
            return there.download_tensors(there.receive(timeout=60).references[0], **how)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.over.set()
        for thread in self.threads:
            thread.join()
        for session in self.sessions:
            session.close()
        self.door.close()


@pytest.fixture(params=["tls", "tcp"])
def at(request, ssl):
    with At(ssl if request.param == "tls" else {}) as made:
        yield made


def refused(answer, why):
    return isinstance(answer, tensorpull.Message) and answer.kind == NO and why in answer.body.decode()


def pairs_of(door):
    return len(door.pairs._pairs)


def test_two_sites_meet_and_the_digest_is_the_owners(at):
    word = at.door.pairs.place_for("site-1", "site-2")
    owner = at.own("site-1", word)
    session, go = at.say("site-2", WANTS, word)
    assert go.kind == GO and not go.references
    got = at.pull(session, "site-2", word)
    assert got.receipt.confirmed and not got.receipt.believed and got.receipt.digest == owner.ref.version
    assert all(np.array_equal(got[name], value) for name, value in MODEL.items()) and owner.heard.body == word.encode()
    until(lambda: pairs_of(at.door) == 0)


def test_the_door_passes_on_what_it_cannot_read(ssl, monkeypatch):
    """All that goes through its tunnel, as its process sees it: sockets of plain text on both sides."""
    seen = []
    real = Session.tunnel_to

    def tapped(owner, recipient, **how):
        with tapping(seen) as (near, far):
            first = processes.JoinedThread(target=real, args=(owner, far()), kwargs=how)
            first.start()
            passed = real(near(), recipient, **how)
            first.join()
        return passed

    for secret in (True, False):
        seen.clear()
        with At({name: tls for name, tls in ssl.items() if secret and name.startswith("to ")}) as at:
            monkeypatch.setattr(Session, "tunnel_to", lambda owner, recipient, **how: tapped(owner, recipient, **{k: v for k, v in how.items() if k != "abort"}))
            word = at.door.pairs.place_for("site-1", "site-2")
            at.own("site-1", word, NAMED)
            session, _ = at.say("site-2", WANTS, word)
            got = at.pull(session, "site-2", word)
            assert np.array_equal(got["layer.with.a.name"], NAMED["layer.with.a.name"])
            until(lambda: pairs_of(at.door) == 0)
            passed = b"".join(seen)
            assert len(passed) > 400_000
            raw = NAMED["layer.with.a.name"].tobytes()
            found = [raw[at : at + 16] in passed for at in range(0, len(raw), 40_000)], b"layer.with.a.name" in passed
            assert found == ([not secret] * 10, not secret)


NAMED = {"layer.with.a.name": np.random.default_rng(7).random(100_000, np.float32)}


@contextlib.contextmanager
def tapping(seen):
    """Two sessions whose bytes pass through this process's sockets, which keep them."""
    with Listener() as door, socket.create_server(("127.0.0.1", 0)) as middle:

        def copy(a, b):
            with contextlib.suppress(OSError):
                while data := a.recv(1 << 16):
                    seen.append(data)
                    b.sendall(data)
            for end in (a, b):
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

        dialled = Session(f"127.0.0.1:{middle.getsockname()[1]}")
        with middle.accept()[0] as a, socket.create_connection(("127.0.0.1", door.port)) as b:
            accepted = door.accept(timeout=60)
            threads = [processes.JoinedThread(target=copy, args=ends) for ends in ((a, b), (b, a))]
            for thread in threads:
                thread.start()
            yield lambda: dialled, lambda: accepted
            for thread in threads:
                thread.join()


@pytest.mark.parametrize("liar", ["owner", "recipient"])
def test_a_site_that_shows_anothers_certificate_through_the_tunnel_is_refused(ssl, liar):
    """The door, or whoever has taken it over, may put anybody at the far end."""
    lies = {"owner": {"to site-1": ssl["to site-3"]}, "recipient": {"to site-2": ssl["to site-3"]}}
    with At({**ssl, **lies[liar]}) as at:
        word = at.door.pairs.place_for("site-1", "site-2")
        owner = at.own("site-1", word)
        session, go = at.say("site-2", WANTS, word)
        assert go.kind == GO
        with pytest.raises(Error) as e:
            at.pull(session, "site-2", word)
        owner.thread.join()
        assert owner.heard is None and owner.ref is None, "nothing was published for it"
        assert (owner.failed if liar == "recipient" else e.value.code) == "not_authenticated"


def test_a_strangers_name_opens_nothing(ssl):
    with At(ssl) as at:
        word = at.door.pairs.place_for("site-1", "site-2")
        assert refused(at.own("site-3", word), "not for this site")
        assert refused(at.own("site-2", word), "not for this site")
        at.own("site-1", word)
        for stranger in ("site-3", "site-1"):
            assert refused(at.say(stranger, WANTS, word)[1], "not for this site")
        assert at.say("site-2", WANTS, word)[1].kind == GO, "the one that it is for is let in all the same"


def test_a_site_that_shows_no_certificate_does_not_come_in(ssl, tmp_path):
    with At(ssl) as at:
        word = at.door.pairs.place_for("site-1", "site-2")
        with pytest.raises(Error):
            with Session(at.door.address, ssl=certificates(tmp_path, "site-1")["site-1"], timeout=5) as session:  # of another authority
                session.send(OFFERS, word.encode())
                session.receive(timeout=60)
        assert at.door.pairs._pairs[word].session is None


def test_a_word_that_is_wrong_opens_nothing(at):
    word = at.door.pairs.place_for("site-1", "site-2")
    assert refused(at.own("site-1", "0" * 32), "not for this site")
    assert refused(at.say("site-2", WANTS, "f" * 32)[1], "not for this site")
    assert refused(at.say("site-2", WANTS, word)[1], "is not there"), "before its owner has come"
    for kind, said in ((WANTS, word[:-1]), (WANTS, "é" * 16), (99, word), (_process.HELLO, word)):
        answer = at.say("site-1", kind, said)[1]
        assert isinstance(answer, Error) or answer.kind == NO, (kind, said)
    with Session(at.door.address, ssl=at.ssl.get("site-1"), timeout=60) as session:  # with a reference, as an earlier version
        session.send(OFFERS, word.encode(), [session.add_tensors(MODEL)])
        with pytest.raises(Error):
            session.receive(timeout=60)
    assert pairs_of(at.door) == 1


def test_a_word_is_said_once(at):
    word = at.door.pairs.place_for("site-1", "site-2")
    at.own("site-1", word)
    assert refused(at.own("site-1", word), "said already")
    first, go = at.say("site-2", WANTS, word)
    assert go.kind == GO
    assert refused(at.say("site-2", WANTS, word)[1], "said already")
    assert at.pull(first, "site-2", word).receipt.confirmed
    until(lambda: pairs_of(at.door) == 0)
    assert refused(at.say("site-2", WANTS, word)[1], "not for this site")


def test_nobody_is_passed_on_to_while_the_owner_is_still_being_told(at, monkeypatch):
    """Two threads would use one session. The owner may have heard it, and told the other site, before the call that tells it is over."""
    real, over, told = Session.send, threading.Event(), []

    def send(self, kind, *what, **how):
        real(self, kind, *what, **how)
        if kind == GO and not told:
            told.append(self)
            assert over.wait(60)

    monkeypatch.setattr(Session, "send", send)
    word = at.door.pairs.place_for("site-1", "site-2")
    at.own("site-1", word)
    heard = []
    thread = processes.JoinedThread(target=lambda: heard.append(at.say("site-2", WANTS, word)))
    thread.start()
    processes.be_slow(0.3)
    assert not heard
    over.set()
    thread.join()
    session, go = heard[0]
    assert go.kind == GO and at.pull(session, "site-2", word).receipt.confirmed


def test_what_is_meant_for_another_is_not_pulled_with_ones_own_word(at):
    words = [at.door.pairs.place_for("site-1", site) for site in ("site-2", "site-3")]
    for i, word in enumerate(words):
        at.own("site-1", word, {"T0": np.full(1000, i, np.float32)}, to=f"site-{i + 2}")
    session, go = at.say("site-3", WANTS, words[1])
    assert go.kind == GO and (at.pull(session, "site-3", words[1])["T0"] == 1).all()


def test_a_full_door_refuses_and_half_of_it_is_the_most_that_one_owner_has(at):
    pairs = at.door.pairs
    words = [pairs.place_for("site-1", f"site-{i}") for i in (2, 3)]
    with pytest.raises(_relayed.NoPlace, match="half of its door is site-1's"):
        pairs.place_for("site-1", "site-4")
    words += [pairs.place_for(f"site-{i}", "site-1") for i in (2, 3)]
    with pytest.raises(_relayed.NoPlace, match="is full: 4 pairs"):
        pairs.place_for("site-5", "site-1")
    owner = at.own("site-1", words[0])
    owner.gone.set()
    owner.thread.join()

    def there_is_room():
        try:
            return pairs.place_for("site-5", "site-1")
        except _relayed.NoPlace:
            return False

    until(there_is_room)  # once the owner that waited has gone
    assert pairs_of(at.door) == 4


def test_those_that_do_not_come_in_time_lose_their_place(at, monkeypatch):
    monkeypatch.setattr(_relayed, "WAITING", 0.3)
    word = at.door.pairs.place_for("site-1", "site-2")
    owner = at.own("site-1", word)
    assert at.door.pairs.place_for("site-2", "site-1")
    until(lambda: not owner.thread.is_alive())  # the door has hung up
    until(lambda: pairs_of(at.door) == 0)
    assert refused(at.say("site-2", WANTS, word)[1], "not for this site")


def test_an_owner_that_has_gone_away_is_said(at):
    word = at.door.pairs.place_for("site-1", "site-2")
    at.door.pairs._next = time.monotonic() + 3600  # nobody looks after it first
    owner = at.own("site-1", word)
    owner.gone.set()
    owner.thread.join()
    assert refused(at.say("site-2", WANTS, word)[1], "has gone away")
    until(lambda: pairs_of(at.door) == 0)


def test_an_owner_that_goes_away_in_the_middle(ssl):
    with At(ssl, rate=200_000) as at:
        word = at.door.pairs.place_for("site-1", "site-2")
        owner = at.own("site-1", word)
        session, _ = at.say("site-2", WANTS, word)
        with pytest.raises(Error) as e:
            at.pull(session, "site-2", word, retries=0, progress=lambda p: owner.gone.set() if p.bytes_done else None, progress_interval=0, chunk_size=4096)
        assert e.value.code == "connection_lost" and 0 < e.value.landed < 1_200_000
        until(lambda: pairs_of(at.door) == 0)


def test_a_door_that_is_closed_ends_its_relays(ssl):
    with At(ssl, rate=100_000) as at:
        word = at.door.pairs.place_for("site-1", "site-2")
        at.own("site-1", word)
        session, _ = at.say("site-2", WANTS, word)
        closing = []

        def close():
            if not closing:
                closing.append(processes.JoinedThread(target=at.door.close))
                closing[0].start()

        with pytest.raises(Error) as e:
            at.pull(session, "site-2", word, retries=0, progress=lambda p: close() if p.bytes_done else None, progress_interval=0, chunk_size=4096)
        assert e.value.code in ("connection_lost", "truncated")
        closing[0].join()
        until(lambda: not any(t.name == "tensorpull-tunnel" for t in threading.enumerate()))


# Both ends of FLARE's download.


class Cell:
    """What a site asks the server reaches `server`, a function that is given the origin and what was said."""

    def __init__(self, fqcn, server=None):
        self._fqcn, self._server = fqcn, server
        self.core_cell = types.SimpleNamespace(root_url="tcp://localhost:8002", secure=False, get_fobs_context=lambda: {"cell": self}, get_fqcn=lambda: fqcn, send_request=self._send)

    def get_fqcn(self):
        return self._fqcn

    def _send(self, channel, topic, target, request, timeout, optional):
        assert (channel, topic, target) == (_relayed.CHANNEL, _relayed.TOPIC, "server.4d5f")
        request.set_header(MessageHeaderKey.ORIGIN, self._fqcn)
        return self._server(request)


class Job:
    """A server and two sites, whose settings can be changed."""

    def __init__(self, monkeypatch):
        self.settings = {"least_bytes": 0}
        for module in (_transfer, _process):
            monkeypatch.setattr(module, "setting", lambda name, default: self.settings.get(name, default))
        self.server = Cell("server.4d5f")
        self.answer = lambda request: make_reply(ReturnCode.OK, body=_relayed.answer(request, self.server.core_cell, lambda _: _process.meeting_at(self.server)))
        self.sites = [Cell(f"site-{i}.4d5f", lambda request: self.answer(request)) for i in (1, 2)]

    def ends(self, secure=False, model=MODEL):
        a = OfferedArrays(dict(model), 1 << 20, self.sites[0])
        a._flare_ref, a.num_receivers = "R1", 1
        return a, PulledArrays(None, {}).begin(self.sites[1], "site-1.4d5f", "R1", "numpy", 60.0, secure, None)

    def transfer(self, a, b, change=lambda state: None):
        """FLARE's loop, as its two processes run it; the states that were sent."""
        state, states = None, []
        for _ in range(10_000):
            rc, _data, new = a.produce(state, "site-2.4d5f")
            if rc != ProduceRC.OK:
                break
            change(new)
            states.append(new)
            state = b.consume("R1", new, _data)
            states.append(state)
        assert rc == ProduceRC.EOF
        b.download_completed("R1")
        assert b.result.keys() == MODEL.keys() and all(np.array_equal(b.result[name], value) for name, value in MODEL.items())
        return states

    def close(self):
        place = _process._places.get(id(self.server))
        if place is not None and place._door is not None:
            place._door.close()


@pytest.fixture
def job(monkeypatch):
    made = Job(monkeypatch)
    yield made
    made.close()


def kinds(states):
    return [s[KEY]["is"] for s in states if KEY in s]


def test_a_model_goes_from_site_to_site_through_the_door(job):
    for _ in range(3):
        a, b = job.ends()
        states = job.transfer(a, b)
        assert b.way == "tensorpull" and b.bytes >= 1_200_000
        assert kinds(states)[:3] == ["offer between sites", "wanted", "at the door"]
        a.release()
    until(lambda: pairs_of(_process.place_of(job.server).door()) == 0)


def test_a_door_behind_a_firewall_that_drops_packets_leaves_flares_chunks(job, caplog):
    silence = Silence()
    job.settings["connect_timeout"] = 0.5
    _process.place_of(job.server).door().address = f"tcp://*:{silence.port}"
    a, b = job.ends()
    assert kinds(job.transfer(a, b)) == ["offer between sites", "wanted", "failed"]
    assert b.way == "FLARE's chunks" and f"localhost:{silence.port}" in caplog.text
    silence.close()
    a.release()


def test_flare_may_ask_again(job):
    a, b = job.ends()
    first = a.produce(None, "site-2.4d5f")
    assert a.produce(None, "site-2.4d5f") == first
    wanted = b.consume("R1", first[2], [])
    assert a.produce(wanted, "site-2.4d5f") == a.produce(wanted, "site-2.4d5f")
    assert pairs_of(_process.place_of(job.server).door()) == 1
    a.release()


def test_what_flare_encrypts_goes_by_flare_where_a_site_has_no_certificates(job, caplog):
    a, b = job.ends(secure=True)
    states = job.transfer(a, b)
    assert b.way == "FLARE's chunks" and kinds(states) == ["offer between sites"]
    assert "FLARE encrypts this message, and there is no TLS here" in caplog.text
    assert not a._waits and _process._places.get(id(job.server)) is None, "nothing was asked of the server, and nothing published there"


def test_a_door_that_is_full_or_switched_off_or_not_there_leaves_flares_chunks(job, caplog):
    caplog.set_level(logging.INFO)

    def chunks(why):
        caplog.clear()
        for site in job.sites:
            _process.place_of(site)._failed.clear()
        a, b = job.ends()
        states = job.transfer(a, b)
        assert b.way == "FLARE's chunks" and why in caplog.text, caplog.text
        a.release()
        return kinds(states)

    job.settings["pairs"] = 1
    server = _process.place_of(job.server)
    word = server.door().pairs.place_for("site-2", "site-1")
    assert chunks("its door is full: 1 pairs of sites") == ["offer between sites", "wanted", "failed"]
    server.door().pairs._pairs.pop(word)
    job.settings["pairs"] = 0
    assert chunks("switched off") == []
    job.settings.pop("pairs")
    answers = job.answer
    job.answer = lambda request: make_reply(ReturnCode.OK, body=_relayed.answer(request, job.server.core_cell, lambda _: None))
    assert chunks("no door for sites") == ["offer between sites", "wanted", "failed"]
    job.answer = lambda request: make_reply(ReturnCode.PROCESS_EXCEPTION)
    assert chunks("no door for sites") == ["offer between sites", "wanted", "failed"]
    a, b = job.ends()
    assert kinds(job.transfer(a, b)) == [], "it is not asked again for a while"
    job.answer = answers


LIES = [
    {"v": 1}, {"job": "other"}, {"site": "site-3.4d5f"}, {"more": 1}, {"bytes": 2**60}, {"bytes": -1}, {"bytes": True}, {"bytes": 8}, {"chunk": 0}, {"chunk": 2**31}, {"chunk": None}, {"is": "nonsense"}, {"is": "offer"},
    {"address": "tcp://192.0.2.1:9"}, {"address": "tcp://localhost:1"}, {"token": "f" * 32}, {"token": "x"},
]  # fmt: skip


@pytest.mark.parametrize("lie", LIES, ids=str)
def test_a_lie_ends_in_flares_chunks(job, lie):
    a, b = job.ends()
    told = []

    def change(state):
        if KEY in state and (lie.keys() <= state[KEY].keys() or "more" in lie and not told):
            state[KEY] = {**state[KEY], **lie}
            told.append(1)

    job.transfer(a, b, change)
    assert told and b.way == "FLARE's chunks"
    a.release()


def test_another_address_than_the_servers_is_not_called():
    said = _offer.through("4d5f", "site-2.4d5f", "tls://192.0.2.1:9", "f" * 32)
    with pytest.raises(_offer.Refused, match="is not the FLARE server's"):
        _offer.parse_through(said, "4d5f", "site-2.4d5f", _offer.Trust(True, "fl.example.org"))
    assert _offer.parse_through({**said, "address": "tls://*:9"}, "4d5f", "site-2.4d5f", _offer.Trust(True, "fl.example.org")).address == "tls://fl.example.org:9"


def test_another_schema_than_flares_is_not_taken(job, monkeypatch):
    a, b = job.ends()
    real = tensorpull.Session.add_tensors
    monkeypatch.setattr(tensorpull.Session, "add_tensors", lambda self, tensors, **how: real(self, {"evil": np.ones(7)}, **how))
    job.transfer(a, b)
    assert b.way == "FLARE's chunks"
    a.release()


ASKED = [
    ("site-1.4d5f", {"recipient": "site-2.4d5f"}, "call"), ("site-1.4d5f", {"recipient": "site-2.other"}, "no"), ("site-1.other", {"recipient": "site-2.other"}, "no"),
    ("site-1.4d5f", {"recipient": "site-1.4d5f"}, "no"), ("site-1.4d5f", {"recipient": "server.4d5f"}, "no"), ("server.4d5f", {"recipient": "site-2.4d5f"}, "no"),
    ("site-3.4d5f", {"recipient": "site-2.4d5f"}, "no"), ("site-1.4d5f", {"recipient": "site-2.4d5f.child"}, "no"), ("site-1.4d5f", {"recipient": None}, "no"),
    ("site-1.4d5f", {"recipient": "site-2.4d5f", "job": "other"}, "no"), ("site-1.4d5f", {"more": 1}, "no"), ("site-1.4d5f", {"v": 1}, "no"),
]  # fmt: skip


@pytest.mark.parametrize("origin, change, kind", ASKED, ids=str)
def test_who_may_ask_for_a_place(job, origin, change, kind):
    said = {**_offer.ask_for_a_place("4d5f", "site-1.4d5f", "site-2.4d5f"), **change}
    request = types.SimpleNamespace(payload=said, get_header=lambda key: origin)
    answer = _relayed.answer(request, job.server.core_cell, lambda _: _process.meeting_at(job.server))
    assert _offer.what(answer) == kind, answer


@pytest.mark.parametrize("said", [None, 7, [], "x", {"is": 7}, {"is": "call"}, {"is": "no", "why": "x" * 10_000 + "\n"}, {"is": "no", "why": 7}, b"\xff"], ids=lambda said: str(said)[:20])
def test_whatever_the_server_answers(job, said):
    job.answer = lambda request: make_reply(ReturnCode.OK, body=said)
    a, b = job.ends()
    job.transfer(a, b)
    assert b.way == "FLARE's chunks" and len(a._calls["site-2.4d5f"]) < 400 and "\n" not in a._calls["site-2.4d5f"]
    a.release()
