"""What callers can get wrong: text that is none, names that collide, targets that cannot be landed in, handles that are copied, callbacks that destroy what is used."""

from __future__ import annotations

import asyncio
import copy
import inspect
import pickle
import random

import numpy as np
import pytest

import tensorpull
from tensorpull import Error, aio

HALF = "a\ud800"  # half of a character, which has no UTF-8
NOBODY = "0" * 31 + "1"


@pytest.mark.parametrize(
    "call",
    [
        lambda o: tensorpull.download_tensors(HALF, NOBODY),
        lambda o: tensorpull.download_tensors([o.address, HALF], NOBODY),
        lambda o: tensorpull.download_tensors(o.address, HALF),
        lambda o: tensorpull.download_tensors(o.address, NOBODY, recipient=HALF),
        lambda o: tensorpull.download_tensors("http://127.0.0.1:1/x", digest=HALF),
        lambda o: tensorpull.download_tensors("http://127.0.0.1:1/x", bearer=HALF),
        lambda o: tensorpull.Downloader(HALF),
        lambda o: tensorpull.Downloader(http=HALF),
        lambda o: tensorpull.Listener(HALF),
        lambda o: tensorpull.Session(HALF),
        lambda o: o.add_tensors({"w": np.zeros(1)}, recipients=[HALF]),
        lambda o: o.add_tensors({"w": np.zeros(1)}, metadata={"key": HALF}),
        lambda o: o.add_tensors({"w": np.zeros(1)}, metadata={HALF: "value"}),
        lambda o: o.add_transaction([{"w": np.zeros(1)}], metadata=[{HALF: "value"}]),
        lambda o: tensorpull.PublishedImage({"w": np.zeros(1)}, metadata={HALF: "value"}),
    ],
)
def test_text_that_is_no_unicode_is_named(owner, call):
    with pytest.raises(ValueError, match="Unicode text"):
        call(owner)


@pytest.mark.parametrize("wrong", [[""], ["a", ""], ["a", "b", "a"], iter(["a", "a"])])
def test_each_recipient_has_a_name_of_its_own(owner, wrong):
    with pytest.raises(ValueError, match="a name, and one of its own"):
        owner.add_tensors({"w": np.zeros(1)}, recipients=wrong)


@pytest.mark.parametrize("name", ["", "a/b", "a?b", "a#b", "a b", "\u00e9", "..", "x" * 65, "a\n"])
def test_a_name_that_makes_no_url_is_refused(name):
    with tensorpull.Downloader(http="127.0.0.1:0") as owner:
        with pytest.raises(ValueError, match="letters, digits"):
            owner.url(NOBODY, name)
        assert owner.url(NOBODY, "x" * 60 + ".st").endswith(".st/latest")


def test_a_time_may_be_any_number(owner):
    ref = owner.add_tensors({"w": np.zeros(1)})
    for ever in (10**400, float("inf"), 2**64):
        assert tensorpull.download_tensors(owner.address, ref, timeout=ever, wait=ever, per_request_timeout=ever).receipt.confirmed
    with pytest.raises(ValueError, match="timeout is a number of seconds, at least 0"):
        tensorpull.download_tensors(owner.address, ref, timeout=-(10**400))


def test_an_empty_reference_is_none(owner):
    with pytest.raises(ValueError, match="ref_id is empty"):
        owner.add_tensors({"w": np.zeros(1)}, ref_id="")


def test_names_with_any_characters_travel_and_half_ones_are_refused(owner):
    sent = {"": np.zeros(1), "a\0b": np.ones(1), "a\nb\"\\": np.ones(2), "\U0001f600": np.ones(3), "\x7f\x1f": np.ones(4)}
    got = tensorpull.download_tensors(owner.address, owner.add_tensors(sent))
    assert list(got) == list(sent) and all(np.array_equal(got[name], w) for name, w in sent.items())
    for wrong in ({HALF: np.zeros(1)}, {"x": {HALF: np.zeros(1)}}):
        for refused in (lambda t: owner.add_tensors(t), lambda t: tensorpull.download_tensors(owner.address, NOBODY, out=t)):
            with pytest.raises(Error) as e:
                refused(wrong)
            assert e.value.code == "invalid_argument"


@pytest.mark.parametrize("tree", [{"a": {"b": np.zeros(1)}, "a.b": np.ones(1)}, {1: {"b": np.zeros(1)}, "1": {"c": np.ones(1)}}, {"a": [np.zeros(1)], "a.0": np.ones(1)}])
def test_two_places_with_one_dotted_name_are_refused(owner, tree):
    for refused in (lambda: owner.add_tensors(tree), lambda: owner.add_transaction([tree]), lambda: tensorpull.flatten(tree)):
        with pytest.raises(ValueError, match="two places have the dotted name"):
            refused()


def targets(tmp_path):
    wall = np.zeros((4, 3))
    wall.flags.writeable = False
    np.zeros((4, 3)).tofile(tmp_path / "mapped")
    memory = np.zeros(20)
    return {
        "read-only": {"a": wall},
        "bytes": {"a": np.frombuffer(bytes(96)).reshape(4, 3)},
        "mapped to read": {"a": np.memmap(tmp_path / "mapped", "f8", "r", shape=(4, 3))},
        "broadcast": {"a": np.broadcast_to(np.arange(3.0), (4, 3))},
        "itself": {"a": np.lib.stride_tricks.as_strided(memory, (4, 3), (8, 8), writeable=True)},
        "big-endian": {"a": np.zeros((4, 3), ">f8")},
    }


def test_what_cannot_be_landed_in_is_refused_and_stays_as_it_was(owner, tmp_path):
    ref = owner.add_tensors({"a": np.ones((4, 3))})
    for what, out in targets(tmp_path).items():
        before = out["a"].copy()
        with pytest.raises(Error) as e:
            tensorpull.download_tensors(owner.address, ref, out=out)
        assert (e.value.code, e.value.name) == ("unsupported_layout", "a"), what
        assert np.array_equal(out["a"], before), what
    for mode in ("r+", "c"):
        mapped = np.memmap(tmp_path / "mapped", "f8", mode, shape=(4, 3))
        tensorpull.download_tensors(owner.address, ref, out={"a": mapped})
        assert mapped.all()


def test_odd_arrays_arrive_as_they_are(owner):
    sent = {
        "negative": np.arange(12.0).reshape(3, 4)[::-1, ::-2],
        "big": np.arange(5, dtype=">f8"),
        "big scalar": np.array(3, dtype=">i4"),
        "big complex": np.array([1 + 2j], dtype=">c8"),
        "broadcast": np.broadcast_to(np.arange(3.0), (4, 3)),
        "read-only": np.frombuffer(b"12345678", "f8"),
        "none": np.zeros((0, 4)),
    }
    got = tensorpull.download_tensors(owner.address, owner.add_tensors(sent))
    assert all(np.array_equal(got[name], w) and got[name].shape == w.shape and got[name].dtype == w.dtype.newbyteorder("=") for name, w in sent.items())


@pytest.mark.filterwarnings("ignore")
def test_odd_tensors_of_torch_arrive_as_they_are(owner):
    torch = pytest.importorskip("torch")
    sent = {
        "none": torch.zeros(0, 3),
        "scalar": torch.tensor(1.5),
        "leaf": torch.ones(3, requires_grad=True),
        "computed": torch.ones(3, requires_grad=True) * 2,
        "expanded": torch.arange(3.0).expand(5, 3),
        "steps": torch.arange(10)[::3],
        "flags": torch.tensor([True, False]),
        "complex": torch.randn(3, dtype=torch.complex64),
        "eighth": torch.ones(3).to(torch.float8_e5m2),
        "half": torch.ones(3).bfloat16(),
    }
    got = tensorpull.download_tensors(owner.address, owner.add_tensors(sent), framework="torch")
    for name, t in sent.items():
        assert got[name].dtype == t.dtype and got[name].shape == t.shape and got[name].view(torch.uint8 if t.dim() and t.dtype.itemsize == 1 else t.dtype).equal(
            t.detach().contiguous().view(torch.uint8 if t.dim() and t.dtype.itemsize == 1 else t.dtype)
        ), name
    for dtype in (torch.complex128, torch.complex32):
        with pytest.raises(Error) as e:
            owner.add_tensors({"w": torch.zeros(2, dtype=dtype)})
        assert (e.value.code, e.value.name) == ("unsupported_dtype", "w")


def test_handles_are_of_one_process_and_results_are_not(owner):
    with tensorpull.Listener() as door, tensorpull.Session(door.address) as session:
        for handle in (owner, door, session, tensorpull.WeightedAverage({"w": np.zeros(1)}), tensorpull.Weighing({"w": np.zeros(1)})):
            for copied in (pickle.dumps, copy.copy, copy.deepcopy):
                with pytest.raises(TypeError, match="belongs to the process"):
                    copied(handle)
    ref = owner.add_tensors({"w": np.ones(3)}, metadata={"a": "b"})
    got = tensorpull.download_tensors(owner.address, ref)
    again = pickle.loads(pickle.dumps(got))
    assert np.array_equal(again["w"], got["w"]) and again.metadata == {"a": "b"} and again.receipt == got.receipt
    assert pickle.loads(pickle.dumps(ref)).version == ref.version and pickle.loads(pickle.dumps(owner.outcome(ref))) == owner.outcome(ref)
    with pytest.raises(Error) as e:
        tensorpull.download_tensors(owner.address, NOBODY)
    assert pickle.loads(pickle.dumps(e.value)).code == "unknown_reference"


def test_an_average_of_a_tree_says_what_to_do(owner):
    tree = {"a": {"b": np.full(3, 2.0)}, "c": np.ones(2)}
    with pytest.raises(TypeError, match="'a' is no tensor.*flatten"):
        tensorpull.WeightedAverage(tree)
    flat = tensorpull.flatten(tree)
    got = tensorpull.weighted_average([(owner.address, owner.add_tensors(dict(flat)), 1.0)], like=flat)
    assert np.array_equal(got["a.b"], tree["a"]["b"])


def test_what_pulls_takes_the_same_options_and_so_does_what_publishes():
    """One table: a call that lacks an option lacks it for the reason that is given."""
    pulls = {
        tensorpull.download_tensors: set(),
        tensorpull.download_file: {"framework", "out", "subset", "names", "matching", "base", "max_header_bytes", "max_tensors", "atomic", "cursor", "adapt"},  # no tensors are made
        tensorpull.Session.download_tensors: {"address", "ssl", "digest", "bearer", "connections"},  # of its connection
        tensorpull.WeightedAverage.pull: {"framework", "out", "subset", "names", "matching", "base", "max_bytes", "max_header_bytes", "max_tensors", "chunk_size", "unverified", "digest", "bearer", "connections", "atomic", "cursor", "adapt"},  # of the average, which takes bytes in order; no URLs
        tensorpull.view_tensors: {"out", "subset", "names", "matching", "base", "max_bytes", "chunk_size", "progress", "progress_interval", "window", "believe", "ssl", "digest", "bearer", "connections", "atomic", "cursor", "adapt"},  # nothing is sent
        tensorpull.list_tensors: {"out", "subset", "names", "matching", "base", "framework", "max_bytes", "chunk_size", "progress", "progress_interval", "window", "unverified", "believe", "connections", "atomic", "cursor", "adapt"},  # no tensors
    }
    publishes = {
        tensorpull.Downloader.add_tensors: set(),
        tensorpull.Downloader.add_transaction: {"tensors", "ref_id", "version", "base", "narrow", "proofs"},  # models, ref_ids; a digest that is known, a tree, and what there was before, are one model's
        tensorpull.Session.add_tensors: {"least", "acquire_timeout", "version", "proofs"},  # one recipient, which is there; a digest and a signature serve several
    }
    for table in (pulls, publishes):
        whole = inspect.signature(next(iter(table))).parameters
        for call, lacks in table.items():
            has = inspect.signature(call).parameters
            assert set(whole) - set(has) == lacks, call.__qualname__
            for name in set(whole) & set(has) - {"ref_id", "chunk_size", "recipients", "metadata", "framework"}:
                assert has[name].default == whole[name].default, f"{call.__qualname__}: {name}"


def test_a_callback_that_drops_what_is_landed_in_changes_nothing(owner):
    ref = owner.add_tensors({"w": np.ones(1 << 18)})
    out = {"w": np.zeros(1 << 18)}
    got = tensorpull.download_tensors(owner.address, ref, out=out, chunk_size=65536, progress=lambda e: out.clear(), progress_interval=0)
    assert not out and got.receipt.outcome == "completed"
    sent = {"w": np.ones(1 << 18)}
    ref = owner.add_tensors(sent)
    del sent["w"]
    assert tensorpull.download_tensors(owner.address, ref)["w"].all()


def test_an_owner_that_is_dropped_and_closed_while_it_is_pulled_from():
    owner = tensorpull.Downloader().start()
    ref = owner.add_tensors({"w": np.ones(1 << 20)})
    closed = []

    def progress(_):
        if not closed:
            closed.append(owner.close())

    with pytest.raises(Error) as e:
        tensorpull.download_tensors(owner.address, ref, chunk_size=4096, progress=progress, progress_interval=0, retries=0)
    assert e.value.code in ("connection_lost", "withdrawn", "connection_failed")


def test_awaits_are_cancelled_at_200_moments(owner, tmp_path):
    """Nothing is left behind and nobody waits for ever: bounds that a slow machine keeps, too. Each third one ends by itself, or nearly."""
    chance = random.Random(5)
    ref = owner.add_tensors({"w": np.random.default_rng(1).integers(0, 255, 1 << 20, np.uint8)})

    async def one(i):
        out = {"w": np.zeros(1 << 20, np.uint8)}
        what = aio.download_file(owner.address, ref, tmp_path / f"f{i % 8}", overwrite=True, resume=bool(i % 2)) if i % 3 == 0 else aio.download_tensors(owner.address, ref, out=out, chunk_size=8192)
        task = asyncio.create_task(what)
        await asyncio.sleep(chance.random() * (0.02 if i % 3 else 0.05))
        task.cancel()
        try:
            await task
        except (asyncio.CancelledError, Error):  # another one has the file
            pass
        before = out["w"].copy()
        await asyncio.sleep(0.001)
        assert np.array_equal(before, out["w"]), "something was written after the await had ended"

    async def main():
        for block in range(0, 200, 8):
            await asyncio.wait_for(asyncio.gather(*(one(block + i) for i in range(8))), 60)

    asyncio.run(main())
    assert tensorpull.download_tensors(owner.address, ref).receipt.outcome == "completed"


def test_ten_thousand_tensors_of_all_sizes_in_a_tree(owner):
    tree = {"layers": [{"w": np.full(i % 7, float(i)), "b": np.array(i)} for i in range(5000)]}
    got = tensorpull.unflatten(tensorpull.download_tensors(owner.address, owner.add_tensors(tree)))
    assert len(got["layers"]) == 5000 and all(np.array_equal(a["w"], b["w"]) and a["b"] == b["b"] for a, b in zip(got["layers"], tree["layers"]))
