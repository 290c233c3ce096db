"""NumPy's arrays, from one process to itself over TCP."""

from __future__ import annotations

import gc
import random
import weakref

import ml_dtypes
import numpy as np
import pytest
from generated import array, arrays, assert_same, bits
from processes import eventually

import tensorpull
from tensorpull import Error

SEEDS = 1000


@pytest.mark.parametrize("block", range(10))
def test_generated_dicts_arrive_bit_for_bit(owner, block):
    for seed in range(block * SEEDS // 10, (block + 1) * SEEDS // 10):
        sent = arrays(seed)
        ref = owner.add_tensors(sent, recipients=1)
        try:
            got = tensorpull.download_tensors(owner.address, ref, chunk_size=[2097152, 8, 64, 1000][seed % 4], max_bytes=1 << 20)
            assert got.receipt.outcome == "completed" and got.receipt.version == ref.version
            assert_same(got, sent)
        except Exception as e:
            raise AssertionError(f"seed {seed}") from e


def test_five_thousand_tensors(owner):
    sent = {f"layers.{i}.weight": np.full((i % 7, 3), i, "f4") for i in range(5000)}
    ref = owner.add_tensors(sent)
    assert_same(tensorpull.download_tensors(owner.address, ref), sent)
    mine = {key: np.zeros_like(a) for key, a in sent.items()}
    tensorpull.download_tensors(owner.address, ref, out=mine)
    assert_same(mine, sent)


def test_what_is_sent_is_what_safetensors_writes(owner, tmp_path):
    import safetensors.numpy

    sent = {key: np.ascontiguousarray(a).reshape(a.shape) for key, a in arrays(5).items() if a.dtype.isnative and a.dtype.kind != "V"}
    sent["w"] = np.arange(6, dtype="f4").reshape(2, 3)
    ref = owner.add_tensors(sent, keep_order=False)
    assert ref.nbytes == len(safetensors.numpy.save(sent))
    assert_same(tensorpull.download_tensors(owner.address, ref), safetensors.numpy.load(safetensors.numpy.save(sent)))


def test_out_is_landed_in_and_returned(owner):
    sent = {"a": np.arange(10.0), "b": np.array(7, "i2")}
    ref = owner.add_tensors(sent)
    a, b = np.zeros(10), np.zeros((), "i2")
    got = tensorpull.download_tensors(owner.address, ref, out={"a": a, "b": b})
    assert got["a"] is a and got["b"] is b
    assert_same(got, sent)


def test_a_subset_of_what_is_published(owner):
    sent = {f"t{i}": np.full(100, i, "f4") for i in range(20)}
    ref = owner.add_tensors(sent)
    out = {"t3": np.zeros(100, "f4"), "t17": np.zeros(100, "f4")}
    got = tensorpull.download_tensors(owner.address, ref, out=out, subset=True)
    assert got.receipt.outcome == "completed" and got.receipt.bytes == 800
    assert_same(out, {"t3": sent["t3"], "t17": sent["t17"]})
    with pytest.raises(ValueError, match="out"):
        tensorpull.download_tensors(owner.address, ref, subset=True)


@pytest.mark.parametrize(
    "mine",
    [
        {"a": np.zeros(10, "f4")},
        {"a": np.zeros(9)},
        {"b": np.zeros(10)},
        {"a": np.zeros(10), "b": np.zeros(1)},
        {},
    ],
    ids=["dtype", "shape", "name", "one more", "none"],
)
def test_L3_L6_another_schema_is_refused_before_a_byte_lands(owner, mine):
    before = {key: a.copy() for key, a in mine.items()}
    ref = owner.add_tensors({"a": np.ones(10)})
    with pytest.raises(Error) as e:
        tensorpull.download_tensors(owner.address, ref, out=mine)
    assert (e.value.code, e.value.landed) == ("schema_mismatch", 0)
    assert_same(mine, before)


def overlapping():
    memory = np.zeros(15)
    return {"a": memory[:10], "b": memory[5:]}


def read_only():
    a = np.zeros(10)
    a.flags.writeable = False
    return {"a": a}


@pytest.mark.parametrize(
    "out, name",
    [
        ({"a": np.zeros(4, ">f8")}, "a"),
        (read_only(), "a"),
        (overlapping(), "b"),
    ],
    ids=["other byte order", "read-only", "overlapping"],
)
def test_L9_L11_what_cannot_be_landed_in_is_refused_by_name(owner, out, name):
    ref = owner.add_tensors({"a": np.zeros(4)})
    with pytest.raises(Error) as e:
        tensorpull.download_tensors(owner.address, ref, out=out)
    assert (e.value.code, e.value.name) == ("unsupported_layout", name)


@pytest.mark.parametrize(
    "bad, code",
    [
        (np.array([None, 1], object), "unsupported_dtype"),
        (np.array(["a", "bc"]), "unsupported_dtype"),
        (np.array([b"a"]), "unsupported_dtype"),
        (np.array(["2020-01-01"], "datetime64[D]"), "unsupported_dtype"),
        (np.array([1], "timedelta64[s]"), "unsupported_dtype"),
        (np.zeros(2, [("x", "f4"), ("y", "i4")]), "unsupported_dtype"),
        (np.zeros(2, "V3"), "unsupported_dtype"),
        (np.zeros(2, "V2"), "unsupported_dtype"),
        (np.zeros(2, np.longdouble), "unsupported_dtype"),
        (np.zeros(2, "c16"), "unsupported_dtype"),
        (np.zeros(2, np.dtype(ml_dtypes.bfloat16).newbyteorder(">")), "unsupported_dtype"),
        (np.zeros(2, ml_dtypes.int4), "unsupported_dtype"),
        (np.zeros(2, ml_dtypes.float4_e2m1fn), "unsupported_dtype"),
        (np.ma.masked_array([1.0, 2.0], [True, False]), "unsupported_layout"),
    ],
)
def test_N1_what_cannot_travel_is_refused_by_name(owner, bad, code):
    with pytest.raises(Error) as e:
        owner.add_tensors({"good": np.zeros(3), "the.bad.one": bad})
    assert (e.value.code, e.value.name) == (code, "the.bad.one")


def test_what_is_no_dict_of_arrays_is_a_type_error(owner):
    for bad in (np.zeros(2), {"a": {1, 2}}, {1.5: np.zeros(2)}, {"a": np.complex64(1)}, None):
        with pytest.raises(TypeError):
            owner.add_tensors(bad)
    for name, code in (("__metadata__", "reserved_name"), ("\ud800", "invalid_argument")):
        with pytest.raises(Error) as e:
            owner.add_tensors({name: np.zeros(2)})
        assert e.value.code == code


def test_metadata_travels(owner):
    ref = owner.add_tensors({"a": np.zeros(2)}, metadata={"format": "np", "round \"7\"": "a"})
    got = tensorpull.download_tensors(owner.address, ref)
    assert got.metadata == {"format": "np", "round \"7\"": "a"}
    assert got["round \"7\""] is got["a"]


def test_the_limits_of_what_an_owner_may_make_us_allocate(owner):
    ref = owner.add_tensors({"a": np.zeros(1000), "b": np.zeros(1000)})
    assert len(tensorpull.download_tensors(owner.address, ref, max_bytes=16000, max_tensors=2)) == 2
    for limit in ({"max_bytes": 15999}, {"max_tensors": 1}, {"max_header_bytes": 64}):
        with pytest.raises(Error) as e:
            tensorpull.download_tensors(owner.address, ref, **limit)
        assert e.value.code == "too_large"


def test_published_memory_is_not_copied_and_let_go_of(owner):
    a = np.zeros(1 << 20, "f4")
    gone = weakref.ref(a)
    ref = owner.add_tensors({"a": a}, recipients=1)
    del a
    gc.collect()
    assert gone() is not None
    tensorpull.download_tensors(owner.address, ref)
    assert owner.wait(ref, 60)
    assert eventually(lambda: gone() is None)


def test_C1_a_source_that_changes_is_found_out(owner):
    a = np.zeros(1 << 16, "f4")
    ref = owner.add_tensors({"a": a})
    a[1000] = 1
    with pytest.raises(Error) as e:
        tensorpull.download_tensors(owner.address, ref)
    assert e.value.code == "digest_mismatch"


def test_chunk_size_0_is_one_frame(owner):
    sent = {"a": array(random.Random(3), np.random.default_rng(3)), "b": np.arange(1 << 20, dtype="i4")}
    ref = owner.add_tensors(sent, chunk_size=0)
    assert ref.chunk_size == 0
    got = tensorpull.download_tensors(owner.address, ref)
    assert got.receipt.chunks == 1
    assert_same(got, sent)
    assert tensorpull.download_tensors(owner.address, str(ref)).receipt.chunks == 3
    assert bits(sent["b"]) == sent["b"].tobytes()


def test_a_version_that_is_known_saves_the_digest_and_a_wrong_one_is_noticed(owner):
    model = {"w": np.arange(100_000, dtype=np.float32)}
    first = owner.add_tensors(model)
    again = owner.add_tensors(model, version=first.version)
    assert again.version == first.version and again != first
    assert np.array_equal(tensorpull.download_tensors(owner.address, again)["w"], model["w"])
    wrong = owner.add_tensors(model, version=first.version ^ 1)
    with pytest.raises(tensorpull.Error) as e:
        tensorpull.download_tensors(owner.address, wrong, retries=0)
    assert e.value.code == "digest_mismatch"
    part = tensorpull.download_tensors(owner.address, wrong, out={"w": np.zeros_like(model["w"])}, subset=True)  # which has a digest of its own
    assert np.array_equal(part["w"], model["w"])
    for bad in (-1, 2**64, "7", 1.0):
        with pytest.raises((TypeError, ValueError)):
            owner.add_tensors(model, version=bad)
