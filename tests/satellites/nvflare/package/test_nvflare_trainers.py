"""What a site's job process and its trainer give each other: sealed memory, over a socket of this user's. Each of them is hostile until it was checked."""

from __future__ import annotations

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
from tensorpull.nvflare._memory import Gone, Room, land_in_room, opened, receive  # noqa: E402
from tensorpull.nvflare._offer import Refused  # noqa: E402
from tensorpull.nvflare.decomposers.array import ArrayDecomposer  # noqa: E402

MODEL = {"T0": np.arange(12, dtype=np.float32).reshape(3, 4), "T1": np.zeros((0, 3), np.int64), "T2": np.array(7.5), "T3": np.arange(300_000, dtype=np.int16)}


def sealed(tensors=MODEL, framework="numpy"):
    room = Room(framework)
    room.fill(tensors)
    return room.seal()


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


def unsealed(seals):
    fd = os.memfd_create("test", os.MFD_ALLOW_SEALING)
    os.write(fd, bytes(4096))
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


def of_holes():
    fd = os.memfd_create("test", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, 1 << 20)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _memory._SEALS)
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


def landed(tensors, most=None, **more):
    """Pulled into a room, and sealed."""
    room = Room("numpy")
    with tensorpull.Downloader("tcp://127.0.0.1:0").start() as owner:
        ref = owner.add_tensors(tensors, **more)
        got = land_in_room(
            room, ref.nbytes if most is None else most, tensorpull, (f"tcp://127.0.0.1:{owner.port}",), ref.id, per_request_timeout=processes.AMPLE, chunk_size=1 << 20, retries=1, max_bytes=1 << 30, abort=None
        )  # fmt: skip
    return room.seal(got)


def test_a_model_lands_in_memory_that_is_sealed_afterwards():
    given = landed(MODEL)
    assert same(opened(given.fd, given.rows, "numpy"), MODEL)
    with pytest.raises(OSError):
        os.pwrite(given.fd, b"x", 0)


def test_tied_tensors_land_once_and_arrive_apart():
    given = landed({"T0": MODEL["T3"], "T1": MODEL["T3"]})
    got = opened(given.fd, given.rows, "numpy")
    got["T0"][:] = 1
    assert os.fstat(given.fd).st_size == MODEL["T3"].nbytes and np.array_equal(got["T1"], MODEL["T3"])


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
    ({**BRING, "timeout": "x"}, "time-out"), ({**BRING, "timeout": -1}, "time-out"), ({**BRING, "timeout": True}, "time-out"), ({"is": "map", "key": "x"}, "no longer there"), ({"is": "send"}, "not known"),
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
    ({"trainer": "site-2.job.client_api_trainer_1"}, "not from this process's trainer"), ({"trainer": "site-1.job"}, "not from this process's trainer"), ({"to": "site-2.job"}, "not from this process's trainer"),
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
    """Descriptors of such memory that this process has."""
    found = 0
    for fd in os.listdir("/proc/self/fd"):
        try:
            found += "memfd:tensorpull" in os.readlink(f"/proc/self/fd/{fd}")
        except OSError:
            pass
    return found


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

    def fails_once(*a):
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
            consumer.room.fill(result)
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
    (error, said), made = brought(monkeypatch, "FLARE's chunks", MODEL, begin=errno.EPERM)
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


def test_a_part_of_what_came_and_other_bits_are_not_taken_for_it(brings):
    """And neither is what lies where a tied tensor lay, which has memory of its own."""
    given = landed({"T0": MODEL["T3"], "T1": MODEL["T3"], "T2": MODEL["T0"]})
    params = opened(given.fd, given.rows, "numpy")
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
    assert _memory._SEALS == SHRINK | GROW | WRITE and _memory._SEAL_SEAL == fcntl.F_SEAL_SEAL
    assert (_memory._ADD_SEALS, _memory._GET_SEALS) == (fcntl.F_ADD_SEALS, fcntl.F_GET_SEALS)


def test_several_descriptors_are_taken_by_nobody(trainers):
    given = [sealed() for _ in range(3)]
    before = held_here()
    with connected_to(trainers) as connection:
        socket.send_fds(connection, [struct.pack("<I", 2) + b"{}"], [one.fd for one in given])
        assert receive(connection)[0]["is"] == "no"
    assert processes.eventually(lambda: held_here() == before)


def test_an_update_that_is_not_known_here_leaves_no_memory(trainers):
    """As of PyTorch's tensors, where the job process takes NumPy's arrays alone."""
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
