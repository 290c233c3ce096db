"""One download over several connections, from one owner or from all that publish the same."""

from __future__ import annotations

import asyncio
import logging
import threading

import numpy as np
import pytest
from mutating_path import MutatingPath
import processes
from processes import eventually

import tensorpull
import tensorpull.aio
from tensorpull import Error

ID = "0123456789abcdef0123456789abcdef"
SMALL = {"chunk_size": 1 << 16, "progress_interval": 0}


def model(seed: int = 1) -> dict[str, np.ndarray]:
    made = np.random.default_rng(seed)
    return {"w": made.integers(0, 255, 5_000_001, np.uint8), "empty": np.zeros((0, 3), "f4"), "scalar": np.array(2.5), "b": made.standard_normal((300, 1000), np.float32)}


def same(got, wanted=None) -> bool:
    wanted = model() if wanted is None else wanted
    return got.keys() == wanted.keys() and all(np.array_equal(got[k], wanted[k]) and got[k].dtype == wanted[k].dtype and got[k].shape == wanted[k].shape for k in wanted)


def pull(into, address, ref, folder, **more):
    """The tensors that came, through a file if that is wanted."""
    if into == "file":
        safetensors = pytest.importorskip("safetensors.numpy")
        tensorpull.download_file(address, ref, folder / "m", overwrite=True, **more)
        return safetensors.load_file(folder / "m")
    out = {k: np.zeros_like(v) for k, v in model().items()} if into == "out" else None
    got = tensorpull.download_tensors(address, ref, out=out, **more)
    assert got.receipt.outcome == "completed" and got.receipt.confirmed
    return got


@pytest.fixture
def three():
    with tensorpull.Downloader() as a, tensorpull.Downloader() as b, tensorpull.Downloader() as c:
        for each in (a, b, c):
            each.start()
            each.add_tensors(model(), ref_id=ID)
        yield a, b, c


def slow(owner, change=lambda i, frame: frame):
    """A way to an owner that has time for others, too."""

    def carry(i, frame):
        processes.be_slow(0.01)
        return change(i, frame)

    return MutatingPath(owner.port, carry)


def waiting_for_each_other(owners):
    """Ways to owners, of which none lets a first chunk through before all have one."""
    all_have_one = threading.Barrier(len(owners))

    def way(owner):
        first = True

        def carry(i, frame):
            nonlocal first
            if first and len(frame) > SMALL["chunk_size"]:
                first = False
                all_have_one.wait(60)
            return frame

        return MutatingPath(owner.port, carry)

    return [way(owner) for owner in owners]


@pytest.mark.parametrize("link", ["127.0.0.1:0", "unix:{}/door"])
@pytest.mark.parametrize("into", ["new", "out", "file"])
def test_one_owner_counts_one_recipient(link, into, tmp_path):
    with tensorpull.Downloader(link.format(tmp_path)) as owner:
        owner.start()
        for connections in (1, 2, 3, 8):
            ref = owner.add_tensors(model(), recipients=1)
            before = threading.active_count()
            assert same(pull(into, owner.address, ref, tmp_path, connections=connections, **SMALL))
            assert threading.active_count() == before
            outcome = owner.outcome(ref)
            assert outcome.verdict == "completed" and outcome.counts.completed == 1, outcome


@pytest.mark.parametrize("into", ["new", "out", "file"])
def test_all_owners_send_and_those_that_are_left_go_on(three, into, tmp_path):
    a, b, c = three
    ways = waiting_for_each_other(three)
    assert same(pull(into, [way.address for way in ways], ID, tmp_path, connections=3, **SMALL))
    assert all(each.status(ID).bytes_sent >= SMALL["chunk_size"] for each in three)
    for way in ways:
        way.close()
    seen: list[int] = []

    def tell(p):
        seen.append(p.bytes_done)
        if p.bytes_done > 1 << 20:
            b.close()

    assert same(pull(into, [a.address, b.address, c.address], ID, tmp_path, connections=3, progress=tell, **SMALL))
    assert seen == sorted(seen) and seen[-1] > 5_000_000
    assert same(pull(into, [b.address, a.address], ID, tmp_path, connections=2, **SMALL)), "the first is gone before it begins"


@pytest.mark.parametrize("into", ["new", "out", "file"])
def test_after_wrong_bytes_each_owner_is_asked_for_all_of_it(three, into, tmp_path, caplog):
    a, b, _ = three
    flipped = []

    def lie(i, frame):
        if len(frame) > 60_000:
            flipped.append(i)
            frame[50_000] ^= 1
        return frame

    path, honest = slow(b, lie), slow(a)
    with caplog.at_level(logging.WARNING, "tensorpull"):
        assert same(pull(into, [honest.address, path.address], ID, tmp_path, connections=2, **SMALL))
    path.close()
    honest.close()
    assert flipped
    assert "digest_mismatch; on to the next address" in caplog.text


def test_an_honest_owner_that_waits_for_one_recipient_alone_is_not_over_after_wrong_bytes():
    with tensorpull.Downloader() as liar, tensorpull.Downloader() as owner:
        liar.start().add_tensors(model(), ref_id=ID)
        ref = owner.start().add_tensors(model(), ref_id=ID, recipients=1)

        def lie(i, frame):
            if len(frame) > 60_000:
                frame[50_000] ^= 1
            return frame

        path, honest = slow(liar, lie), slow(owner)
        assert same(tensorpull.download_tensors([honest.address, path.address], ref, connections=2, **SMALL))
        counts = owner.outcome(ref).counts
        assert (counts.completed, counts.failed) == (1, 0), counts
        path.close()
        honest.close()


def test_nobody_is_named_where_all_are_right(three, tmp_path, caplog):
    with caplog.at_level(logging.WARNING, "tensorpull"):
        assert same(pull("new", [each.address for each in three], ID, tmp_path, connections=8, **SMALL))
    assert not caplog.records


def test_only_some_of_the_tensors(three):
    addresses = [each.address for each in three]
    for _ in range(2):
        got = tensorpull.download_tensors(addresses, ID, names=["w", "scalar"], connections=3, **SMALL)
        assert same(got, {k: model()[k] for k in ("w", "scalar")})
    out = {"b": np.zeros((300, 1000), "f4")}
    tensorpull.download_tensors(addresses, ID, out=out, subset=True, connections=3, **SMALL)
    assert np.array_equal(out["b"], model()["b"])


def test_strided_arrays_take_bytes_in_any_order(three):
    wide = np.zeros((1000, 300), "f4")
    out = {**{k: np.zeros_like(v) for k, v in model().items()}, "b": wide.T}
    got = tensorpull.download_tensors([each.address for each in three], ID, out=out, connections=3, **SMALL)
    assert same(got) and np.array_equal(wide.T, model()["b"])


def test_metadata_order_ties_and_trees_come_as_over_one(tmp_path):
    shared = np.arange(600_000, dtype="f4")
    tree = {"layers": [{"w": shared}, {"w": shared, "n": 3}], "head": np.ones(7)}
    with tensorpull.Downloader() as owner:
        ref = owner.start().add_tensors(tree, metadata={"a": "b"})
        one = tensorpull.download_tensors(owner.address, ref)
        more = tensorpull.download_tensors(owner.address, ref, connections=4, **SMALL)
    assert list(one) == list(more) and more.metadata == one.metadata and more.structure == one.structure
    assert more["layers.0.w"] is more["layers.1.w"] and np.array_equal(more["layers.0.w"], shared)


def test_an_interrupted_file_is_gone_on_with(three, tmp_path):
    stop = threading.Event()

    def tell(p):
        if p.bytes_done > 1 << 20:
            stop.set()

    ways = [slow(each) for each in three]
    addresses = [each.address for each in ways]
    with pytest.raises(Error) as raised:
        tensorpull.download_file(addresses, ID, tmp_path / "m", connections=3, progress=tell, abort=stop, **SMALL)
    assert raised.value.code == "cancelled" and (tmp_path / ".m.part").exists()
    seen: list[int] = []
    tensorpull.download_file(addresses, ID, tmp_path / "m", connections=3, progress=lambda p: seen.append(p.bytes_done), **SMALL)
    assert next(n for n in seen if n > 0) > 1 << 16 and (tmp_path / "m").exists() and not (tmp_path / ".m.part").exists()
    for each in ways:
        each.close()


def test_what_is_raised_in_the_middle_is_raised_here(three):
    class Mine(Exception):
        pass

    def tell(p):
        if p.bytes_done > 1 << 20:
            raise Mine

    for _ in range(2):
        with pytest.raises(Mine):
            tensorpull.download_tensors([each.address for each in three], ID, connections=3, progress=tell, **SMALL)
    for each in three:
        assert eventually(lambda each=each: each.connections == 0)


def test_all_that_does_not_know_it_says_so(three):
    a, b, c = three
    for each in three:
        each.withdraw(ID)
    with pytest.raises(Error) as raised:
        tensorpull.download_tensors([each.address for each in three], ID, connections=3, retries=0)
    assert raised.value.code in ("withdrawn", "unknown_reference")
    c.add_tensors(model(), ref_id="f" * 32)
    assert same(tensorpull.download_tensors([each.address for each in three], "f" * 32, connections=3, **SMALL))


def test_of_a_loop(three):
    got = asyncio.run(tensorpull.aio.download_tensors([each.address for each in three], ID, connections=3, **SMALL))
    assert same(got)


@pytest.mark.parametrize("address", ["shm:/tmp/x", "udp://127.0.0.1:1", "pipe:x", "http://127.0.0.1:1/m", ["127.0.0.1:1", "shm:@x"]])
def test_links_of_one_connection_refuse_more(address, tmp_path):
    with pytest.raises(ValueError, match="connections is for"):
        tensorpull.download_tensors(address, ID, connections=2)
    with pytest.raises(ValueError, match="connections is for"):
        tensorpull.download_file(address, ID, tmp_path / "m", connections=2)


@pytest.mark.parametrize(("wrong", "error"), [(0, ValueError), (9, ValueError), (-1, ValueError), ("2", TypeError), (1.5, TypeError), (None, TypeError)])
def test_numbers_that_are_none(wrong, error):
    with pytest.raises(error, match="connections"):
        tensorpull.download_tensors("127.0.0.1:1", ID, connections=wrong)


def test_one_chunk_and_several_connections_exclude_each_other():
    with pytest.raises(ValueError, match="chunk_size=0"):
        tensorpull.download_tensors("127.0.0.1:1", ID, connections=2, chunk_size=0)
