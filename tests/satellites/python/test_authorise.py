"""Who may pull what: the names that certificates prove, and what the owner's program says."""

from __future__ import annotations

import gc
import sys
import weakref

import numpy as np
import pytest
import processes
from authority import certificates

import tensorpull
from tensorpull import Downloader, Error, Listener, Session

MODEL = {"w": np.arange(50_000, dtype=np.float32)}


@pytest.fixture(scope="module")
def sites(tmp_path_factory):
    return certificates(tmp_path_factory.mktemp("certificates"), "site-2", "site-3")


def refused(pull, code="unknown_reference"):
    with pytest.raises(Error) as e:
        pull()
    assert e.value.code == code and e.value.landed == 0


@pytest.mark.parametrize("more", [{}, {"authorise": lambda asked: True}, {"http": "127.0.0.1:0"}], ids=["by default", "whatever the program says", "over HTTPS"])
def test_a_recipient_that_is_expected_by_name_shows_a_certificate_with_that_name(sites, more):
    with Downloader("tls://127.0.0.1:0", ssl=sites["server"], **more) as owner:
        owner.start()
        ref = owner.add_tensors(MODEL, recipients=["site-2", "site-3"])

        def pull(site, name, **how):
            web = {"bearer": ref} if "http" in more else {}
            return tensorpull.download_tensors(owner.url(ref) if web else owner.address, ref, ssl=sites[site], recipient=name, retries=0, **web, **how)

        refused(lambda: pull("site-2", "site-3"))
        refused(lambda: tensorpull.list_tensors(owner.address, ref, ssl=sites["site-2"], recipient="site-3", retries=0))
        refused(lambda: tensorpull.download_tensors([owner.address] * 2, ref, ssl=sites["site-2"], recipient="site-3", retries=0, connections=2))
        assert pull("site-2", None)["w"].size == 50_000, "it is nobody whom the owner waits for"
        assert owner.recipient_state(ref, "site-3") == "unseen" and not owner.settled(ref)
        for site in ("site-2", "site-3"):
            assert np.array_equal(pull(site, site)["w"], MODEL["w"])
        assert owner.wait(ref, timeout=60) and owner.outcome(ref).verdict == "completed"


def test_a_session_that_was_accepted_knows_who_it_is_with(sites):
    with Listener("tls://127.0.0.1:0", ssl=sites["server"]) as door:
        for site, name in (("site-2", "site-3"), ("site-3", "site-3")):
            dialled = []
            dial = processes.JoinedThread(target=lambda: dialled.append(Session(door.address, ssl=sites[site])))
            dial.start()
            with door.accept(timeout=60) as here:
                dial.join()
                ref = here.add_tensors(MODEL, recipients=["site-3"])
                serving = processes.JoinedThread(target=lambda: here.serve(until=ref, timeout=60) if site == name else pytest.raises(Error, here.serve, timeout=60))
                serving.start()
                with dialled[0] as there:
                    if site == name:
                        assert np.array_equal(there.download_tensors(ref, recipient=name)["w"], MODEL["w"])
                    else:
                        refused(lambda: there.download_tensors(ref, recipient=name))
                serving.join()
                assert here.settled(ref) == (site == name)


@pytest.mark.parametrize("link", ["127.0.0.1:0", "unix:{}/s", "shm:{}/s", "udp://127.0.0.1:0", "tls://127.0.0.1:0"])
def test_the_program_says_who_may_have_what(sites, tmp_path, link):
    asked = []

    def authorise(access):
        asked.append(access)
        return access.ref_id == mine.id

    ssl = {name: sites[name] for name in ("server", "site-2")} if "tls" in link else {"server": None, "site-2": None}
    with Downloader(link.format(tmp_path), ssl=ssl["server"], authorise=authorise) as owner:
        mine, other = owner.add_tensors(MODEL), owner.add_tensors(MODEL)
        owner.start()
        assert len(tensorpull.download_tensors(owner.address, mine, ssl=ssl["site-2"], recipient="me")) == 1
        refused(lambda: tensorpull.download_tensors(owner.address, other, ssl=ssl["site-2"], retries=0))
        refused(lambda: tensorpull.download_tensors(owner.address, "0" * 31 + "1", ssl=ssl["site-2"], retries=0))
    assert {access.ref_id for access in asked} == {mine.id, other.id, "0" * 31 + "1"}, "of an unknown one, too"
    assert asked[0].recipient == tensorpull.recipient_named("me")
    assert asked[0].peer == ("site-2" if "tls" in link else "") and ("DNS:site-2" in asked[0].alternatives) == ("tls" in link)
    assert (asked[0].user is not None) == (link.startswith(("unix", "shm")))


def test_a_session_asks_its_listener(monkeypatch):
    with Listener(authorise=lambda access: access.ref_id == ref.id) as door, Session(door.address) as there, door.accept(timeout=60) as here:
        ref, other = here.add_tensors(MODEL), here.add_tensors(MODEL)
        serving = processes.JoinedThread(target=lambda: pytest.raises(Error, here.serve, timeout=60))
        serving.start()
        assert len(there.download_tensors(ref)) == 1
        refused(lambda: there.download_tensors(other))
        there.close()
        serving.join()


def test_one_that_raises_refuses_and_is_heard_of(monkeypatch):
    heard = []
    monkeypatch.setattr(sys, "unraisablehook", lambda what: heard.append(what.exc_value))

    def authorise(access):
        raise RuntimeError("no")

    with Downloader(authorise=authorise) as owner:
        ref = owner.start().add_tensors(MODEL)
        refused(lambda: tensorpull.download_tensors(owner.address, ref, retries=0))
    assert [str(e) for e in heard] == ["no"] * len(heard) and heard
    for listens in (Downloader, Listener):
        with pytest.raises(TypeError, match="authorise is a callable"):
            listens(authorise="site-3")


@pytest.mark.parametrize("listens", [Downloader, Listener])
def test_one_that_knows_its_owner_keeps_nothing_alive(listens):
    class Server:
        def __init__(self):
            self.door = listens(authorise=self.may)

        def may(self, access):
            return True

    gone = weakref.ref(Server())
    gc.collect()
    assert gone() is None
