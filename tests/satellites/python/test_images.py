"""Images by ranges: what is read is what a download gets, and a landing takes only that."""

from __future__ import annotations

import importlib.util
import os
import random
import struct
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from generated import arrays, assert_same, bits
from safetensors.numpy import load
import processes

import tensorpull
from tensorpull import Error, Landing, PublishedImage, _images, read_header
from tensorpull._tensors import numpy_maker

EXAMPLES = Path(__file__).resolve().parents[3] / "examples/python/examples"


def small() -> dict[str, np.ndarray]:
    return {"a": np.arange(100, dtype="f4").reshape(10, 10).T, "b": np.arange(7, dtype="u1"), "c": np.array(3.0), "none": np.zeros((0, 3))}


def assert_landed(got, sent) -> None:
    assert got.keys() == sent.keys()
    for name in sent:
        assert got[name].shape == sent[name].shape and bits(got[name]) == bits(sent[name]), name


def test_an_image_is_a_safetensors_file_and_what_is_published(owner):
    image = PublishedImage(small(), {"k": "v"})
    assert_landed(load(image.read()), small())
    assert image.version == owner.add_tensors(small(), metadata={"k": "v"}).version
    assert len(image.read()) == image.nbytes
    for each in image.tensors:
        assert image.read(each.begin, each.nbytes) == bits(small()[each.name])
    assert read_header(image.read(0, 8)) == (image.header_bytes, 0)
    assert read_header(image.read(0, image.header_bytes + 3)) == (image.header_bytes, image.nbytes)
    assert read_header(b"1234567") is None


@pytest.mark.parametrize("seed", range(12))
def test_any_range_of_any_model(seed):
    sent, rng = arrays(seed), random.Random(seed)
    image = PublishedImage(sent)
    whole = image.read()
    for _ in range(60):
        at = rng.randint(0, image.nbytes)
        n = rng.choice([0, 1, 7, rng.randint(0, image.nbytes), image.nbytes])
        assert image.read(at, n) == whole[at : at + n]
        into = bytearray(n + 3)
        got = image.readinto(at, memoryview(into)[:n])
        assert into[:got] == whole[at : at + n] and into[got:] == bytes(n + 3 - got)
    landing = Landing(image.nbytes)
    landing.write(0, whole[: image.header_bytes])
    cuts = sorted({image.header_bytes, image.nbytes, *(rng.randint(image.header_bytes, image.nbytes) for _ in range(20))})
    pieces = list(zip(cuts, cuts[1:]))
    rng.shuffle(pieces)
    for begin, end in pieces:
        landing.write(begin, memoryview(whole)[begin:end])
    assert_same(landing.finish(image.version), sent)


def test_reading_refuses_what_is_no_range():
    image = PublishedImage(small())
    assert image.read(image.nbytes) == b"" and image.read(image.nbytes - 1, 100) == image.read()[-1:]
    with pytest.raises(Error) as e:
        image.read(image.nbytes + 1)
    assert (e.value.code, e.value.at) == ("out_of_range", image.nbytes)
    with pytest.raises((BufferError, TypeError, ValueError)):
        image.readinto(0, b"read-only")
    with pytest.raises(ValueError):
        image.readinto(0, memoryview(bytearray(20))[::2])
    for wrong in (-1, 2**64):
        with pytest.raises(ValueError):
            image.read(wrong)


def test_a_landing_refuses_overlaps_gaps_and_what_is_outside():
    image = PublishedImage(small())
    whole, head, n = image.read(), image.header_bytes, image.nbytes
    landing = Landing(n)

    def refused(offset, data):
        before = landing.written
        with pytest.raises(Error) as e:
            landing.write(offset, data)
        assert landing.written == before
        return e.value.code

    assert landing.header_left == 8
    assert refused(head, whole[head:]) == "out_of_range"
    assert refused(n, b"x") == refused(2**64 - 1, b"x") == "out_of_range"
    landing.write(0, whole[:8])
    assert landing.header_left == head - 8
    landing.write(8, whole[8 : head + 10])
    assert landing.header_left == 0
    assert refused(0, whole[:8]) == refused(head + 9, b"xx") == "bad_request"
    with pytest.raises(Error) as e:
        landing.finish(image.version)
    assert (e.value.code, e.value.at, landing.first_missing) == ("out_of_range", head + 10, head + 10)
    landing.write(head + 10, whole[head + 10 :])
    assert_landed(landing.finish(image.version), small())
    with pytest.raises(Error) as e:
        landing.write(0, b"x")
    assert e.value.code == "invalid_argument"


def test_wrong_bytes_are_never_given_out():
    image = PublishedImage(small())
    wrong = bytearray(image.read())
    wrong[-1] ^= 1
    landing = Landing(image.nbytes)
    landing.write(0, wrong)
    with pytest.raises(Error) as e:
        landing.finish(image.version)
    assert e.value.code == "digest_mismatch"
    with pytest.raises(Error):
        landing.finish(0)
    unknown = Landing(image.nbytes)
    unknown.write(0, wrong)
    assert unknown.finish(0).keys() == small().keys()


def test_headers_that_lie_allocate_nothing():
    image = PublishedImage(small())
    whole = image.read()
    exabyte = 1 << 60
    cases = [
        (exabyte, whole[:8], {"max_bytes": 1 << 30}, "too_large"),
        (exabyte, struct.pack("<Q", exabyte), {}, "too_large"),
        (exabyte, struct.pack("<Q", 2**64 - 1), {}, "too_large"),
        (100, struct.pack("<Q", 1000), {}, "bad_frame"),
        (image.nbytes, struct.pack("<Q", 0), {}, "bad_frame"),
        (image.nbytes + 1, whole, {}, "schema_mismatch"),
        (image.nbytes, whole, {"max_tensors": 1}, "too_large"),
        (image.nbytes, whole, {"max_bytes": 8}, "too_large"),
        (image.nbytes, whole, {"max_header_bytes": 16}, "too_large"),
        (image.nbytes, whole.replace(b'"F32"', b'"F99"'), {}, "unsupported_dtype"),
        (image.nbytes, whole.replace(b'"dtype"', b'"dtyqe"'), {}, "bad_frame"),
        (image.nbytes, whole.replace(b"[0,400]", b"[1,400]").replace(b"[8,408]", b"[9,408]"), {}, "bad_frame"),
    ]
    for nbytes, data, limits, code in cases:
        landing = Landing(nbytes, **limits)
        with pytest.raises(Error) as e:
            landing.write(0, data)
        assert e.value.code == code, (nbytes, data[:20], e.value)
    for wrong in (whole[8:], struct.pack("<Q", 2) + b"{}" * 5, b"\x02" + bytes(7) + b"[]"):
        with pytest.raises(Error) as e:
            read_header(wrong) if int.from_bytes(wrong[:8], "little") < 1 << 20 else Landing(1 << 30).write(0, wrong)
        assert e.value.code in ("bad_frame", "too_large")


def test_landing_in_tensors_that_exist():
    sent = small()
    image = PublishedImage(sent)
    out = {name: np.zeros(a.shape, a.dtype) for name, a in sent.items()}
    landing = Landing(image.nbytes, out=out)
    landing.write(0, image.read())
    got = landing.finish(image.version)
    assert got["a"] is out["a"]
    assert_landed(out, sent)
    for wrong in ({**out, "more": np.zeros(3)}, {k: v for k, v in out.items() if k != "b"}, {**out, "a": np.zeros((10, 11), "f4")}, {**out, "a": np.zeros((10, 10), "i4")}):
        landing = Landing(image.nbytes, out=wrong)
        with pytest.raises(Error) as e:
            landing.write(0, image.read())
            landing.finish(image.version)
        assert e.value.code == "schema_mismatch"


def test_torch():
    torch = pytest.importorskip("torch")
    sent = {"w": torch.arange(12, dtype=torch.bfloat16).reshape(3, 4), "tied": None}
    sent["tied"] = sent["w"]
    image = PublishedImage(sent)
    landing = Landing(image.nbytes, "torch")
    landing.write(0, image.read())
    got = landing.finish(image.version)
    assert torch.equal(got["w"], sent["w"]) and got["tied"] is got["w"]


def test_threads_write_side_by_side():
    sent = {"w": np.random.default_rng(1).integers(0, 255, 1 << 20, np.uint8)}
    image = PublishedImage(sent)
    landing = Landing(image.nbytes)
    landing.write(0, image.read(0, image.header_bytes))
    step = 4096

    def part(first):
        for at in range(image.header_bytes + first * step, image.nbytes, 4 * step):
            landing.write(at, image.read(at, step))

    threads = [processes.JoinedThread(target=part, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert_landed(landing.finish(image.version), sent)


def example(name: str):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def test_fsspec_reads_by_ranges_and_lazily():
    fsspec = pytest.importorskip("fsspec", reason="optional: fsspec is not installed")
    module = example("fsspec_file")
    sent = {f"t{i}": np.full(1 << 16, i, "f4") for i in range(8)}
    fs = module.ImageFileSystem({"w.safetensors": sent, "other": small()})
    read: list[int] = []
    image = fs.images["w.safetensors"]

    class Counted:
        nbytes, version, tensors = image.nbytes, image.version, image.tensors

        def read(self, offset=0, n=-1):
            read.append(n)
            return image.read(offset, n)

    fs.images["w.safetensors"] = Counted()
    assert fs.ls("", detail=False) == ["other", "w.safetensors"] and fs.size("w.safetensors") == image.nbytes
    assert not read, "nothing was read to say so"
    begin, end = fs.tensor_range("w.safetensors", "t5")
    with fs.open("images://w.safetensors") as f:
        f.seek(begin)
        assert np.array_equal(np.frombuffer(f.read(end - begin), "f4"), sent["t5"])
    assert sum(read) < 3 * (end - begin), "and not the other tensors"
    assert fs.cat_file("w.safetensors", begin, end) == bits(sent["t5"]) and fs.cat_file("other") == PublishedImage(small()).read()
    whole = PublishedImage(small()).read()
    for start in (None, 0, 3, -4, -10_000, 10_000):
        for end in (None, 0, 5, -2, -10_000, 10_000):
            assert fs.cat_file("other", start, end) == whole[start:end], (start, end)
    with pytest.raises(FileNotFoundError):
        fs.open("nothing")


@pytest.mark.skipif(os.environ.get("TENSORPULL_RAY") != "1", reason="optional: Ray takes a minute, and runs with TENSORPULL_RAY=1")
def test_ray_actors_pull_from_each_other():
    pytest.importorskip("ray", reason="optional: Ray is not installed")
    done = subprocess.run([sys.executable, str(EXAMPLES / "ray_transport.py")], capture_output=True, text=True, timeout=300, env={**os.environ, "RAY_AUTH_MODE": "disabled"})  # it would write a token to the home
    assert done.returncode == 0 and "the sums agree" in done.stdout, done.stderr


def landed(image: PublishedImage, **how):
    landing = Landing(image.nbytes, **how)
    landing.write(0, image.read())
    return landing.finish(image.version)


def test_trees_ties_and_order_land():
    w = np.arange(6.0)
    tree = {"state": {0: {"step": w, "n": 3}}, "more": [w, (np.ones(2), None)]}
    got = landed(PublishedImage(tree))
    again = tensorpull.unflatten(got)
    assert list(got) == ["state.0.step", "more.0", "more.1.0"] and got["more.0"] is got["state.0.step"]
    assert list(again) == ["state", "more"] and again["state"][0]["n"] == 3 and again["more"][1][1] is None and np.array_equal(again["more"][0], w)
    flat = {"z": w, "a": np.ones(1, "f2"), "k": w, "m": np.ones(2)}
    got = landed(PublishedImage(flat, {"by": "me"}))
    assert list(got) == list(flat) and got["z"] is got["k"] and got.metadata["by"] == "me"


def test_a_landing_in_out_keeps_this_packages_metadata_to_itself():
    for published, out in (
        ({"z": np.ones(1), "a": np.ones(1, "f2")}, {"z": np.zeros(1), "a": np.zeros(1, "f2")}),
        ({"z": {"y": np.ones(1)}}, {"z.y": np.zeros(1)}),
    ):
        got = landed(PublishedImage(published, {"by": "me"}), out=out)
        assert got.metadata == {"by": "me"} and all(array.all() for array in out.values())


def test_what_is_tied_in_out_is_tied_in_the_image():
    w, mine = np.ones(3), np.zeros(3)
    got = landed(PublishedImage({"a": w, "b": w}), out={"a": mine, "b": mine})
    assert got["a"] is got["b"] is mine and mine.all()
    for published in ({"a": w}, {"a": w, "b": w.copy()}, {"a": w, "c": w}):
        with pytest.raises(Error) as e:
            landed(PublishedImage(published), out={"a": mine, "b": mine})
        assert (e.value.code, e.value.name) == ("schema_mismatch", "b")


def test_a_landing_gives_out_the_tensors_that_it_was_given():
    image, w = PublishedImage({"w": np.full(2, 7.0)}), np.zeros(2)
    out = {"w": w}
    landing = Landing(image.nbytes, out=out)
    out["w"] = np.full(2, -1.0)
    while landing.header_left:
        landing.write(landing.written, image.read(landing.written, landing.header_left))
    landing.write(landing.written, image.read(landing.written))
    assert landing.finish(image.version)["w"] is w and w.tolist() == [7, 7]


def test_too_many_gaps_are_refused_and_change_nothing():
    image = PublishedImage({"a": np.arange(80_000, dtype="u4").astype("u2")})
    whole, landing = image.read(), Landing(image.nbytes)
    landing.write(0, whole[: image.header_bytes])
    with pytest.raises(Error) as e:
        for at in range(image.header_bytes + 1, image.nbytes, 2):
            landing.write(at, whole[at : at + 1])
    assert (e.value.code, e.value.name) == ("too_large", "ranges")
    before = landing.written
    for gap in reversed(range(image.header_bytes, at - 1, 2)):
        landing.write(gap, whole[gap : gap + 1])
    landing.write(at - 1, whole[at - 1 :])
    assert landing.written == image.nbytes and before < image.nbytes
    assert np.array_equal(landing.finish(image.version)["a"], np.arange(80_000, dtype="u4").astype("u2"))


@pytest.mark.parametrize("kind", ["O", [("a", "O"), ("b", "i4")]])
def test_memory_of_objects_is_neither_read_nor_written(kind):
    image, objects = PublishedImage({"a": np.ones(100)}), np.empty(10, kind)
    for call in (lambda: image.readinto(0, objects), lambda: Landing(image.nbytes).write(0, objects)):
        with pytest.raises(TypeError, match="no objects"):
            call()
    whole = np.zeros(image.nbytes // 8, "f8")
    assert image.readinto(0, whole) == image.nbytes and whole.tobytes() == image.read()


def test_a_handler_of_a_signal_asks_how_far_a_landing_is(monkeypatch):
    image, heard = PublishedImage({"a": np.ones(100)}), []

    def handler():
        heard.append((landing.written, landing.first_missing, landing.header_left))
        with pytest.raises(RuntimeError, match="within a call of the landing"):
            landing.write(landing.written, b"x")
        with pytest.raises(RuntimeError, match="within a call of the landing"):
            landing.finish(image.version)

    def maker(made):  # a handler runs within Python's code of a call
        make = numpy_maker(made)
        return lambda *described: (handler(), make(*described))[1]

    monkeypatch.setattr(_images, "numpy_maker", maker)
    landing = Landing(image.nbytes)
    within = threading.Thread(target=landing.write, args=(0, image.read()), daemon=True)
    within.start()
    within.join(20)
    assert not within.is_alive() and heard == [(image.header_bytes, image.header_bytes, 0)]
    assert landing.finish(image.version)["a"].all()
