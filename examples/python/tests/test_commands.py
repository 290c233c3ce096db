"""`python -m tensorpull send|recv|inspect` as people use them: processes, files, signals, streams that are closed."""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import resource
import signal
import subprocess
import sys

import numpy as np
import pytest
import safetensors
import safetensors.numpy
from waiting import eventually

import tensorpull
from tensorpull._commands.tensor_files import Rejected, TensorFile

COMMAND = [sys.executable, "-m", "tensorpull"]


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
        self.process = subprocess.Popen([*COMMAND, "send", *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
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


@pytest.mark.parametrize("link", ["127.0.0.1:0", "tcp://127.0.0.1:0", "unix:{}/socket", "unix:@tensorpull-test-{}", "shm:{}/memory", "udp://127.0.0.1:0"])
def test_a_file_arrives_bit_for_bit(model, tmp_path, link):
    link = link.format(os.getpid() if "@" in link else tmp_path)
    with Sender(model, "--recipients", "1", "--listen", link) as sender:
        done = run("recv", *sender.lines[0], "-o", tmp_path / "copy")
        assert done.returncode == 0, done.stderr
        assert b"; digest " in done.stdout and b" agrees\n" in done.stdout
        status, _, err = sender.end()
    assert status == 0 and "1 pull completed" in err
    assert (tmp_path / "copy").read_bytes() == model.read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir() if p.name.startswith(".") and p.name.endswith(".part")) == []


def test_an_empty_model_and_metadata_alone(tmp_path):
    safetensors.numpy.save_file({}, tmp_path / "empty")
    safetensors.numpy.save_file({}, tmp_path / "pairs", metadata={"a": "b"})
    with Sender(tmp_path / "empty", tmp_path / "pairs", "--recipients", "1", files=2) as sender:
        for line, name in zip(sender.lines, ("empty", "pairs")):
            assert run("recv", *line, "-o", tmp_path / "copy", "--force").returncode == 0
            assert (tmp_path / "copy").read_bytes() == (tmp_path / name).read_bytes()
        assert sender.end()[0] == 0


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


def test_what_programs_read(model, tmp_path):
    with Sender(model, "--expect", "site-1", "--json", "--ref", "00" * 15 + "0a") as sender:
        published = json.loads(" ".join(sender.lines[0]))
        assert published["event"] == "published" and published["ref"] == "00" * 15 + "0a" and published["tensors"] == 4
        done = run("recv", published["address"], published["ref"].upper(), "-o", tmp_path / "copy", "--json", "--name", "site-1", "--chunk", "0")
        told = json.loads(done.stdout)
        assert told["outcome"] == "completed" and told["confirmed"] and told["digest"] == published["digest"] and told["bytes"] == model.stat().st_size and told["chunks"] == 1
        status, out, _ = sender.end()
    events = [json.loads(line) for line in out.splitlines()]
    assert status == 0 and [e["event"] for e in events] == ["started", "completed", "ended"] and events[1]["name"] == "site-1" and events[2]["completed"] == 1


def test_inspect_says_what_is_in_a_file(model, tmp_path):
    about = json.loads(run("inspect", "--json", model).stdout)
    data = model.read_bytes()
    begin = 8 + int.from_bytes(data[:8], "little")
    assert about["verdict"] == "accept" and about["bytes"] == len(data) and about["metadata"] == {'ge"ht': "日本\\\t"}
    assert [t["name"] for t in about["tensors"]] == ["weight", "none", "bias", 'wörter "0"\n\x01\x7f']
    for tensor in about["tensors"]:
        first, last = tensor["offsets"]
        assert tensor["sha256"] == hashlib.sha256(data[begin + first : begin + last]).hexdigest()
    table = run("inspect", model).stdout.decode()
    assert "4 tensors" in table and "[300, 200]" in table and "60010 elements" in table and "wörter \"0\"\\n\\x01\\x7f" in table and "\x01" not in table


def header(text: bytes, data: bytes = b"") -> bytes:
    return len(text).to_bytes(8, "little") + text + data


@pytest.mark.parametrize(
    "content, code",
    [
        (b"", "bad_file"),
        (b"1234567", "bad_file"),
        ((2**63).to_bytes(8, "little") + b"{", "does_not_fit"),
        ((50).to_bytes(8, "little") + b"{}", "bad_file"),
        (header(b"[]"), "bad_file"),
        (header(b"{"), "bad_file"),
        (header(b'{"\xff":1}'), "bad_file"),
        (header(b'{"a":' * 200_000), "bad_file"),
        (header(b'{"a":' + b"9" * 5000 + b"}"), "bad_file"),
        (header(b"{}", b"left over"), "bad_file"),
        (header(b'{"__metadata__":{"a":1}}'), "bad_file"),
        (header(b'{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,1]}}', b"1"), "bad_file"),
        (header(b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}'), "bad_file"),
        (header(b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}', b"12"), "bad_file"),
        (header(b'{"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,-1]}}'), "bad_file"),
        (header(b'{"a":{"dtype":"U8","shape":[true],"data_offsets":[0,1]}}', b"1"), "bad_file"),
        (header(b'{"a":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}}', b"1"), "bad_file"),
        (header(b'{"a":{"dtype":"X9","shape":[1],"data_offsets":[0,1]}}', b"1"), "unsupported_dtype"),
        (header(b'{"a":{"dtype":"F64","shape":[4294967296,4294967296,4294967296],"data_offsets":[0,0]}}'), "size_overflow"),
        (header(b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', b"1"), "bad_file"),
        (header(b'{"\\ud800":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', b"1"), "bad_file"),
        (b"\x93NUMPY nonsense", "bad_file"),
        (b"PK\3\4 nonsense", "bad_file"),
    ],
)
def test_bad_files_are_rejected_by_name(tmp_path, content, code):
    (tmp_path / "bad").write_bytes(content)
    done = run("inspect", "--json", tmp_path / "bad")
    assert (done.returncode, json.loads(done.stdout)["code"]) == (1, code), done.stdout
    done = run("send", tmp_path / "bad")
    assert done.returncode == 1 and done.stdout == b"" and done.stderr.count(b"\n") == 1 and code.encode() in done.stderr


def test_mutated_files_are_rejected_or_right(model, tmp_path):
    """What is accepted here is accepted by the safetensors package, and nothing but a rejection is raised."""
    good = model.read_bytes()
    path = tmp_path / "mutated"
    rng = random.Random(7)
    words = [b"-0", b"1e0", b"0.5", b"9" * 30, b"\\ud800", b"{}", b"[", b'"', b"\x00", b"\xff", b'"F64"', b"null", b"true", b",", b"}", b"data_offsets", b" "]
    header_bytes = int.from_bytes(good[:8], "little")
    accepted = 0
    for _ in range(1500):
        header = bytearray(good[8 : 8 + header_bytes])
        for _ in range(rng.randint(1, 2)):
            at = rng.randrange(len(header))
            kind = rng.randrange(4)
            if kind == 0:
                header[at] = rng.randrange(256)
            elif kind == 1:
                del header[at : at + rng.randint(1, 9)]
            elif kind == 2:
                header[at:at] = rng.choice(words)
            else:
                header[at] = rng.choice(b"0123456789")
        data = len(header).to_bytes(8, "little") + header + good[8 + header_bytes :]
        path.write_bytes(data)
        try:
            TensorFile(str(path)).close()
        except Rejected:
            continue
        accepted += 1
        safetensors.deserialize(data)
    assert 0 < accepted < 1500


def test_files_that_cannot_be_read(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    for name in ("nothing", "fifo", "."):
        done = run("inspect", tmp_path / name)
        assert done.returncode == 3 and done.stderr.count(b"\n") == 1, done.stderr


def test_long_names_are_cut_at_bytes(tmp_path):
    name = "重" * 500
    (tmp_path / "bad").write_bytes(header(json.dumps({name: {"dtype": "U8", "shape": [2], "data_offsets": [0, 1]}}, ensure_ascii=False).encode(), b"1"))
    told = json.loads(run("inspect", "--json", tmp_path / "bad").stdout)
    assert told["tensor"] == "重" * 18  # 54 of 55 bytes: no character is halved


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["pull"],
        ["recv"],
        ["recv", "127.0.0.1:1"],
        ["recv", "127.0.0.1:1", "12" * 16],
        ["recv", "127.0.0.1:1", "12" * 16, "-o", ""],
        ["recv", "127.0.0.1:1", "0" * 32, "-o", "x"],
        ["recv", "127.0.0.1:1", "12" * 15 + "1g", "-o", "x"],
        ["recv", "127.0.0.1:1", "12" * 16, "-o", "x", "more"],
        ["recv", "127.0.0.1:0", "12" * 16, "-o", "x"],
        ["recv", "127.0.0.1:99999", "12" * 16, "-o", "x"],
        ["recv", b"\xff\xfe:1", "12" * 16, "-o", "x"],
        ["recv", "127.0.0.1:1", b"\xff" * 32, "-o", "x"],
        ["recv", "127.0.0.1:1", "12" * 16, "-o", "x", "--name", b"\xff"],
        ["recv", "127.0.0.1:1", "12" * 16, "-o", "x", "--retries", "9" * 5000],
        ["recv", "127.0.0.1:1", "12" * 16, "-o", "x", "--retries", "-1"],
        ["recv", "127.0.0.1:1", "12" * 16, "-o", "x", "--retries", "１"],
        ["recv", "127.0.0.1:1", "12" * 16, "-o", "x", "--timeout", "nan"],
        ["recv", "127.0.0.1:1", "12" * 16, "-o", "x", "--timeout", "1" * 5000],
        ["recv", "127.0.0.1:1", "12" * 16, "-o", "x", "--chunk", "9" * 5000],
        ["recv", "127.0.0.1:1", "12" * 16, "-o", "x", "--max-bytes", "0"],
        ["recv", "127.0.0.1:1", "12" * 16, "-o", "x", "--tls-ca", "y"],
        ["recv", "127.0.0.1:1", "12" * 16, "-o", "x", "--restart"],
        ["recv", "pipe:-", "12" * 16, "-o", "x"],
        ["send"],
        ["send", "x", "--listen", "nowhere"],
        ["send", "x", "--listen", "tls://127.0.0.1:0"],
        ["send", "x", "--listen", "pipe:cat"],
        ["send", "x", "--recipients", "0"],
        ["send", "x", "--recipients", "1", "--expect", "a"],
        ["send", "x", "--expect", b"\xff"],
        ["send", "x", "--ref", "1"],
        ["send", "x", "--ref", "12" * 16, "--ref", "13" * 16],
        ["send", "x", b"--no-\xff"],
        ["inspect"],
        ["inspect", "--wrong", "x"],
    ],
)
def test_a_wrong_option_has_status_2_and_a_sentence(arguments, tmp_path):
    done = run(*arguments, cwd=tmp_path)
    assert done.returncode == 2 and done.stdout == b""
    assert done.stderr.count(b"\n") == 2 and len(done.stderr) < 600
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("command", [[], ["send"], ["recv"], ["inspect"]])
def test_help(command):
    done = run(*command, "--help")
    assert done.returncode == 0 and done.stderr == b"" and done.stdout.startswith(b"usage: python -m tensorpull")


def test_the_version_is_that_of_the_package():
    assert run("--version").stdout.decode() == f"tensorpull {tensorpull.__version__}\n"


def test_a_file_that_is_there_stays(model, tmp_path):
    (tmp_path / "kept").write_text("mine")
    (tmp_path / "link").symlink_to("kept")
    with Sender(model) as sender:
        for name in ("kept", "link", ".", "no folder/x"):
            done = run("recv", *sender.lines[0], "-o", tmp_path / name)
            assert done.returncode == 3 and done.stderr.count(b"\n") == 1, done.stderr
        assert run("recv", *sender.lines[0], "-o", tmp_path / "link", "--force").returncode == 3
        assert (tmp_path / "kept").read_text() == "mine"
        assert run("recv", *sender.lines[0], "-o", tmp_path / "kept", "--force").returncode == 0
        assert sender.end(signal.SIGINT)[0] == 0
    assert (tmp_path / "kept").read_bytes() == model.read_bytes()


def test_a_failure_leaves_nothing(owner, model, tmp_path):
    before = sorted(p.name for p in tmp_path.iterdir())
    for address, ref, status in ((owner.address, "12" * 16, 1), ("127.0.0.1:1", "12" * 16, 1), ("unix:/nowhere", "12" * 16, 1), ("tls://127.0.0.1:1", "12" * 16, 1)):
        done = run("recv", address, ref, "-o", "x", "--retries", "0", cwd=tmp_path)
        assert done.returncode == status and done.stderr.count(b"\n") == 1, done.stderr
    with Sender(model) as sender:
        done = run("recv", *sender.lines[0], "-o", "x", "--max-bytes", "1K", cwd=tmp_path)
        assert done.returncode == 1 and b"--max-bytes" in done.stderr
        done = run("recv", *sender.lines[0], "-o", "x", cwd=tmp_path, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)))
        assert done.returncode == 3 and b"cannot be written" in done.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == before


@pytest.mark.parametrize("number, status", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_recv_leaves_nothing(tmp_path, number, status):
    with tensorpull.Downloader(bytes_per_second=2_000_000) as owner:
        owner.start()
        ref = owner.add_tensors({"a": np.zeros(50_000_000, "u1")})
        with subprocess.Popen([*COMMAND, "recv", owner.address, ref, "-o", "x"], cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.PIPE) as recv:
            assert eventually(lambda: owner.status(ref).bytes_sent > 0, 30)
            recv.send_signal(number)
            out, err = recv.communicate(timeout=30)
    assert recv.returncode == status and out == b"" and b"interrupted" in err and b"Traceback" not in err
    assert [*tmp_path.iterdir()] == []


def test_an_interrupted_recv_goes_on(tmp_path):
    with tensorpull.Downloader(bytes_per_second=8_000_000) as owner:
        owner.start()
        ref = owner.add_tensors({"a": np.arange(20_000_000, dtype="u1")})
        command = [*COMMAND, "recv", owner.address, ref, "-o", "x", "--resume"]
        with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.PIPE) as recv:
            assert eventually(lambda: owner.status(ref).bytes_sent > 5_000_000, 30)
            recv.kill()
            recv.communicate()
        before = owner.status(ref).bytes_sent
        assert (tmp_path / ".x.part").exists() and not (tmp_path / "x").exists()
        assert run("recv", owner.address, ref, "-o", "x", "--resume", cwd=tmp_path).returncode == 0
        assert owner.status(ref).bytes_sent - before < 18_000_000
        assert run("recv", owner.address, ref, "-o", "x", "--resume", cwd=tmp_path).returncode == 0  # it is there, and is right
    assert (safetensors.numpy.load_file(tmp_path / "x")["a"] == np.arange(20_000_000, dtype="u1")).all()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["x"]


@pytest.mark.parametrize("number, status", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_send_says_how_to_go_on(model, number, status):
    with Sender(model, "--recipients", "2") as sender:
        got, _, err = sender.end(number)
    assert got == status and f"--ref {sender.lines[0][1]}" in err and f":{sender.lines[0][0].rpartition(':')[2]}" in err
    with Sender(model, "--recipients", "2", "--http", "0", "--metrics") as sender:
        err = sender.end(number)[2]
    assert f" --http {re.search('http://([0-9.:]+)/v1/', err)[1]} --metrics --ref" in err, err


def test_a_sender_that_nobody_needs_ends(model):
    with Sender(model, "--idle", "0.3") as sender:
        status, _, err = sender.end()
    assert status == 3 and "nobody" in err


def test_a_file_that_becomes_shorter_is_withdrawn(model):
    with Sender(model, "--recipients", "1") as sender:
        os.truncate(model, 100)
        status, _, err = sender.end()
    assert status == 1 and "withdrawn" in err


def test_streams_that_are_closed_make_no_traceback(model, tmp_path):
    def shell(command):
        return subprocess.run(["bash", "-c", command, sys.executable, str(model)], capture_output=True, text=True, timeout=60, cwd=tmp_path)

    for redirected in ("2>&-", ">&- 2>&-", "<&- 2>&-"):
        done = shell(f'"$0" -m tensorpull inspect nothing "$1" {redirected}; echo $? >status')
        assert "Traceback" not in done.stderr + done.stdout
        assert (tmp_path / "status").read_text() == "3\n"
    done = shell('"$0" -m tensorpull inspect "$1" >&-; echo $? >status')
    assert done.stderr == "tensorpull inspect: standard output could not be written\n" and (tmp_path / "status").read_text() == "3\n"
    done = shell('"$0" -m tensorpull inspect "$1" >/dev/full; echo $? >status')
    assert done.stderr == "tensorpull inspect: standard output could not be written\n" and (tmp_path / "status").read_text() == "3\n"
    done = shell('"$0" -m tensorpull send "$1" >/dev/full; echo $? >status')
    assert "standard output could not be written" in done.stderr and (tmp_path / "status").read_text() == "1\n"
    done = shell('for i in 1 2 3 4 5 6 7 8; do echo "$1"; done | xargs -d "\\n" "$0" -m tensorpull inspect | head -n 1')
    assert "Traceback" not in done.stderr and "BrokenPipe" not in done.stderr and "4 tensors" in done.stdout
    with Sender(model) as sender:  # what is printed must not land in the file, which could have the number of a closed stream
        address, ref = sender.lines[0]
        shell(f'"$0" -m tensorpull recv {address} {ref} -o copy >&- 2>&-')
    assert (tmp_path / "copy").read_bytes() == model.read_bytes()


def test_two_at_once_for_one_name(model, tmp_path):
    with Sender(model) as sender:
        both = [subprocess.Popen([*COMMAND, "recv", *sender.lines[0], "-o", tmp_path / "copy"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(2)]
        ends = [(p.communicate(timeout=60), p.returncode) for p in both]
    assert sorted(status for _, status in ends) == [0, 3]
    assert (tmp_path / "copy").read_bytes() == model.read_bytes()
    assert not [p for p in tmp_path.iterdir() if p.name.endswith(".part")]


def test_without_numpy(model, tmp_path):
    """safetensors files need no other package."""
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "numpy.py").write_text("raise ImportError('hidden')\n")
    more = {"env": {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path / "hidden"), *filter(None, [os.environ.get("PYTHONPATH")])])}}
    assert run("inspect", model, **more).returncode == 0
    np.save(tmp_path / "a.npy", np.zeros(3))
    done = run("inspect", tmp_path / "a.npy", **more)
    assert done.returncode == 3 and b"NumPy" in done.stderr
    with Sender(model) as sender:
        assert run("recv", *sender.lines[0], "-o", tmp_path / "copy", **more).returncode == 0


def test_commands_begin_quickly_enough_to_be_interrupted():
    """Nothing but this package is read before a command begins: numpy and torch are not."""
    code = "import sys, tensorpull.__main__; from tensorpull._commands import send, recv, inspect; print([m for m in ('numpy', 'torch') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout == "[]\n"
