"""What a site's job process and its trainer give each other: sealed memory, over a socket of this user's. Each of them is hostile until it was checked."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import json
import logging
import mmap
import os
import pickle
import socket
import struct
import sys
import textwrap
import threading
import types

import numpy as np
import processes
import pytest
from flare_cell import Cell

pytest.importorskip("nvflare")

import nvflare.fuel.utils.fobs as fobs  # noqa: E402
import nvflare.fuel.utils.fobs.dots as dots  # noqa: E402

import tensorpull  # noqa: E402
from tensorpull.nvflare import _memory, _offer, _trainer, _trainers  # noqa: E402
from tensorpull.nvflare._lent import Lent, Theirs, Unreadable  # noqa: E402
from tensorpull.nvflare._memory import Gone, Room, Rooms, dtype_of, land_in_room, opened, receive  # noqa: E402
from tensorpull.nvflare._offer import Refused  # noqa: E402
from tensorpull.nvflare.decomposers.array import ArrayDecomposer  # noqa: E402

MODEL = {"T0": np.arange(12, dtype=np.float32).reshape(3, 4), "T1": np.zeros((0, 3), np.int64), "T2": np.array(7.5), "T3": np.arange(300_000, dtype=np.int16)}


def sealed(tensors=MODEL, framework="numpy"):
    return Room(framework).fill(tensors)


def same(a, b):
    return a.keys() == b.keys() and all(x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes() for x, y in ((a[n], b[n]) for n in a))


def test_memory_has_what_was_put_in():
    given = sealed()
    assert same(opened(given.fd, given.rows, "numpy"), MODEL)


def test_tensors_of_torch():
    torch = pytest.importorskip("torch")
    model = {"T0": torch.arange(6.0).reshape(2, 3).T, "T1": torch.ones(5, dtype=torch.bfloat16), "T2": torch.zeros(0), "T3": torch.tensor(True), "T4": torch.ones(3, requires_grad=True)}
    given = sealed(model, "torch")
    got = opened(given.fd, given.rows, "torch")
    assert all(torch.equal(got[name], model[name]) and got[name].dtype == model[name].dtype and got[name].is_contiguous() for name in model)


def test_a_write_is_the_writers_own():
    given = sealed()
    one, other = (opened(given.fd, given.rows, "numpy") for _ in range(2))
    one["T0"][:] = 5
    assert same(other, MODEL) and (one["T0"] == 5).all() and same(opened(given.fd, given.rows, "numpy"), MODEL)


def test_nobody_can_change_it():
    given = sealed()
    for change in (lambda: os.pwrite(given.fd, b"x", 0), lambda: os.ftruncate(given.fd, 1), lambda: os.ftruncate(given.fd, 1 << 30), lambda: mmap.mmap(given.fd, 4096)):
        with pytest.raises(OSError):
            change()
    with pytest.raises(OSError):
        fcntl.fcntl(given.fd, fcntl.F_ADD_SEALS, 0x10)
    assert same(opened(given.fd, given.rows, "numpy"), MODEL)


def test_tensors_that_share_memory_arrive_apart():
    given = sealed()
    rows = [*given.rows, ["T4", *given.rows[0][1:]]]
    got = opened(given.fd, rows, "numpy")
    got["T4"][:] = 1
    assert np.array_equal(got["T0"], MODEL["T0"])


def punched(fd, nbytes):
    """Takes pages away from a file."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.fallocate(ctypes.c_int(fd), ctypes.c_int(3), ctypes.c_long(0), ctypes.c_long(nbytes)):
        raise OSError(ctypes.get_errno(), "fallocate")


def unsealed(seals):
    fd = os.memfd_create("test", os.MFD_ALLOW_SEALING)
    os.write(fd, bytes(4096))
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


def of_holes():
    fd = os.memfd_create("test", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, 1 << 20)
    os.pwrite(fd, b"x", 1 << 19)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _memory._SIZE | _memory._WRITE)
    return fd


def a_file(tmp_path):
    (tmp_path / "file").write_bytes(bytes(4096))
    return os.open(tmp_path / "file", os.O_RDWR)


ROWS = [["T0", "F32", [4], 0]]
SHRINK, GROW, WRITE = fcntl.F_SEAL_SHRINK, fcntl.F_SEAL_GROW, fcntl.F_SEAL_WRITE


@pytest.mark.parametrize("make, why", [
    (lambda _: unsealed(0), "not sealed"),
    (lambda _: unsealed(GROW | WRITE), "not sealed"),  # it could be shortened under the reader
    (lambda _: unsealed(SHRINK | WRITE), "not sealed"),
    (lambda _: unsealed(SHRINK | GROW), "not sealed"),
    (lambda _: unsealed(SHRINK | GROW | 0x10), "not sealed"),  # its owner could go on writing
    (lambda _: of_holes(), "holes"),
    (lambda _: os.open("/dev/zero", os.O_RDWR), "no memory"),
    (lambda _: os.pipe()[0], "no memory"),
    (lambda _: socket.socket().detach(), "no memory"),
    (a_file, "not sealed|no memory"),
])  # fmt: skip
def test_a_descriptor_of_anything_else_is_refused(make, why, tmp_path):
    fd = make(tmp_path)
    with pytest.raises(Refused, match=why):
        opened(fd, ROWS, "numpy")


@pytest.mark.parametrize("seals", [0x10, SHRINK | 0x10, GROW | 0x10, SHRINK | GROW])
def test_an_owner_that_waits_has_sealed_its_memory_all_the_same(seals):
    fd = unsealed(seals)
    with pytest.raises(Refused, match="not sealed"):
        opened(fd, ROWS, "numpy", owner_waits=True)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SHRINK | GROW | 0x10)
    assert not opened(fd, ROWS, "numpy", owner_waits=True)["T0"].any()


@pytest.mark.parametrize("rows", [
    None, {}, "T0", [None], [[]], [["T0", "F32", [4]]], [["T0", "F32", [4], 0, 0]], [[b"T0".hex(), "F32", [4], True]], [[0, "F32", [4], 0]], [["T0", 7, [4], 0]],
    [["T0", "F32", 4, 0]], [["T0", "F32", [-4], 0]], [["T0", "F32", [True], 0]], [["T0", "F32", [2**62, 4], 0]], [["T0", "F32", [4], -64]], [["T0", "F32", [4], 1]],
    [["T0", "F32", [4], 2**63]], [["T0", "F32", [4096], 0]], [["T0", "F32", [1], 1 << 20]], [["T0", "F32", [1] * 65, 0]], [["T0", "F32", [4], 0]] * 2, [["T0", "F32", [4.0], 0]],
])  # fmt: skip
def test_a_table_that_lies_is_refused(rows):
    given = sealed({"T0": np.zeros(4, np.float32)})
    with pytest.raises(Refused):
        opened(given.fd, rows, "numpy")


@pytest.mark.parametrize("dtype", ["F7", "", "O", "U128", "<f4"])
def test_an_unknown_dtype_is_refused(dtype):
    import tensorpull

    given = sealed()
    with pytest.raises((Refused, tensorpull.Error)):
        opened(given.fd, [["T0", dtype, [1], 0]], "numpy")


def test_room_for_less_than_what_lands():
    room = Room("numpy")
    room.begin(0)
    with pytest.raises(Refused):
        room.make("T0", "U8", (_memory._ALIGNED * _memory.MOST_TENSORS + 1,))


def land(room, tensors):
    """As a pull does it."""
    room.begin(sum(tensor.nbytes for tensor in tensors.values()))
    for name, tensor in tensors.items():
        address, nbytes = room.make(name, dtype_of(tensor, room.framework), tensor.shape)
        ctypes.memmove(address, np.ascontiguousarray(tensor).ctypes.data, nbytes)


def landed(tensors, most=None, room=None, **more):
    """Pulled into a room, and sealed."""
    room = room or Room("numpy")
    with tensorpull.Downloader("tcp://127.0.0.1:0").start() as owner:
        ref = owner.add_tensors(tensors, **more)
        got = land_in_room(
            room, ref.nbytes if most is None else most, tensorpull, (f"tcp://127.0.0.1:{owner.port}",), ref.id, per_request_timeout=processes.AMPLE, chunk_size=1 << 20, retries=1, max_bytes=1 << 30, abort=None
        )  # fmt: skip
    return room.seal(got)


def test_a_model_lands_in_memory_that_is_sealed_afterwards():
    given = landed(MODEL)
    got = opened(given.fd, given.rows, "numpy", owner_waits=True)
    for change in (lambda: os.pwrite(given.fd, b"x", 0), lambda: os.ftruncate(given.fd, 1), lambda: mmap.mmap(given.fd, 4096), lambda: punched(given.fd, os.fstat(given.fd).st_blocks * 512)):
        with pytest.raises(OSError):
            change()
    with pytest.raises(OSError):
        fcntl.fcntl(given.fd, fcntl.F_ADD_SEALS, WRITE)
    assert same(got, MODEL)


def test_tied_tensors_land_once_and_arrive_apart():
    given = landed({"T0": MODEL["T3"], "T1": MODEL["T3"]})
    got = opened(given.fd, given.rows, "numpy", owner_waits=True)
    got["T0"][:] = 1
    assert os.fstat(given.fd).st_blocks * 512 < 1.1 * MODEL["T3"].nbytes and np.array_equal(got["T1"], MODEL["T3"])


def of(number, n=200_000):
    return {"T0": np.full(n, number, np.int32), "T1": np.full(7, number, np.int64)}


def given_of(rooms, model):
    room = rooms.take()
    land(room, model)
    return room.seal(room.rows)


def memory_of(given):
    return os.fstat(given.fd).st_ino


def test_a_model_lands_where_the_last_one_was():
    before = held_here()
    rooms = Rooms("numpy")
    seen = set()
    for number in range(4):
        given = given_of(rooms, of(number))
        got = opened(given.fd, given.rows, "numpy", owner_waits=True)
        assert same(got, of(number)) and held_here() == before + 1
        seen.add(memory_of(given))
        del given, got
    assert len(seen) == 1
    del rooms
    assert held_here() == before


def test_a_model_that_somebody_has_is_not_written_over():
    """Neither before it is read nor afterwards, and no third memory is kept."""
    before = held_here()
    rooms = Rooms("numpy")
    first = given_of(rooms, of(1))
    got = opened(first.fd, first.rows, "numpy", owner_waits=True)
    second = given_of(rooms, of(2))
    assert memory_of(first) != memory_of(second) and same(got, of(1)) and held_here() == before + 2
    del first, got
    assert held_here() == before + 1  # a site holds no more than the models that it has
    assert same(opened(second.fd, second.rows, "numpy", owner_waits=True), of(2))
    where = memory_of(second)
    del second
    third = given_of(rooms, of(3))
    assert memory_of(third) == where and held_here() == before + 1


@pytest.mark.parametrize("n, stays", [(200_001, False), (400_000, False), (199_000, True), (20, False)])
def test_a_model_of_another_size(n, stays):
    """A larger one has no room, and one that is much smaller would keep what it does not need."""
    before = held_here()
    rooms = Rooms("numpy")
    given = given_of(rooms, of(1))
    where = memory_of(given)
    del given
    given = given_of(rooms, of(2, n))
    assert (memory_of(given) == where) == stays and same(opened(given.fd, given.rows, "numpy", owner_waits=True), of(2, n))
    assert held_here() == before + 1


def test_a_model_of_more_tensors_has_room_where_the_last_one_was():
    """Each of them begins at a multiple of 64 bytes, so they need more than their bytes."""
    rooms = Rooms("numpy")
    del (given := {"given": given_of(rooms, {"T0": np.zeros(40_000, np.uint8)})})["given"]
    many = {f"T{i}": np.full(4, i % 200, np.uint8) for i in range(10_000)}
    given = given_of(rooms, many)
    assert same(opened(given.fd, given.rows, "numpy", owner_waits=True), many)


def test_memory_of_a_pull_that_has_failed_is_not_used_again():
    """Its thread may still write there."""
    before = held_here()
    rooms = Rooms("numpy")
    room = rooms.take()
    room.begin(100)
    late, _ = room.make("T0", "U8", (100,))
    given = given_of(rooms, of(1))
    ctypes.memset(late, 1, 100)
    del given
    again = rooms.take()
    assert again is not room
    del again, room
    assert held_here() == before
    given = given_of(rooms, of(2))
    del given
    assert held_here() == before + 1  # it is not counted for ever


def test_a_system_that_cannot_seal_against_later_writing(monkeypatch):
    """Before Linux 5.1: nobody writes there again, so the next model lands elsewhere."""
    monkeypatch.setattr(_memory, "_FUTURE_WRITE", 1 << 20)
    before = held_here()
    rooms = Rooms("numpy")
    given = given_of(rooms, of(1))
    assert same(opened(given.fd, given.rows, "numpy"), of(1))
    del given
    assert held_here() == before
    assert same(opened((given := given_of(rooms, of(2))).fd, given.rows, "numpy"), of(2))


def test_more_bytes_than_were_offered_do_not_land():
    before = held_here()
    with pytest.raises(Exception, match="more bytes|no room|0 bytes"):
        landed({"T0": np.zeros(_memory._ALIGNED * _memory.MOST_TENSORS + 1, np.uint8)}, most=0)
    assert held_here() == before


def connected_to(trainers):
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(f"\0{trainers.name}")
    connection.settimeout(processes.AMPLE)
    return connection


@pytest.fixture
def trainers(monkeypatch):
    fobs.reset()
    fobs.register(ArrayDecomposer)
    made = _trainers.Trainers()
    monkeypatch.setenv(_trainers.VARIABLE, made.name)
    yield made
    fobs.reset()


def answer(trainers, word, fds=()):
    with connected_to(trainers) as connection:
        _memory.send(connection, word, fds)
        return receive(connection)[0]


BRING = {"is": "bring", "dot": dots.NUMPY_DOWNLOAD, "from": "server.job", "ref": "one", "timeout": 5.0, "secure": False}


@pytest.mark.parametrize("word, why", [
    ({}, "not known"), ({"is": ["bring"]}, "not known"), ({**BRING, "ref": "another"}, "has not passed on"), ({**BRING, "from": "server.other"}, "has not passed on"),
    ({**BRING, "ref": 1}, "ref makes no sense"), ({**BRING, "ref": "x" * 600}, "ref makes no sense"), ({**BRING, "dot": "1"}, "does not travel"), ({**BRING, "dot": 10**9}, "does not travel"),
    ({**BRING, "timeout": "x"}, "time-out"), ({**BRING, "timeout": -1}, "time-out"), ({**BRING, "timeout": True}, "time-out"), ({"is": "map", "key": "x"}, "no longer there"), ({"is": "send"}, "does not travel"),
])  # fmt: skip
def test_a_word_that_makes_no_sense_is_refused(trainers, word, why):
    trainers.note("server.job", "one", object())
    said = answer(trainers, word)
    assert said["is"] == "no" and why in said["why"]


@pytest.mark.parametrize("data", [b"\xff\xff\xff\xff", b"\x02\0\0\0[]", b"\x02\0\0\0x{", b"\x01\0", b""])
def test_bytes_that_are_no_word(trainers, data):
    with connected_to(trainers) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        assert receive(connection)[0]["is"] == "no"
    assert answer(trainers, {"is": "map", "key": "x"})["is"] == "no"  # it goes on


def send_word(trainer="site-1.job.client_api_trainer_1", to="server.job", **more):
    given = sealed()
    call = _offer.call("job", "site-1.job.client_api_trainer_1", "tcp://localhost:1", "0" * 32)
    return {"is": "send", "dot": dots.NUMPY_DOWNLOAD, "ref": "r", "trainer": trainer, "to": to, "call": call, "rows": given.rows, **more}, given


@pytest.mark.parametrize("more, why", [
    ({"trainer": "site-2.job.client_api_trainer_1"}, "not from this process's trainer"), ({"trainer": "site-1.job"}, "not from this process's trainer"), ({"to": "site-1.job"}, "not from this process's trainer"),
    ({"to": "site-2.other"}, "not from this process's trainer"), ({"to": "site-2.job.client_api_trainer_1"}, "not from this process's trainer"), ({"to": "site-2"}, "not from this process's trainer"),
    ({"call": {}}, "no offer|fields|v is not"), ({"call": _offer.call("other", "site-1.job.client_api_trainer_1", "tcp://localhost:1", "0" * 32)}, "another job"),
    ({"call": _offer.call("job", "site-1.job.client_api_trainer_1", "tcp://192.0.2.1:1", "0" * 32)}, "not the FLARE server's"), ({"rows": [["T0", "F32", [10**9], 0]]}, "outside its memory"),
])  # fmt: skip
def test_an_update_that_makes_no_sense_is_refused(trainers, monkeypatch, more, why):
    import re

    cell = Cell("site-1.job")
    monkeypatch.setattr(_trainers, "client_cell", lambda: cell)
    word, given = send_word(**more)
    said = answer(trainers, word, [given.fd])
    assert said["is"] == "no" and re.search(why, said["why"]), said


def hands_over():
    """What a trainer sends of."""
    hands = _trainer.Handing.__new__(_trainer.Handing)
    hands.logger = logging.getLogger("test")
    hands.framework, hands.dot, hands._flare_ref, hands._cell, hands._calls = "numpy", dots.NUMPY_DOWNLOAD, "ref", Cell("site-1.job.client_api_trainer_1"), {}
    hands._once, hands._gone, hands._refusal, hands.base_obj = threading.Lock(), threading.Event(), "", dict(MODEL)
    return hands


class SendsBetween:
    """Stands for the decomposer of a job process that waits at the server's door."""

    offering = types.SimpleNamespace(framework="numpy")

    def __init__(self):
        self.said, self.ends, self.sent = _offer.through("job", "site-2.job", "tcp://localhost:1", "0" * 32), threading.Event(), []

    def send_between(self, tensors, cell, ref, place, site, gone, waits):
        self.sent.append((dict(tensors), cell.get_fqcn(), ref, site))
        waits(self.said)
        assert processes.eventually(lambda: self.ends.is_set() or gone.is_set())


def test_an_update_for_another_site_waits_where_its_job_process_does(trainers, monkeypatch):
    ours, hands = SendsBetween(), hands_over()
    monkeypatch.setattr(_trainers, "client_cell", lambda: Cell("site-1.job"))
    monkeypatch.setattr(_trainers, "_ours", lambda word: ours)
    assert hands._waits_for(None, "job", "site-2.job") == ours.said
    tensors, *rest = ours.sent[0]
    assert rest == ["site-1.job", "ref", "site-2.job"] and all(hasattr(one, "described") for one in tensors.values())
    hands._gone.set()  # FLARE lets go of it, so the job process does


def test_an_update_that_no_job_process_can_bring_to_the_door(trainers, monkeypatch):
    hands = hands_over()
    monkeypatch.setattr(_trainers, "client_cell", lambda: Cell("site-1.job"))
    monkeypatch.setattr(_trainers, "_ours", lambda word: raises(errno.ECONNREFUSED))
    with pytest.raises(_trainer.Refuge, match="did not send it.*refused"):
        hands._waits_for(None, "job", "site-2.job")


def test_a_process_of_another_user_gets_nothing(trainers, monkeypatch):
    if os.geteuid() != 0:
        pytest.skip("only the system's administrator can become another user here")
    program = f"""
        import os, socket, sys
        os.setuid(65534)
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout({processes.AMPLE})
        connection.connect("\\0{trainers.name}")
        sys.stdout.write(connection.makefile("rb").read()[4:].decode())
    """
    warned = []
    monkeypatch.setattr(trainers.logger, "warning", warned.append)
    for _ in range(2):
        said = processes.run([sys.executable, "-c", textwrap.dedent(program)], stdout=-1, text=True, check=True).stdout
        assert json.loads(said)["why"] == "a process of another user has called"
    assert len(warned) == 1  # or it could fill the log


def test_a_trainer_speaks_to_no_process_of_another_user(monkeypatch):
    monkeypatch.setattr(_memory, "is_same_user", lambda _: False)
    with socket.socket(socket.AF_UNIX) as listener:
        name = f"tensorpull-of-another-{os.getpid()}"
        listener.bind(f"\0{name}")
        listener.listen()
        monkeypatch.setenv(_trainers.VARIABLE, name)
        with pytest.raises(Refused, match="another user"):
            _trainer._called({}, [])


def test_a_trainer_waits_for_its_turn(monkeypatch):
    """As one of many ranks that call at the same time, or while another user's processes call."""
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as first:
        name = f"tensorpull-of-many-{os.getpid()}"
        listener.bind(f"\0{name}")
        listener.listen(0)
        first.connect(f"\0{name}")
        monkeypatch.setenv(_trainers.VARIABLE, name)
        with socket.socket(socket.AF_UNIX) as full, pytest.raises(BlockingIOError):
            full.setblocking(False)
            full.connect(f"\0{name}")
        ended = []

        def call():
            with _trainer._called({"is": "map"}, []):
                ended.append(True)

        caller = threading.Thread(target=call, daemon=True)
        caller.start()
        listener.settimeout(processes.AMPLE)
        processes.eventually(lambda: not caller.is_alive(), 0.3)  # it waits, or has failed
        with listener.accept()[0], listener.accept()[0]:
            caller.join(processes.AMPLE)
        assert ended


def held_here():
    """Pieces of such memory that this process has."""
    found = set()
    for fd in os.listdir("/proc/self/fd"):
        try:
            if "memfd:tensorpull" in os.readlink(f"/proc/self/fd/{fd}"):
                found.add(os.stat(f"/proc/self/fd/{fd}").st_ino)
        except OSError:
            pass
    return len(found)


class Brings:
    """Stands for the decomposer of a job process."""

    offering = types.SimpleNamespace(framework="numpy")

    def bring(self, source, ref, timeout, cell, secure, gone):
        return None, sealed()


@pytest.fixture
def brings(trainers, monkeypatch):
    monkeypatch.setattr(_trainers, "_ours", lambda word: Brings())
    trainers.note("server.job", "one", object())
    return trainers


def test_a_trainer_that_is_killed_leaves_no_memory_behind(brings):
    before = held_here()
    program = f"""
        import os, signal, socket, struct
        from tensorpull.nvflare import _memory
        connection = socket.socket(socket.AF_UNIX)
        connection.connect("\\0{brings.name}")
        _memory.send(connection, {BRING!r})
        word, fds = _memory.receive(connection)
        model = _memory.opened(fds[0], word["rows"], "numpy")
        model["T0"][:] = 1
        os.kill(os.getpid(), signal.SIGKILL)
    """
    ended = processes.run([sys.executable, "-c", textwrap.dedent(program)])
    assert ended.returncode == -9
    assert processes.eventually(lambda: held_here() == before and not brings._held)


class Again:
    """Stands for a model that FLARE's chunks bring from the job process."""

    def __init__(self):
        self.ref, self.ended = "again", threading.Event()

    def end(self):
        self.ended.set()


def by_chunks():
    """A trainer that asks for a model, and gets it by FLARE's chunks; from whom."""
    asked = []

    class FLARE:
        def get_download_dot(self):
            return dots.NUMPY_DOWNLOAD

        def download(self, from_fqcn, ref_id, secure, **_):
            asked.append((from_fqcn, ref_id, secure))
            return None, dict(MODEL)

    trainer = type("Taken", (_trainer.Taking, FLARE), {"offering": Brings.offering, "logger": logging.getLogger("test")})()
    error, params = trainer.download("server.job", "one", 5.0, Cell("site-1.job.trainer"), secure=True)
    assert not error and same(params, MODEL)
    return asked


def test_a_model_without_such_memory_comes_from_the_job_process(brings, monkeypatch):
    """FLARE's server has let go of it when the job process had it, so the trainer cannot ask there any more."""
    again = Again()

    class No(Brings):
        def bring(self, *_):
            return None, again

    monkeypatch.setattr(_trainers, "_ours", lambda word: No())
    assert by_chunks() == [("site-1.job", "again", False)]
    assert again.ended.wait(processes.AMPLE)


@pytest.mark.parametrize("why", [OSError("no memory"), tensorpull.Error("unsupported_dtype", "this torch has no F9"), RuntimeError("Stride calculation overflowed")])
def test_a_trainer_that_cannot_map_a_model_asks_its_job_process_again(brings, monkeypatch, why):
    again, opens, before = Again(), _memory.opened, held_here()

    class Yes(Brings):
        def again(self, tensors, cell, timeout):
            assert same(tensors, MODEL)
            return again

    def fails_once(*_, **__):
        monkeypatch.setattr(_memory, "opened", opens)
        raise why

    monkeypatch.setattr(_trainers, "_ours", lambda word: Yes())
    monkeypatch.setattr(_memory, "opened", fails_once)
    assert by_chunks() == [("site-1.job", "again", False)]
    assert again.ended.wait(processes.AMPLE) and processes.eventually(lambda: not brings._held and held_here() == before)


def test_a_process_without_a_descriptor_to_spare_still_hears_the_word():
    given = sealed()
    a, b = socket.socketpair()
    with a, b:
        _memory.send(a, {"is": "memory"}, [given.fd] * 2)
        assert receive(b) == ({"is": "memory"}, [])


def brought(monkeypatch, way, result, **fails):
    """What a job process has for its trainer once the model is there."""
    ours, made = ArrayDecomposer(), []

    def run(consumer, *_):
        consumer.way = way
        if way == "tensorpull":
            land(consumer.room, result)
        return None, dict(consumer.room.rows) if way == "tensorpull" else result

    monkeypatch.setattr(ours, "_run", run)
    monkeypatch.setattr(ours, "again", lambda tensors, cell, timeout: made.append(tensors) or "again")
    for name, why in fails.items():
        monkeypatch.setattr(Room, name, lambda *_, why=why: raises(why))
    return ours.bring("server.job", "one", 5.0, Cell("site-1.job"), False, None), made


def raises(number):
    raise OSError(number, os.strerror(number))


@pytest.mark.parametrize("array", [np.ones(3, np.complex128), np.array(["a", "bc"]), np.arange(3, dtype=">f4"), np.array(["2026-01-01"], "M8[s]")])
def test_arrays_that_are_not_carried_go_on_by_chunks(monkeypatch, array):
    (error, said), made = brought(monkeypatch, "FLARE's chunks", {"T0": array})
    assert (error, said) == (None, "again") and same(made[0], {"T0": array})


def test_memory_that_cannot_be_sealed_goes_on_by_chunks(monkeypatch):
    """As while a child of fork() has it mapped."""
    (error, said), made = brought(monkeypatch, "tensorpull", MODEL, seal=errno.EBUSY)
    assert (error, said) == (None, "again") and same(made[0], MODEL)


def test_a_pull_that_was_given_up_keeps_its_memory(monkeypatch):
    """Its thread may not have heard yet, as when a server answers that it has failed: what it writes must not land anywhere else."""
    ours, rooms = ArrayDecomposer(), []

    def run(consumer, *_):
        rooms.append(consumer.room)
        consumer.room.begin(1 << 20)
        consumer.way = "FLARE's chunks"
        return None, MODEL

    monkeypatch.setattr(ours, "_run", run)
    error, given = ours.bring("server.job", "one", 5.0, Cell("site-1.job"), False, None)
    assert not error and same(opened(given.fd, given.rows, "numpy"), MODEL)
    address, nbytes = rooms[0].make("T0", "F32", (1000,))
    ctypes.memset(address, 1, nbytes)


def test_no_memory_at_all(monkeypatch):
    (error, said), made = brought(monkeypatch, "FLARE's chunks", MODEL, _begin_anew=errno.EPERM)
    assert (error, said) == (None, "again") and same(made[0], MODEL)


def test_a_trainer_that_goes_away_ends_its_pull(brings, monkeypatch):
    ended = threading.Event()

    class Waits(Brings):
        def bring(self, source, ref, timeout, cell, secure, gone):
            if processes.eventually(gone.is_set):
                ended.set()
            return "it has gone", None

    monkeypatch.setattr(_trainers, "_ours", lambda word: Waits())
    with connected_to(brings) as connection:
        _memory.send(connection, BRING)
    assert ended.wait(processes.AMPLE)


def test_the_other_ranks_map_what_the_first_was_given(brings):
    class FLARE:
        def get_download_dot(self):
            return dots.NUMPY_DOWNLOAD

        def download(self, **_):
            raise AssertionError("by FLARE's chunks")

    first = type("Taken", (_trainer.Taking, FLARE), {"offering": Brings.offering, "logger": None})()
    error, params = first.download("server.job", "one", 5.0, Cell("site-1.job.trainer"))
    assert not error and same(params, MODEL)
    own = np.ones(3)
    params["own"] = own
    params["view"] = params["T3"].reshape(3, -1)
    sent = pickle.dumps(_trainer.for_ranks(params))
    assert len(sent) < 2000
    there = pickle.loads(sent)
    assert list(there) == list(params) and type(there) is dict
    assert np.array_equal(there.pop("own"), own) and np.array_equal(there.pop("view"), MODEL["T3"].reshape(3, -1)) and same(there, MODEL)
    there["T0"][:] = 9
    assert np.array_equal(params["T0"], MODEL["T0"])
    assert len(brings._held) == 1
    del params, there
    assert same({name: pickle.loads(sent)[name] for name in MODEL}, MODEL)  # by a rank that is late
    assert not first.download("server.job", "one", 5.0, Cell("site-1.job.trainer"))[0]
    assert processes.eventually(lambda: not brings._held and not held_here())
    with pytest.raises(Refused, match="no longer there"):
        pickle.loads(sent)


@pytest.fixture
def lands(brings, monkeypatch):
    """A job process whose models have their numbers in them, and what asks it for the next one."""
    rooms, numbers = Rooms("numpy"), iter(range(1, 9))

    class Lands(Brings):
        def bring(self, *_):
            return None, given_of(rooms, of(next(numbers)))

    class FLARE:
        def get_download_dot(self):
            return dots.NUMPY_DOWNLOAD

        def download(self, **_):
            raise AssertionError("by FLARE's chunks")

    def receives():
        taken = type("Taken", (_trainer.Taking, FLARE), {"offering": Brings.offering, "logger": None})()
        error, params = taken.download("server.job", "one", 5.0, Cell("site-1.job.trainer"))
        assert not error
        return params

    monkeypatch.setattr(_trainers, "_ours", lambda word: Lands())
    return Lands, receives


def test_a_rank_keeps_the_model_that_it_has(brings, lands):
    """Although the first one has done with it, and has the next ones. A rank that is killed holds nothing up."""
    _, receives = lands
    before = held_here()
    params = receives()
    program = """
        import pickle, sys
        model = pickle.load(sys.stdin.buffer)
        print("has it", flush=True)
        sys.stdin.buffer.read(1)
        print({int(x) for t in model.values() for x in (t[0], t[-1])}, flush=True)
        sys.stdin.buffer.read(1)
    """
    with processes.Program([sys.executable, "-c", textwrap.dedent(program)], stdin=-1, stdout=-1) as rank:
        rank.stdin.write(pickle.dumps(_trainer.for_ranks(params)))
        rank.stdin.flush()
        assert rank.stdout.readline() == b"has it\n"
        for number in (2, 3):
            params = receives()
            assert same(params, of(number))
        rank.stdin.write(b"x")
        rank.stdin.flush()
        assert rank.stdout.readline() == b"{1}\n"  # pages that it had not looked at before
        assert processes.eventually(lambda: held_here() == before + 2)  # a thread lets go of the second one
        rank.kill()
        rank.wait(processes.AMPLE)
    assert processes.eventually(lambda: held_here() == before + 1)
    del params
    assert same(receives(), of(4)) and processes.eventually(lambda: held_here() <= before + 1)


def test_a_child_of_a_trainer_keeps_the_model_that_it_has(lands):
    """As those that load data, which fork() makes."""
    _, receives = lands
    params = receives()
    goes_on, told = os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        os.read(goes_on[0], 1)
        os.write(told[1], b"1" if same(params, of(1)) else b"0")
        os.read(goes_on[0], 1)
        os._exit(0)
    for number in (2, 3):
        params = receives()
        assert same(params, of(number))
    os.write(goes_on[1], b"x")
    assert os.read(told[0], 1) == b"1"
    os.write(goes_on[1], b"x")
    os.waitpid(child, 0)


def test_two_trainers_have_a_model_each(lands):
    _, receives = lands
    first, second = receives(), receives()
    assert same(first, of(1)) and same(second, of(2))
    del first
    third = receives()
    assert same(second, of(2)) and same(third, of(3))


def test_a_model_that_chunks_bring_from_the_job_process_stays_as_it_is(lands, brings, monkeypatch):
    """Meanwhile another one lands."""
    Lands, receives = lands
    there, again = [], Again()

    def goes_again(self, tensors, *_):
        there.append(tensors)
        return again

    monkeypatch.setattr(Lands, "again", goes_again, raising=False)
    with connected_to(brings) as cannot:
        _memory.send(cannot, BRING)
        word, fds = receive(cannot)
        os.close(fds[0])
        _memory.send(cannot, {"is": "chunks"})
        assert receive(cannot)[0]["is"] == "chunks"
        assert same(receives(), of(2)) and same(there[0], of(1))
        del there[:]
    assert again.ended.wait(processes.AMPLE)


def lent_by(model):
    """Another process with these tensors; it, and their table."""
    text = f"""
        import json, sys
        import numpy as np
        from tensorpull.nvflare._lent import Lent
        model = {{name: np.full(n, i + 1, np.int32) for i, (name, n) in enumerate({model!r}.items())}}
        lent = Lent(model, "numpy")
        print(json.dumps([lent.rows, lent.version({{"a": "b"}})]), flush=True)
        for _ in sys.stdin:
            model["T1"][-1] += 1
            print(flush=True)
    """
    process = processes.Program([sys.executable, "-c", textwrap.dedent(text)], stdin=-1, stdout=-1, text=True)
    return process, *json.loads(process.stdout.readline())


LENT = {"T0": 3, "T1": 1_000_000, "T2": 0, "T3": 300_000}
LENT_MODEL = {name: np.full(n, i + 1, np.int32) for i, (name, n) in enumerate(LENT.items())}


def serves(session, over):
    with session, contextlib.suppress(tensorpull.Error):  # the recipient has gone, or the source
        session.serve(until=over)


def pulled(theirs, version=None, until=None):
    """What a recipient gets that pulls them over a connection of their publisher's."""
    with tensorpull.Listener("tcp://127.0.0.1:0") as listener, tensorpull.Session(f"tcp://127.0.0.1:{listener.port}") as session, listener.accept(timeout=processes.AMPLE) as other:
        ref = theirs.publish(session._session, {"a": "b"}, None)
        assert version is None or ref.version == version
        if until:
            until()
        over = threading.Event()
        server = threading.Thread(target=serves, args=(session, over), daemon=True)
        server.start()
        try:
            return other.download_tensors(ref, per_request_timeout=processes.AMPLE, retries=0)
        finally:
            over.set()
            server.join(processes.AMPLE)


def test_tensors_are_pulled_from_another_processs_memory():
    process, rows, version = lent_by(LENT)
    with process:
        for said in (version, 0):
            got = pulled(Theirs(process.pid, rows, "numpy", 1 << 30, lambda: False, said), version)
            assert same(dict(got), LENT_MODEL)
        process.kill()


def test_tensors_that_change_before_they_are_pulled_do_not_arrive():
    process, rows, version = lent_by(LENT)
    with process:
        def change():
            process.stdin.write("x\n")
            process.stdin.flush()
            process.stdout.readline()

        with pytest.raises(tensorpull.Error, match="digest"):
            pulled(Theirs(process.pid, rows, "numpy", 1 << 30, lambda: False, version), until=change)
        process.kill()


@pytest.mark.filterwarnings("error")
def test_a_process_that_is_killed_is_read_no_more():
    """Nor is another one that has its number."""
    process, rows, version = lent_by(LENT)
    with process:
        theirs = Theirs(process.pid, rows, "numpy", 1 << 30, lambda: False, version)

        def kill():
            process.kill()
            process.wait(processes.AMPLE)

        with pytest.raises(tensorpull.Error):
            pulled(theirs, until=kill)
        with pytest.raises(Unreadable):
            Theirs(process.pid, rows, "numpy", 1 << 30, lambda: False, version)
    own = Lent(MODEL, "numpy")
    with pytest.raises(Refused, match="has gone"):
        Theirs(os.getpid(), own.rows, "numpy", 1 << 30, lambda: True)


def test_torchs_tensors_are_lent_as_they_are():
    torch = pytest.importorskip("torch")
    model = {"T0": torch.arange(6.0).reshape(2, 3).T, "T1": torch.ones(5, dtype=torch.bfloat16), "T2": torch.zeros(0), "T3": torch.tensor(True), "T4": torch.ones(3, requires_grad=True)}
    lent = Lent(model, "torch")
    assert lent.rows[1][3] == model["T1"].data_ptr()
    theirs = Theirs(os.getpid(), lent.rows, "torch", 1 << 30, lambda: False)
    with tensorpull.Listener("tcp://127.0.0.1:0") as listener, tensorpull.Session(f"tcp://127.0.0.1:{listener.port}") as session, listener.accept(timeout=processes.AMPLE) as other:
        ref = theirs.publish(session._session, {}, None)
        assert lent.version({}) == ref.version
        over = threading.Event()
        server = threading.Thread(target=serves, args=(session, over), daemon=True)
        server.start()
        got = other.download_tensors(ref, per_request_timeout=processes.AMPLE, framework="torch")
        over.set()
        server.join(processes.AMPLE)
    assert all(torch.equal(got[name], model[name]) and got[name].dtype == model[name].dtype for name in model)


@pytest.mark.parametrize("change, why", [
    (lambda row: [*row[:3], 8], Unreadable), (lambda row: [*row[:3], 2**64 - 8], Unreadable), (lambda row: [*row[:3], 2**80], Exception), (lambda row: [*row[:3], -8], Refused),
    (lambda row: [*row[:2], [1 << 45], row[3]], Refused), (lambda row: [*row[:2], [1 << 27], row[3]], Unreadable), (lambda row: [row[0], "O", *row[2:]], Exception), (lambda row: row[:3], Refused),
])  # fmt: skip
def test_a_table_of_addresses_that_lies_is_refused(change, why):
    row = Lent({"T0": np.zeros(4, np.float32)}, "numpy").rows[0]
    with pytest.raises(why):
        pulled(Theirs(os.getpid(), [change(row)], "numpy", 1 << 30, lambda: False))


@pytest.mark.parametrize("version", [-1, 2**64, "1", None, True, 1.0])
def test_a_digest_that_makes_no_sense_is_refused(version):
    with pytest.raises(Refused, match="digest"):
        Theirs(os.getpid(), Lent(MODEL, "numpy").rows, "numpy", 1 << 30, lambda: False, version)


def test_a_trainer_whose_memory_cannot_be_read_makes_a_copy(trainers, monkeypatch):
    """As where the system lets nobody read another process's, or a device's driver has its pages."""
    cell, sent = Cell("site-1.job"), []

    class Sends:
        offering = types.SimpleNamespace(framework="numpy")

        def send(self, tensors, *_):
            sent.append(dict(tensors))
            return ""

    def unreadable(*_):
        raise Unreadable("not permitted")

    monkeypatch.setattr(_trainers, "client_cell", lambda: cell)
    monkeypatch.setattr(_trainers, "_ours", lambda word: Sends())
    hands, failed = hands_over(), []
    monkeypatch.setattr(hands, "_call_failed", lambda *why: failed.append(why), raising=False)
    said = _offer.call("job", "site-1.job.client_api_trainer_1", "tcp://localhost:1", "0" * 32)
    hands._hand_over(said, "server.job")
    assert not failed and sent[0].keys() == MODEL.keys() and all(hasattr(one, "described") for one in sent.pop().values())
    monkeypatch.setattr(_trainers, "Theirs", unreadable)
    before = held_here()
    hands._hand_over(said, "server.job")
    assert not failed and same(sent[0], MODEL)
    sent.clear()
    assert processes.eventually(lambda: held_here() == before)


def test_a_part_of_what_came_and_other_bits_are_not_taken_for_it(brings):
    """And neither is what lies where a tied tensor lay, which has memory of its own."""
    given = landed({"T0": MODEL["T3"], "T1": MODEL["T3"], "T2": MODEL["T0"]})
    params = opened(given.fd, given.rows, "numpy", owner_waits=True)
    came = _trainer._Came("key", params)
    assert came.name_of(params["T0"]) == "T0" and came.name_of(params["T2"].reshape(-1)) == "T2"
    assert [came.name_of(x) for x in (params["T2"][:1], params["T2"].view(np.int32), params["T2"].view(np.complex64), params["T1"])] == [None] * 4


def test_memory_that_came_later_at_the_same_address_is_another():
    given = sealed()
    params = opened(given.fd, given.rows, "numpy")
    came = _trainer._Came("key", params)
    assert came.name_of(params["T0"]) == "T0"
    at = types.SimpleNamespace(nbytes=48, __array_interface__=params["T0"].__array_interface__)
    del params
    assert came.name_of(at) is None


def test_gone():
    a, b = socket.socketpair()
    gone = Gone(a)
    assert not gone.is_set() and not gone.triggered
    b.close()
    assert gone.is_set() and gone.triggered
    a.close()
    assert gone.is_set()


FOLDER = _trainers.FOLDER


def python(tmp_path, program, **more):
    (tmp_path / "sitecustomize.py").write_text("print('the hidden one ran')\n")
    package = tmp_path / "nvflare" / "client" / "cell"
    package.mkdir(parents=True)
    for folder in (package, package.parent, package.parent.parent):
        (folder / "__init__.py").write_text("")
    (package / "api.py").write_text("print('api')\n")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([FOLDER, str(tmp_path)]), **more}
    return processes.run([sys.executable, "-u", "-c", program], stdout=-1, stderr=-2, text=True, env=env, check=True).stdout


TRAINER = {"TENSORPULL_NVFLARE_TRAINER": "nobody", "NVFLARE_CLIENT_API_BOOTSTRAP": "none"}


def test_what_a_trainer_imports_hides_no_other(tmp_path):
    said = python(tmp_path, "import sys; print(len(sys.meta_path), 'nvflare' in sys.modules, 'tensorpull' in sys.modules)")
    assert said.startswith("the hidden one ran") and said.endswith("False False\n")


def test_a_trainer_joins_when_it_has_flares_client(tmp_path):
    said = python(tmp_path, "import sys; print('tensorpull' in sys.modules); sys.modules['tensorpull'] = None; import nvflare.client.cell.api; print('goes on')", **TRAINER)
    lines = said.splitlines()
    assert lines[:3] == ["the hidden one ran", "False", "api"] and lines[-1] == "goes on"
    assert "models travel by FLARE's chunks in this trainer: ModuleNotFoundError" in said


def test_the_seam_is_there():
    """FLARE's names that nothing else here would miss."""
    from importlib.util import find_spec

    from nvflare.app_common.executors.client_api.external_process_backend import add_custom_dir_to_path
    from nvflare.client.cell.bootstrap import BOOTSTRAP_FILE_ENV_VAR

    around = {}
    add_custom_dir_to_path("custom", around)
    assert around["PYTHONPATH"].split(os.pathsep) == [*sys.path, "custom"]
    assert BOOTSTRAP_FILE_ENV_VAR == "NVFLARE_CLIENT_API_BOOTSTRAP"
    assert all(find_spec(name) for name in (*_trainers._JOB_PROCESSES, "nvflare.client.cell.api"))


def test_the_seals_are_the_systems():
    assert _memory._SIZE == SHRINK | GROW and _memory._WRITE == WRITE and _memory._SEAL_SEAL == fcntl.F_SEAL_SEAL
    assert _memory._FUTURE_WRITE == getattr(fcntl, "F_SEAL_FUTURE_WRITE", 0x10)  # since Python 3.13
    assert (_memory._ADD_SEALS, _memory._GET_SEALS) == (fcntl.F_ADD_SEALS, fcntl.F_GET_SEALS)


def test_several_descriptors_are_taken_by_nobody(trainers):
    given = [sealed() for _ in range(3)]
    before = held_here()
    with connected_to(trainers) as connection:
        socket.send_fds(connection, [struct.pack("<I", 2) + b"{}"], [one.fd for one in given])
        assert receive(connection)[0]["is"] == "no"
    assert processes.eventually(lambda: held_here() == before)


def test_an_update_that_is_not_known_here_leaves_no_memory(trainers):
    """As of PyTorch's tensors, if the job process takes NumPy's arrays alone."""
    given = sealed()
    before = held_here()
    said = answer(trainers, {**send_word()[0], "dot": 10**9}, [given.fd])
    assert said["is"] == "no" and processes.eventually(lambda: held_here() == before)


def test_another_process_is_no_job_process(monkeypatch):
    path = list(sys.path)
    _trainers.wait_for_trainers()
    assert _trainers._here is None and sys.path == path and _trainers.VARIABLE not in os.environ


def test_a_job_process_without_such_sockets_goes_on(monkeypatch):
    """As in a service that may use the network alone: jobs without a trainer have no need of one."""
    path = list(sys.path)
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", types.SimpleNamespace(name=_trainers._JOB_PROCESSES[0]))
    monkeypatch.setattr(_trainers.socket, "socket", lambda *_: raises(errno.EAFNOSUPPORT))
    monkeypatch.setattr(_trainers, "_nobody", "")
    _trainers.wait_for_trainers()
    assert _trainers._here is None and sys.path == path and _trainers.VARIABLE not in os.environ and "not supported" in _trainers._nobody
