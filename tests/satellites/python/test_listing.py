"""What a reference has, without pulling it; and tensors that are pulled by their names, with nobody having made them before."""

from __future__ import annotations

import subprocess
import sys
import threading

import numpy as np
import pytest
import processes
from processes import eventually

import tensorpull
from tensorpull import Downloader, Error, Listener, Session, aio

MODEL = {"head.w": np.arange(6, dtype="f4").reshape(2, 3), "encoder.0.w": np.ones((4, 4)), "encoder.1.w": np.full(3, 7, "i2"), "none": np.zeros((0, 5), "f4"), "flag": np.array(True)}


@pytest.fixture(params=["127.0.0.1:0", "unix:@tensorpull-listing", "shm:@tensorpull-listing", "udp://127.0.0.1:0"])
def over(request):
    with Downloader(request.param).start() as owner:
        yield owner


def test_a_listing_says_what_a_download_would_bring_and_counts_for_nobody(over):
    ref = over.add_tensors(MODEL, recipients=1, metadata={"by": "me"})
    for _ in range(3):
        there = tensorpull.list_tensors(over.address, ref)
        assert list(there.tensors) == list(MODEL) and there.metadata == {"by": "me"}
        assert (there.version, there.fingerprint, there.nbytes, there.verifiable) == (ref.version, ref.fingerprint, ref.nbytes, True)
        assert all((there.tensors[name].shape, there.tensors[name].nbytes) == (w.shape, w.nbytes) for name, w in MODEL.items())
    assert not over.settled(ref)
    if not over.address.startswith("udp"):  # what is said there last may be on its way
        assert eventually(lambda: over.status(ref).acquired == 0) and over.status(ref).cancelled == 0
    got = tensorpull.download_tensors(over.address, ref)
    assert list(got) == list(there.tensors) and over.wait(ref, timeout=60) and over.outcome(ref).verdict == "completed"


def test_one_that_is_expected_by_name_may_look_first(owner):
    ref = owner.add_tensors(MODEL, recipients=["site-1"])
    tensorpull.list_tensors(owner.address, ref, recipient="site-1")
    assert eventually(lambda: owner.recipient_state(ref, "site-1") == "unseen")
    tensorpull.download_tensors(owner.address, ref, names=["flag"], recipient="site-1")
    assert owner.wait(ref, timeout=60) and owner.outcome(ref).verdict == "completed"


def test_a_listing_of_a_long_header(owner):
    model = {f"layers.{i}.{'x' * 40}": np.zeros(1, "u1") for i in range(5000)}
    ref = owner.add_tensors(model)
    assert list(tensorpull.list_tensors(owner.address, ref).tensors) == list(model)
    assert eventually(lambda: owner.status(ref).acquired == 0)


def test_a_listing_over_http_and_over_a_session():
    with Downloader(http="127.0.0.1:0").start() as owner:
        ref = owner.add_tensors(MODEL)
        assert list(tensorpull.list_tensors(owner.url(ref), ref, bearer=ref).tensors) == list(MODEL)
    with Listener() as door, Session(door.address) as client, door.accept(timeout=60) as server:
        ref, over = client.add_tensors(MODEL, recipients=1), threading.Event()
        serving = processes.JoinedThread(target=lambda: client.serve(until=over))
        serving.start()
        assert list(server.list_tensors(ref).tensors) == list(MODEL)
        got = server.download_tensors(ref, matching=["encoder.*"])
        assert list(got) == ["encoder.0.w", "encoder.1.w"]
        over.set()
        serving.join()


@pytest.mark.parametrize("framework", ["numpy", "torch"])
@pytest.mark.parametrize(
    "choice",
    [
        ({"names": ["flag"]}, ["flag"]),
        ({"names": ["flag", "head.w"]}, ["head.w", "flag"]),
        ({"names": ["none"]}, ["none"]),
        ({"matching": ["encoder.?.w"]}, ["encoder.0.w", "encoder.1.w"]),
        ({"matching": ["*"]}, list(MODEL)),
        ({"names": ("none",), "matching": ["*1*", "h*"]}, ["head.w", "encoder.1.w", "none"]),
    ],
)
def test_tensors_are_pulled_by_name_and_made(over, framework, choice):
    if framework == "torch":
        pytest.importorskip("torch")
    how, names = choice
    ref = over.add_tensors(MODEL)
    got = tensorpull.download_tensors(over.address, ref, framework=framework, **how)
    assert list(got) == names and got.receipt.outcome == "completed"
    for name in names:
        assert tuple(got[name].shape) == MODEL[name].shape and np.array_equal(np.asarray(got[name]), MODEL[name])


def test_tied_tensors_are_pulled_once_under_the_names_that_are_asked_for(owner):
    w = np.arange(1000.0)
    ref = owner.add_tensors({"embed": w, "head": w, "other": np.ones(3)})
    assert list(tensorpull.list_tensors(owner.address, ref).tensors) == ["embed", "head", "other"]
    both = tensorpull.download_tensors(owner.address, ref, names=["head", "embed"])
    assert both["head"] is both["embed"] and both.receipt.bytes < 2 * w.nbytes and np.array_equal(both["head"], w)
    one = tensorpull.download_tensors(owner.address, ref, names=["head"])
    assert list(one) == ["head"] and np.array_equal(one["head"], w)


def test_a_name_or_a_pattern_that_chooses_nothing_is_named(owner):
    ref = owner.add_tensors(MODEL)
    for how, name in (({"names": ["flag", "flags"]}, "flags"), ({"matching": ["*", "decoder.*"]}, "decoder.*"), ({"matching": ["[fh]*"]}, "[fh]*")):
        with pytest.raises(Error) as e:
            tensorpull.download_tensors(owner.address, ref, **how)
        assert (e.value.code, e.value.name) == ("invalid_argument", name)
    for how, wrong in (({"names": []}, ValueError), ({"names": "flag"}, TypeError), ({"names": [1]}, TypeError), ({"names": ["flag"], "out": {}}, ValueError)):
        with pytest.raises(wrong, match="names"):
            tensorpull.download_tensors(owner.address, ref, **how)
    assert eventually(lambda: owner.status(ref).acquired == 0)


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("**", list(MODEL)),
        ("flag", ["flag"]),
        ("flag*", ["flag"]),
        ("*flag", ["flag"]),
        ("f*l*a*g", ["flag"]),
        ("fl*lag", []),
        ("*w", ["head.w", "encoder.0.w", "encoder.1.w"]),
        ("*.?.*", ["encoder.0.w", "encoder.1.w"]),
        ("????", ["none", "flag"]),
        ("*????.w", ["head.w", "encoder.0.w", "encoder.1.w"]),
        ("*e*e", []),
        ("", []),
    ],
)
def test_what_a_pattern_fits(owner, pattern, names):
    ref = owner.add_tensors(MODEL)
    if names:
        assert list(tensorpull.download_tensors(owner.address, ref, matching=[pattern])) == names
    else:
        with pytest.raises(Error, match="fits this pattern"):
            tensorpull.download_tensors(owner.address, ref, matching=[pattern])


def test_no_name_of_an_owners_makes_a_pattern_take_long():
    program = """
import numpy as np
import tensorpull
owner = tensorpull.Downloader().start(daemon=True)
ref = owner.add_tensors({"a" * 400: np.ones(1), "layer.b": np.ones(1), "a" * 8 + "b": np.ones(1)})
print(list(tensorpull.download_tensors(owner.address, ref, matching=["*a*a*a*a*a*a*b"])))
"""
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, timeout=60)
    assert done.stdout.strip() == "['aaaaaaaab']"


def test_names_on_an_event_loop(owner):
    import asyncio

    ref = owner.add_tensors(MODEL)
    assert list(asyncio.run(aio.download_tensors(owner.address, ref, names=["flag"]))) == ["flag"]
