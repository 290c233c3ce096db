"""A third program passes the bytes of two others on to each other, which have TLS from end to end: it learns neither names nor tensors."""

from __future__ import annotations

import asyncio
import socket
import time

import numpy as np
import processes
import pytest

from authority import certificates

import tensorpull
from tensorpull import Error, Listener, Session, aio

MODEL = {"layer.with.a.name": np.random.default_rng(7).random(300_000, np.float32), "bias": np.ones((3, 5))}
GO, WANTS, HERE, HAS = 1, 2, 3, 4


class Tap:
    """A TCP relay on the way to an address, which keeps all that passes."""

    def __init__(self, port):
        self._port, self.seen, self._listener = port, bytearray(), socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._threads = [processes.JoinedThread(target=self._accept)]
        self._threads[0].start()

    def _accept(self):
        while True:
            try:
                near = self._listener.accept()[0]
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", self._port))
            for a, b in ((near, far), (far, near)):
                self._threads.append(processes.JoinedThread(target=self._copy, args=(a, b)))
                self._threads[-1].start()

    def _copy(self, a, b):
        try:
            while data := a.recv(1 << 16):
                self.seen += data
                b.sendall(data)
            b.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def close(self):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join()


@pytest.fixture(scope="module")
def sites(tmp_path_factory):
    """What each of them shows to whom, with the part of a server or of a client."""
    folder = tmp_path_factory.mktemp("certificates")
    outer = certificates(folder, "site-1", "site-2", "site-3")
    inner = {
        name: tensorpull.TLS(ca_file=folder / "ca.pem", cert_file=folder / f"{name}.pem", key_file=folder / f"{name}.key", require_client_certificates=True)
        for name in ("site-1", "site-2", "site-3")
    }
    return outer, inner


class Middle:
    """A program that two dial, and that passes on all that they say to each other."""

    def __init__(self, ssl=None, **how):
        self.door = Listener(("tls://" if ssl else "") + "127.0.0.1:0", ssl=ssl)
        self.passed, self.failed, self.closed = [], [], ()
        self._how = {"timeout": 60, **how}
        self._thread = processes.JoinedThread(target=self._pass_on)
        self._thread.start()

    def _pass_on(self):
        ends = {}
        while len(ends) < 2:
            caller = self.door.accept(timeout=60)
            ends[caller.receive(timeout=60).kind] = caller
        ends[HAS].send(GO)
        ends[HAS].receive(timeout=60)  # or it could read what the other one says next along with this
        ends[WANTS].send(GO)
        try:
            self.passed.append(ends[HAS].tunnel_to(ends[WANTS], **self._how))
        except Error as e:
            self.failed.append(e.code)
        self.closed = ends[HAS].closed, ends[WANTS].closed
        for end in ends.values():
            end.close()

    def ended(self):
        """When both have hung up: what it has passed on, or why not."""
        self._thread.join()
        self.door.close()
        return self.passed or self.failed


def own(address, ssl, inner, peer):
    """The end that has the model; the name at the other end."""
    with Session(address, ssl=ssl) as door:
        door.send(HAS)
        assert door.receive(timeout=60).kind == GO
        door.send(GO)
        with door.through_tunnel(inner, peer, accepts=True, timeout=60) as far:
            assert door.closed
            assert far.receive(timeout=60).kind == WANTS
            ref = far.add_tensors(MODEL, recipients=1)
            far.send(HERE, b"", [ref])
            far.serve(until=ref)
            return far.peer_name


def pull(address, ssl, inner, peer):
    with Session(address, ssl=ssl) as door:
        door.send(WANTS)
        assert door.receive(timeout=60).kind == GO
        with door.through_tunnel(inner, peer, timeout=60) as far:
            far.send(WANTS)
            return far.download_tensors(far.receive(timeout=60).references[0])


def both(address, owner, recipient):
    """What each gets: a value, or the code of an error."""
    got = {}

    def run(end, *arguments):
        try:
            got[end] = end(address, *arguments)
        except Error as e:
            got[end] = e.code

    threads = [processes.JoinedThread(target=run, args=(end, *arguments)) for end, arguments in ((own, owner), (pull, recipient))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return got[own], got[pull]


def is_model(got):
    return not isinstance(got, str) and got.keys() == MODEL.keys() and all(np.array_equal(got[name], value) for name, value in MODEL.items())


def test_the_middle_sees_neither_a_name_nor_a_byte_of_a_tensor(sites):
    _, inner = sites
    for secret in (True, False):  # without TLS the tap finds both, so it looks well
        middle = Middle()
        tap = Tap(middle.door.port)
        who, got = both(tap.address, (None, inner["site-1"], "site-2") if secret else (None, None, ""), (None, inner["site-2"], "site-1") if secret else (None, None, ""))
        (passed,) = middle.ended()
        tap.close()
        assert is_model(got) and who == ("site-2" if secret else "")
        assert passed.forth > 1_200_000 and 0 < passed.back < 100_000
        pieces = [MODEL["layer.with.a.name"].tobytes()[at : at + 16] for at in range(0, 1_200_000, 100_000)]
        found = [piece in tap.seen for piece in pieces], b"layer.with.a.name" in tap.seen
        assert found == ([not secret] * 12, not secret)


def test_tls_within_tls(sites):
    outer, inner = sites
    middle = Middle(outer["server"])
    who, got = both(middle.door.address, (outer["site-1"], inner["site-1"], "site-2"), (outer["site-2"], inner["site-2"], "site-1"))
    assert is_model(got) and who == "site-2"
    assert middle.ended()[0].forth > 1_200_000 and middle.closed == (True, True)


@pytest.mark.parametrize("who", ["owner", "recipient"])
def test_an_end_with_the_certificate_of_another_site_is_refused(sites, who):
    _, inner = sites
    middle = Middle()
    shown = {"owner": "site-1", "recipient": "site-2", who: "site-3"}
    owner, recipient = both(middle.door.address, (None, inner[shown["owner"]], "site-2"), (None, inner[shown["recipient"]], "site-1"))
    middle.ended()
    assert (owner if who == "recipient" else recipient) == "not_authenticated"
    assert isinstance(owner, str) and isinstance(recipient, str), "nobody has got anything"


def test_an_end_without_a_certificate_or_without_tls_is_refused(sites, tmp_path):
    _, inner = sites
    for shown in (tensorpull.TLS(ca_text=authority_of(inner)), None):
        middle = Middle()
        owner, recipient = both(middle.door.address, (None, inner["site-1"], "site-2"), (None, shown, "site-1" if shown else ""))
        middle.ended()
        assert owner in ("not_authenticated", "handshake_failed") and isinstance(recipient, str)


def authority_of(inner):
    return next(open(file).read() for file in inner["site-1"]._files if file.endswith("ca.pem"))


def test_what_is_not_said(sites):
    _, inner = sites
    with Listener() as door:
        with Session(door.address) as session, door.accept(timeout=60) as other:
            with pytest.raises(Error, match="invalid_argument"):
                session.through_tunnel(inner["site-1"])  # whom?
            assert session.closed
            with pytest.raises(ValueError):
                other.tunnel_to(other)
            with pytest.raises(TypeError):
                other.tunnel_to("site-1")
        with Session(door.address) as session, door.accept(timeout=60) as other:
            plain = tensorpull.TLS(ca_text=authority_of(inner))
            with pytest.raises(Error, match="invalid_argument"):
                session.through_tunnel(plain, "site-1", accepts=True)  # clients would not have to show anything


def test_bytes_that_nobody_has_received_are_not_passed_on(sites):
    with Listener() as door, Session(door.address) as a, door.accept(timeout=60) as to_a, Session(door.address) as b, door.accept(timeout=60) as to_b:
        a.send(WANTS)
        assert to_a.receive(timeout=60).kind == WANTS
        a.send(GO)
        a.send(GO)
        assert to_a.receive(timeout=60).kind == GO
        assert processes.eventually(lambda: not to_a.serve(timeout=0.05), 60)
        with pytest.raises(Error, match="unread_messages"):
            to_a.tunnel_to(to_b)
        with pytest.raises(Error, match="unread_messages"):
            to_b.tunnel_to(to_a)
        assert not to_a.closed and not to_b.closed


def test_it_ends_by_time_and_by_abort(sites):
    for how, code in (({"timeout": 0.2}, "timed_out"), ({"abort": lambda: True}, "cancelled")):
        middle = Middle(**how)
        with Session(middle.door.address) as a, Session(middle.door.address) as b:
            a.send(HAS)
            b.send(WANTS)
            a.send(GO)
            assert middle.ended() == [code]


def test_a_rate(sites):
    """No more than that in a second goes to the recipient."""
    middle = Middle(bytes_per_second=600_000)
    began = time.monotonic()
    _, got = both(middle.door.address, (None, None, ""), (None, None, ""))
    middle.ended()
    assert is_model(got) and time.monotonic() - began > 0.9


def test_the_same_with_calls_that_are_awaited(sites):
    _, inner = sites

    async def run():
        async with aio.Listener() as door, await aio.Session(door.address) as first, await door.accept() as near, await aio.Session(door.address) as second, await door.accept() as far:
            passing = asyncio.create_task(near.tunnel_to(far, timeout=60))
            ends = await asyncio.gather(first.through_tunnel(inner["site-1"], "site-2", accepts=True, timeout=60), second.through_tunnel(inner["site-2"], "site-1", timeout=60))
            await ends[1].send(WANTS, b"a word")
            heard = await ends[0].receive(60)
            for end in ends:
                end.close()
            return heard, await passing

    heard, passed = asyncio.run(run())
    assert (heard.kind, heard.body) == (WANTS, b"a word") and passed.back > 0 and passed.forth > 0
