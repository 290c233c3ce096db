"""The tools send, recv and inspect as people use them: real processes, files, signals, terminals.

usage: tools.py FOLDER_OF_PROGRAMS [CASE]
"""
import ctypes
import errno
import hashlib
import http.client
import io
import json
import os
import pty
import random
import re
import resource
import select
import shlex
import signal
import socket
import struct
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import tty
import urllib.parse
import urllib.request
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))
import processes  # noqa: E402
from imitated_hub import COMMIT, ImitatedHub  # noqa: E402
from mutating_path import LyingPath, MutatingPath, held_until, flip, without_digest  # noqa: E402

# a shell without job control ignores it for what runs in the background, and so would the tools
signal.signal(signal.SIGINT, signal.default_int_handler)

MIB = 1 << 20
BIN = ""
NO_REF = "5d1f0c0000000000000000000000000a"


# Files, written without the libraries that read them.

def safetensors(tensors, metadata=None):
    """tensors: (name, dtype, shape, bytes) in the order of their bytes."""
    header, at = {}, 0
    if metadata:
        header["__metadata__"] = metadata
    for name, dtype, shape, data in tensors:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(data for *_, data in tensors)


def npy(descr, shape, data, fortran=False):
    text = repr({"descr": descr, "fortran_order": fortran, "shape": tuple(shape)}).encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data


def npz(arrays):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for name, data in arrays.items():
            archive.writestr(name + ".npy", data)
    return out.getvalue()


def noise(n, seed=1):
    return hashlib.shake_256(bytes([seed])).digest(n)


def parsed(data):
    """What is in a safetensors file: metadata, and each tensor's dtype, shape and bytes."""
    length, = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])
    metadata = header.pop("__metadata__", {})
    return metadata, {name: (t["dtype"], t["shape"], data[8 + length + t["data_offsets"][0]:8 + length + t["data_offsets"][1]]) for name, t in header.items()}


# Programs.

def command(tool, *words):
    return [os.path.join(BIN, tool), *map(str, words)]


def run(tool, *words, status=0, **options):
    """(standard output, standard error) of a tool that ends by itself, with this status."""
    done = subprocess.run(command(tool, *words), capture_output=True, text=True, timeout=120, **options)
    assert done.returncode == status, (done.returncode, done.args, done.stdout, done.stderr)
    return done.stdout, done.stderr


class Sender:
    """A running send, which has published its files."""

    def __init__(self, *words, **options):
        self.process = processes.Program(command("send", *words, "--json"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)
        self.published = []
        files = 0
        for word in map(str, words):
            if word.startswith("--"):
                break
            files += 1
        self.differences = []
        while len(self.published) < files:
            event = json.loads(self.process.stdout.readline())
            (self.differences if event["event"] == "difference" else self.published).append(event)
        self.address, self.ref = self.published[0]["address"], self.published[0]["ref"]
        port = self.address.rpartition(":")[2]
        self.port = int(port) if port.isdigit() else 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()

    def end(self, status=0):
        """All events, once it has ended."""
        out, err = self.process.communicate(timeout=20)
        assert self.process.returncode == status, (self.process.returncode, out, err)
        return [json.loads(line) for line in out.splitlines()]


class SlowPath(threading.Thread):
    """Lies between recv and send, and lets so many bytes a second through, and no more than `limit` while that is set."""

    def __init__(self, port, bytes_a_second):
        super().__init__(daemon=True)
        self.to, self.rate, self.forwarded, self.limit = port, bytes_a_second, 0, float("inf")
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        self.start()

    def run(self):
        while True:
            down, _ = self.listener.accept()
            threading.Thread(target=self.serve, args=(down,), daemon=True).start()

    def serve(self, down):
        try:
            with down, socket.create_connection(("127.0.0.1", self.to)) as up:
                up.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
                while True:
                    while self.forwarded >= self.limit:
                        processes.be_slow(0.005)
                    for ready in select.select([down, up], [], [])[0]:
                        data = ready.recv(16 * 1024)
                        if not data:
                            return
                        (up if ready is down else down).sendall(data)
                        if ready is up:
                            self.forwarded += len(data)
                            processes.be_slow(len(data) / self.rate)
        except OSError:
            return

    def hold_at(self, n):
        """From now on; what recv does meanwhile it does in the middle of its transfer."""
        self.limit = n

    def wait_for_hold(self):
        assert processes.eventually(lambda: self.forwarded >= self.limit), self.forwarded

    def go_on(self):
        self.limit = float("inf")


def in_terminal(words, columns=100, seconds=20):
    """What a program writes to a terminal."""
    child, fd = pty.fork()
    if child == 0:
        os.execv(words[0], words)
    import fcntl
    import termios
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", 25, columns, 0, 0))
    out, end = b"", time.monotonic() + seconds
    while time.monotonic() < end:
        if not select.select([fd], [], [], 0.2)[0]:
            continue
        try:
            out += os.read(fd, 65536)
        except OSError as closed:
            assert closed.errno == errno.EIO
            break
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), out


MODEL = safetensors([("step", "I64", [], noise(8)), ("w", "F32", [512, 2048], noise(4 * MIB, 2)), ("b", "F32", [1000], noise(4000, 3)), ("e", "F32", [0, 7], b"")],
                    {"format": "pt"})
CANONICAL = safetensors([("step", "I64", [], noise(8)), ("b", "F32", [1000], noise(4000, 3)), ("e", "F32", [0, 7], b""), ("w", "F32", [512, 2048], noise(4 * MIB, 2))],
                        {"format": "pt"})
PART = ".copy.safetensors.part"


def write(name, data):
    Path(name).write_bytes(data.encode() if isinstance(data, str) else data)
    return name


def names():
    return sorted(os.listdir("."))


# Cases.

def help_is_complete():
    for tool, options in {"send": "listen stdio http metrics status-file allow-origin replica-of swarm put tls-cert tls-key tls-ca tls-crl tls-clients recipients expect ref timeout idle include exclude follow-links sign federation round expires proofs json", "recv": "output also connections proxy tls-ca tls-name tls-cert tls-key tls-crl resume restart force max-bytes chunk timeout retries name unverified believe no-digest digest bearer-file include exclude key least-round federation serve-on serve-for b3sum json", "inspect": "json timeout name tls-ca tls-name tls-cert tls-key tls-crl"}.items():
        for word in ("--help", "-h"):
            out, err = run(tool, word)
            assert err == "" and out.startswith("usage: " + tool) and "Example:" in out and "Status:" in out
        assert all("--" + option in out for option in options.split()), out
        assert max(map(len, out.splitlines())) <= 140
        out, err = run(tool, "--nonsense", status=2)
        assert out == "" and "--nonsense" in err and "--help" in err
        for option in options.split():  # a part of a name is none: one day it might be that of another option
            if option[:-1] not in options.split():
                for form in ("--" + option[:-1], f"--{option[:-1]}=1"):
                    out, err = run(tool, form, "1", status=2)
                    assert out == "" and "is no option" in err or "doesn't allow" in err or "unrecognized" in err or "ambiguous" in err, (form, err)
    assert "256 at most" in run("send", "--help")[0] and "'--resum' is no option; --resume is" in run("recv", "--resum", status=2)[1]
    assert "which file" in run("send", status=2)[1] and "which file" in run("inspect", status=2)[1]
    wrong = {("127.0.0.1", NO_REF): "no address", ("127.0.0.1:0", NO_REF): "no address", (":80", NO_REF): "no address", ("h:1", NO_REF[1:]): "no reference",
             ("h:1", "0" * 32): "no reference", ("h:1", NO_REF + "0" * 15): "no reference", ("h:1", NO_REF + "0" * 15 + "x"): "no reference", ("h:1",): "are wanted", ("h:1", NO_REF, "x"): "one word too many"}
    for words, why in wrong.items():
        assert why in run("recv", *words, "-o", "x", status=2)[1], words
    assert "-o" in run("recv", "h:1", NO_REF, status=2)[1]
    for option in ("--chunk=512M", "--chunk=2X", "--max-bytes=0", "--max-bytes=-1", "--chunk=99999999999999999999", "--timeout=0", "--wait=0", "--timeout=nan", "--timeout=1h", "--retries=-1", "--output="):
        assert option.split("=")[0] in run("recv", "h:1", NO_REF, "-o", "x", option, status=2)[1], option
    assert "nobody is called" in run("send", "model.safetensors", "--expect=", "--idle", 0.1, status=2)[1]
    assert all(verdict in run("inspect", "--help")[0] for verdict in ("accept", "reject", "unreadable"))
    assert "exclude" in run("recv", "h:1", NO_REF, "-o", "x", "--resume", "--restart", status=2)[1]
    assert "digest" in run("recv", "h:1", NO_REF, "-o", "x", "--resume", "--no-digest", status=2)[1]


def what_is_published_is_listed():
    write("model.safetensors", safetensors([("a", "F32", [2, 3], noise(24)), ("b\x1b", "U8", [5], b"12345"), ("none", "U8", [0, 4], b"")], {"by": "me"}))
    with Sender("model.safetensors", "--recipients", 1) as sender:
        for _ in range(3):
            out, err = run("inspect", sender.address, sender.ref)
            assert err == "" and f"{sender.address} {sender.ref}: published, 3 tensors" in out and "by = me" in out and "\x1b" not in out, out
        there = json.loads(run("inspect", "--json", sender.address, sender.ref, "--timeout", 5)[0])
        assert there["verdict"] == "published" and there["version"] == sender.published[0]["digest"] and there["bytes"] == sender.published[0]["bytes"], there
        assert there["tensors"][0] == {"name": "a", "dtype": "F32", "shape": [2, 3], "offsets": [0, 24]} and there["metadata"] == {"by": "me"}, there
        assert json.loads(run("inspect", "--json", sender.address, NO_REF, status=3)[0])["code"] == "unknown_reference"
        assert "no address" not in run("inspect", sender.address, NO_REF, status=3)[1]
        run("recv", sender.address, sender.ref, "-o", "copy")
        assert sender.end()[-1]["completed"] == 1, "who has looked does not count"
    out, err = run("inspect", "127.0.0.1:1", NO_REF, "--timeout", 1, status=3)
    assert out == "" and "127.0.0.1:1" in err and "nothing is to be had" in err, err
    assert "address and a reference" in run("inspect", "model.safetensors", "--timeout", 1, status=2)[1]
    write("a:1", Path("model.safetensors").read_bytes()), write(NO_REF, Path("model.safetensors").read_bytes())
    assert run("inspect", "a:1", NO_REF)[0].count("3 tensors") == 2, "what is a file is a file"


def a_file_that_is_replaced_keeps_its_permissions():
    write("model.safetensors", CANONICAL)
    with Sender("model.safetensors") as sender:
        for mode in (0o600, 0o640):
            write("copy", b"old"), os.chmod("copy", mode)
            run("recv", sender.address, sender.ref, "-o", "copy", "--force")
            assert os.stat("copy").st_mode & 0o777 == mode and Path("copy").read_bytes() == CANONICAL


def files_arrive_as_they_are():
    write("model.safetensors", CANONICAL)
    write("other.safetensors", MODEL)
    write("a.npz", npz({"x": npy("<f4", [2, 3], noise(24)), "y/z": npy(">f8", [3], struct.pack(">3d", 1, 2, 3)),
                        "f": npy("<u2", [2, 3], struct.pack("<6H", *range(6)), True)}))
    write("one.npy", npy("|u1", [5], b"12345"))
    with Sender("model.safetensors", "other.safetensors", "a.npz", "one.npy", "--recipients", 2) as sender:
        assert len({p["ref"] for p in sender.published}) == 4
        for options in (["--json"], ["--json", "--no-digest", "--chunk", "1000"]):
            for i, published in enumerate(sender.published):
                out, _ = run("recv", published["address"], published["ref"], "-o", "copy%d" % i, "--force", *options)
                done = json.loads(out)
                assert done["outcome"] == ("completed_unverified" if "--no-digest" in options else "completed"), done
                assert done["bytes"] == done["received_bytes"] == published["bytes"] == os.path.getsize("copy%d" % i), done
                assert done["digest"] == (None if "--no-digest" in options else published["digest"]), done
        events = sender.end()
    assert [e["event"] for e in events].count("completed") == 4 and [e["event"] for e in events].count("completed_unverified") == 4, events
    assert events[-1] == {"event": "ended", "outcome": "done", "completed": 8, "unconfirmed": 0, "sent_bytes": 2 * sum(p["bytes"] for p in sender.published)}, events[-1]
    assert processes.run(["cmp", "model.safetensors", "copy0"]).returncode == 0
    with Sender("model.safetensors") as sender:
        done = json.loads(run("recv", sender.address, sender.ref, "-o", "at once", "--chunk", 0, "--json")[0])
        assert done["chunks"] == 1 and Path("at once").read_bytes() == CANONICAL, done
    assert parsed(Path("copy1").read_bytes()) == parsed(MODEL), "re-ordered, and the same tensors"
    assert parsed(Path("copy2").read_bytes())[1] == {"x": ("F32", [2, 3], noise(24)), "y/z": ("F64", [3], struct.pack("<3d", 1, 2, 3)),
                                                     "f": ("U16", [2, 3], struct.pack("<6H", 0, 2, 4, 1, 3, 5))}
    assert parsed(Path("copy3").read_bytes())[1] == {"one": ("U8", [5], b"12345")}
    assert [name for name in os.listdir(".") if name.startswith(".")] == []


def output_is_for_people_and_pipes():
    write("model.safetensors", CANONICAL)
    sender = processes.Program(command("send", "model.safetensors", "--expect", "site-1"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    line = sender.stdout.readline()
    assert re.fullmatch(r"127\.0\.0\.1:\d+ [0-9a-f]{48}\n", line), line
    out, err = run("recv", *line.split(), "-o", "copy.safetensors")
    assert err == "" and "4.0 MiB" in out and "agrees\n" in out, (out, err)
    out, err = run("recv", *line.split(), "-o", "again.safetensors", "--name", "site-1")
    out, err = sender.communicate(timeout=60)
    assert sender.returncode == 0 and out == "", (out, err)
    assert "site-1 has model.safetensors" in err and "2 pulls completed; 8.0 MiB sent" in err, err


def interrupted_and_resumed():
    write("model.safetensors", CANONICAL)
    with Sender("model.safetensors") as sender:
        path = SlowPath(sender.port, 8 * MIB)
        path.hold_at(MIB)
        words = [path.address, sender.ref, "-o", "copy.safetensors", "--chunk", "64K"]
        recv = processes.Program(command("recv", *words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        path.wait_for_hold()
        assert not os.path.exists("copy.safetensors") and os.path.exists(PART)
        recv.send_signal(signal.SIGINT)
        out, err = recv.communicate(timeout=60)
        assert recv.returncode == 130 and out == "", (recv.returncode, out, err)
        path.go_on()
        assert "interrupted" in err and PART in err and names() == [PART, "model.safetensors"], (err, names())
        first = path.forwarded

        # without a word about the part it is neither used nor lost
        before = Path(PART).read_bytes()
        _, refusal = run("recv", *words, status=3)
        assert "--resume" in refusal and "--restart" in refusal and Path(PART).read_bytes() == before, refusal

        # the command that it printed, with the program's folder
        again = shlex.split(err.splitlines()[-1])
        assert again[0] == "recv" and again[-1] == "--resume", again
        done = json.loads(run(*again, "--json")[0])
        assert done["outcome"] == "completed" and done["resumed_bytes"] >= first - 256 * 1024, (done, first)
        assert done["resumed_bytes"] + done["received_bytes"] == len(CANONICAL), done
        assert first + done["received_bytes"] <= len(CANONICAL) + 6 * 64 * 1024, "what was on its way, and no more"
        assert Path("copy.safetensors").read_bytes() == CANONICAL and names() == ["copy.safetensors", "model.safetensors"]
        run("recv", path.address, sender.ref, "-o", "new.safetensors", "--resume")  # nothing to go on with: from the start


def D2_killed_and_resumed():
    model = write("model.safetensors", safetensors([("w", "U8", [12 * MIB], noise(12 * MIB))]))
    size = os.path.getsize(model)
    with Sender(model) as sender:
        path = SlowPath(sender.port, 16 * MIB)
        words = [path.address, sender.ref, "-o", "copy.safetensors", "--chunk", "256K", "--json", "--resume"]
        fetched = resumed = 0
        for stop in (3 * MIB, 8 * MIB):
            path.hold_at(stop)
            recv = processes.Program(command("recv", *words), stdout=subprocess.PIPE)
            path.wait_for_hold()
            recv.kill()
            recv.communicate()
            path.go_on()
            assert not os.path.exists("copy.safetensors")
        fetched = path.forwarded
        done = json.loads(run("recv", *words)[0])
        assert done["outcome"] == "completed" and done["resumed_bytes"] > 5 * MIB, done
        # each of the two lost what its last chunk had of bytes, and what was on its way: no more than its four requests
        assert fetched + done["received_bytes"] <= size + 2 * 5 * 256 * 1024, (fetched, done)
        assert processes.run(["cmp", model, "copy.safetensors"]).returncode == 0


def the_sender_is_killed_and_started_again():
    write("model.safetensors", CANONICAL)
    with processes.OwnPort() as port, Sender("model.safetensors", "--listen", port.address) as first:
        path = SlowPath(first.port, 8 * MIB)
        path.hold_at(2 * MIB)
        recv = processes.Program(command("recv", path.address, first.ref, "-o", "copy.safetensors", "--chunk", "64K", "--json"), stdout=subprocess.PIPE, text=True)
        path.wait_for_hold()
        first.process.kill()
        first.process.wait()
        path.go_on()
        processes.be_slow(0.3)  # several tries of recv
        with Sender("model.safetensors", "--listen", port.address, "--ref", first.ref, "--recipients", 1) as second:
            assert second.published == first.published
            out, _ = recv.communicate(timeout=20)
            done = json.loads(out)
            assert recv.returncode == 0 and done["outcome"] == "completed", done
            assert done["received_bytes"] == len(CANONICAL), "nothing came twice"
            ended = second.end()[-1]
            assert ended["completed"] == 1 and ended["sent_bytes"] < len(CANONICAL) - MIB, ended
    assert Path("copy.safetensors").read_bytes() == CANONICAL


def the_sender_is_interrupted():
    write("it's a model.safetensors", CANONICAL)
    sender = processes.Program(command("send", "it's a model.safetensors", "--recipients", "3"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    address, ref = sender.stdout.readline().split()
    sender.send_signal(signal.SIGINT)
    out, err = sender.communicate(timeout=60)
    assert sender.returncode == 130, err
    assert shlex.split(err.splitlines()[-1]) == ["send", "it's a model.safetensors", "--listen", address, "--ref", ref], err
    write("pass word", b"correct horse battery\nanother line\n")
    sender = processes.Program(command("send", "it's a model.safetensors", "--http", "0", "--metrics", "--status-file", "pass word", "--allow-origin", "https://a.example", "--expect", "site-1"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    address, ref = sender.stdout.readline().split()
    sender.send_signal(signal.SIGINT)
    err = sender.communicate(timeout=60)[1]
    door = re.search("http://([0-9.:]+)/v1/", err)[1]
    assert shlex.split(err.splitlines()[-1]) == ["send", "it's a model.safetensors", "--listen", address, "--http", door, "--metrics", "--status-file", "pass word", "--allow-origin", "https://a.example", "--ref", ref], err
    sender = processes.Program(command("send", "it's a model.safetensors"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    sender.stdout.readline()
    sender.send_signal(signal.SIGTERM)
    sender.communicate(timeout=60)
    assert sender.returncode == 0, "how it ends when nobody said how many"
    out, err = run("send", "it's a model.safetensors", "--idle", "0.2", status=3)
    assert "nobody" in err and "--ref" not in err, err


def a_recv_waits_for_its_send():
    write("model.safetensors", CANONICAL)
    port = processes.OwnPort()
    recv = processes.Program(command("recv", port.address, NO_REF, "-o", "copy.safetensors", "--json"), stdout=subprocess.PIPE, text=True)
    processes.be_slow(0.5)  # several tries of recv
    with Sender("model.safetensors", "--listen", port.address, "--ref", NO_REF):
        out, _ = recv.communicate(timeout=60)
    done = json.loads(out)
    assert recv.returncode == 0 and done["outcome"] == "completed" and done["confirmed"] is True, done
    assert Path("copy.safetensors").read_bytes() == CANONICAL


def senders_killed_at_random_moments():
    """A send that is started again with the same file and reference costs its recv nothing but time. TENSORPULL_PROCESS_FAULTS: how many kills."""
    write("model.safetensors", CANONICAL)
    port = processes.OwnPort()
    first = Sender("model.safetensors", "--listen", port.address)
    again = ["--listen", port.address, "--ref", first.ref]
    chance = random.Random(1)
    for _ in range(int(os.environ.get("TENSORPULL_PROCESS_FAULTS", 20))):
        recv = processes.Program(command("recv", first.address, first.ref, "-o", "copy.safetensors", "--chunk", "16K", "--json", "--retries", "20"), stdout=subprocess.PIPE, text=True)
        processes.be_slow(chance.random() * 0.05)
        first.process.kill()
        first.process.communicate()
        first = Sender("model.safetensors", *again)
        out, _ = recv.communicate(timeout=60)
        done = json.loads(out)
        assert recv.returncode == 0 and done["outcome"] == "completed", done
        assert names() == ["copy.safetensors", "model.safetensors"] and Path("copy.safetensors").read_bytes() == CANONICAL, done
        os.remove("copy.safetensors")
    first.__exit__()


def other_bytes_than_those_of_the_reference():
    """The reference says which bytes are right. Its first 32 digits alone take what is there, and recv says so."""
    write("model.safetensors", CANONICAL)
    write("changed.safetensors", CANONICAL[:-1] + bytes([CANONICAL[-1] ^ 1]))
    with Sender("model.safetensors") as sender:
        ref, key = sender.ref, sender.ref[:32]
        for words, believed in ((["-o", "copy"], False), (["-o", "bare"], True)):
            done = json.loads(run("recv", sender.address, key if believed else ref, *words, "--json")[0])
            assert done["outcome"] == "completed" and done["believed"] is believed, done
        assert "agrees (believed: the reference has no version)\n" in run("recv", sender.address, key, "-o", "bare", "--force")[0]
        assert "agrees (believed" in run("recv", sender.address, key, "-o", "bare", "--resume")[0]
    os.remove("copy"), os.remove("bare")
    # a file that has changed is not sent under the old reference; under its ID it is another version
    err = run("send", "changed.safetensors", "--ref", ref, status=1)[1]
    assert "is not what --ref says" in err and key in err and ref not in err, err
    with Sender("model.safetensors", "--ref", ref) as again:
        assert again.ref == ref
    with Sender("changed.safetensors", "--ref", key) as liar:
        assert liar.ref != ref and liar.ref[:32] == key
        done = json.loads(run("recv", liar.address, ref, "-o", "copy", "--json", status=1)[0])
        assert done["code"] == "stale_version" and names() == ["changed.safetensors", "model.safetensors"], (done, names())
        done = json.loads(run("recv", liar.address, key, "-o", "copy", "--json")[0])
        assert done["outcome"] == "completed" and done["believed"] is True, done
        os.remove("copy")
        # what is there already is what the reference names: it is the owner that has something else
        write("copy", CANONICAL)
        err = run("recv", liar.address, ref, "-o", "copy", "--resume", status=1)[1]
        assert "--force" not in err and liar.address in err and Path("copy").read_bytes() == CANONICAL, err
        err = run("recv", liar.address, key, "-o", "copy", "--resume", status=3)[1]
        assert "not what is published" in err and "--force" in err, err
        os.remove("copy")
        # one that says that its bytes are the version which is wanted
        right, wrong = (struct.pack("<Q", int(digits[32:], 16)) for digits in (ref, liar.ref))
        path = MutatingPath(liar.port, lambda _, frame: frame.replace(wrong, right), lambda said: said.replace(right, wrong))
        done = json.loads(run("recv", path.address, ref, "-o", "copy", "--json", "--retries", 0, status=1)[0])
        assert done["code"] == "digest_mismatch" and names() == ["changed.safetensors", "model.safetensors"], (done, names())


def several_connections_and_several_senders():
    """One file from all who publish it; it goes on if one is gone, fails if one gives wrong bytes, and is gone on with like any other."""
    model = safetensors([("w", "U8", [12 * MIB], noise(12 * MIB))])
    write("model.safetensors", model)
    with Sender("model.safetensors") as one, Sender("model.safetensors", "--ref", one.ref) as two, Sender("model.safetensors", "--ref", one.ref) as three:

        def get(*words, of=one, status=0):
            done = json.loads(run("recv", of.address, one.ref, "-o", "copy", "--chunk", "64K", "--json", *words, status=status)[0])
            if status == 0:
                assert Path("copy").read_bytes() == model and done["outcome"] == "completed" and done["confirmed"], done
                os.remove("copy")
            return done

        assert get("--connections", 4)["wrong_senders"] == []
        assert get("--also", two.address, "--also", three.address)["wrong_senders"] == []
        assert get("--also", two.address, "--connections", 8)["wrong_senders"] == []
        # one that is slow, and is interrupted: what came from others stays, too
        path = SlowPath(one.port, 64 * MIB)
        path.hold_at(MIB)
        words = [path.address, one.ref, "-o", "copy", "--chunk", "64K", "--connections", 2]
        recv = processes.Program(command("recv", *words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        path.wait_for_hold()
        recv.send_signal(signal.SIGINT)
        _, err = recv.communicate(timeout=60)
        assert recv.returncode == 130 and names() == [".copy.part", "model.safetensors"], (recv.returncode, err, names())
        path.go_on()
        again = shlex.split(err.splitlines()[-1])
        assert again[0] == "recv" and "--connections" in again and again[-1] == "--resume", again
        done = json.loads(run(*again, "--also", two.address, "--json")[0])
        assert Path("copy").read_bytes() == model and done["resumed_bytes"] > 0, done
        assert done["resumed_bytes"] + done["received_bytes"] < len(model) + 2 * MIB, done
        assert "were there, complete" in run(*again)[0]
        os.remove("copy")
        # one that lies, and one that is gone
        flipped = False

        def lie(i, frame):
            nonlocal flipped
            if len(frame) > 60000:
                flipped, frame[50000] = True, frame[50000] ^ 1
            return frame

        liar = MutatingPath(three.port, lie)
        done = get("--also", liar.address, status=1)
        assert done["code"] == "digest_mismatch" and flipped and not os.path.exists("copy"), done
        run("recv", one.address, one.ref, "-o", "copy", "--restart")
        os.remove("copy")
        two.process.kill()
        two.process.wait()
        assert get("--also", two.address, of=three)["wrong_senders"] == []
        assert get("--also", three.address, of=two)["wrong_senders"] == []
        # one that does not answer to a connection: the others do not wait for it
        with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
            at = full.getsockname()
            waiting = [socket.socket() for _ in range(4)]
            for each in waiting:
                each.setblocking(False)
                each.connect_ex(at)
            began = time.monotonic()
            get(of=three)
            alone = time.monotonic() - began
            get("--also", f"127.0.0.1:{at[1]}", of=three)
            assert time.monotonic() - began - alone < 8 + 3 * alone, "it is given up after ten seconds"
            for each in waiting:
                each.close()
    done = get("--also", three.address, "--retries", 0, status=1)
    assert done["code"] == "connection_failed" and "1 other sender" in done["message"], done
    for words, why in ((("h:1", NO_REF, "--also", "unix:/x"), "same kind"), (("udp://h:1", NO_REF, "--connections", 2), "are for TCP"),
                       (("shm:/x", NO_REF, "--also", "shm:/y"), "is no address" if "shared_memory" in satellites_that_are_not_here() else "are for TCP"),
                       (("http://h/m", "--connections", 2), "are for TCP"), (("h:1", NO_REF, "--chunk", 0, "--connections", 2), "excludes"), (("h:1", NO_REF, "--connections", 9), "1 to 8"),
                       (("h:1", NO_REF, *["--also", "h:2"] * 8), "eight"), (("h:1", NO_REF, "--also", "h"), "no address")):  # fmt: skip
        assert why in run("recv", *words, "-o", "x", status=2)[1], words


def joined(at, ref, address):
    """The answer of a swarm's door to a member that listens at this address, read as far as a body has it: the number of the list, and the others' addresses."""
    body = struct.pack("<IBB", 0, 0, len(address)) + address.encode()
    words = [0, 0x0001000700000000, 14 << 32 | 0, 0, 0, 0, 0, 0, 0, 0x0002000100000000, 0x73770001, 0x0000002700000005, len(body) << 35 | 2 << 32 | 0x15, 4 << 32 | 4,
             int(ref[:16], 16), int(ref[16:32], 16), int(ref[32:], 16), 0]  # fmt: skip
    body_words = (len(body) + 7) // 8
    words[0] = (len(words) - 1 + body_words) << 32
    at.sendall(struct.pack("<18Q", *words) + body.ljust(8 * body_words, b"\0"))
    got = b""
    while len(got) < 8 or len(got) < 8 + 8 * (struct.unpack_from("<Q", got)[0] >> 32):
        got += at.recv(4096) or 1 / 0
    answer = got[8 * 18 : 8 * 18 + (struct.unpack_from("<Q", got, 8 * 12)[0] >> 35)]
    number, _, count = struct.unpack_from("<IQB", answer)
    return number, [answer[13 + 64 * i + 10 :][: answer[13 + 64 * i + 9]].decode() for i in range(count)]


def members_of_a_swarm_are_told_of_each_other():
    write("model.safetensors", CANONICAL)
    delivered(["--swarm"]), delivered(["--swarm", "--listen", "unix:here"])
    with Sender("model.safetensors", "--swarm", "--recipients", 1) as sender:
        with socket.create_connection(("127.0.0.1", sender.port)) as one, socket.create_connection(("127.0.0.1", sender.port)) as two:
            first, others = joined(one, sender.ref, "8003")
            assert first != 0 and others == [], others
            assert joined(two, sender.ref, "0.0.0.0:8004")[1] == ["127.0.0.1:8003"]
            assert joined(one, sender.ref, "8003")[1] == ["127.0.0.1:8004"]
            assert joined(one, sender.ref, "192.0.2.1:8003") == (0, []), "nobody is sent to a third party"
            run("recv", sender.address, sender.ref, "-o", "copy.safetensors", "--force")
        assert sender.end()[-1]["completed"] == 1
    sender = processes.Program(command("send", "model.safetensors", "--swarm", "--recipients", "3"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    address, ref = sender.stdout.readline().split()
    sender.send_signal(signal.SIGINT)
    err = sender.communicate(timeout=60)[1]
    assert shlex.split(err.splitlines()[-1]) == ["send", "model.safetensors", "--listen", address, "--ref", ref, "--swarm"], err
    for words, why in ((("--listen", "udp://127.0.0.1:0"), "--swarm is for"), (("--listen", "127.0.0.1:0", "--replica-of", "127.0.0.1:1", "--ref", NO_REF), "--replica-of"), (("--put", "http://h/m"), "--put")):
        assert why in run("send", "model.safetensors", "--swarm", *words, status=2)[1], words


class Member:
    """A recv that serves what it has proved, as a process. `done()`: its outcome, once it has ended."""

    def __init__(self, address, output, *words, serve_on=0):
        self.output = output
        self.process = processes.Program(command("recv", address, "model.safetensors.signed", "--key", "keys", "-o", output, "--serve-on", serve_on, "--json", *words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def done(self, status=0):
        out, err = self.process.communicate(timeout=120)
        assert self.process.returncode == status and err == "", (self.process.returncode, out, err)
        return json.loads(out)

    def arrived(self, model):
        done = self.done()
        assert (done["outcome"], done["confirmed"], done["wrong_senders"], done["received_bytes"] + done["resumed_bytes"] >= len(model)) == ("completed", True, [], True), done
        assert Path(self.output).read_bytes() == model and not any(name.endswith(self.output + ".part") for name in names()), done
        return done


def signed_model(size=6 * MIB):
    """model.safetensors, which `ours.pem` is to sign."""
    model = safetensors([("w", "U8", [size], noise(size))])
    write("model.safetensors", model), write("keys", key_pair("ours"))
    return model, ("model.safetensors", "--sign", "ours.pem", "--federation", "hospitals")


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as held:
        return held.getsockname()[1]


def members_of_a_swarm_give_each_other_what_they_have_proved():
    """Beside one that only pulls; without a swarm; over Unix sockets."""
    model, words = signed_model()
    with Sender(*words, "--swarm", "--recipients", 4) as sender:
        path = SlowPath(sender.port, 2 * MIB)
        path.hold_at(1)
        three = [Member(path.address, name) for name in ("one", "two", "three")]
        assert processes.eventually(lambda: all(os.path.exists(f".{m.output}.part") for m in three))
        run("recv", sender.address, "model.safetensors.signed", "--key", "keys", "-o", "alone")
        path.go_on()
        done = [m.arrived(model) for m in three]
        assert all(d["members"] == 2 for d in done) and sum(d["served_bytes"] for d in done) > len(model) // 2, done
        assert path.forwarded < 2.5 * len(model), "three of a star take three images"
        assert Path("alone").read_bytes() == model and sender.end()[-1]["completed"] == 4
    with Sender(*words) as sender:  # one that tells nobody
        done = Member(sender.address, "four").arrived(model)
        assert (done["members"], done["served_bytes"]) == (0, 0), done
    with Sender(*words, "--swarm", "--listen", "unix:here") as sender:
        assert Member("unix:here", "five", serve_on="unix:there").arrived(model)["members"] == 0
        assert not os.path.exists("there")
        pair = [Member("unix:here", name, "--chunk", "64K", serve_on="unix:" + name + ".socket") for name in ("six", "seven")]
        for m in pair:
            m.arrived(model)
        out, err = run("recv", "unix:here", "model.safetensors.signed", "--key", "keys", "-o", "eight", "--serve-on", "unix:" + "x" * 60, "--retries", 0, status=1)
        assert out == "" and "54 bytes" in err and not os.path.exists("eight"), err
    with socket.create_server(("127.0.0.1", 0)) as taken:
        err = run("recv", "h:1", "model.safetensors.signed", "--key", "keys", "-o", "x", "--serve-on", "127.0.0.1:%d" % taken.getsockname()[1], status=1)[1]
        assert "nothing can be served on" in err and "Address already in use" in err, err
    signed = ("model.safetensors.signed", "--key", "keys", "-o", "x")
    for words, why in ((("h:1", NO_REF, "-o", "x"), "signed reference"), (("http://h/m", "-o", "x"), "signed reference"), (("h:1", *signed, "--also", "h:2"), "--also"), (("h:1", *signed, "--connections", 2), "--connections"),
                       (("udp://h:1", *signed), "TCP and unix:"), (("unix:h", *signed), "same kind"), (("h:1", *signed, "--serve-for", "-1"), "--serve-for"), (("h:1", *signed, "--serve-for", "x"), "--serve-for"),
                       (("h:1", *signed[:-1], "x/"), "directory")):  # fmt: skip
        assert why in run("recv", *words, "--serve-on", 0, status=2)[1], words
    for address in ("", "x", "70000", "1:2:3", "unix:x", "udp://h:1"):
        assert "--serve-on" in run("recv", "h:1", *signed, "--serve-on=" + address, status=2)[1], address
    assert "a path" in run("recv", "unix:h", *signed, "--serve-on", "unix:@x", status=2)[1].replace("unix:PATH", "a path")
    assert "--serve-on" in run("recv", "h:1", *signed, "--serve-for", 1, status=2)[1]


def members_of_a_swarm_leave_and_return():
    """One is killed, one is interrupted, and both go on; one serves as long as others pull, and until Ctrl-C."""
    model, words = signed_model()
    with Sender(*words, "--swarm") as sender:
        path = SlowPath(sender.port, 2 * MIB)
        path.hold_at(2 * MIB)
        stays, killed, stopped = (Member(path.address, name, "--chunk", "64K") for name in ("stays", "killed", "stopped"))
        path.wait_for_hold()
        assert processes.eventually(lambda: all(os.path.exists(f".{m.output}.part") for m in (stays, killed, stopped)))
        killed.process.kill()
        killed.process.communicate()
        stopped.process.send_signal(signal.SIGINT)
        done = stopped.done(status=130)
        assert done["outcome"] == "interrupted" and done["members"] <= 2, done
        path.go_on()
        stays.arrived(model)
        for m in (killed, stopped):
            Member(sender.address, m.output, "--resume").arrived(model)
            os.remove(m.output)
        with socket.create_connection(("127.0.0.1", sender.port)) as other:
            joined(other, sender.ref, "9")  # and pulls as long as it is connected
            for name, more in (("people", ()), ("briefly", ("--serve-for", 0.1)), ("never", ("--serve-for", 0))):
                recv = processes.Program(command("recv", sender.address, "model.safetensors.signed", "--key", "keys", "-o", name, "--serve-on", 0, "--b3sum", name + ".b3", *more), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                if name == "people":
                    assert "serving others" in recv.stderr.readline()
                    assert Path(name).read_bytes() == model and os.path.exists(name + ".b3") and recv.poll() is None
                    recv.send_signal(signal.SIGINT)
                out, err = recv.communicate(timeout=60)
                assert recv.returncode == 0 and "proved, as signed for hospitals" in out and "gave 0 bytes to others" in err and Path(name).read_bytes() == model, (out, err)
    # what people are told to type
    with Sender(*words, "--swarm") as sender:
        path = SlowPath(sender.port, 2 * MIB)
        path.hold_at(2 * MIB)
        recv = processes.Program(command("recv", path.address, "model.safetensors.signed", "--key", "keys", "-o", "copy", "--serve-on", "127.0.0.1:0", "--serve-for", 1.5), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        path.wait_for_hold()
        recv.send_signal(signal.SIGINT)
        again = shlex.split(recv.communicate(timeout=60)[1].splitlines()[-1])
        assert recv.returncode == 130 and again[-1] == "--resume" and " --serve-on 127.0.0.1:0 --serve-for 1.5" in " ".join(again), again
        path.go_on()
        run(*again)
        assert Path("copy").read_bytes() == model


def members_of_a_swarm_that_lie_are_named():
    """By their addresses; and one whose file was changed after it had arrived gives nothing more."""
    model, words = signed_model()
    with Sender(*words, "--swarm") as sender, socket.create_connection(("127.0.0.1", sender.port)) as other:
        port = free_port()
        liar = LyingPath(port)
        joined(other, sender.ref, liar.address)  # where the first one lies
        first = Member(sender.address, "first", serve_on=port)
        assert processes.eventually(lambda: os.path.exists("first"))
        path = SlowPath(sender.port, MIB)  # so that more is taken from others
        second = Member(path.address, "second", "--serve-for", 0)
        done = second.done()
        assert done["outcome"] == "completed" and done["wrong_senders"] == [liar.address] and done["members"] == 2 and Path("second").read_bytes() == model, done
        with open("first", "r+b") as changed:
            changed.seek(3 * MIB)
            changed.write(bytes([model[3 * MIB] ^ 1]) * MIB)
        done = Member(path.address, "third", "--serve-for", 0).done()
        assert done["outcome"] == "completed" and done["wrong_senders"] == [] and Path("third").read_bytes() == model, done
        first.process.send_signal(signal.SIGINT)
        assert first.done()["served_bytes"] > 0


def stepped(data, seed, every=3):
    """F32 values after a small step: each third has another last byte."""
    rng, made = random.Random(seed), bytearray(data)
    for i in range(0, len(made), 4 * every):
        made[i] ^= rng.randrange(1, 256)
    return bytes(made)


def versions():
    """A file and the one before it: what is in their headers differs, too."""
    w, b = struct.pack("<200000f", *(random.Random(1).gauss(0, 0.05) for _ in range(200000))), noise(1000)
    old = safetensors([("w", "F32", [400, 500], w), ("b", "F32", [250], b), ("yes", "BOOL", [3], bytes([1, 0, 1]))], {"round": "1"})
    new = safetensors([("w", "F32", [400, 500], stepped(w, 2)), ("b", "F32", [250], b), ("yes", "BOOL", [3], bytes([0, 0, 1]))], {"round": "2", "more": "x" * 300})
    write("old.safetensors", old)
    write("new.safetensors", new)
    return old, new


def key_pair(name, federation="hospitals"):
    """NAME.pem, and the line by which recipients trust it."""
    processes.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", name + ".pem"], check=True, capture_output=True)
    shared = processes.run(["openssl", "pkey", "-in", name + ".pem", "-pubout"], check=True, capture_output=True, text=True).stdout
    return f"{federation} {shared.splitlines()[1]}\n"


def refused(sender, *words, signed="model.safetensors.signed"):
    """By which name a signed reference is refused. Nothing lands."""
    before = names()
    done = json.loads(run("recv", sender.address, signed, "-o", "copy", "--retries", 0, "--json", *words, status=1)[0])
    assert done["outcome"] == "failed" and names() == before and done["message"] in run("recv", sender.address, signed, "-o", "copy", "--retries", 0, *words, status=1)[1], done
    return done.get("refused", done["code"])


def interrupted_at(path, at, *words):
    """Interrupts a recv into `copy` when the path holds behind so many bytes, and lets the path go on. The words of the command that it prints."""
    path.hold_at(at)
    recv = processes.Program(command(*words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    path.wait_for_hold()
    recv.send_signal(signal.SIGINT)
    _, err = recv.communicate(timeout=60)
    assert recv.returncode == 130 and os.path.exists(".copy.part"), (recv.returncode, err)
    path.go_on()
    return shlex.split(err.splitlines()[-1])


def a_signed_reference_is_verified_before_anything_is_pulled():
    write("keys", "# of ours\n" + key_pair("ours"))
    write("others", key_pair("other")), write("revoked", Path("keys").read_text().rstrip() + " revoked\n"), write("none", "hospitals abc\n"), write("empty", "")
    write("model.safetensors", CANONICAL)
    root = b3sum("model.safetensors")
    with Sender("model.safetensors", "--sign", "ours.pem", "--federation", "hospitals", "--round", 7, "--expires", 3600) as sender:
        published = sender.published[0]
        assert published["root"] == root and published["signed"] == "model.safetensors.signed" and abs(published["expires"] - time.time() - 3600) < 300, published
        text = Path("model.safetensors.signed").read_text()
        assert f"\nroot {root}\n" in text and "\nround 7\n" in text and f"\nmodel {sender.ref}\n" in text, text
        take = [sender.address, "model.safetensors.signed", "--key", "keys", "-o", "copy"]
        done = json.loads(run("recv", *take, "--least-round", 7, "--federation", "hospitals", "--json")[0])
        assert (done["outcome"], done["root"], done["federation"], done["round"], done["believed"], done["confirmed"], done["wrong_senders"]) == ("completed", root, "hospitals", 7, False, True, []), done
        assert Path("copy").read_bytes() == CANONICAL
        out, err = run("recv", *take, "--force")
        assert "proved, as signed for hospitals in round 7\n" in out and err == "", (out, err)
        assert "were there, complete" in run("recv", *take, "--resume")[0]
        os.remove("copy")
        assert refused(sender, "--key", "others") == refused(sender, "--key", "empty") == "signature"
        assert refused(sender, "--key", "revoked") == "revoked"
        assert refused(sender, "--key", "keys", "--federation", "banks") == "federation"
        assert refused(sender, "--key", "keys", "--least-round", 8) == "round"
        assert refused(sender, "--key", "none") == "bad_file" and refused(sender, "--key", "not there") == "io" and refused(sender, "--key", "keys", signed="no") == "io"
        assert refused(sender, "--key", "keys", signed=write("long", text + " " * 5000)) == "too_large" and refused(sender, "--key", "keys", signed="keys") == "bad_file"
        rng = random.Random(7)
        for _ in range(12):  # hostile texts: exhaustively in tests/satellites/proofs
            at = rng.randrange(len(text))
            hostile = text[:at] + rng.choice(["", "0", "\n", "\0", text]) + text[at + rng.randrange(2):]
            assert hostile == text or refused(sender, "--key", "keys", signed=write("hostile", hostile)) in ("bad_file", "signature"), hostile
    # the next round under the same ID: what was signed before is of other bytes
    write("model.safetensors", CANONICAL[:-1] + bytes([CANONICAL[-1] ^ 1])), write("old.signed", text)
    with Sender("model.safetensors", "--ref", sender.ref[:32], "--sign", "ours.pem", "--federation", "hospitals", "--round", 8, "--expires", "2999-12-31T23:59:59Z") as sender:
        assert "expires 32503679999\n" in Path("model.safetensors.signed").read_text()
        assert refused(sender, "--key", "keys", signed="old.signed") == "unknown_reference", "the tree of another version"
        assert refused(sender, "--key", "keys", "--least-round", 8, signed="old.signed") == "round"
    with Sender("model.safetensors", "--sign", "ours.pem", "--federation", "hospitals", "--expires", 1) as sender:
        assert processes.eventually(lambda: time.time() > sender.published[0]["expires"])
        assert refused(sender, "--key", "keys") == "expires"
    for words, why in ((("send", "model.safetensors", "--sign", "ours.pem"), "--federation"), (("send", "model.safetensors", "--federation", "a"), "--sign"), (("send", "model.safetensors", "--sign", "ours.pem", "--federation", "a b"), "visible"),
                       (("send", "model.safetensors", "--sign", "ours.pem", "--federation", "a", "--expires", "2001-02-03"), "to come"), (("send", "model.safetensors", "--sign", "ours.pem", "--federation", "a", "--expires", "2999-02-30"), "to come"),
                       (("send", "model.safetensors", "--sign", "ours.pem", "--federation", "a", "--put", "http://h/x"), "--put"), (("send", ".", "--proofs"), "directory"),
                       (("recv", "h:1", "s", "-o", "x", "--least-round", 1), "--key"), (("recv", "h:1", "model.safetensors.signed", "-o", "x"), "wants --key"), (("recv", "http://h/m", "--key", "keys", "-o", "x"), "web server"),
                       (("recv", "h:1", "s", "--key", "keys", "-o", "x/"), "directory"), (("recv", "h:1", "s", "--key", "keys", "-o", "x", "--base", "b"), "exclude"), (("recv", "h:1", "s", "--key", "keys", "-o", "x", "--no-digest"), "believes nobody"),
                       (("recv", "h:1", "s", "--key", "keys", "-o", "x", "--unverified"), "believes nobody"), (("recv", "udp://h:1", "s", "--key", "keys", "-o", "x", "--connections", 2), "are for TCP"), (("recv", "h:1", "s", "--key", "keys", "-o", "x", "--chunk", 0), "--chunk 0"),
                       (("recv", "h:1", NO_REF, "--b3sum", "x", "-o", "x"), "one file")):  # fmt: skip
        assert why in run(*words, status=2)[1], words
    err = run("send", "model.safetensors", "--sign", "keys", "--federation", "a", status=1)[1]
    assert "keys is no private key" in err, err


def senders_that_lie_are_named_and_what_lands_is_proved():
    """Over several senders, of which some lie; interrupted, and gone on with; by files that are changed meanwhile."""
    model = safetensors([("w", "U8", [6 * MIB], noise(6 * MIB))])
    write("model.safetensors", model), write("keys", key_pair("ours"))
    lie = bytearray(model)
    lie[3 * MIB] ^= 1
    write("lie.safetensors", bytes(lie))
    with Sender("model.safetensors", "--sign", "ours.pem", "--federation", "hospitals") as owner, Sender("model.safetensors", "--ref", owner.ref, "--proofs") as mirror:
        assert mirror.published[0]["root"] == owner.published[0]["root"] and "signed" not in mirror.published[0]

        liar = LyingPath(owner.port)
        late = held_until(mirror.port, liar.dropped)

        def get(*words, status=0, of=owner):
            done = json.loads(run("recv", of.address, "model.safetensors.signed", "--key", "keys", "-o", "copy", "--chunk", "64K", "--retries", 0, "--json", *words, status=status)[0])
            if status == 0:
                assert Path("copy").read_bytes() == model and done["outcome"] == "completed", done
                os.remove("copy")
            return done

        assert get("--also", mirror.address)["wrong_senders"] == []
        assert get("--also", owner.address, of=mirror)["wrong_senders"] == [], "a mirror has the proofs, too"
        assert get("--also", late.address, of=liar)["wrong_senders"] == [liar.address]
        done = get(of=liar, status=1)
        assert done["code"] == "digest_mismatch" and done["wrong_senders"] == [liar.address] and not os.path.exists("copy"), done
        get("--restart")
        # interrupted, changed by another process, and gone on with from another sender
        path = SlowPath(owner.port, 64 * MIB)
        words = [path.address, write("what is signed", Path("model.safetensors.signed").read_bytes()), "--key", "keys", "-o", "copy", "--chunk", "64K"]
        again = interrupted_at(path, 3 * MIB, "recv", *words)
        assert again[0] == "recv" and again[-1] == "--resume" and "--key" in again, again
        with open(".copy.part", "r+b") as part:
            part.seek(MIB + 5)
            part.write(b"\x55")
        done = json.loads(run(*again, "--json")[0])
        assert Path("copy").read_bytes() == model and done["outcome"] == "completed", done
        # a file that is there, and has another byte
        write("copy", bytes(lie))
        assert "exists already, and is not" in run("recv", *words, "--resume", status=3)[1]
        done = json.loads(run("recv", *words, "--resume", "--force", "--json")[0])
        assert Path("copy").read_bytes() == model, done
        os.remove("copy")
        # the text says where it lies: the senders of another file under this reference are none
        with Sender("lie.safetensors", "--ref", owner.ref[:32], "--proofs") as other:
            assert get("--also", mirror.address, of=other)["wrong_senders"] == []
    done = get("--also", mirror.address, status=1)
    assert done["code"] == "connection_failed" and done["wrong_senders"] == [], done
    # other links, one by one
    for listen in (["--listen", "unix:@signed-" + os.path.basename(os.getcwd())], ["--listen", "udp://127.0.0.1:0"]):
        with Sender("model.safetensors", "--sign", "ours.pem", "--federation", "hospitals", *listen) as sender:
            done = json.loads(run("recv", sender.address, "model.safetensors.signed", "--key", "keys", "-o", "copy", "--json")[0])
            assert done["outcome"] == "completed" and Path("copy").read_bytes() == model, done
            os.remove("copy")


def what_is_signed_arrives_over_several_connections():
    """To one sender, which counts one recipient, or to several; also if it lies, or the pull is interrupted."""
    model = safetensors([("w", "U8", [6 * MIB], noise(6 * MIB))])
    write("model.safetensors", model), write("keys", key_pair("ours"))
    with Sender("model.safetensors", "--sign", "ours.pem", "--federation", "hospitals") as owner, Sender("model.safetensors", "--ref", owner.ref, "--proofs") as mirror:
        def words(of, *more):
            return "recv", of.address, "model.safetensors.signed", "--key", "keys", "-o", "copy", "--chunk", "64K", *more

        for more in (("--connections", 4), ("--connections", 8, "--also", mirror.address), ("--connections", 2, "--also", mirror.address, "--also", owner.address)):
            done = json.loads(run(*words(owner, "--json", *more))[0])
            # the root stands for the bytes, and no other digest is computed
            assert (done["outcome"], done["confirmed"], done["believed"], done["digest"], done["wrong_senders"]) == ("completed", True, False, None, []), done
            assert Path("copy").read_bytes() == model
            os.remove("copy")
        liar = LyingPath(owner.port)
        done = json.loads(run(*words(liar, "--json", "--retries", 0, "--connections", 3), status=1)[0])
        assert done["code"] == "digest_mismatch" and done["wrong_senders"] == [liar.address] and not os.path.exists("copy"), done
        run(*words(owner, "--restart"))
        os.remove("copy")
        path = SlowPath(owner.port, 64 * MIB)
        again = interrupted_at(path, 3 * MIB, *words(path, "--connections", 3))
        assert again[0] == "recv" and "--connections" in again and "--key" in again and again[-1] == "--resume", again
        done = json.loads(run(*again, "--json")[0])
        assert Path("copy").read_bytes() == model and done["resumed_bytes"] > 0, done


def b3sum(name):
    """The BLAKE3 of a file, as others compute it."""
    return processes.run(["b3sum", "--no-names", name], check=True, capture_output=True, text=True).stdout.strip()


def a_manifest_is_one_for_b3sum():
    write("small.safetensors", safetensors([("a", "U8", [3], b"abc")]))
    write("model.safetensors", CANONICAL)
    write("keys", key_pair("ours"))
    checkpoint("checkpoint")
    with Sender("model.safetensors", "small.safetensors", "--sign", "ours.pem", "--federation", "hospitals") as sender, Sender("checkpoint") as directory:
        for i, output in enumerate(("copy", "./a\\b\nc", "ü"), 0):
            of = sender.published[i % 2]
            for words in ([of["ref"]], [of["file"] + ".signed", "--key", "keys"]):
                run("recv", of["address"], *words, "-o", output, "--force", "--b3sum", "manifest")
                assert processes.run(["b3sum", "-c", "manifest"], check=True, capture_output=True, text=True).stdout.endswith("OK\n")
                assert Path("manifest").read_text() == processes.run(["b3sum", output], check=True, capture_output=True, text=True).stdout
        run("recv", directory.address, directory.ref, "-o", "again/", "--b3sum", "manifest")
        assert processes.run(["b3sum", "-c", "--quiet", "manifest"], capture_output=True, text=True).returncode == 0
        assert len(Path("manifest").read_text().splitlines()) == len(files_below("checkpoint"))
        err = run("recv", sender.address, sender.ref, "-o", "other", "--b3sum", "no/folder", status=3)[1]
        assert "other is complete" in err and Path("other").read_bytes() == CANONICAL, err
    Path("copy").write_bytes(MODEL)
    with open("manifest", "w") as out:
        out.write(b3sum("model.safetensors") + "  copy\n")
    assert processes.run(["b3sum", "-c", "manifest"], capture_output=True).returncode != 0, "it would notice"


def what_has_changed_since_a_base():
    """recv --base fetches what has changed if the sender publishes that, and the same file in any case; whole recipients are counted once."""
    old, new = versions()
    for listen in ([], ["--listen", "unix:there"], ["--listen", "udp://127.0.0.1:0"]):
        with Sender("new.safetensors", "--base", "old.safetensors", "--recipients", 4, *listen) as sender:
            difference = sender.differences[0]
            assert difference["bytes"] < 0.4 * len(new) and difference["total_bytes"] == len(new), difference
            plain = json.loads(run("recv", sender.address, sender.ref, "-o", "plain", "--json")[0])
            assert plain["difference_bytes"] == 0 and plain["received_bytes"] == len(new), plain
            canonical = Path("plain").read_bytes()
            assert parsed(canonical) == parsed(new)

            def get(base, *words, output="copy"):
                done = json.loads(run("recv", sender.address, sender.ref, "-o", output, "--base", base, "--json", *words)[0])
                assert Path(output).read_bytes() == canonical, base
                assert done["outcome"] == "completed" and done["confirmed"] and not done["believed"] and done["bytes"] == len(new), done
                return done

            done = get("old.safetensors")
            assert difference["bytes"] < done["received_bytes"] < difference["bytes"] + 1000 and done["resumed_bytes"] == len(new) - 1, done
            assert done["difference_bytes"] == done["received_bytes"] - 1
            write("same", old)
            get("same", "--force", output="same")  # in its own place
            write("other", old[:-1] + bytes([old[-1] ^ 1]))
            done = get("other", "--force")
            assert done["difference_bytes"] == 0 and done["received_bytes"] == len(new), done
            events = sender.end()
            assert [e["event"] for e in events].count("completed") == 4 and events[-1]["outcome"] == "done", events
        for name in ("copy", "plain", "same", "other"):
            os.remove(name)
        assert names() == ["new.safetensors", "old.safetensors"], names()
    # a difference that is damaged costs a fetch of all
    with Sender("new.safetensors", "--base", "old.safetensors") as sender:
        broken = []

        def once(i, frame):
            if not broken and len(frame) > 100_000:
                broken.append(i)
                frame[50_000] ^= 1
            return frame

        path = MutatingPath(sender.port, once)
        done = json.loads(run("recv", path.address, sender.ref, "-o", "copy", "--base", "old.safetensors", "--json")[0])
        assert broken and Path("copy").read_bytes() == canonical and done["outcome"] == "completed", done
        assert done["difference_bytes"] > 0 and done["received_bytes"] > len(new), done
        os.remove("copy")
    # interrupted or killed while the difference comes: the next call fetches the rest of it, as of a whole
    with Sender("new.safetensors", "--base", "old.safetensors") as sender:
        length = sender.differences[0]["bytes"]
        for stop, words in ((signal.SIGINT, ()), (signal.SIGKILL, ("--force",))):
            path = SlowPath(sender.port, 48 * 1024)
            to = ["-o", "copy", "--base", "old.safetensors", "--chunk", "10K", *words]
            recv = processes.Program(command("recv", path.address, sender.ref, *to), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            assert processes.eventually(lambda: ".copy.difference.part" in names() and os.stat(".copy.difference.part").st_blocks * 512 >= 50_000), "it lands"
            path.hold_at(0)
            recv.send_signal(stop)
            _, err = recv.communicate(timeout=60)
            assert Path(".copy.difference.part").exists() and ("copy" in names()) == bool(words), (err, names())
            if stop == signal.SIGINT:
                assert recv.returncode == 130 and ".copy.difference.part. To go on" in err and "--resume" in err and ".copy.part" not in names(), (err, names())
                err = run("recv", sender.address, sender.ref, *to, status=3)[1]
                assert ".copy.difference.part" in err and Path(".copy.difference.part").exists(), err
            done = json.loads(run("recv", sender.address, sender.ref, *to, "--resume", "--json")[0])
            assert Path("copy").read_bytes() == canonical and (stop == signal.SIGKILL or 0 < done["difference_bytes"] < length - 30_000), (length, done)
            assert names() == ["copy", "new.safetensors", "old.safetensors"], names()
        # lost, with the sender: there is nobody to fetch the whole from either
        os.remove("copy")
        path = MutatingPath(sender.port, lambda i, frame: frame if i < 7 else None)
        lost = json.loads(run("recv", path.address, sender.ref, *to, "--retries", 0, "--json", status=1)[0])
        assert lost["code"] == "connection_lost" and lost["resumable"] and 0 < lost["bytes"] <= lost["difference_bytes"], lost
        assert ".copy.part" not in names() and ".copy.difference.part" in names(), names()
        done = json.loads(run("recv", sender.address, sender.ref, *to, "--resume", "--json")[0])
        assert Path("copy").read_bytes() == canonical and done["difference_bytes"] < length - lost["bytes"] + 1000, (lost, done)
        # from the start
        path = SlowPath(sender.port, 64 * MIB)
        path.hold_at(150_000)
        recv = processes.Program(command("recv", path.address, sender.ref, *to), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        path.wait_for_hold()
        recv.send_signal(signal.SIGTERM)
        recv.communicate(timeout=60)
        done = json.loads(run("recv", sender.address, sender.ref, *to, "--restart", "--json")[0])
        assert done["difference_bytes"] > length and Path("copy").read_bytes() == canonical, done


def only_tensors_that_have_changed_since_a_base():
    """recv --base fetches tensors whose digests are others, of a sender that says them, and is counted once; the file is that of any other recipient."""
    frozen = [(f"layer.{i}.weight", "F32", [100, 250], noise(100_000, i)) for i in range(20)]
    adapter = [(f"layer.{i}.lora", "F32", [8], noise(32, 50 + i)) for i in range(20)]
    other = [(name, kind, shape, bytes([data[0] ^ 1]) + data[1:]) for name, kind, shape, data in adapter]
    write("old.safetensors", safetensors(frozen + adapter, {"round": "1"}))
    write("new.safetensors", safetensors(frozen + other, {"round": "2"}))
    for listen in ([], ["--listen", "unix:there"], ["--listen", "udp://127.0.0.1:0"]):
        with Sender("new.safetensors", "--tensor-digests", "--recipients", 5, *listen) as sender:
            published = sender.published[0]
            plain = json.loads(run("recv", sender.address, sender.ref, "-o", "plain", "--json")[0])
            assert plain["received_bytes"] == plain["bytes"] == published["bytes"] > len(Path("new.safetensors").read_bytes()), (plain, published)
            canonical = Path("plain").read_bytes()
            metadata, tensors = parsed(canonical)
            assert tensors == parsed(Path("new.safetensors").read_bytes())[1]
            assert metadata.pop("tensorpull.digests") and metadata == {"round": "2"}, metadata

            def get(base, *words, output="copy"):
                done = json.loads(run("recv", sender.address, sender.ref, "-o", output, "--base", base, "--json", *words)[0])
                assert Path(output).read_bytes() == canonical, base
                assert done["outcome"] == "completed" and done["confirmed"] and not done["believed"] and done["bytes"] == len(canonical), done
                return done

            done = get("old.safetensors", "--name", "site-1")
            assert done["difference_bytes"] == 20 * 32 and done["received_bytes"] == 20 * 32 + 1 < 0.005 * len(canonical), done
            write("same", Path("old.safetensors").read_bytes())
            assert get("same", "--force", output="same")["difference_bytes"] == 20 * 32  # in its own place
            assert get("plain", "--force")["difference_bytes"] == 32  # nothing has changed: the smallest comes
            write("others", safetensors([(name, kind, shape, bytes([data[0] ^ 9]) + data[1:]) for name, kind, shape, data in frozen + other]))
            done = get("others", "--force")
            assert done["difference_bytes"] == 0 and done["received_bytes"] == len(canonical), done
            events = sender.end()
            assert [e["event"] for e in events].count("completed") == 5 and events[-1]["outcome"] == "done", events
        for name in ("copy", "plain", "same", "others"):
            os.remove(name)
        assert names() == ["new.safetensors", "old.safetensors"], names()
    # what recv wrote says the digests of its tensors: a sender of it needs no option, and one that lies costs a fetch of all
    with Sender("new.safetensors", "--tensor-digests", "--base", "old.safetensors") as sender:
        run("recv", sender.address, sender.ref, "-o", "plain")
        done = json.loads(run("recv", sender.address, sender.ref, "-o", "coded", "--base", "old.safetensors", "--json")[0])
        assert Path("coded").read_bytes() == Path("plain").read_bytes() and done["difference_bytes"] > 32 * 20, "a coded difference comes first"
    wrong = dict(parsed(Path("plain").read_bytes())[0])
    write("lies.safetensors", safetensors(frozen[:-1] + [(*frozen[-1][:3], noise(100_000, 99))] + other, wrong))
    with Sender("plain", "lies.safetensors", "--recipients", 1) as sender:
        done = json.loads(run("recv", sender.address, sender.published[0]["ref"], "-o", "again", "--base", "old.safetensors", "--json")[0])
        assert done["difference_bytes"] == 32 * 20 and Path("again").read_bytes() == Path("plain").read_bytes(), done
        done = json.loads(run("recv", sender.address, sender.published[1]["ref"], "-o", "truth", "--base", "old.safetensors", "--json")[0])
        assert done["received_bytes"] == 32 * 20 + done["bytes"] and parsed(Path("truth").read_bytes()) == parsed(Path("lies.safetensors").read_bytes()), done
        assert done["confirmed"] and [e["event"] for e in sender.end()].count("completed") == 2
    assert "--put sends the file away" in run("send", "plain", "--put", "http://127.0.0.1:1/x", "--tensor-digests", status=2)[1]


def checkpoint(at, shards=2, size=3 * MIB):
    """A directory as trainers write it; what it has, by path."""
    files = {"config.json": b'{"layers": 2}', "empty": b"", "tokenizer/merges.txt": noise(5000, 9)}
    files |= {f"model-{i:05}-of-{shards:05}.safetensors": safetensors([("w", "U8", [size], noise(size, i))]) for i in range(1, shards + 1)}
    for name, data in files.items():
        path = Path(at, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return files


def files_below(at):
    return {str(path.relative_to(at)): path.read_bytes() for path in Path(at).rglob("*") if path.is_file()}


def a_directory_arrives_as_one():
    files = checkpoint("checkpoint")
    os.chmod("checkpoint/config.json", 0o755)
    with Sender("checkpoint/", "--recipients", 3) as sender:
        assert sender.published[0]["file"] == "checkpoint" and sender.published[0]["tensors"] == len(files)
        done = json.loads(run("recv", sender.address, sender.ref, "-o", "copy/", "--json")[0])
        assert done["outcome"] == "completed" and done["confirmed"] and not done["believed"] and done["files"] == len(files) and done["bytes"] == sum(map(len, files.values())), done
        assert files_below("copy") == files and names() == ["checkpoint", "copy"], names()
        assert os.access("copy/config.json", os.X_OK) and not os.access("copy/empty", os.X_OK)
        # another version of it: one shard has changed, one file has gone and one has come
        os.remove("copy/tokenizer/merges.txt"), write("copy/new.txt", b"new")
        Path("copy/config.json").write_bytes(b'{"layers": 3}')
        out, err = run("recv", sender.address, sender.ref, "-o", "copy/", status=3)
        assert out == "" and "copy exists already: --force" in err and Path("copy/config.json").read_bytes() == b'{"layers": 3}', err
        done = json.loads(run("recv", sender.address, sender.ref, "-o", "copy/", "--base", "copy", "--force", "--json")[0])
        assert files_below("copy") == files and done["resumed_bytes"] > 6 * MIB and done["received_bytes"] < 10_000, done
        out, err = run("recv", sender.address, sender.ref, "-o", "some/", "--include", "*.json", "--include", "*.txt", "--exclude", "tokenizer/*")
        assert files_below("some") == {"config.json": files["config.json"]} and "1 file" in out and "each has the digest" in out, out
        assert sender.end()[-1]["completed"] == 3, "each counts once, however many pulls it took"
    assert "are for directories" in run("recv", "h:1", NO_REF, "-o", "x", "--exclude", "*", status=2)[1]
    assert "are for directories" in run("send", "checkpoint/config.json", "--follow-links", status=2)[1]
    assert "is a directory" in run("send", "checkpoint", "--put", "http://127.0.0.1:1/x", status=2)[1]
    # in a file it is a model like any other, whose tensors are files
    with Sender("checkpoint") as sender:
        run("recv", sender.address, sender.ref, "-o", "copy.safetensors")
        metadata, tensors = parsed(Path("copy.safetensors").read_bytes())
        assert metadata["tensorpull.files"] == "1" and {name: data for name, (_, _, data) in tensors.items()} == files


def a_directory_is_interrupted_and_resumed():
    files = checkpoint("checkpoint", size=8 * MIB)
    with Sender("checkpoint", "--recipients", 1) as sender:
        path = SlowPath(sender.port, 1 << 30)
        path.hold_at(10 * MIB)
        words = (path.address, sender.ref, "-o", "copy/", "--json", "--chunk", "64K")
        first = processes.Program(command("recv", *words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        path.wait_for_hold()
        first.send_signal(signal.SIGINT)
        out, _ = first.communicate(timeout=60)
        told = json.loads(out)
        assert first.returncode == 130 and told["outcome"] == "interrupted" and told["resumable"] and names() == [".copy.part", "checkpoint"], (told, names())
        path.go_on()
        assert "an earlier recv left a part" in json.loads(run("recv", *words, status=3)[0])["message"]
        killed = path.forwarded
        path.hold_at(killed + 4 * MIB)
        second = processes.Program(command("recv", *words, "--resume"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        path.wait_for_hold()
        second.kill()
        second.communicate(timeout=60)
        path.go_on()
        done = json.loads(run("recv", *words, "--resume")[0])
        assert files_below("copy") == files and names() == ["checkpoint", "copy"], names()
        assert done["outcome"] == "completed" and done["confirmed"] and done["resumed_bytes"] > 10 * MIB, done
        assert sender.end()[-1]["completed"] == 1
    # a choice of files, killed within the first of them
    with Sender("checkpoint") as sender:
        path = SlowPath(sender.port, 1 << 30)
        path.hold_at(6 * MIB)
        words = ("recv", path.address, sender.ref, "-o", "some/", "--json", "--chunk", "64K", "--include", "*.safetensors", "--resume")
        first = processes.Program(command(*words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        path.wait_for_hold()
        first.kill()
        first.communicate(timeout=60)
        path.go_on()
        done = json.loads(run(*words)[0])
        some = {name: what for name, what in files.items() if name.endswith(".safetensors")}
        assert files_below("some") == some and done["outcome"] == "completed" and done["resumed_bytes"] > 4 * MIB, done


def a_directory_from_several_senders():
    files = checkpoint("checkpoint")
    with Sender("checkpoint") as one, Sender("checkpoint", "--ref", one.ref) as two:
        done = json.loads(run("recv", one.address, one.ref, "--also", two.address, "-o", "copy/", "--chunk", "64K", "--json")[0])
        assert done["outcome"] == "completed" and files_below("copy") == files, done
        # the first of them is gone
        done = json.loads(run("recv", "127.0.0.1:1", one.ref, "--also", two.address, "-o", "other/", "--json")[0])
        assert done["outcome"] == "completed" and files_below("other") == files, done
        run("recv", "127.0.0.1:1", one.ref, "--also", two.address, "-o", "some/", "--include", "*.json")
        assert list(files_below("some")) == ["config.json"]


def a_directory_over_other_links():
    files = checkpoint("checkpoint", size=100_000)
    for link in ("unix:@tensorpull-tools-%d" % os.getpid(), "udp://127.0.0.1:0", f"shm:{os.getcwd()}/shm"):
        if without(link):
            continue
        with Sender("checkpoint", "--listen", link, "--recipients", 2) as sender:
            run("recv", sender.address, sender.ref, "-o", "copy/")
            done = json.loads(run("recv", sender.address, sender.ref, "-o", "copy/", "--force", "--base", "copy", "--json")[0])
            assert files_below("copy") == files and done["received_bytes"] == 1, done
        processes.run(["rm", "-r", "copy"], check=True)
    run("recv", f"pipe:{shlex.join(command('send', os.path.abspath('checkpoint'), '--stdio', '--ref', NO_REF))}", NO_REF, "-o", "copy/")
    assert files_below("copy") == files


def directories_that_cannot_be():
    os.mkdir("empty"), os.mkdir("links"), os.mkdir("cases"), os.mkdir("pipes")
    assert "no file that is chosen" in run("send", "empty", "--idle", 0.1, status=1)[1]
    os.symlink("../outside", "links/config.json"), write("outside", b"{}")
    out, err = run("send", "links", "--idle", 0.1, status=1)
    assert "links/config.json is a symbolic link" in err and "--follow-links" in err, err
    with Sender("links", "--follow-links") as sender:
        run("recv", sender.address, sender.ref, "-o", "copy/")
        assert files_below("copy") == {"config.json": b"{}"} and not os.path.islink("copy/config.json")
    write("cases/Readme", b"1"), write("cases/readme", b"2")
    assert "capital letters" in run("send", "cases", "--idle", 0.1, status=1)[1]
    os.mkfifo("pipes/pipe")
    assert "pipes/pipe is no regular file" in run("send", "pipes", "--idle", 0.1, status=1)[1]
    # what an owner says that keeps to no rules; each digest is right
    for name in ("../up", "/tmp/tensorpull-up", "a/../../up", "back\\slash", "a//b", "..", "line\nfeed"):
        write("evil.safetensors", safetensors([(name, "U8", [4], b"evil")], {"tensorpull.files": "1"}))
        with Sender("evil.safetensors", "--tensor-digests") as sender:
            out, err = run("recv", sender.address, sender.ref, "-o", "got/", status=1)
            assert "leads elsewhere" in err and not os.path.exists("got") and not os.path.exists(".got.part") and not os.path.exists("../up"), (name, err)
    write("model.safetensors", CANONICAL)
    with Sender("model.safetensors") as sender:
        assert "and no directory" in run("recv", sender.address, sender.ref, "-o", "got/", status=1)[1]
    checkpoint("checkpoint")
    with Sender("checkpoint") as sender:
        write("file", b"precious"), os.symlink("links", "link"), os.mkdir(".taken.part", 0o777), os.chmod(".taken.part", 0o777)
        for output, word in {"file/": "no directory", "link/": "symbolic link", "taken/": "is in the way"}.items():
            out, err = run("recv", sender.address, sender.ref, "-o", output, "--force", "--resume", status=3)
            assert word in err, err
        assert Path("file").read_bytes() == b"precious" and os.path.islink("link") and not os.path.exists("taken")
        out, err = run("recv", sender.address, sender.ref, "-o", "small/", "--max-bytes", "1M", status=1)
        assert "--max-bytes allows" in err and not os.path.exists(".small.part"), err
        out, err = run("recv", sender.address, sender.ref, "-o", "big/", status=3, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (MIB, MIB)))
        assert "File too large" in err and not os.path.exists("big"), err
        run("recv", sender.address, sender.ref, "-o", "big/", "--resume")
        assert files_below("big") == files_below("checkpoint")
        for output in ("./", "../", "//"):
            assert "no name" in run("recv", sender.address, sender.ref, "-o", output, status=2)[1]
        os.mkdir("small")
        if os.geteuid() == 0 and processes.run(["mount", "-t", "tmpfs", "-o", "size=8m", "none", "small"], capture_output=True).returncode == 0:
            try:
                write("small/other", bytes(5 * MIB))
                out, err = run("recv", sender.address, sender.ref, "-o", "small/copy/", status=3)
                assert "the disk is full" in err and os.listdir("small") == ["other"], err
                os.remove("small/other")
                path = SlowPath(sender.port, 1 << 30)
                path.hold_at(4 * MIB)
                first = processes.Program(command("recv", path.address, sender.ref, "-o", "small/copy/", "--chunk", "64K"), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                path.wait_for_hold()
                first.send_signal(signal.SIGINT)
                first.communicate(timeout=60)
                write("small/other", bytes(MIB))  # there is room for what lacks, and not for all
                run("recv", sender.address, sender.ref, "-o", "small/copy/", "--resume")
                assert files_below("small/copy") == files_below("checkpoint")
            finally:
                processes.run(["umount", "-l", "small"], check=True)
    # a file that changes is named, and what has arrived of it gets no name
    checkpoint("changing", size=8 * MIB)
    with Sender("changing") as sender:
        path = SlowPath(sender.port, 1 << 30)
        path.hold_at(4 * MIB)
        puller = processes.Program(command("recv", path.address, sender.ref, "-o", "half/", "--chunk", "64K", "--retries", 0), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        path.wait_for_hold()
        with open("changing/model-00002-of-00002.safetensors", "r+b") as shard:
            shard.write(b"another program saves")
        path.go_on()
        puller.communicate(timeout=60)
        assert puller.returncode == 1 and not os.path.exists("half"), puller.returncode
        sender.process.send_signal(signal.SIGINT)
        assert any(event["event"] == "withdrawn" for event in sender.end(1)), "it is withdrawn"


def a_file_of_a_directory_over_http():
    files = checkpoint("checkpoint")
    for name in ("epoch=3-step=1000.ckpt", "tokenizer/a b%20+<\"'&?#>.txt", "tokenizer/größe.json", "round:b"):
        files[name] = name.encode()
        write("checkpoint/" + name, files[name])
    with Sender("checkpoint", "--http", "127.0.0.1:0") as sender:
        def get(path, **fields):
            request = urllib.request.Request(sender.published[0]["url"] + path, headers={"Authorization": "Bearer " + sender.ref} | fields)
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.read(), answer.headers
        listed = json.loads(get("/files")[0])
        assert {name: of["shape"] for name, of in listed.items() if name != "__metadata__"} == {name: [len(data)] for name, data in files.items()}, listed
        for name, data in files.items():
            for path in (urllib.parse.quote(name), urllib.parse.quote(name, safe="")):
                got, fields = get("/files/" + path)
                assert got == data and fields["Repr-Digest"].startswith("xxh3=:"), name
        got, fields = get("/files/epoch=3-step=1000.ckpt")
        assert got == files["epoch=3-step=1000.ckpt"]
        for path, status in {"%2e%2e/checkpoint/config.json": 404, "../config.json": 400, "%": 400, "config.json%": 400, "config.json%2": 400, "config.json%2g": 400, "config.json%00": 404,
                             "%2F": 404, "tokenizer%2f%2e%2E%2fconfig.json": 404, "%61" * 256: 404, "a\"b": 400, "a<b": 400}.items():
            connection = http.client.HTTPConnection("127.0.0.1", urllib.parse.urlsplit(sender.published[0]["url"]).port, timeout=60)
            connection.request("GET", urllib.parse.urlsplit(sender.published[0]["url"]).path + "/files/" + path, headers={"Authorization": "Bearer " + sender.ref})
            assert connection.getresponse().status == status, (path, status)
            connection.close()
        assert get("/files/tokenizer/merges.txt", Range="bytes=10-19")[0] == files["tokenizer/merges.txt"][10:20]
    told = processes.Program(command("send", "checkpoint", "--http", "127.0.0.1:0", "--idle", 0.1), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert "/files/PATH" in told.communicate(timeout=60)[1]


def hub_environment(hub, **more):
    """That of a user of this hub, who has nothing of another one."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "XDG_CACHE"))}
    return own | {"HF_ENDPOINT": hub.endpoint, "HF_HOME": os.getcwd() + "/hf-home", **more}


def without_hubs():
    """Whether the tools were built without what hubs need."""
    refusal = subprocess.run(command("recv", "hf://a/b", "-o", "x/", "--retries", 0), capture_output=True, text=True, timeout=60, env=os.environ | {"HF_ENDPOINT": "http://127.0.0.1:1"})
    return refusal.returncode == 2 and "built without" in refusal.stderr


def a_model_of_a_hub_arrives_as_one():
    if without_hubs():
        return
    files = checkpoint("there") | {"a dir/100% #1?.txt": b"odd", ".gitattributes": b"*.safetensors lfs"}
    with ImitatedHub(files, revisions=("main", "v1.0", "refs/pr/7", "a/b"), token="secret") as hub:
        hub.redirects_inside = True
        env = hub_environment(hub, HF_TOKEN=" secret\n")
        done = json.loads(run("recv", "hf://org/model", "-o", "copy/", "--json", env=env)[0])
        assert files_below("copy") == files and names() == ["copy", "there"], names()
        total = sum(map(len, files.values()))
        assert done["outcome"] == "completed" and done["commit"] == hub.commit and done["files"] == len(files) and done["bytes"] == total, done
        assert done["received_bytes"] == total and done["resumed_bytes"] == 0 and done["believed"] and not done["resumable"], done
        large = [path for path in files if hub.is_large(path)]
        assert len([1 for host, *_ in hub.asked if host == "cdn"]) == len(large)
        # only the hub is shown the token, and the list names the commit of which all files are
        for host, _, path, fields in hub.asked:
            assert fields.get("authorization") == ("Bearer secret" if host == "hub" else None), (host, path, fields)
            assert host == "cdn" or "secret" not in path and (path.endswith("/revision/main?blobs=true") or hub.commit in path), path
        assert not any("secret" in str(fields) for host, _, _, fields in hub.asked if host == "cdn")
        # only what has changed
        files["config.json"] = hub.files["config.json"] = b'{"layers": 3}'
        del files["empty"], hub.files["empty"]
        out, err = run("recv", "hf://org/model", "-o", "copy/", status=3, env=env)
        assert out == "" and "copy exists already: --force" in err, err
        hub.commit = "f" * 40
        hub.revisions += (hub.commit,)
        done = json.loads(run("recv", "hf://org/model@%s" % hub.commit, "-o", "copy/", "--base", "copy", "--force", "--json", env=env)[0])
        assert files_below("copy") == files and done["received_bytes"] == len(files["config.json"]) and done["resumed_bytes"] > 6 * MIB, done
        # a tag, a request to merge, a branch with a slash; some of the files; the token of the hub's own programs, or that of a file
        del env["HF_TOKEN"]
        os.mkdir("hf-home"), write("hf-home/token", b"secret\n"), write("key", b"secret\n"), write("other", b"another\n")
        out, err = run("recv", "hf://org/model@v1.0", "-o", "some/", "--include", "*.json", "--include", "*.txt", "--exclude", "tokenizer/*", env=env)
        assert files_below("some") == {path: files[path] for path in ("config.json", "a dir/100% #1?.txt")} and "2 files" in out and "commit " + hub.commit in out and err == "", (out, err)
        run("recv", "hf://org/model@refs/pr/7", "-o", "pr/", "--bearer-file", "key", env=env | {"HF_TOKEN": "another"})
        run("recv", "hf://org/model@a%2Fb", "-o", "slash/", env=env)
        assert files_below("pr") == files_below("slash") == files
        assert [path for _, _, path, _ in hub.asked if "/revision/" in path and "%2F" in path] == ["/api/models/org/model/revision/refs%2Fpr%2F7?blobs=true", "/api/models/org/model/revision/a%2Fb?blobs=true"]
        # one file: its URL and its digest are those of a pull from a web server
        one = large[0]
        done = json.loads(run("recv", "hf://org/model/" + one, "-o", "one.safetensors", "--json", env=env)[0])
        assert Path("one.safetensors").read_bytes() == files[one] and done["outcome"] == "completed", done
        for words, says in ((("hf://org/model", "-o", "no/", "--bearer-file", "other"), "HF_TOKEN"), (("hf://org/other", "-o", "no/"), "nothing at hf://org/other"), (("hf://org/model@v2", "-o", "no/"), "nothing at hf://org/model@v2"),
                            (("hf://org/model/none.safetensors", "-o", "no"), "nothing at hf://org/model/none.safetensors"), (("hf://org/model", "-o", "no/", "--include", "*.none"), "no file is chosen")):
            out, err = run("recv", *words, status=1, env=env)
            assert out == "" and says in err and "secret" not in err and "another" not in err, err
        err = run("recv", "hf://org/model", "-o", "no/", status=1, env=env | {"HF_HUB_DISABLE_IMPLICIT_TOKEN": "Yes"})[1]
        assert "401 from" in err, err
        for words in (("hf://org/model", "-o", "file"), ("hf://org/model/x", "-o", "no/"), ("hf://org", "x", "-o", "no/"), ("hf://", "-o", "no/"), ("hf://org/", "-o", "no/"), ("hf://../model", "-o", "no/"), ("hf://org/model@", "-o", "no/"),
                      ("hf://org/model@a%2", "-o", "no/"), ("hf://org/mo del", "-o", "no/"), ("hf://datasets/model", "-o", "no/"), ("hf://org/model", "-o", "no/", "--also", "h:1"), ("hf://org/model", "-o", "no/", "--digest", "xxh3:0"),
                      ("hf://org/model/x", "-o", "no", "--base", "x"), ("hf://org/model", "-o", "no/", "--resume", "--restart")):
            run("recv", *words, status=2, env=env)
        assert "HF_ENDPOINT" in run("recv", "hf://org/model", "-o", "no/", status=2, env=env | {"HF_ENDPOINT": "ftp://x"})[1]
        assert "no" not in names() and ".no.part" not in names(), names()
    with ImitatedHub({"config.json": b"{}"}, repository="model") as hub:
        # a hub that knows no blobs=true is asked about each file
        hub.with_blobs = False
        hub.files["m.safetensors"] = files[one]
        run("recv", "hf://model", "-o", "bare/", env=hub_environment(hub))
        assert files_below("bare") == hub.files and ["HEAD", "HEAD"] == [method for _, method, _, _ in hub.asked if method == "HEAD"]
        assert {host for host, method, _, _ in hub.asked if method == "HEAD"} == {"hub"}


def a_model_of_a_hub_is_interrupted_and_resumed():
    if without_hubs():
        return
    files = checkpoint("there", size=4 * MIB)
    shard = next(path for path in files if path.startswith("model-00002"))
    with ImitatedHub(files) as hub:
        env, cuts, held = hub_environment(hub), [MIB], threading.Event()

        def cut(request, host, path):
            if host != "cdn" or hashlib.sha256(files[shard]).hexdigest() not in path or not cuts:
                return False
            data, n = files[shard], cuts.pop(0)
            first = int(re.fullmatch(r"bytes=(\d+)-", request.headers.get("Range", "bytes=0-"))[1])
            request.say(206 if first else 200, {"Content-Range": "bytes %d-%d/%d" % (first, len(data) - 1, len(data))} if first else {}, data[first:first + n], length=len(data) - first)
            request.close_connection = True
            if not cuts:  # whoever asks waits for the rest
                held.wait(60)
            return True

        def ranges():
            return [fields["range"] for host, _, path, fields in hub.asked if "range" in fields and host == "cdn"]
        hub.instead = cut
        # a lost connection is made again, and goes on behind the last byte; the hub is asked again where the file is
        cuts[:] = [MIB, MIB, MIB]
        words = ("hf://org/model", "-o", "copy/", "--json")
        def until_held(n, *more):
            program = processes.Program(command("recv", *words, *more), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
            assert processes.eventually(lambda: not cuts and Path(".copy.part/files", shard).exists() and Path(".copy.part/files", shard).stat().st_size >= n), cuts
            return program
        first = until_held(3 * MIB)
        assert ranges() == ["bytes=%d-" % MIB, "bytes=%d-" % (2 * MIB)], ranges()
        first.send_signal(signal.SIGINT)
        told = json.loads(first.communicate(timeout=60)[0])
        assert first.returncode == 130 and told["outcome"] == "interrupted" and told["resumable"] and names() == [".copy.part", "there"], (told, names())
        cuts.append(MIB // 2)
        second = until_held(3 * MIB + MIB // 2, "--resume")
        second.kill()
        second.communicate(timeout=60)
        held.set()
        assert ranges()[2:] == ["bytes=%d-" % (3 * MIB)], ranges()
        assert "an earlier recv left a part" in json.loads(run("recv", *words, status=3, env=env)[0])["message"]
        done = json.loads(run("recv", *words, "--resume", env=env)[0])
        total = sum(map(len, files.values()))
        assert files_below("copy") == files and done["received_bytes"] == len(files[shard]) - 3 * MIB - MIB // 2 + len(files["tokenizer/merges.txt"]) and done["resumed_bytes"] + done["received_bytes"] == total, done
        # what is left may be of another version, or not what arrived: then that file comes whole
        os.mkdir(".copy.part", 0o700), os.rename("copy", ".copy.part/files")
        wrong = Path(".copy.part/files", shard)
        wrong.write_bytes(b"x" + files[shard][1:2 * MIB])
        Path(".copy.part/files/config.json").write_bytes(b'{"layers": 9}')
        done = json.loads(run("recv", *words, "--resume", env=env)[0])
        assert files_below("copy") == files and done["received_bytes"] == len(files["config.json"]) + 2 * len(files[shard]) - 2 * MIB, done


def hubs_that_lie():
    if without_hubs():
        return
    files = checkpoint("there", size=300_000)
    shard = "model-00001-of-00002.safetensors"

    def refused(says, change, status=1, words=(), **more):
        with ImitatedHub(files) as hub:
            change(hub)
            out, err = run("recv", "hf://org/model", "-o", "copy/", "--retries", 0, *words, status=status, env=hub_environment(hub), **more)
            assert out == "" and says in err, (says, err)
            assert not os.path.exists("copy") and not any(os.path.exists(name) for name in ("evil", "../evil", "/tmp/evil")), names()
            shutil.rmtree(".copy.part", ignore_errors=True)

    def stated(change):
        def with_siblings(about):
            change(about, {one["rfilename"]: one for one in about["siblings"]})
            return about
        return lambda hub: setattr(hub, "states", with_siblings)

    def named(name):
        return stated(lambda about, _: about["siblings"].append({"rfilename": name, "size": 1, "blobId": "0" * 40}))

    def answers(host, path_has, do):
        return lambda hub: setattr(hub, "instead", lambda request, at, path: (at == host and path_has in path and (do(request, hub, path), True)[1]))
    # names
    for name in ("../evil", "a/../../evil", "/tmp/evil", "a//b", "a\\b", "a/./b", "C:evil", "x\ny"):
        refused("leads elsewhere", named(name))
    refused("the same for some file systems", named("CONFIG.json"))
    refused("the same for some file systems", named("config.json/x"))
    refused("the same for some file systems", named("config.json"))
    # lists
    for text in (b"", b"<html>", b"[]", b"{}", b'{"sha": "%s", "siblings": [{"rfilename": "a"' % b"0" * 40, b'{"siblings": []}', b"[" * 100_000, b'{"sha": "%s", "sha": "%s", "siblings": []}' % (b"0" * 40, b"1" * 40),
                 b'{"sha": "../../x", "siblings": []}', b'{"sha": "%s", "siblings": [{"size": 1}]}' % (b"0" * 40), b'{"sha": "%s", "siblings": [{"rfilename": "a", "rfilename": "b"}]}' % (b"0" * 40),
                 b'{"sha": "%s", "siblings": [{"rfilename": "a", "size": -1}]}' % (b"0" * 40), b'{"sha": "%s", "siblings": [{"rfilename": "a", "size": 1e400}]}' % (b"0" * 40), b'{"sha": "%s", "siblings": [{"rfilename": "\xff"}]}' % (b"0" * 40),
                 b'{"sha": "%s", "siblings": [], "siblings": []}' % (b"0" * 40)):
        refused("no list of files", lambda hub, text=text: setattr(hub, "states", lambda about: text))
    refused("more files than", lambda hub: setattr(hub, "states", lambda about: about | {"siblings": [{"rfilename": "%d" % i, "size": 0} for i in range(50_001)]}))
    refused("more than --max-bytes", stated(lambda about, of: of["config.json"].update(size=1 << 40)), words=("--max-bytes", "1M"))
    refused("the disk is full", stated(lambda about, of: of[shard]["lfs"].update(size=1 << 60)), status=3)
    refused("does not fit", stated(lambda about, of: of[shard]["lfs"].update(size=(1 << 64) - 1)))
    refused("leaves its list", answers("hub", "/revision/", lambda request, hub, _: request.say(302, {"Location": hub.cdn + "/list"})))
    refused("another commit", lambda hub: (stated(lambda about, of: about.update(sha="e" * 40))(hub), setattr(hub, "revisions", (*hub.revisions, "e" * 40))))
    # a list of one commit, and files of another
    refused("another file", stated(lambda about, of: of[shard]["lfs"].update(size=299_000)))
    refused("another file", stated(lambda about, of: of[shard]["lfs"].update(sha256="0" * 64)))
    refused("another file", stated(lambda about, of: of["config.json"].update(blobId="0" * 40)))
    refused("another file", stated(lambda about, of: of["config.json"].update(size=5)))
    # a hub without statements of its own about the file: its bytes prove it
    quiet = answers("hub", shard, lambda request, hub, _: request.say(302, {"Location": hub.cdn + "/repos/%s?X-Amz-Signature=a%%2Fb" % hashlib.sha256(files[shard]).hexdigest()}))
    refused("what came as %s is not what was published" % shard, lambda hub: (quiet(hub), stated(lambda about, of: of[shard]["lfs"].update(sha256="0" * 64))(hub)))
    refused("of another length", lambda hub: (quiet(hub), stated(lambda about, of: of[shard]["lfs"].update(size=299_000))(hub)))
    refused("of another length", lambda hub: (quiet(hub), stated(lambda about, of: of[shard]["lfs"].update(size=400_000))(hub)))
    refused("is not what was published", answers("hub", "resolve/%s/config.json" % COMMIT, lambda request, hub, _: request.say(200, {}, b'{"layers": 7}')))
    # the other host
    refused("is not what was published", answers("cdn", "", lambda request, hub, _: request.say(200, {}, b"x" * len(files[shard]))))
    refused("of another length", answers("cdn", "", lambda request, hub, _: request.say(200, {}, b"x" * 10)))
    refused("the connection was lost", answers("cdn", "", lambda request, hub, _: (request.say(200, {}, b"x" * 10, length=len(files[shard])), setattr(request, "close_connection", True))))

    def unending(request, hub, _):
        request.send_response(200)
        request.send_header("Connection", "close")
        request.end_headers()
        try:
            for _ in range(1 << 14):
                request.wfile.write(bytes(1 << 16))
        except OSError:
            pass
        request.close_connection = True
    refused("of another length", answers("cdn", "", unending))
    refused("lists more files", answers("hub", "/revision/", unending))
    for status, says in ((401, "is not there, or not for whoever asks"), (403, "is not there, or not for whoever asks"), (404, "nothing at"), (429, "busy"), (503, "busy"), (500, "has failed")):
        refused(says, answers("hub", "/revision/", lambda request, hub, _: request.say(status, {"Retry-After": "100"})), words=("--timeout", 100))
        refused(says, answers("cdn", "", lambda request, hub, _: request.say(status, {"Retry-After": "100"})), words=("--timeout", 100))
    refused("one redirect to the next", answers("hub", "/resolve/", lambda request, hub, path: request.say(302, {"Location": path})))
    # a hub that is busy for a moment is left alone that long, and asked again
    with ImitatedHub(files) as hub:
        times = []

        def busy(request, host, path):
            if host == "hub" and "/revision/" in path and not times:
                times.append(time.monotonic())
                request.say(429, {"Retry-After": "1"})
                return True
            times[1:] = times[1:] or [time.monotonic()]
            return False
        hub.instead = busy
        run("recv", "hf://org/model", "-o", "copy/", env=hub_environment(hub))
        assert files_below("copy") == files and times[1] - times[0] >= 0.9, times


def bases_that_are_none():
    versions()
    write("other.safetensors", safetensors([("w", "F32", [3], noise(12))]))
    write("noise.safetensors", safetensors([("w", "F32", [100_000], noise(400_000, 5))]))
    write("more.safetensors", safetensors([("w", "F32", [100_000], noise(400_000, 6))]))
    err = run("send", "new.safetensors", "--base", "other.safetensors", status=1)[1]
    assert "other.safetensors has other tensors than new.safetensors" in err, err
    err = run("send", "new.safetensors", "--base", "gone.safetensors", status=1)[1]
    assert "gone.safetensors" in err, err
    assert "more --base than files" in run("send", "new.safetensors", "--base", "old.safetensors", "--base", "old.safetensors", status=2)[1]
    with Sender("more.safetensors", "new.safetensors", "--base", "noise.safetensors", "--base", "old.safetensors") as sender:
        assert len(sender.differences) == 1, "noise has no difference that is worth it"
        for base, differs in (("old.safetensors", True), ("other.safetensors", False)):
            done = json.loads(run("recv", sender.address, sender.published[1]["ref"], "-o", "copy", "--force", "--base", base, "--json")[0])
            assert (done["difference_bytes"] > 0) == differs and parsed(Path("copy").read_bytes()) == parsed(Path("new.safetensors").read_bytes()), done
        failed = json.loads(run("recv", sender.address, sender.ref, "-o", "copy", "--force", "--base", "gone", "--json", status=1)[0])
        assert "gone" in failed["message"], failed
        assert "--base needs the digest" in run("recv", sender.address, sender.ref, "-o", "x", "--base", "old.safetensors", "--no-digest", status=2)[1]
    assert "no differences" in run("recv", "http://127.0.0.1:1/x", "-o", "x", "--base", "old.safetensors", status=2)[1]


def a_confirmation_that_is_lost():
    write("model.safetensors", CANONICAL)
    with Sender("model.safetensors") as sender:
        chunks = -(-len(CANONICAL) // (2 * MIB))
        path = MutatingPath(sender.port, lambda i, frame: frame if i <= chunks else None)  # a description, the chunks, and not their confirmation
        to = [path.address, sender.ref, "-o", "copy.safetensors", "--retries", "0"]
        done = json.loads(run("recv", *to, "--json")[0])
        assert done["outcome"] == "completed" and done["confirmed"] is False and done["unconfirmed_because"] == "connection_lost", done
        assert done["bytes"] == done["total_bytes"] == len(CANONICAL) and Path("copy.safetensors").read_bytes() == CANONICAL, done
        out, err = run("recv", *to, "--force")
        assert "agrees" in out and "complete" in err and path.address in err and "not known" in err, (out, err)
        # the same with --resume, as after any failure: the file is looked at, and the confirmation made good
        out, err = run("recv", sender.address, *to[1:], "--resume")
        assert "complete" in out and err == "", (out, err)
        done = json.loads(run("recv", sender.address, *to[1:], "--resume", "--json")[0])
        assert done["outcome"] == "completed" and done["confirmed"] is True and done["resumed_bytes"] == done["bytes"] == len(CANONICAL), done
        assert names() == ["copy.safetensors", "model.safetensors"]
        # one that is not what is published is said to be that, and stays
        wrong = bytes([CANONICAL[-1] ^ 1])
        for length in (len(CANONICAL) - 1, len(CANONICAL)):
            write("copy.safetensors", (CANONICAL[:-1] + wrong)[:length])
            out, err = run("recv", sender.address, *to[1:], "--resume", status=3)
            assert out == "" and "not of the version in " + sender.ref in err and "--force" in err and os.path.getsize("copy.safetensors") == length, (out, err)
            done = json.loads(run("recv", sender.address, *to[1:], "--resume", "--json", status=3)[0])
            assert done["code"] == "stale_version" and done["bytes"] == length and not done["resumable"], done
        done = json.loads(run("recv", sender.address, *to[1:], "--json", status=3)[0])
        assert done["code"] == "io" and done["bytes"] == len(CANONICAL), done
        run("recv", sender.address, *to[1:], "--resume", "--force")
        assert Path("copy.safetensors").read_bytes() == CANONICAL
    done = json.loads(run("recv", sender.address, *to[1:], "--resume", "--json", status=1)[0])
    assert done["code"] in ("connection_failed", "connection_lost") and done["bytes"] == len(CANONICAL), done


def an_owner_without_a_digest():
    write("model.safetensors", CANONICAL)
    with Sender("model.safetensors") as sender:
        to = [MutatingPath(sender.port, without_digest).address, sender.ref, "-o", "copy.safetensors"]
        _, err = run("recv", *to, status=1)
        assert "no digest" in err and "--unverified" in err and names() == ["model.safetensors"], (err, names())
        done = json.loads(run("recv", *to, "--json", status=1)[0])
        assert done["code"] == "not_verifiable" and done["bytes"] == 0 and not done["resumable"], done
        done = json.loads(run("recv", *to, "--unverified", "--json")[0])
        assert done["outcome"] == "completed_unverified" and Path("copy.safetensors").read_bytes() == CANONICAL, done
        assert "not checked" in run("recv", *to, "--unverified", "--force")[0]
        # what the option allows does not make a digest that is there count less
        done = json.loads(run("recv", sender.address, *to[1:], "--unverified", "--force", "--json")[0])
        assert done["outcome"] == "completed", done


def mutated_replies_never_leave_a_wrong_file():
    """500 seeded mutations of what send answers: a recv that ends with 0 has the right file, and one that does not leaves none under its name."""
    model = safetensors([("w", "U8", [5000], noise(5000)), ("x", "F32", [10, 10], noise(400, 2))])
    write("model.safetensors", model)
    write("small.safetensors", safetensors([("w", "F32", [100], noise(400, 3))]))
    seen = set()

    def one(seed):
        chance = random.Random(seed)
        which = chance.randrange(2)
        last = (6, 1)[which]  # the chunks' frames follow the description; the next one is confirmed
        kind = seed % 5

        def mutate(i, frame, chance=chance):
            chance = random.Random(seed * 1000 + i)
            if kind == 0:  # one control bit of the description, and one of payload
                if i == 0:
                    flip(frame, 64 + random.Random(seed).randrange(8 * len(frame) - 64))
                elif i == last:
                    flip(frame, 8 * 88 + chance.randrange(8 * 64))
            elif kind == 1:  # `verifiable`, and one of payload
                frame = without_digest(i, frame)
                if i == last:
                    flip(frame, 8 * 88 + chance.randrange(8 * 64))
            elif kind == 2:  # any bit of any frame
                if i == seed // 5 % (last + 2):
                    flip(frame, chance.randrange(64, 8 * len(frame)))
            elif kind == 3:  # a few bits of every frame's first words
                for _ in range(chance.randrange(3)):
                    flip(frame, chance.randrange(64, 8 * min(len(frame), 96)))
            elif i >= last:  # the last frames: a word that is random, or the end
                if chance.randrange(4) == 0:
                    return None
                at = 8 * chance.randrange(1, min(len(frame) // 8, 12))
                frame[at:at + 8] = chance.randbytes(8)
            return frame

        published = sender.published[which]
        path = MutatingPath(sender.port, mutate)
        name = "copy%d" % seed
        done = subprocess.run(command("recv", path.address, published["ref"], "-o", name, "--json", "--chunk", 1000, "--wait", 0.3), capture_output=True, text=True, timeout=60)
        path.close()
        said = json.loads(done.stdout)
        if done.returncode == 0:
            assert said["outcome"] == "completed" and Path(name).read_bytes() == contents[which], (seed, kind, said)
        else:
            assert done.returncode in (1, 3) and not os.path.exists(name), (seed, kind, done)
        seen.add((kind, said.get("code", "completed")))

    with Sender("model.safetensors", "small.safetensors") as sender:
        contents = []
        for i, published in enumerate(sender.published):
            run("recv", published["address"], published["ref"], "-o", "right%d" % i)
            contents.append(Path("right%d" % i).read_bytes())
        with ThreadPoolExecutor(8) as crowd:
            list(crowd.map(one, range(500)))
    assert {(1, "not_verifiable"), (2, "digest_mismatch"), (2, "completed"), (4, "completed")} <= seen, seen


def what_happened_is_said_in_the_callers_words():
    """One row for each mistake and each other program at the far end: what is run, and what helps."""
    Answers = processes.Answers
    web, away, closes = Answers(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"), Answers(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"), Answers(b"")
    plain = Answers(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(CANONICAL) + CANONICAL)
    ref, to, once = "0" * 31 + "1" + "0" * 15 + "1", ["-o", "x"], ["--retries", "0"]
    rows = [
        (["recv", "owner.invalid:1", ref, *to, *once], "the host of owner.invalid:1 is not known"),
        (["recv", "a..b:1", ref, *to], "the host of a..b:1 is none"),
        (["send", "model.safetensors", "--listen", "owner.invalid:0"], "the host is not known"),
        (["recv", web.at, ref, *to], "the URL of the file is wanted"),
        (["recv", closes.at, ref, *to, *once], "it may want tls://"),
        (["send", "m.pt"], "safetensors.torch.save_file"),
    ]
    if not without("tls://h:1"):
        rows += [
            (["recv", "tls://" + web.at, ref, *to], "cannot agree on TLS (wrong version number)"),
            (["recv", "tls://" + closes.at, ref, *to, *once], "it may not speak TLS"),
        ]
    if not without("http://h/m"):
        rows += [
            (["recv", "http://owner.invalid/m", *to, *once], "the host of http://owner.invalid/m is not known"),
            (["recv", "http://" + closes.at + "/m", *to, *once], "it may want https://"),
            (["recv", "http://" + away.at + "/m", *to], "there is nothing at http://"),
            (["recv", "http://" + plain.at + "/m", *to], "--digest says which one they have"),
            (["recv", "http://" + web.at + "/m", *to, "--digest", "sha256:"], "64 hexadecimal digits"),
            (["recv", "http://" + web.at + "/m", *to, "--digest", "xxh3:12"], "64 hexadecimal digits"),
        ]
        if not without("https://h/m"):
            rows.append((["recv", "https://" + web.at + "/m", *to], "cannot agree on TLS (wrong version number); without it, the URL is http://"))
    write("model.safetensors", CANONICAL)
    with zipfile.ZipFile("m.pt", "w") as archive:
        archive.writestr("data.pkl", b"not an array")
    for words, wanted in rows:
        before = web.came
        done = processes.run(command(*words), capture_output=True, text=True)
        assert done.returncode in (1, 2) and wanted in done.stderr and "the owner" not in done.stderr, (words, done)
        assert web.came - before <= 1, "what is final is not tried again"


def nobody_there():
    closed = (nobody := processes.OwnPort()).address
    _, err = run("recv", closed, NO_REF, "-o", "x", "--retries", 0, status=1)
    assert closed in err and "refused" in err and names() == [], (err, names())
    _, err = run("recv", "no-such-host.invalid:80", NO_REF, "-o", "x", "--retries", 0, status=1)
    assert "no-such-host.invalid:80" in err and "not known" in err, err
    with socket.create_server(("127.0.0.1", 0)) as silent:
        began = time.monotonic()
        _, err = run("recv", "127.0.0.1:%d" % silent.getsockname()[1], NO_REF, "-o", "x", "--timeout", "0.4", "--retries", "1", status=1)
        assert "not sent all of it within 0.40 s" in err and time.monotonic() - began < 30 and names() == [], err
        for at in ("127.0.0.1:%d" % silent.getsockname()[1], closed):  # one that says nothing, and one that is not there yet
            out, _ = run("recv", at, NO_REF, "-o", "x", "--wait", "0.4", "--retries", "0", "--json", status=1)
            assert json.loads(out)["code"] == "timed_out" and "not answered for 0.40 s" in json.loads(out)["message"] and names() == [], out
    with socket.create_server(("127.0.0.1", 0)) as other:
        def answer():
            with other.accept()[0] as s:
                s.recv(1)
                s.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n\x1b[2J")
                s.recv(1000)
        threading.Thread(target=answer, daemon=True).start()
        _, err = run("recv", "127.0.0.1:%d" % other.getsockname()[1], NO_REF, "-o", "x", status=1)
        assert "protocol" in err and "\x1b" not in err, err
    write("model.safetensors", CANONICAL)
    with Sender("model.safetensors") as sender:
        out, _ = run("recv", sender.address, NO_REF, "-o", "x", "--json", status=1)
        assert json.loads(out)["code"] == "unknown_reference", out
        _, err = run("recv", sender.address, NO_REF, "-o", "x", status=1)
        assert NO_REF in err and sender.address in err, err
        path = SlowPath(sender.port, 4 * MIB)
        path.hold_at(MIB)
        recv = processes.Program(command("recv", path.address, sender.ref, "-o", "copy.safetensors", "--retries", "1", "--chunk", "64K"), stderr=subprocess.PIPE, text=True)
        path.wait_for_hold()
    path.go_on()
    _, err = recv.communicate(timeout=20)
    assert recv.returncode == 1 and "lost" in err and "--resume" in err and names() == [PART, "model.safetensors"], (err, names())
    # a recv that goes on while nobody is there loses nothing
    before, again = Path(PART).read_bytes(), shlex.split(err.splitlines()[-1])
    _, err = run(*again, status=1)
    assert err.splitlines()[-1].split()[-1] == "--resume" and Path(PART).read_bytes() == before, err
    with Sender("model.safetensors") as sender:
        run("recv", sender.address, NO_REF, *again[3:], status=1)
        done = json.loads(run("recv", sender.address, sender.ref, *again[3:], "--json")[0])
        assert done["resumed_bytes"] > MIB // 2 and Path("copy.safetensors").read_bytes() == CANONICAL, done


def without_override():
    """Root may write anywhere; a child without that capability may not."""
    if os.geteuid() == 0:
        PR_CAPBSET_DROP, CAP_DAC_OVERRIDE = 24, 1
        if ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, 0, 0, 0) != 0:  # root of a container without capabilities
            held = re.search(r"CapEff:\s*(\w+)", Path("/proc/self/status").read_text())[1]
            assert int(held, 16) >> CAP_DAC_OVERRIDE & 1 == 0


def D3_outputs_that_cannot_be():
    write("model.safetensors", CANONICAL)
    write("exists", b"precious")
    os.mkdir("folder")
    os.mkdir("locked")
    os.symlink("exists", "link")
    os.mkfifo("pipe")
    with Sender("model.safetensors") as sender:
        to = [sender.address, sender.ref, "-o"]
        for output, word in {"exists": "--force", "folder": "directory", "link": "symbolic link", "pipe": "no regular file",
                             "nowhere/x": "does not exist", "exists/x": "is none", "/proc/x": "", "n" * 300: "name too long"}.items():
            out, err = run("recv", *to, output, status=3)
            assert out == "" and err.count("\n") == 1 and word.lower() in err.lower() and output in err, (output, err)
        run("recv", *to, "link", "--force", status=3)
        assert "-o FILE takes it, without a slash" in run("recv", *to, "folder/", status=1)[1]
        os.chmod("locked", 0o555)
        _, err = run("recv", *to, "locked/x", status=3, preexec_fn=without_override)
        assert "locked/x cannot be written: Permission denied" in err, err
        assert Path("exists").read_bytes() == b"precious"
        write("empty", b"")  # which nothing can be said of
        err = run("recv", *to, "empty", "--resume", status=3)[1]
        assert "--resume" not in err and "--force replaces it" in err and os.path.getsize("empty") == 0, err
        os.remove("empty")
        assert names() == sorted(["model.safetensors", "exists", "folder", "locked", "link", "pipe"]) and os.listdir("folder") == os.listdir("locked") == []
        run("recv", *to, "exists", "--force")
        assert Path("exists").read_bytes() == CANONICAL
        # what has the name of the part is no part
        for make in (lambda: os.symlink("exists", PART), lambda: os.mkdir(PART), lambda: os.link("exists", PART)):
            make()
            for option in ("--resume", "--restart"):
                _, err = run("recv", *to, "copy.safetensors", option, status=3)
                assert PART + " is in the way" in err and Path("exists").read_bytes() == CANONICAL, err
            os.rmdir(PART) if os.path.isdir(PART) else os.remove(PART)
        # two at a time
        path = SlowPath(sender.port, 4 * MIB)
        path.hold_at(MIB)
        first = processes.Program(command("recv", path.address, sender.ref, "-o", "copy.safetensors", "--chunk", "64K"), stdout=subprocess.DEVNULL)
        path.wait_for_hold()
        for option in ("--resume", "--restart"):
            _, err = run("recv", *to, "copy.safetensors", option, status=3)
            assert "another recv" in err, err
        path.go_on()
        assert first.wait(timeout=20) == 0 and Path("copy.safetensors").read_bytes() == CANONICAL


def what_an_earlier_recv_left_is_said_in_full():
    write("model.safetensors", CANONICAL)
    fields = {"file", "outcome", "code", "message", "bytes", "total_bytes", "resumed_bytes", "received_bytes", "difference_bytes", "resumable", "seconds", "wrong_senders"}
    with Sender("model.safetensors") as sender:
        path = SlowPath(sender.port, 16 * MIB)
        path.hold_at(3 * MIB)
        to = [sender.ref, "-o", "copy.safetensors"]
        recv = processes.Program(command("recv", path.address, *to, "--chunk", "64K"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        path.wait_for_hold()
        done = json.loads(run("recv", sender.address, *to, "--json", status=3)[0])
        assert fields == set(done) and "another recv" in done["message"] and done["bytes"] == 0 and not done["resumable"], done
        assert "another recv" in run("recv", sender.address, *to, status=3)[1] and recv.poll() is None
        recv.kill()
        recv.wait()
        path.go_on()
        before = Path(PART).read_bytes()
        done = json.loads(run("recv", sender.address, *to, "--json", status=3)[0])
        assert fields == set(done) and done["code"] == "io" and PART in done["message"] and done["bytes"] > MIB and done["resumable"], done
        err = run("recv", sender.address, *to, status=3)[1]
        assert "an earlier recv" in err and "--restart" in err and err.splitlines()[-1].endswith("--resume") and Path(PART).read_bytes() == before, err
        write(PART, bytes(1000))  # without a place to go on from
        done = json.loads(run("recv", sender.address, *to, "--json", status=3)[0])
        assert fields == set(done) and done["bytes"] == 0 and not done["resumable"] and Path(PART).read_bytes() == bytes(1000), done
        write(PART, before)
        with open("/dev/full", "w") as full:
            done = subprocess.run(command("recv", sender.address, *to, "--resume", "--json"), stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
        assert done.returncode == 3 and "copy.safetensors is complete" in done.stderr and Path("copy.safetensors").read_bytes() == CANONICAL, done


def D4_parts_that_do_not_fit():
    write("model.safetensors", CANONICAL)
    changed = CANONICAL[:-1] + bytes([CANONICAL[-1] ^ 1])
    write("changed.safetensors", changed)
    with Sender("model.safetensors", "changed.safetensors") as sender:
        path = SlowPath(sender.port, 8 * MIB)

        def leave_a_part():
            path.hold_at(path.forwarded + 2 * MIB)
            recv = processes.Program(command("recv", path.address, sender.ref, "-o", "copy.safetensors", "--chunk", "64K"), stderr=subprocess.DEVNULL)
            path.wait_for_hold()
            recv.send_signal(signal.SIGINT)
            assert recv.wait(timeout=10) == 130 and os.path.exists(PART)
            path.go_on()

        to = ["-o", "copy.safetensors", "--json"]
        leave_a_part()
        with open(PART, "r+b") as part:
            part.seek(MIB)
            part.write(b"\0\1\2\3")
        done = json.loads(run("recv", sender.address, sender.ref, *to, "--resume")[0])
        assert done["resumed_bytes"] == 0 and Path("copy.safetensors").read_bytes() == CANONICAL, done
        os.remove("copy.safetensors")
        # what says how far it is was damaged: nothing to go on with, and not the part of another version
        for at in range(0, 56, 8):
            leave_a_part()
            with open(PART, "r+b") as part:
                part.seek(len(CANONICAL) + at)
                part.write(noise(8))
            done = json.loads(run("recv", sender.address, sender.ref, *to, "--resume")[0])
            assert done["resumed_bytes"] == 0 and Path("copy.safetensors").read_bytes() == CANONICAL, (at, done)
            os.remove("copy.safetensors")
        # another model under that reference: said, and the part stays
        leave_a_part()
        before = Path(PART).read_bytes()
        other = [sender.published[1]["address"], sender.published[1]["ref"]]
        out, _ = run("recv", *other, *to, "--resume", status=1)
        assert json.loads(out)["code"] == "stale_version" and Path(PART).read_bytes() == before, out
        _, err = run("recv", *other, "-o", "copy.safetensors", "--resume", status=1)
        assert "--restart" in err.splitlines()[-1], err
        done = json.loads(run(*shlex.split(err.splitlines()[-1]), "--json")[0])
        assert done["resumed_bytes"] == 0 and Path("copy.safetensors").read_bytes() == changed, done
        os.remove("copy.safetensors")
        leave_a_part()
        before, ref = Path(PART).read_bytes(), sender.ref
    # the sender has another version under the ID now: to begin anew would throw away what is right, and fail
    with Sender("changed.safetensors", "--ref", ref[:32]) as liar:
        err = run("recv", liar.address, ref, "-o", "copy.safetensors", "--resume", status=1)[1]
        assert "--restart" not in err and f"{PART} stays" in err and Path(PART).read_bytes() == before, err
    # the same model under a new reference, as from a sender that was started anew without --ref
    with Sender("model.safetensors") as sender:
        done = json.loads(run("recv", sender.address, sender.ref, *to, "--resume")[0])
        assert done["resumed_bytes"] > MIB and Path("copy.safetensors").read_bytes() == CANONICAL, done


def D5_no_room():
    write("model.safetensors", CANONICAL)

    def small_files():
        resource.setrlimit(resource.RLIMIT_FSIZE, (MIB, MIB))

    with Sender("model.safetensors") as sender:
        out, err = run("recv", sender.address, sender.ref, "-o", "copy.safetensors", status=3, preexec_fn=small_files)
        assert out == "" and "copy.safetensors" in err and "4.0 MiB" in err and names() == ["model.safetensors"], (err, names())
        os.mkdir("small")
        mounted = os.geteuid() == 0 and processes.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", "small"], capture_output=True).returncode == 0
        if mounted:
            try:
                _, err = run("recv", sender.address, sender.ref, "-o", "small/copy.safetensors", status=3)
                assert "disk is full" in err and "4.0 MiB" in err and os.listdir("small") == [], err
            finally:
                processes.run(["umount", "small"], check=True)


def a_size_that_is_only_claimed():
    write("model.safetensors", CANONICAL)
    with Sender("model.safetensors") as sender:
        to = [sender.address, sender.ref, "-o", "copy.safetensors"]
        _, err = run("recv", *to, "--max-bytes", "1M", status=1)
        assert "4.0 MiB" in err and "--max-bytes" in err and names() == ["model.safetensors"], (err, names())
        done = json.loads(run("recv", *to, "--max-bytes", len(CANONICAL) - 1, "--json", status=1)[0])
        assert done["code"] == "too_large" and done["total_bytes"] == len(CANONICAL) and not done["resumable"], done
        run("recv", *to, "--max-bytes", len(CANONICAL))
        os.remove("copy.safetensors")

        def larger(i, frame):
            """A description of 1 GiB: its image's length is the fifth of the nine words that end it. Nothing follows it."""
            if i > 0:
                return None
            frame[-40:-32] = struct.pack("<Q", 1 << 30)
            return frame

        recv = processes.Program(command("recv", MutatingPath(sender.port, larger).address, *to[1:]), stderr=subprocess.PIPE, text=True)
        assert processes.eventually(lambda: os.path.exists(PART) and os.path.getsize(PART) >= 1 << 30 or recv.poll() is not None) and recv.poll() is None
        assert os.stat(PART).st_blocks * 512 < MIB, "room is taken when bytes come"
        recv.send_signal(signal.SIGINT)
        recv.communicate(timeout=20)
        assert recv.returncode == 130 and names() == ["model.safetensors"], names()


def what_happens_to_the_names_meanwhile():
    write("model.safetensors", CANONICAL)
    with Sender("model.safetensors") as sender:
        path = SlowPath(sender.port, 64 * MIB)

        def meanwhile(change):
            path.hold_at(path.forwarded + 2 * MIB)
            recv = processes.Program(command("recv", path.address, sender.ref, "-o", "copy.safetensors", "--chunk", "64K"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            path.wait_for_hold()
            change()
            path.go_on()
            out, err = recv.communicate(timeout=30)
            assert recv.returncode == 3 and out == "", (recv.returncode, out, err)
            return err

        # the final name is another's now: what was fetched stays, and the command that is printed puts it there
        err = meanwhile(lambda: write("copy.safetensors", b"another's"))
        assert "exists already" in err and PART in err and Path("copy.safetensors").read_bytes() == b"another's", err
        again = shlex.split(err.splitlines()[-1])
        done = json.loads(run(*again, "--json")[0])
        assert done["received_bytes"] == 1 and Path("copy.safetensors").read_bytes() == CANONICAL, done
        os.remove("copy.safetensors")
        # the part is another's now
        err = meanwhile(lambda: os.remove(PART))
        assert PART in err and "deleted" in err and names() == ["model.safetensors"], (err, names())
        err = meanwhile(lambda: os.truncate(PART, MIB))
        assert PART in err and "cut" in err and names() == ["model.safetensors"], (err, names())

        def overwrite():
            with open(PART, "r+b") as part:
                part.seek(1000)
                part.write(bytes(8))
        err = meanwhile(overwrite)
        assert PART in err and "overwritten" in err and names() == ["model.safetensors"], (err, names())

        def replace():
            write("other", b"another's")
            os.replace("other", PART)
        err = meanwhile(replace)
        assert PART in err and "replaced" in err and Path(PART).read_bytes() == b"another's" and names() == [PART, "model.safetensors"], (err, names())


def a_full_standard_output_has_a_word():
    write("model.safetensors", CANONICAL)
    with Sender("model.safetensors") as sender:
        for words in (["recv", sender.address, sender.ref, "-o", "copy"], ["recv", sender.address, sender.ref, "-o", "copy", "--force", "--json"],
                      ["recv", sender.address, sender.ref, "-o", "copy", "--json"], ["inspect", "model.safetensors"], ["inspect", "--json", "model.safetensors"]):
            with open("/dev/full", "w") as full:
                done = processes.run(command(*words), stdout=full, stderr=subprocess.PIPE, text=True)
            assert done.returncode == 3 and "standard output" in done.stderr, (words, done)
        assert Path("copy").read_bytes() == CANONICAL
    for option in ([], ["--json"]):
        with open("/dev/full", "w") as full:
            done = subprocess.run(command("send", "model.safetensors", *option), stdout=full, stderr=subprocess.PIPE, text=True, timeout=20)
        assert done.returncode == 1 and "standard output" in done.stderr, done


def standard_streams_that_are_closed():
    """A file that is opened would get the number of a stream that is closed, and what is printed would land in it."""
    write("model.safetensors", CANONICAL)

    def shell(line, *words):
        return subprocess.run(["bash", "-c", line, *words], capture_output=True, text=True, timeout=60)

    for redirected in ("2>&-", ">&- 2>&-", "<&- 2>&-"):
        shell('"$0" nothing model.safetensors %s; echo $? >status' % redirected, *command("inspect"))
        assert Path("status").read_text() == "3\n", redirected
    done = shell('"$0" model.safetensors >&-; echo $? >status', *command("inspect"))
    assert done.stderr == "inspect: standard output could not be written\n" and Path("status").read_text() == "3\n", done
    with Sender("model.safetensors") as sender:
        shell('"$0" "$1" "$2" -o copy >&- 2>&-', *command("recv", sender.address, sender.ref))
        assert Path("copy").read_bytes() == CANONICAL


def S8_the_published_file_shrinks():
    write("model.safetensors", CANONICAL)
    with Sender("model.safetensors") as sender:
        path = SlowPath(sender.port, 8 * MIB)
        path.hold_at(MIB)
        recv = processes.Program(command("recv", path.address, sender.ref, "-o", "copy.safetensors", "--chunk", "64K"), stderr=subprocess.PIPE, text=True)
        path.wait_for_hold()
        os.truncate("model.safetensors", 1000)
        path.go_on()
        _, err = recv.communicate(timeout=20)
        assert recv.returncode == 1 and "cannot read" in err and not os.path.exists("copy.safetensors"), err
        events = sender.end(status=1)
        assert events[-1]["outcome"] == "withdrawn", events
        assert [e["code"] for e in events if e["event"] == "failed"] == ["unreadable"], events
    write("model.safetensors", CANONICAL)
    sender = processes.Program(command("send", "model.safetensors"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    to = sender.stdout.readline().split()
    os.truncate("model.safetensors", MIB)
    run("recv", *to, "-o", "other.safetensors", "--chunk", "64K", "--retries", 0, status=1)
    _, err = sender.communicate(timeout=20)
    assert sender.returncode == 1 and "could not get all of model.safetensors" in err and "vanished" not in err, err


def what_a_web_server_answers_is_no_connection_that_fails():
    write("model.safetensors", CANONICAL)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        def answer():
            while True:
                try:
                    peer = listener.accept()[0]
                except OSError:
                    return
                with peer, peer.makefile("rb") as lines:
                    path = b"".join(iter(lines.readline, b"\r\n")).split()[1]
                    peer.sendall(b"HTTP/1.1 %s X\r\nLocation: /307\r\nContent-Length: 0\r\nConnection: close\r\n\r\n" % path[1:])
        threading.Thread(target=answer, daemon=True).start()
        at = "http://127.0.0.1:%d/" % listener.getsockname()[1]
        for path, says in (("500", "has failed (500 from"), ("502", "has failed (502 from"), ("307", "from one redirect to the next"), ("403", "does not let us")):
            for tool, *words in (("recv", at + path, "-o", "copy", "--retries", 0), ("send", "model.safetensors", "--put", at + path)):
                err = run(tool, *words, status=1)[1]
                assert says in err and at + path in err and "be reached" not in err and "could not be made" not in err, (tool, path, err)
        listener.shutdown(socket.SHUT_RDWR)
    _, err = run("recv", "http://127.0.0.1:1/500", "-o", "copy", "--retries", 0, status=1)
    assert "nobody can be reached" in err, err


class Store(threading.Thread):
    """Takes one PUT; `meanwhile(received)` is called as the body comes. What it stores: the body, if all of it came."""

    def __init__(self, meanwhile=lambda received: None):
        super().__init__(daemon=True)
        self.meanwhile, self.stored = meanwhile, None
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)  # what has not been read yet is not on its way either
        self.url = "http://127.0.0.1:%d/bucket/model" % self.listener.getsockname()[1]
        self.start()

    def run(self):
        peer, _ = self.listener.accept()
        with peer, peer.makefile("rb") as lines:
            head = b"".join(iter(lines.readline, b"\r\n")).decode()
            length = int(re.search(r"Content-Length: (\d+)", head)[1])
            peer.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
            body = bytearray()
            while len(body) < length and (some := lines.read(min(1 << 16, length - len(body)))):
                body += some
                self.meanwhile(len(body))
            if len(body) == length:
                self.stored = bytes(body)
                peer.sendall(b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n")


def what_is_put_has_its_digest():
    write("model.safetensors", CANONICAL)
    store = Store()
    put = json.loads(run("send", "model.safetensors", "--put", store.url, "--json")[0])
    store.join(20)
    with Sender("model.safetensors") as sender:
        assert put == {"event": "put", "file": "model.safetensors", "bytes": len(CANONICAL), "sent_bytes": len(CANONICAL), "digest": sender.published[0]["digest"]}, put
    assert store.stored == CANONICAL
    store = Store()
    assert "--digest xxh3:" + put["digest"] in run("send", "model.safetensors", "--put", store.url)[0]


def a_file_that_changes_while_it_is_put_is_not_stored():
    old, new = (safetensors([("w", "U8", [20 * MIB], noise(20 * MIB, seed))]) for seed in (1, 2))
    write("model.safetensors", old)
    changed = []

    def another_program_saves(received):
        if received > 2 * MIB and not changed:
            changed.append(True)
            with open("model.safetensors", "r+b") as file:
                file.write(new)

    store = Store(another_program_saves)
    out, _ = run("send", "model.safetensors", "--put", store.url, "--json", status=1)
    store.join(20)
    assert changed and store.stored is None, "half of the one and half of the other"
    assert json.loads(out)["code"] == "digest_mismatch" and "has changed" in out, out


def progress_on_a_terminal():
    write("model.safetensors", CANONICAL)
    with Sender("model.safetensors") as sender:
        for columns in (100, 30):
            path = SlowPath(sender.port, 6 * MIB)
            began = time.monotonic()
            status, out = in_terminal(command("recv", path.address, sender.ref, "-o", "copy%d.safetensors" % columns, "--chunk", "64K"), columns)
            assert status == 0, out
            lines = [line.replace(b"\x1b[K", b"").decode() for line in out.split(b"\r")]
            assert all(len(line.strip("\n")) < columns for line in lines[:-2]), lines
            drawn = [line for line in lines if "%" in line]
            assert 2 <= len(drawn) <= 10 * (time.monotonic() - began) + 5 and out.count(b"\x1b") == out.count(b"\x1b[K"), lines
            if columns == 100:
                assert any(re.search(r"copy100.safetensors  \[#+\.+\]  \d+ %  [\d.]+ MiB of 4.0 MiB  [\d.]+ MiB/s  0:0\d left", line) for line in drawn), drawn
            assert "agrees" in lines[-2], lines[-2:]
        path = SlowPath(sender.port, 8 * MIB)
        _, err = run("recv", path.address, sender.ref, "-o", "quiet.safetensors")
        assert err == "", "nothing where nobody looks"


def inspect_shows_tensors():
    write("model.safetensors", MODEL)
    out, err = run("inspect", "model.safetensors")
    assert err == "" and "4 tensors" in out and "format = pt" in out and re.search(r"w +F32 +\[512, 2048\] +4.0 MiB", out) and "1049577 elements" in out, out
    found = json.loads(run("inspect", "--json", "model.safetensors")[0])
    assert found["verdict"] == "accept" and found["format"] == "safetensors" and found["bytes"] == len(MODEL) and found["metadata"] == {"format": "pt"}
    length, = struct.unpack("<Q", MODEL[:8])
    header = json.loads(MODEL[8:8 + length])
    header.pop("__metadata__")
    assert {t["name"] for t in found["tensors"]} == set(header) and len(found["tensors"]) == 4
    for t in found["tensors"]:
        begin, end = header[t["name"]]["data_offsets"]
        assert t["dtype"] == header[t["name"]]["dtype"] and t["shape"] == header[t["name"]]["shape"] and t["offsets"] == [begin, end], t
        assert t["sha256"] == hashlib.sha256(MODEL[8 + length + begin:8 + length + end]).hexdigest(), t
    write("a.npz", npz({"x": npy(">f4", [3], struct.pack(">3f", 1, 2, 3)), "f": npy("<u2", [2, 3], struct.pack("<6H", *range(6)), True)}))
    found = json.loads(run("inspect", "--json", "a.npz")[0])
    assert found["format"] == "npz"
    assert {t["name"]: (t["dtype"], t["shape"], t["sha256"]) for t in found["tensors"]} == {
        "x": ("F32", [3], hashlib.sha256(struct.pack("<3f", 1, 2, 3)).hexdigest()), "f": ("U16", [2, 3], hashlib.sha256(struct.pack("<6H", 0, 2, 4, 1, 3, 5)).hexdigest())}
    write("one.npy", npy("|b1", [2], b"\0\1"))
    out, _ = run("inspect", "--json", "one.npy", "a.npz", "model.safetensors")
    assert [json.loads(line)["format"] for line in out.splitlines()] == ["npy", "npz", "safetensors"]
    with open("/dev/full", "w") as full:
        done = processes.run(command("inspect", "model.safetensors"), stdout=full, stderr=subprocess.PIPE)
        assert done.returncode == 3, done


def inspect_rejects_by_name():
    def header(text, data=b""):
        text = text.encode() if isinstance(text, str) else text
        return struct.pack("<Q", len(text)) + text + data

    one = '{"a":{"dtype":"%s","shape":[%s],"data_offsets":[0,%d]}}'
    wrong = {
        "trailing_bytes": [header("{}", b"tail")],
        "misplaced_tensor": [header(one % ("U8", "3", 2), b"12")],
        "cut_file": [CANONICAL[:-1]],
        "bad_file": [b"", b"1234567", header("[]"), header('{"a":1}'), b"\x93NUMPY\x01\x00\x04\x00junk", b"PK\x03\x04" + bytes(100)],
        "unsupported_dtype": [header(one % ("F128", "1", 16), bytes(16)), npy("<M8[s]", [1], bytes(8)), npz({"o": npy("|O", [1], bytes(8))})],
        "does_not_fit": [struct.pack("<Q", 2**64 - 8) + b"{}"],
        "duplicate_name": [header('{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}')],
    }
    for code, files in wrong.items():
        for i, data in enumerate(files):
            write("wrong", data)
            out, err = run("inspect", "--json", "wrong", status=1)
            found = json.loads(out)
            assert err == "" and found["verdict"] == "reject" and found["code"] == code and found["file"] == "wrong" and "tensors" not in found, (code, i, found)
            out, err = run("inspect", "wrong", status=1)
            assert out == "" and code in err and err.count("\n") == 1, err
            out, err = run("send", "wrong", status=1)
            assert out == "" and code in err and err.count("\n") == 1, err
    out, _ = run("inspect", "--json", "nosuch", status=3)
    assert json.loads(out)["verdict"] == "unreadable" and json.loads(out)["code"] == "io"
    os.mkfifo("pipe")
    assert json.loads(run("inspect", "--json", "pipe", status=3)[0])["message"] == "it is no regular file"
    assert "no regular file" in run("inspect", "pipe", status=3)[1] and "no regular file" in run("send", "pipe", status=1)[1]
    assert "nosuch" in run("inspect", "nosuch", status=3)[1] and "directory" in run("inspect", ".", status=3)[1]
    write("good", MODEL)
    out, err = run("inspect", "good", "wrong", status=1)
    assert "4 tensors" in out and "wrong" in err
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("data.pkl", b"not an array")
    write("model.pt", buffer.getvalue())
    for tool in ("send", "inspect"):
        err = run(tool, "model.pt", status=1)[1]
        assert "without NumPy arrays" in err and "safetensors.torch.save_file" in err, err
    with zipfile.ZipFile("empty.npz", "w"):
        pass
    run("inspect", "empty.npz")
    with Sender("empty.npz") as sender:
        run("recv", sender.address, sender.ref, "-o", "empty.safetensors")


def hostile_names_stay_names():
    names_ = ["\x1b[2Jcleared", "line\nbreak", "bell\x07", "\u202eright to left", "\u200bunseen", "\x9b31m", "quote\"\\", "../../x", "é ünï 漢字 🙂", "\x7f", "'; rm", ""]
    write("evil.safetensors", safetensors([(n, "U8", [1], bytes([i])) for i, n in enumerate(names_)], {"k\x1b": "\x1b]0;v\x07"}))
    status, out = in_terminal(command("inspect", "evil.safetensors"))
    text = out.decode()
    assert status == 0 and not re.search("[\x00-\x09\x0b\x0c\x0e-\x1f\x7f-\x9f\u200b\u202e]", text) and text.count("\r\n") == text.count("\n") == len(names_) + 5, text
    assert "é ünï 漢字 🙂" in text and "../../x" in text and "\\x1b[2Jcleared" in text
    out, _ = run("inspect", "--json", "evil.safetensors")
    assert sorted(t["name"] for t in json.loads(out)["tensors"]) == sorted(names_) and out.isascii() and not re.search("[\x00-\x09\x0b-\x1f\x7f]", out)
    # names of files, too
    name = b"m\x1b[31m\xff '.safetensors"
    Path(os.fsdecode(name)).write_bytes(CANONICAL)
    sender = processes.Program(command("send") + [name, b"--recipients", b"1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    line = sender.stdout.readline().split()
    done = processes.run(command("recv") + [*line, b"-o", b"to " + name], capture_output=True)
    assert done.returncode == 0 and b"\x1b" not in done.stdout + done.stderr and os.path.exists(b"to " + name), done
    out, err = sender.communicate(timeout=60)
    assert sender.returncode == 0 and b"\x1b" not in out + err and b"\\x1b" in err, err
    # what is printed to be run again is a word of bash for it
    done = processes.run(command("send") + [name, b"--recipients", b"1", b"--idle", b"0.1"], capture_output=True)
    told = done.stderr.splitlines()[-1].strip()
    listed = processes.run(["bash", "-c", b"printf '%s\\0' " + told], capture_output=True).stdout.split(b"\0")
    assert b"\x1b" not in done.stderr and listed[1] == name, (told, listed)


def inspect_of_a_file_larger_than_its_memory():
    size = 200 * MIB
    text = b'{"w":{"dtype":"U8","shape":[%d],"data_offsets":[0,%d]}}' % (size, size)
    text += b" " * (-len(text) % 8)
    write("large", struct.pack("<Q", len(text)) + text)
    os.truncate("large", 8 + len(text) + size)

    def little_memory():
        resource.setrlimit(resource.RLIMIT_AS, (64 * MIB, 64 * MIB))

    sanitized = b"__asan_init" in Path(command("inspect")[0]).read_bytes()
    out, _ = run("inspect", "--json", "large", preexec_fn=None if sanitized else little_memory)
    expected = hashlib.sha256()
    for _ in range(size // MIB):
        expected.update(bytes(MIB))
    assert json.loads(out)["tensors"][0]["sha256"] == expected.hexdigest()


def delivered(send_words, recv_words=()):
    """A model goes from a sender that listens as told to a recipient, and both say so."""
    with Sender("model.safetensors", "--recipients", 1, *send_words) as sender:
        done = json.loads(run("recv", sender.address, sender.ref, "-o", "copy.safetensors", "--force", "--json", *recv_words)[0])
        assert done["outcome"] == "completed" and done["confirmed"], done
        assert Path("copy.safetensors").read_bytes() == CANONICAL
        assert sender.end()[-1]["outcome"] == "done"
        return sender.address


def links_that_are_none_are_refused():
    write("model.safetensors", CANONICAL)
    assert "one word too many" in run("recv", "http://h:1", NO_REF, "-o", "x", status=2)[1]
    assert "no address" in run("send", "model.safetensors", "--listen", "http://h:1", status=2)[1]
    for word in ("tcp://h", "tcp:80", "unix:", "unix://h/x", "nats:", "UDP://h:1"):
        assert "no address" in run("recv", word, NO_REF, "-o", "x", status=2)[1], word
        assert "no address" in run("send", "model.safetensors", "--listen", word, status=2)[1], word
    assert "not encrypted" in run("recv", "h:1", NO_REF, "-o", "x", "--tls-ca", "ca.pem", status=2)[1]
    assert "not encrypted" in run("send", "model.safetensors", "--tls-cert", "c.pem", status=2)[1]
    assert "certificate" in run("send", "model.safetensors", "--listen", "tls://127.0.0.1:0", status=2)[1]
    assert "--tls-name" in run("recv", "https://h/x", "-o", "x", "--tls-name", "site", status=2)[1], "the certificate is compared with the URL's host alone"
    assert "--proxy" in run("recv", "unix:x", NO_REF, "-o", "x", "--proxy", "h:1", status=2)[1]
    refusal = run("recv", "h:1", NO_REF, "-o", "x", "--proxy", "me:secret@h", status=2)[1]
    assert "--proxy" in refusal and "secret" not in refusal, refusal
    assert "--no-digest" in run("recv", "udp://h:1", NO_REF, "-o", "x", "--no-digest", status=2)[1]
    assert "No such file" in run("recv", "unix:none", NO_REF, "-o", "x", "--retries", 0, status=1)[1]
    assert "/no/such/program" in run("recv", "pipe:/no/such/program", NO_REF, "-o", "x", status=1)[1]
    assert "address is not valid" in run("send", "model.safetensors", "--listen", "unix:" + "x" * 200, status=1)[1]


def links_of_tcp_by_name():
    write("model.safetensors", CANONICAL)
    assert re.fullmatch(r"127\.0\.0\.1:\d+", delivered(["--listen", "tcp://127.0.0.1:0"]))


def links_of_unix_sockets():
    write("model.safetensors", CANONICAL)
    assert delivered(["--listen", "unix:here"]) == "unix:" + os.path.realpath("here")
    assert not os.path.exists("here")
    name = "unix:@tensorpull-tools-%d" % os.getpid()
    assert delivered(["--listen", name]) == name
    with Sender("model.safetensors", "--listen", "unix:here"):
        assert os.stat("here").st_mode & 0o777 == 0o600
        assert "in use" in run("send", "model.safetensors", "--listen", "unix:here", status=1)[1]
    assert "Connection refused" in run("recv", "unix:here", NO_REF, "-o", "x", "--retries", 0, status=1)[1], "killed: the file is there, and nobody listens"
    delivered(["--listen", "unix:here"])


def links_of_shared_memory():
    write("model.safetensors", CANONICAL)
    delivered(["--listen", "shm:here"])


def links_of_udp():
    write("model.safetensors", CANONICAL)
    assert delivered(["--listen", "udp://127.0.0.1:0"]).startswith("udp://127.0.0.1:")


def links_of_pipes():
    write("model.safetensors", CANONICAL)
    ref = NO_REF
    send = shlex.join(command("send", "model.safetensors", "--stdio", "--ref", ref, "--recipients", 1))
    done = json.loads(run("recv", "pipe:" + send, ref, "-o", "copy.safetensors", "--json")[0])
    assert done["outcome"] == "completed" and Path("copy.safetensors").read_bytes() == CANONICAL, done
    os.remove("copy.safetensors")
    recv = shlex.join(command("recv", "pipe:-", ref, "-o", "copy.safetensors"))
    out, err = run("send", "model.safetensors", "--listen", "pipe:" + recv, "--ref", ref, "--recipients", 1)
    assert "1 pull completed" in err and Path("copy.safetensors").read_bytes() == CANONICAL, err
    err = run("recv", "pipe:sh -c 'exit 9'", ref, "-o", "x", "--retries", 0, status=1)[1]
    assert "status 9" in err, err
    err = run("recv", "pipe:echo Welcome", ref, "-o", "x", "--retries", 0, status=1)[1]
    assert "protocol" in err, err
    assert "standard input" in run("send", "model.safetensors", "--stdio", status=1, stdin=subprocess.DEVNULL)[1]
    # a recipient that is interrupted lets nothing of it live on
    recv = processes.Program(command("recv", "pipe:sh -c 'echo $$ >&2; trap \"\" TERM; while :; do sleep 0.1; done'", ref, "-o", "x"), stderr=subprocess.PIPE, text=True)
    child = int(recv.stderr.readline())
    recv.send_signal(signal.SIGINT)
    recv.communicate(timeout=20)
    assert recv.returncode == 130
    assert not os.path.exists("/proc/%d" % child)


def serial_ends(at_a_time=4096):
    """Two pseudo-terminals with a wire between them; the names of their devices."""
    ends = [pty.openpty() for _ in range(2)]
    for _, device in ends:
        tty.setraw(device)

    def wire():
        mains = [main for main, _ in ends]
        try:
            while True:
                for ready in select.select(mains, [], [])[0]:
                    os.write(mains[1 - mains.index(ready)], os.read(ready, at_a_time))
        except OSError:
            return
    threading.Thread(target=wire, daemon=True).start()
    return [os.ttyname(device) for _, device in ends]


def links_of_serial_lines():
    """Over a serial line."""
    write("model.safetensors", safetensors([("w", "U8", [100_000], noise(100_000))]))
    near, far = serial_ends()
    with Sender("model.safetensors", "--listen", "serial:" + near, "--recipients", 1) as sender:
        done = json.loads(run("recv", "serial:" + far, sender.ref, "-o", "copy.safetensors", "--json")[0])
        assert done["outcome"] == "completed" and Path("copy.safetensors").read_bytes() == Path("model.safetensors").read_bytes(), done


def without(link):
    """Whether the tools were built without a link, and say so."""
    refusal = subprocess.run(command("recv", link, NO_REF, "-o", "x", "--retries", "0"), capture_output=True, text=True, timeout=60)
    return refusal.returncode == 2 and "built without" in refusal.stderr


def satellites_that_are_not_here():
    """Those that this build has not."""
    return os.environ.get("TENSORPULL_TOOLS_WITHOUT", "").split()


def lacks(case, cases):
    """Whether the case is about a satellite that this build has not."""
    return any(case in cases.get(satellite, ()) for satellite in satellites_that_are_not_here())


def links_of_tls():
    if without("tls://127.0.0.1:1"):
        return
    write("model.safetensors", CANONICAL)

    def openssl(*words):
        processes.run(["openssl", *words], check=True, capture_output=True)
    for name in ("ours", "other"):
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=" + name, "-addext", "subjectAltName=IP:127.0.0.1,DNS:site",
                "-keyout", name + ".key", "-out", name + ".pem")
    listen = ["--listen", "tls://127.0.0.1:0", "--tls-cert", "ours.pem", "--tls-key", "ours.key"]
    for option in ("--tls-ca", "--tls-crl"):
        assert "--tls-clients" in run("send", "model.safetensors", *listen, option, "other.pem", status=2)[1]
    delivered(listen, ["--tls-ca", "ours.pem"])
    delivered(listen, ["--tls-ca", "ours.pem", "--tls-name", "site"])
    delivered([*listen, "--tls-clients", "--tls-ca", "other.pem"], ["--tls-ca", "ours.pem", "--tls-cert", "other.pem", "--tls-key", "other.key"])
    err = run("send", "model.safetensors", *listen, "--tls-clients", "--tls-ca", "other.pem", "--recipients", 1, "--idle", 0.1, status=3)[1]
    assert "--tls-cert ours.pem --tls-key ours.key --tls-clients" in err.splitlines()[-1], "the command that goes on is as safe as this one was"
    write("both.pem", Path("ours.pem").read_bytes() + Path("other.pem").read_bytes())
    with Sender("model.safetensors", *listen, "--tls-clients", "--tls-ca", "both.pem", "--expect", "other") as sender:
        for who, status in (("ours", 1), ("other", 0)):  # each says that it is the other one
            run("recv", sender.address, sender.ref, "-o", who, "--name", "other", "--retries", 0, "--tls-ca", "ours.pem", "--tls-cert", who + ".pem", "--tls-key", who + ".key", status=status)
        assert sender.end()[-1]["completed"] == 1
    with Sender("model.safetensors", *listen) as sender:
        for words in ([], ["--tls-ca", "other.pem"], ["--tls-ca", "ours.pem", "--tls-name", "elsewhere"]):
            err = run("recv", sender.address, sender.ref, "-o", "x", "--retries", 0, *words, status=1)[1]
            assert "certificate" in err, err
        assert run("recv", sender.address.removeprefix("tls://"), sender.ref, "-o", "x", "--retries", 0, "--timeout", 5, status=1)[1]
    assert not os.path.exists("x")


def links_of_nats():
    if without("nats://127.0.0.1:1"):
        return
    write("model.safetensors", CANONICAL)
    own = processes.OwnPort()
    with processes.Program([processes.found("nats-server"), "-a", "127.0.0.1", "-p", str(own.number)], stderr=subprocess.DEVNULL):
        assert processes.eventually(lambda: processes.accepts(own.number)), "nats-server does not listen"
        assert delivered(["--listen", "nats://me:secret@" + own.address]) == "nats://" + own.address, "a password is not printed"
        err = run("recv", "nats://me:secret@" + own.address, NO_REF + "0" * 15 + "1", "-o", "x", "--retries", 0, status=1)[1]
        assert "nats://127.0.0.1" in err and "secret" not in err, err
        with Sender("model.safetensors", "--listen", "nats://" + own.address + "?inbox=_INBOX_owner") as sender:
            assert sender.address == "nats://" + own.address, "its own inboxes are not those of recipients"
            run("recv", sender.address + "?inbox=_INBOX_me", sender.ref, "-o", "own")
            assert "credentials=/no/file" not in run("recv", sender.address + "?credentials=/no/file", sender.ref, "-o", "other", "--retries", 0, status=1)[1]
            assert "creds=x" in run("recv", sender.address + "?creds=x", sender.ref, "-o", "other", status=1)[1]
            bare = [sender.address, sender.ref[:32], "-o", "bare", "--retries", "0"]
            err = run("recv", *bare, status=1)[1]
            assert "48 digits" in err and "--believe" in err and sender.address in err and not os.path.exists("bare"), err
            assert json.loads(run("recv", *bare, "--json", status=1)[0])["code"] == "version_required"
            assert json.loads(run("recv", *bare, "--json", "--believe")[0])["believed"] is True


def recipients_over_http_count_without_names():
    write("model.safetensors", CANONICAL)
    with Sender("model.safetensors", "--http", "0", "--recipients", 2) as sender:
        url = sender.published[0]["url"]
        assert url.startswith("http://127.0.0.1:"), "as public as --listen is"
        write("key", sender.ref.encode())
        for name in ("first", "second"):
            run("recv", url, "-o", name, "--bearer-file", "key")
        assert sender.end()[-1] == {"event": "ended", "outcome": "done", "completed": 2, "unconfirmed": 0, "sent_bytes": 2 * len(CANONICAL)}


def a_download_that_nobody_confirms_has_a_word():
    write("model.safetensors", CANONICAL)

    def fetch(*, status, confirm=False, words=(), bytes_of=len(CANONICAL)):
        sender = processes.Program(command("send", "model.safetensors", "--http", "0", *words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            ref = sender.stdout.readline().split()[1]
            told = []
            while not told or "Ctrl-C" not in told[-1]:
                told.append(sender.stderr.readline())
            url = re.search(r"http://\S*/v1/\S*/[0-9a-f]{16}\b", "".join(told))[0]
            with socket.create_connection(("127.0.0.1", int(re.search(r":(\d+)/", url)[1]))) as peer, peer.makefile("rb") as lines:
                def ask(first, *fields):
                    peer.sendall("\r\n".join([first % ("/v1/" + url.split("/v1/")[1]), "Host: a", "Authorization: Bearer " + ref, *fields, "", ""]).encode())
                    head = b"".join(iter(lines.readline, b"\r\n")).decode()
                    return head, lines.read(int(re.search(r"Content-Length: (\d+)", head)[1]))
                assert len(ask("GET %s HTTP/1.1", "Range: bytes=0-%d" % (bytes_of - 1))[1]) == bytes_of
                if confirm:
                    assert ask("POST %s/confirm HTTP/1.1", "Content-Length: 0")[0].startswith("HTTP/1.1 200")
            if not words:
                sender.send_signal(signal.SIGINT)
            return "".join(told), sender.communicate(timeout=20)[1]
        finally:
            sender.kill()
            sender.communicate()
            assert sender.returncode in (status, -signal.SIGKILL)

    _, err = fetch(status=0)
    assert "1 recipient was sent the whole file and has not confirmed; 4.0 MiB sent" in err and "nobody has pulled" not in err, err
    line = shlex.split(err.splitlines()[-1])
    assert line[0] == "curl" and "Tensorpull-Recipient: NAME" in line and line[-1].endswith("/confirm") and any(w.startswith("digest=") for w in line), err
    assert "nobody has pulled a file to its end" in fetch(status=0, bytes_of=1000)[1]
    told, err = fetch(status=0, confirm=True, words=("--recipients", "1"))
    assert "/confirm" in told and "1 pull completed; 4.0 MiB sent" in err, (told, err)


def cases_are_all_listed():
    """A case that the build does not know would never run."""
    assert os.environ["TENSORPULL_TOOL_CASES"].split() == [case.__name__ for case in CASES[:-1]]


HELPERS = {"safetensors", "npy", "npz", "noise", "parsed", "command", "run", "Sender", "SlowPath", "Store", "in_terminal", "write", "names", "without_override", "checkpoint", "files_below", "delivered", "without", "serial_ends", "stepped", "versions", "lacks", "satellites_that_are_not_here", "hub_environment", "without_hubs", "key_pair", "refused", "b3sum", "joined", "Member", "signed_model", "free_port", "interrupted_at"}
CASES = [case for name, case in list(globals().items()) if callable(case) and getattr(case, "__module__", None) == __name__ and name not in HELPERS]
OF_SATELLITES = {
    "parallel": (several_connections_and_several_senders, what_is_signed_arrives_over_several_connections, members_of_a_swarm_are_told_of_each_other, members_of_a_swarm_give_each_other_what_they_have_proved, members_of_a_swarm_leave_and_return, members_of_a_swarm_that_lie_are_named, a_directory_from_several_senders),
    "shared_memory": (links_of_shared_memory,),
    "directories": (a_directory_arrives_as_one, a_directory_is_interrupted_and_resumed, a_directory_from_several_senders, a_directory_over_other_links, directories_that_cannot_be, a_file_of_a_directory_over_http, a_model_of_a_hub_arrives_as_one, a_model_of_a_hub_is_interrupted_and_resumed, hubs_that_lie),
    "differences": (what_has_changed_since_a_base, only_tensors_that_have_changed_since_a_base, bases_that_are_none),
    "proofs": (a_signed_reference_is_verified_before_anything_is_pulled, senders_that_lie_are_named_and_what_lands_is_proved, what_is_signed_arrives_over_several_connections, members_of_a_swarm_give_each_other_what_they_have_proved, members_of_a_swarm_leave_and_return, members_of_a_swarm_that_lie_are_named, a_manifest_is_one_for_b3sum),
    "numpy_files": (files_arrive_as_they_are, S8_the_published_file_shrinks, inspect_shows_tensors, inspect_rejects_by_name),
    "http": (a_file_of_a_directory_over_http, a_model_of_a_hub_arrives_as_one, a_model_of_a_hub_is_interrupted_and_resumed, hubs_that_lie, the_sender_is_interrupted, what_happened_is_said_in_the_callers_words, what_a_web_server_answers_is_no_connection_that_fails, what_is_put_has_its_digest,
             a_file_that_changes_while_it_is_put_is_not_stored, links_that_are_none_are_refused, recipients_over_http_count_without_names,
             a_download_that_nobody_confirms_has_a_word),
}

if __name__ == "__main__":
    processes.limit(540)
    BIN = os.path.abspath(sys.argv[1])
    chosen = [case for case in CASES if sys.argv[2:] == [case.__name__]] or (sys.argv[2:] == [] and CASES[:-1])
    assert chosen, "no such case"
    for case in chosen:
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            try:
                if not lacks(case, OF_SATELLITES):
                    case()
            finally:
                os.chdir("/")
        print("%s: %.2f s" % (case.__name__, time.monotonic() - began), flush=True)
