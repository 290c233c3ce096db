"""One end is a C++ program (tests/python/cpp_end.cpp), the other is Python."""

from __future__ import annotations

import os
import subprocess

import numpy as np
import pytest
import safetensors.numpy
from generated import arrays, assert_same

import tensorpull

PROGRAM = os.environ.get("TENSORPULL_CPP_END", "")
pytestmark = pytest.mark.skipif(not PROGRAM, reason="TENSORPULL_CPP_END does not name the program of tests/python/cpp_end.cpp")


def model(seed):
    plain = {key: np.ascontiguousarray(a).reshape(a.shape) for key, a in arrays(seed).items() if a.dtype.isnative and a.dtype.kind != "V" and "float8" not in a.dtype.name}
    return {**plain, "large": np.random.default_rng(seed).normal(size=(500, 300)), "wörter \"0\"": np.arange(7, dtype="i2"), "none": np.zeros((0, 5), "f4")}


@pytest.mark.parametrize("seed", range(3))
def test_from_cpp_to_python(tmp_path, seed):
    sent = model(seed)
    safetensors.numpy.save_file(sent, tmp_path / "sent")
    with subprocess.Popen([PROGRAM, "serve", tmp_path / "sent"], stdout=subprocess.PIPE, text=True) as cpp:
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
