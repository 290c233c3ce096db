"""One end is a C++ program (tests/satellites/python/cpp_end.cpp), the other is Python."""

from __future__ import annotations

import os
import subprocess

import numpy as np
import pytest
import safetensors.numpy
import processes
from generated import arrays, assert_same

import tensorpull
from tensorpull import _publish

PROGRAM = os.environ.get("TENSORPULL_CPP_END", "")
pytestmark = pytest.mark.skipif(not PROGRAM, reason="TENSORPULL_CPP_END does not name the program of tests/satellites/python/cpp_end.cpp")


def model(seed):
    plain = {key: np.ascontiguousarray(a).reshape(a.shape) for key, a in arrays(seed).items() if a.dtype.isnative and a.dtype.kind != "V" and "float8" not in a.dtype.name}
    return {**plain, "large": np.random.default_rng(seed).normal(size=(500, 300)), "wörter \"0\"": np.arange(7, dtype="i2"), "none": np.zeros((0, 5), "f4")}


@pytest.mark.parametrize("seed", range(3))
def test_from_cpp_to_python(tmp_path, seed):
    sent = model(seed)
    safetensors.numpy.save_file(sent, tmp_path / "sent")
    with processes.Program([PROGRAM, "serve", tmp_path / "sent"], stdout=subprocess.PIPE, text=True) as cpp:
        address, ref, version = cpp.stdout.readline().split()
        got = tensorpull.download_tensors(address, ref)
        assert cpp.communicate(timeout=30)[0] == "completed\n"
    assert got.receipt.version == int(version)
    assert_same(got, sent)


@pytest.mark.parametrize("seed", range(3))
def test_from_python_to_cpp(owner, tmp_path, seed):
    sent = model(seed)
    sent["large"] = np.asfortranarray(sent["large"])
    ref = owner.add_tensors(sent, recipients=1, keep_order=False)  # the order is metadata, which safetensors.numpy.save does not write
    done = subprocess.run([PROGRAM, "pull", owner.address, ref, tmp_path / "got"], capture_output=True, text=True, timeout=30)
    assert done.stdout == f"completed {ref.version}\n", done.stderr
    assert owner.wait(ref, 60) and owner.outcome(ref).verdict == "completed"
    assert_same({k: np.array(a) for k, a in safetensors.numpy.load_file(tmp_path / "got").items()}, sent)
    contiguous = {key: np.ascontiguousarray(a).reshape(a.shape) for key, a in sent.items()}
    assert (tmp_path / "got").read_bytes() == safetensors.numpy.save(contiguous)


def test_an_error_crosses(owner, tmp_path):
    ref = owner.add_tensors({"a": np.zeros(3)})
    owner.withdraw(ref)
    done = subprocess.run([PROGRAM, "pull", owner.address, ref, tmp_path / "got"], capture_output=True, text=True, timeout=30)
    assert done.returncode == 1 and "withdrawn" in done.stderr and not (tmp_path / "got").exists()


def stepped(old):
    """A version whose large tensor is the same: and kept_bytes of a recipient that has the one before."""
    new = {key: a.copy() for key, a in old.items()}
    for key, a in new.items():
        if key != "large" and a.nbytes:
            a.reshape(-1).view(np.uint8)[0] ^= 1  # a bool is the other one then
    return new, sum(a.nbytes for key, a in new.items() if a.tobytes() == old[key].tobytes())


def pull_changed(owner, ref, tmp_path, old):
    safetensors.numpy.save_file(old, tmp_path / "old")
    done = subprocess.run([PROGRAM, "changed", owner.address, ref, tmp_path / "old", tmp_path / "got"], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    return done.stdout.split(), {k: np.array(a) for k, a in safetensors.numpy.load_file(tmp_path / "got").items()}


@pytest.mark.parametrize("metadata", [None, {"round": "7"}])
@pytest.mark.parametrize("seed", range(3))
def test_only_what_has_changed_from_python_to_cpp(owner, tmp_path, seed, metadata):
    old = model(seed)
    new, kept = stepped(old)
    ref = owner.add_tensors(new, recipients=1, tensor_digests=True, metadata=metadata)
    said, got = pull_changed(owner, ref, tmp_path, old)
    assert said == ["completed", str(ref.version), str(kept)] and kept > 1_000_000
    assert_same(got, new)
    assert owner.wait(ref, 60) and owner.status(ref).completed == 1 and owner.outcome(ref).verdict == "completed"


@pytest.mark.parametrize("lie", ["large has changed", "large has not changed", "of another length", "no digits"])
def test_digests_of_python_that_lie_to_cpp(owner, tmp_path, monkeypatch, lie):
    old = model(1)
    new, _ = stepped(old)
    if lie == "large has not changed":
        new["large"] = new["large"] + 1
    told = dict(_publish._native.tensor_digests(tensorpull._tensors.Tensors({**new, "large": old["large"]}).described))
    told["large"] ^= lie == "large has changed"
    text = _publish.digests_said(told)
    (key,) = text
    said = {"of another length": {key: text[key][:-16]}, "no digits": {key: "x" * len(text[key])}}.get(lie, text)
    monkeypatch.setattr(_publish, "digests_said", lambda digests: said)
    ref = owner.add_tensors(new, recipients=1, tensor_digests=True)
    _, got = pull_changed(owner, ref, tmp_path, old)
    assert_same(got, new)
    assert owner.wait(ref, 60) and owner.status(ref).completed == 1 and owner.outcome(ref).verdict == "completed"


@pytest.mark.parametrize("seed", range(3))
def test_only_what_has_changed_from_cpp_to_python(tmp_path, seed):
    old = model(seed)
    new, kept = stepped(old)
    safetensors.numpy.save_file(new, tmp_path / "sent", metadata={"round": "7"})
    with processes.Program([PROGRAM, "serve-digests", tmp_path / "sent"], stdout=subprocess.PIPE, text=True) as cpp:
        address, ref, version = cpp.stdout.readline().split()
        got = tensorpull.download_tensors(address, ref, base={key: a.copy() for key, a in old.items()})
        assert cpp.communicate(timeout=30)[0] == "completed\n"
    assert got.receipt.version == int(version) and got.receipt.kept_bytes == kept and got.metadata == {"round": "7"}
    assert_same(got, new)
