"""Slices of tensors: ranges of one of their dimensions, into new tensors and into those that exist."""

from __future__ import annotations

import os

import numpy as np
import pytest
from processes import JoinedThread, eventually

import tensorpull
from tensorpull import Error, Session

torch = pytest.importorskip("torch")


def model(layers=6):
    random = np.random.default_rng(1)
    tensors = {f"layers.{i}.w": random.standard_normal((16, 40 + i), "f4") for i in range(layers)}
    return {**tensors, "cube": np.arange(8 * 3 * 5, dtype="i2").reshape(8, 3, 5), "bias": np.arange(16.0), "step": np.array(7), "hole": np.zeros((0, 3))}


@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_new_tensors_have_the_shape_of_the_slice_and_only_its_bytes_travel(owner, framework):
    there = model()
    ref = owner.add_tensors(there, recipients=1)
    names = {"layers.0.w": slice(4, 8), "layers.3.w": slice(None, 2), "cube": slice(-3, None), "bias": ..., "step": ...}
    got = tensorpull.download_tensors(owner.address, ref, names=names, framework=framework)
    want = {"layers.0.w": there["layers.0.w"][4:8], "layers.3.w": there["layers.3.w"][:2], "cube": there["cube"][-3:], "bias": there["bias"], "step": there["step"]}
    assert got.keys() == want.keys()
    for name, tensor in want.items():
        assert np.array_equal(np.asarray(got[name]), tensor) and np.asarray(got[name]).dtype == tensor.dtype, name
    assert got.receipt.outcome == "completed" and got.receipt.confirmed
    assert got.receipt.bytes == sum(t.nbytes for t in want.values())
    assert got.receipt.version == ref.version
    # the digest of what was pulled is that of a dict with the same tensors alone, behind its header
    alone = owner.add_tensors({name: np.array(t) for name, t in want.items()})
    again = tensorpull.download_tensors(owner.address, alone, names=list(want))
    assert got.receipt.digest == again.receipt.digest != 0 and got.receipt.fingerprint == again.receipt.fingerprint == alone.fingerprint
    assert owner.wait(ref, 60) and owner.outcome(ref).verdict == "completed"


def test_into_memory_that_exists_contiguous_strided_and_atomic(owner):
    there = model()
    ref = owner.add_tensors(there)
    part = {"layers.0.w": slice(2, 6), "cube": slice(0, 4)}
    out = {"layers.0.w": np.zeros((4, 40), "f4"), "cube": np.zeros((3, 4, 5), "i2").transpose(1, 0, 2), "bias": np.zeros(16)}
    for more in ({}, {"subset": True}, {"atomic": True}):
        for tensor in out.values():
            tensor[...] = 0
        got = tensorpull.download_tensors(owner.address, ref, out=out, names=part, **more)
        assert np.array_equal(out["layers.0.w"], there["layers.0.w"][2:6]) and np.array_equal(out["cube"], there["cube"][:4])
        assert np.array_equal(out["bias"], there["bias"]), "a tensor of out without a slice is whole"
        assert got.receipt.bytes == sum(t.nbytes for t in out.values())
    module = torch.nn.Linear(40, 4, bias=False)
    tensorpull.download_tensors(owner.address, ref, out={"layers.0.w": module.weight}, names={"layers.0.w": slice(12, 16)})
    assert np.array_equal(module.weight.detach().numpy(), there["layers.0.w"][12:])


@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_any_dimension_as_numpy_indexes_it(owner, framework):
    there = {**model(), "conv": np.random.default_rng(3).standard_normal((6, 5, 4, 3), "f4")}
    ref = owner.add_tensors(there)
    random = np.random.default_rng(4)
    for _ in range(30):
        names = {}
        for name, tensor in there.items():
            if tensor.size == 0 or tensor.ndim == 0:
                continue
            dimension = int(random.integers(tensor.ndim))
            begin, end = sorted(random.choice(tensor.shape[dimension] + 1, 2, replace=False).tolist())
            part = (slice(None),) * dimension + (slice(begin, end),)
            names[name] = part if dimension or random.integers(2) else part[0]
            if dimension == tensor.ndim - 1 and random.integers(2):
                names[name] = (..., slice(begin, end))
        got = tensorpull.download_tensors(owner.address, ref, names=names, framework=framework, chunk_size=int(random.choice([64, 1000, 1 << 20])))
        for name, part in names.items():
            assert np.array_equal(np.asarray(got[name]), there[name][part]), (name, part)
        assert got.receipt.bytes == sum(there[name][part].nbytes for name, part in names.items())
    streamed = dict(tensorpull.stream(owner.address, ref, names=names, framework=framework))
    assert all(np.array_equal(np.asarray(streamed[name]), there[name][part]) for name, part in names.items())
    out = {"conv": np.zeros((3, 2, 6, 5), "f4").transpose(2, 3, 1, 0)}
    tensorpull.download_tensors(owner.address, ref, out=out, names={"conv": np.s_[:, :, 1:3]})
    assert np.array_equal(out["conv"], there["conv"][:, :, 1:3])


def test_eight_workers_with_a_quarter_each_pull_one_model_in_the_bytes_of_two(owner):
    there = {f"layers.{i}.w": np.random.default_rng(i).standard_normal((64, 4000), "f4") for i in range(24)}
    ref = owner.add_tensors(there, recipients=8)
    got, errors = [None] * 8, []

    def work(i):
        rows = {name: t.shape[0] // 4 for name, t in there.items()}
        try:
            got[i] = tensorpull.download_tensors(owner.address, ref, names={name: slice(i % 4 * n, (i % 4 + 1) * n) for name, n in rows.items()}, recipient=f"worker-{i}")
        except BaseException as e:  # noqa: B902: the test's thread raises it
            errors.append(e)

    workers = [JoinedThread(target=work, args=(i,), daemon=True) for i in range(8)]
    for each in workers:
        each.start()
    for each in workers:
        each.join()
    assert not errors
    for first in (0, 4):
        assert all(np.array_equal(np.concatenate([got[first + i][name] for i in range(4)]), t) for name, t in there.items())
    assert owner.wait(ref, 60) and owner.outcome(ref).counts.completed == 8
    whole = sum(t.nbytes for t in there.values())
    assert sum(each.receipt.bytes for each in got) == 2 * whole
    assert 2 * whole <= owner.status(ref).bytes_sent <= 2 * whole + 8 * LOOK  # each has looked at what is published


#: The most bytes that a look at what is published takes.
LOOK = 128 << 10
SLICED = {"layers.0.w": slice(3, 9), "layers.1.w": (slice(None), slice(7, 30)), "cube": (slice(None), slice(1, 3))}


def right(got, there):
    return set(got) == set(SLICED) and all(np.array_equal(got[name], there[name][part]) for name, part in SLICED.items())


@pytest.mark.parametrize("kind", ["127.0.0.1:0", "unix:@tensorpull-slices-{}", "shm:@tensorpull-slices-{}", "udp://127.0.0.1:0"])
def test_over_every_link_of_frames(kind):
    there = model()
    with tensorpull.Downloader(kind.format(os.getpid())) as owner:
        ref = owner.start().add_tensors(there)
        assert right(tensorpull.download_tensors(owner.address, ref, names=SLICED), there)


def test_from_several_sources_at_a_time_and_in_turn(owner):
    there = {name: np.tile(t, (64, 1)) if t.ndim == 2 else t for name, t in model().items()}
    with tensorpull.Downloader() as other:
        other.start()
        ref = owner.add_tensors(there)
        other.add_tensors(there, ref_id=ref.id)
        part = {"layers.0.w": slice(100, 1000), "layers.1.w": slice(0, 5), "layers.2.w": (slice(None), slice(5, 20))}
        for how in ({"connections": 3}, {"retries": 0}):
            got = tensorpull.download_tensors([owner.address, other.address], ref, names=part, chunk_size=8192, **how)
            assert all(np.array_equal(got[name], there[name][rows]) for name, rows in part.items())


def test_over_a_session():
    there = model()
    with tensorpull.Listener() as door:
        refs = []

        def serve():
            with door.accept() as session:
                refs.append(session.add_tensors(there, recipients=1))
                session.send(1, b"", refs)
                session.serve(refs[0])

        serving = JoinedThread(target=serve, daemon=True)
        serving.start()
        with Session(door.address) as session:
            ref = session.receive().references[0]
            assert right(session.download_tensors(ref, names=SLICED), there)
            serving.join()


def test_what_does_not_go_together_is_refused_by_name(owner, tmp_path):
    ref = owner.add_tensors(model())
    out = {"bias": np.zeros(8)}
    part = {"bias": slice(0, 8)}

    def pull(**more):
        return tensorpull.download_tensors(owner.address, ref, **more)

    for more, said in (
        ({"names": part, "base": model()}, "base is for all that is published"),
        ({"names": part, "out": out, "adapt": True}, "without base and names"),
        ({"names": part, "out": out, "cursor": tensorpull.Cursor()}, "cursor is for out alone"),
        ({"names": ["bias"], "out": out}, "names and matching say which new tensors"),
    ):
        with pytest.raises(ValueError, match=said):
            pull(**more)
    with tensorpull.Downloader(http="127.0.0.1:0") as web:
        at = web.start().add_tensors(model())
        with pytest.raises(Error) as e:
            tensorpull.download_tensors(web.url(at), at, bearer=at, names=part)
        assert e.value.code == "unsupported_request"
    assert not out["bias"].any()


@pytest.mark.parametrize(
    "name, part, code",
    [
        ("bias", slice(3, 3), "invalid_argument"),
        ("bias", slice(5, 2), "invalid_argument"),
        ("bias", slice(0, 0), "invalid_argument"),
        ("bias", slice(0, 17), "out_of_range"),
        ("bias", slice(16, 17), "out_of_range"),
        ("bias", slice(-17, 4), "out_of_range"),
        ("bias", slice(0, 2**70), "out_of_range"),
        ("bias", slice(0, 8, 2), "unsupported_request"),
        ("step", slice(0, 1), "invalid_argument"),
        ("step", slice(None), "invalid_argument"),
        ("none", slice(0, 1), "invalid_argument"),
        ("cube", (slice(0, 1), slice(0, 1)), "unsupported_request"),
        ("cube", (slice(None), slice(0, 2, 2)), "unsupported_request"),
        ("cube", (slice(None), slice(2, 4)), "out_of_range"),
        ("cube", (slice(None), slice(1, 1)), "invalid_argument"),
        ("cube", (slice(None),) * 3 + (slice(0, 1),), "out_of_range"),
        ("cube", (..., slice(0, 6)), "out_of_range"),
        ("step", (slice(None),), "invalid_argument"),
        ("hole", slice(None), "invalid_argument"),
    ],
)
def test_a_slice_that_is_not_there_is_named(owner, name, part, code):
    ref = owner.add_tensors(model())
    for more in ({}, {"out": {name: np.zeros(4)}}):
        with pytest.raises(Error) as e:
            tensorpull.download_tensors(owner.address, ref, names={name: part}, **more)
        assert (e.value.code, e.value.name) == (code, name)
    assert eventually(lambda: owner.status(ref).acquired == 0) and owner.status(ref).bytes_sent <= 2 * LOOK and owner.status(ref).completed == 0


def test_other_arguments_that_make_no_sense(owner):
    ref = owner.add_tensors(model())
    for part in (3, None, [0, 1], "0:1", (), (slice(None), 3), (slice(0, 1), None), (..., ..., slice(0, 1))):
        with pytest.raises(TypeError, match="slice"):
            tensorpull.download_tensors(owner.address, ref, names={"bias": part})
    with pytest.raises(TypeError):
        tensorpull.download_tensors(owner.address, ref, names={"bias": slice("a", 2)})
    with pytest.raises(ValueError):
        tensorpull.download_tensors(owner.address, ref, names={})
    with pytest.raises(Error) as e:
        tensorpull.download_tensors(owner.address, ref, names={"bias": slice(0, 4)}, out={"cube": np.zeros(4)})
    assert (e.value.code, e.value.name) == ("invalid_argument", "bias")


def test_memory_of_another_shape_is_named_with_both_shapes(owner):
    ref = owner.add_tensors(model())
    out = {"cube": np.zeros((2, 3, 5), "i2")}
    with pytest.raises(Error) as e:
        tensorpull.download_tensors(owner.address, ref, names={"cube": slice(0, 3)}, out=out)
    assert (e.value.code, e.value.name) == ("schema_mismatch", "cube") and "(2, 3, 5)" in str(e.value) and "(3, 3, 5)" in str(e.value)
    assert not out["cube"].any()


def test_tied_tensors_have_one_slice(owner):
    shared = np.arange(12.0).reshape(4, 3)
    ref = owner.add_tensors({"embed": shared, "head": shared})
    got = tensorpull.download_tensors(owner.address, ref, names={"embed": slice(1, 3), "head": slice(1, 3)})
    assert got["embed"] is got["head"] and np.array_equal(got["head"], shared[1:3])
    assert np.array_equal(tensorpull.download_tensors(owner.address, ref, names={"head": slice(0, 1)})["head"], shared[:1])
    for names in ({"embed": slice(1, 3), "head": slice(0, 2)}, {"embed": slice(1, 3), "head": ...}):
        with pytest.raises(Error) as e:
            tensorpull.download_tensors(owner.address, ref, names=names)
        assert e.value.code == "invalid_argument"


def test_memory_for_a_slice_has_the_name_under_which_it_travels(owner):
    one = np.arange(12.0).reshape(6, 2)
    ref = owner.add_tensors({"a": one, "b": one})
    out = np.zeros((2, 2))
    with pytest.raises(Error) as e:
        tensorpull.download_tensors(owner.address, ref, out={"b": out}, names={"b": slice(1, 3)})
    assert (e.value.code, e.value.name) == ("invalid_argument", "b") and "'a'" in str(e.value)
    tensorpull.download_tensors(owner.address, ref, out={"a": out}, names={"a": slice(1, 3)})
    assert np.array_equal(out, one[1:3])


def test_packed_elements_begin_and_end_where_a_byte_does(owner):
    if not hasattr(torch, "float4_e2m1fn_x2"):
        pytest.skip("optional: this torch has no packed elements")
    there = torch.arange(12, dtype=torch.uint8).view(4, 3).view(torch.float4_e2m1fn_x2)
    ref = owner.add_tensors({"w": there})
    got = tensorpull.download_tensors(owner.address, ref, names={"w": slice(1, 3)}, framework="torch")
    assert torch.equal(got["w"].view(torch.uint8), there.view(torch.uint8)[1:3])


@pytest.mark.parametrize("changed", [False, True])
def test_a_base_that_is_a_slice_of_what_is_published_keeps_nothing(owner, changed):
    there = {"w": np.arange(4000.0).reshape(100, 40), "b": np.ones(8)}
    ref = owner.add_tensors(there, tensor_digests=True)
    base = {"w": there["w"][:25].copy(), "b": there["b"] + changed}
    got = tensorpull.download_tensors(owner.address, ref, base=base)
    assert all(np.array_equal(got[name], t) for name, t in there.items()) and got.receipt.kept_bytes == (0 if changed else there["b"].nbytes)
    with pytest.raises(Error) as e:
        tensorpull.download_tensors(owner.address, ref, base=base, out=base)
    assert e.value.code == "schema_mismatch" and base["w"].shape == (25, 40)
