"""`python -m tensorpull send|recv|inspect` are the programs of examples/tools, which tests/satellites/tools/tools.py tests. Here: that they are, from this package, with its
interpreter around them, and with files that Python's libraries wrote."""

from __future__ import annotations

import os
import pathlib
import re
import signal
import subprocess
import sys

import numpy as np
import pytest
import safetensors.numpy
import processes
from processes import eventually

import tensorpull

COMMAND = [sys.executable, "-m", "tensorpull"]
TOOLS = pathlib.Path(tensorpull._native.__file__).parent / "_tools"


def run(*arguments, **more):
    done = subprocess.run([*COMMAND, *arguments], capture_output=True, timeout=60, **more)
    assert b"Traceback" not in done.stderr, done.stderr.decode()
    return done


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "a model.safetensors"
    rng = np.random.default_rng(1)
    tensors = {"weight": rng.normal(size=(300, 200)), "bias": np.arange(7, dtype="i2"), "none": np.zeros((0, 5), "f4"), "wörter \"0\"\n\x01\x7f": np.ones(3, bool)}
    safetensors.numpy.save_file(tensors, path, metadata={"ge\"ht": "日本\\\t"})
    return path


class Sender:
    """A sender process; `lines` are what it has published."""

    def __init__(self, *arguments, files=1):
        self.process = processes.Program([*COMMAND, "send", *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.lines = [self.process.stdout.readline().split() for _ in range(files)]

    def end(self, number=None):
        if number is not None:
            self.process.send_signal(number)
        out, err = self.process.communicate(timeout=30)
        assert "Traceback" not in err, err
        return self.process.returncode, out, err

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()


@pytest.mark.parametrize(
    "arguments",
    [
        ["recv", "--help"],
        ["send", "-h"],
        ["inspect", "--help"],
        ["recv"],
        ["recv", "127.0.0.1:1"],
        ["recv", "127.0.0.1:1", "12" * 16],
        ["recv", "127.0.0.1:1", "12" * 16, "-o", ""],
        ["recv", "127.0.0.1:1", "0" * 32, "-o", "x"],
        ["recv", "127.0.0.1:1", "12" * 16, "-o", "x", "more"],
        ["recv", "127.0.0.1:1", "12" * 16, "-o", "x", "--retries", "-1"],
        ["recv", "127.0.0.1:1", "12" * 16, "-o", "x", "--timeout", "nan"],
        ["recv", "127.0.0.1:1", "12" * 16, "-o", "x", "--tls-ca", "y"],
        ["recv", "127.0.0.1:1", "12" * 16, "-o", "x", "--restart", "--resume"],
        ["recv", "127.0.0.1:1", "12" * 16, "-o", "x", "--retries", "0"],
        ["recv", b"\xff\xfe:1", "12" * 16, "-o", "x", "--retries", "0"],
        ["send"],
        ["send", "nothing"],
        ["send", "x", "--listen", "nowhere"],
        ["send", "x", "--listen", "tls://127.0.0.1:0"],
        ["send", "x", "--recipients", "1", "--expect", "a"],
        ["send", "x", b"--no-\xff"],
        ["inspect"],
        ["inspect", "--wrong", "x"],
        ["inspect", "--json", "nothing"],
        ["inspect", b"\xff\x1b"],
    ],
)
def test_a_command_is_the_program(arguments, tmp_path):
    tool, *words = arguments
    by_itself = subprocess.run([TOOLS / tool, *words], executable=TOOLS / tool, capture_output=True, timeout=60, cwd=tmp_path)
    done = run(*arguments, cwd=tmp_path)
    assert done.returncode == by_itself.returncode
    assert done.stdout.replace(b"tensorpull ", b"") == by_itself.stdout.replace(b"tensorpull ", b"")
    assert done.stderr.replace(b"tensorpull " + tool.encode(), tool.encode()) == by_itself.stderr.replace(bytes(TOOLS / tool), tool.encode())
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("command", [[], ["send"], ["recv"], ["inspect"]])
def test_help_says_how_they_are_called_here(command):
    done = run(*command, "--help")
    assert done.returncode == 0 and done.stderr == b""
    assert done.stdout.startswith(b"usage: tensorpull " + command[0].encode() + b" " if command else b"usage: python -m tensorpull COMMAND")
    assert not re.search(rb"^ *(send|recv|inspect) [a-z0-9]", done.stdout, re.M), "each example can be run as it is written"


def test_words_that_are_no_command():
    for words in ([], ["pull"], ["\x1b[31m"]):
        done = run(*words)
        assert done.returncode == 2 and done.stdout == b"" and done.stderr.count(b"\n") == 2 and b"\x1b" not in done.stderr


def test_the_version_is_that_of_the_package():
    assert run("--version").stdout.decode() == f"tensorpull {tensorpull.__version__}\n"


@pytest.mark.parametrize("link", ["127.0.0.1:0", "unix:{}/socket", "shm:{}/memory", "udp://127.0.0.1:0"])
def test_a_file_of_pythons_safetensors_arrives_bit_for_bit(model, tmp_path, link):
    with Sender(model, "--recipients", "1", "--listen", link.format(tmp_path)) as sender:
        done = run("recv", *sender.lines[0], "-o", tmp_path / "copy")
        assert done.returncode == 0, done.stderr
        status, _, err = sender.end()
    assert status == 0 and "1 pull completed" in err
    assert (tmp_path / "copy").read_bytes() == model.read_bytes()


def test_arrays_of_numpy_are_sent(tmp_path):
    np.save(tmp_path / "one.npy", np.asfortranarray(np.arange(12.0).reshape(3, 4)))
    np.savez_compressed(tmp_path / "two.npz", b=np.arange(3, dtype=">i4"), a=np.float32(1))
    with Sender(tmp_path / "one.npy", tmp_path / "two.npz", "--recipients", "1", files=2) as sender:
        for line, name in zip(sender.lines, ("one", "two")):
            assert run("recv", *line, "-o", tmp_path / name).returncode == 0
        assert sender.end()[0] == 0
    one, two = (safetensors.numpy.load_file(tmp_path / name) for name in ("one", "two"))
    assert [*one] == ["one"] and (one["one"] == np.arange(12.0).reshape(3, 4)).all()
    assert two["b"].tolist() == [0, 1, 2] and two["a"].shape == () and sorted(two) == ["a", "b"]


def test_what_is_to_be_run_again_is_a_command_here(model):
    with Sender(model, "--recipients", "2") as sender:
        status, _, err = sender.end(signal.SIGINT)
    assert status == 130 and f"\n  tensorpull send '{model}' --listen " in err and f"--ref {sender.lines[0][1]}" in err


@pytest.mark.parametrize("number, status", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_recv_says_how_to_go_on(tmp_path, number, status):
    with tensorpull.Downloader(bytes_per_second=2_000_000) as owner:
        owner.start()
        ref = owner.add_tensors({"a": np.zeros(50_000_000, "u1")})
        with processes.Program([*COMMAND, "recv", owner.address, ref, "-o", "x"], cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.PIPE) as recv:
            assert eventually(lambda: owner.status(ref).bytes_sent > 1_000_000, 30)
            recv.send_signal(number)
            out, err = recv.communicate(timeout=30)
    assert recv.returncode == status and out == b"" and b"interrupted" in err and b"Traceback" not in err
    assert err.splitlines()[-1].startswith(b"  tensorpull recv 127.0.0.1:") and err.endswith(b" --resume\n")


def test_standard_streams_are_those_of_the_program(model, tmp_path):
    """A program on the other end of a pipe, and one that does not read to the end: Python ignores SIGPIPE, the programs do not."""
    ref = "5d1f0c" + "0" * 25 + "a"
    command = " ".join([*COMMAND, "send", f"'{model}'", "--stdio", "--recipients", "1", "--ref", ref])
    done = run("recv", "pipe:" + command, ref, "-o", "copy", cwd=tmp_path)
    assert done.returncode == 0 and (tmp_path / "copy").read_bytes() == model.read_bytes(), done.stderr
    many = " ".join(["'a model.safetensors'"] * 2000)
    done = subprocess.run(["bash", "-c", f"{' '.join(COMMAND)} inspect {many} | head -n 1; echo ${{PIPESTATUS[0]}}"], capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert done.stdout.splitlines()[1] == "141" and done.stderr == ""


def test_without_numpy(tmp_path):
    """No file needs another package."""
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "numpy.py").write_text("raise ImportError('hidden')\n")
    np.save(tmp_path / "a.npy", np.zeros(3))
    path = os.pathsep.join([str(tmp_path / "hidden"), *filter(None, [os.environ.get("PYTHONPATH")])])
    assert run("inspect", tmp_path / "a.npy", env={**os.environ, "PYTHONPATH": path}).returncode == 0
