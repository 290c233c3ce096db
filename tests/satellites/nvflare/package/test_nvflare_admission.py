"""At most so many updates in the memory of FLARE's server at the same time."""

from __future__ import annotations

import gc
import logging
import threading
import time
import weakref

import numpy as np
import pytest
import processes
from flare_cell import Cell

pytest.importorskip("nvflare")

from nvflare.fuel.f3.streaming.download_service import ProduceRC  # noqa: E402

from tensorpull.nvflare import _pool, _process, _transfer, _admission  # noqa: E402
from tensorpull.nvflare.decomposers.array import OfferedArrays, PulledArrays  # noqa: E402

LARGE, SMALL = {"T0": 4 << 20, "T1": 1000}, {f"T{i}": 100_000 for i in range(5)}  # elements; FP32


@pytest.fixture
def server(monkeypatch):
    """With a bound of one."""
    cell = Cell("server.4d5f")
    monkeypatch.setattr(_admission, "let_go_at_once", True)
    real = _process.setting
    for module in (_process, _transfer):
        monkeypatch.setattr(module, "setting", lambda name, default: {"least_bytes": 0, "sign_of_life": 0.2, "updates": 1}.get(name, real(name, default)))
    yield cell
    place = _process.place_of(cell)
    if place._door is not None:
        place._door.close()


def classes(kind):
    if kind == "numpy":
        return OfferedArrays, PulledArrays
    pytest.importorskip("torch")
    from tensorpull.nvflare.decomposers.tensor import OfferedTensors, PulledTensors

    return OfferedTensors, PulledTensors


def update(kind, sizes, value):
    arrays = {name: np.full(n, value, np.float32) for name, n in sizes.items()}
    if kind == "numpy":
        return arrays
    torch = pytest.importorskip("torch")
    return {name: torch.from_numpy(a) for name, a in arrays.items()}


class Abort:
    triggered = False


def pull(server, site, kind, model, abort=None, change=lambda state: None, publishes="R1"):
    """FLARE's loop for one update: the way it took, and its tensors, to which nothing else refers then."""
    offered, pulled = classes(kind)
    a = offered(model, 1 << 20, Cell(f"{site}.4d5f"))
    a._flare_ref, a.num_receivers = publishes, 1
    b = pulled(None, {}).begin(server, f"{site}.4d5f", "R1", "torch" if kind == "torch" else "numpy", 60.0, False, abort)
    state = None
    try:
        while True:
            rc, data, new = a.produce(state, "server.4d5f")
            if rc != ProduceRC.OK:
                break
            change(new)
            state = b.consume("R1", new, data)
            if abort is not None and abort.triggered:
                return "aborted", None
        assert rc == ProduceRC.EOF
        b.download_completed("R1")
        return b.way, dict(b.result)
    finally:
        a.release()


class Round:
    """Sites that answer at the same time; `sums` gets each update, as FLARE's sum does, and what it leaves behind is what the job keeps."""

    def __init__(self, server, kind, sizes, sites, sums):
        self.held, self.most, self.ways, self.wrong = 0, 0, [], []
        self._lock = threading.Lock()
        threads = [processes.JoinedThread(target=self._one, args=(server, kind, sizes, number, sums)) for number in range(1, sites + 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)

    def _one(self, server, kind, sizes, number, sums):
        way, got = pull(server, f"site-{number}", kind, update(kind, sizes, number))
        with self._lock:
            self.held += 1
            self.most = max(self.most, self.held)
            self.ways.append(way)
            if not all((t == number).all() for t in got.values()):
                self.wrong.append(number)
        sums(got)
        with self._lock:
            self.held -= 1
        got.clear()  # from here on the next one may come


def reads(got):
    processes.be_slow(0.2)


@pytest.mark.parametrize("sizes", [LARGE, SMALL], ids=["large", "small"])
@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_the_memory_of_rounds_with_another_number_of_participants_is_the_same(server, kind, sizes):
    free = []
    for sites in (2, 4, 3, 4):
        this = Round(server, kind, sizes, sites, reads)
        assert this.most == 1 and this.ways == ["tensorpull"] * sites and not this.wrong
        free.append(_process.place_of(server).kept.free_bytes())
    assert free == [18 << 20 if sizes is LARGE else 0] * 4, "the memory of one update is kept for the next one"


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_without_a_bound_they_are_there_together(server, kind):
    _process.place_of(server).turns.most = 0
    together = threading.Barrier(4)
    this = Round(server, kind, LARGE, 4, lambda got: together.wait(60))
    assert this.ways == ["tensorpull"] * 4 and _process.place_of(server).kept.free_bytes() == 4 * 18 << 20


def test_two_at_a_time(server):
    _process.place_of(server).turns.most = 2
    together = threading.Barrier(2)
    this = Round(server, "numpy", LARGE, 4, lambda got: together.wait(60))
    assert this.most == 2 and _process.place_of(server).kept.free_bytes() == 2 * 18 << 20


def test_without_memory_the_one_that_flare_keeps_does_not_count(server, monkeypatch):
    monkeypatch.setattr(_admission, "let_go_at_once", False)
    last = pull(server, "site-9", "numpy", update("numpy", LARGE, 1))
    this = Round(server, "numpy", LARGE, 4, reads)
    assert last[0] == "tensorpull" and this.most == 1 and this.ways == ["tensorpull"] * 4


def test_a_view_keeps_the_turn(server):
    way, first = pull(server, "site-1", "torch", update("torch", LARGE, 1))
    assert way == "tensorpull"
    view = first["T0"][5:].reshape(-1)
    first.clear()
    came = threading.Event()
    other = processes.JoinedThread(target=lambda: (pull(server, "site-2", "numpy", update("numpy", LARGE, 2)), came.set()))
    other.start()
    assert not came.wait(1) and (view == 1).all()
    del view
    assert came.wait(30)
    other.join()


def test_arrays_and_tensors_of_one_update_do_not_wait_for_each_other(server):
    kept = [pull(server, "site-1", kind, update(kind, LARGE, 1)) for kind in ("numpy", "torch")]
    assert [way for way, _ in kept] == ["tensorpull"] * 2


def test_a_workflow_that_collects_all_gets_all(server, monkeypatch, caplog):
    monkeypatch.setattr(_admission, "PATIENCE", 0.5)
    collected = []
    with caplog.at_level(logging.WARNING):
        this = Round(server, "numpy", LARGE, 4, lambda got: collected.append(dict(got)))
    assert this.ways == ["tensorpull"] * 4 and len(collected) == 4 and caplog.text.count("this job collects them") == 1


def test_one_that_takes_long_is_not_one_that_collects(server, monkeypatch, caplog):
    """The time counts from the last change."""
    monkeypatch.setattr(_admission, "PATIENCE", 3.0)
    with caplog.at_level(logging.WARNING):
        this = Round(server, "numpy", LARGE, 4, lambda got: processes.be_slow(1.0))
    assert this.most == 1 and "collects" not in caplog.text and _process.place_of(server).turns.most == 1


def test_a_turn_of_two_pulls_has_landed_when_both_have(monkeypatch, caplog):
    """Otherwise another site's patience would run from the first of them, while the second still brings bytes."""
    monkeypatch.setattr(_admission, "let_go_at_once", True)
    monkeypatch.setattr(_admission, "PATIENCE", 0.3)
    turns = _admission.Turns(1, logging.getLogger("turns"))
    arrays, tensors = turns.take("site-1", lambda: False), turns.take("site-1", lambda: False)
    assert arrays is tensors
    turns.pull_ended(arrays)
    until = time.monotonic() + 1.0
    assert turns.take("site-2", lambda: time.monotonic() > until) is None and turns.most == 1
    turns.pull_ended(tensors)
    with caplog.at_level(logging.WARNING):
        assert turns.take("site-2", lambda: False) is None and turns.most == 0, "those that have landed and stay are collected"


def test_an_abort_ends_the_wait(server):
    way, first = pull(server, "site-1", "numpy", update("numpy", LARGE, 1))
    abort, ended = Abort(), []
    other = processes.JoinedThread(target=lambda: ended.append(pull(server, "site-2", "numpy", update("numpy", LARGE, 2), abort)[0]))
    other.start()
    processes.be_slow(0.5)
    assert not ended
    abort.triggered = True
    other.join(10)
    assert ended == ["aborted"]
    first.clear()
    assert pull(server, "site-3", "numpy", update("numpy", LARGE, 3))[0] == "tensorpull"


def test_a_site_has_no_turns():
    assert _process.place_of(Cell("site-9.4d5f")).turns.most == 0


def test_those_that_wait_have_their_turn_in_order(monkeypatch):
    monkeypatch.setattr(_admission, "let_go_at_once", True)
    turns = _admission.Turns(1, logging.getLogger("turns"))
    mine, order, threads = turns.take("a", lambda: False), [], []

    def wait(site):
        turn = turns.take(site, lambda: False)
        order.append(site)
        return turn

    for n, site in enumerate("bcd"):
        threads.append(processes.JoinedThread(target=wait, args=(site,)))
        threads[-1].start()
        assert processes.eventually(lambda: len(turns._waiting) > n)
    assert not order
    del mine
    for thread in threads:
        thread.join(30)
    assert order == ["b", "c", "d"]


def test_what_lasts_is_let_go_with_the_last_tensor():
    """Kept's own part of it, and the framework's for small ones."""
    kept, made, turn = _pool.Kept(1 << 30), {}, _admission.Turn()
    make = _pool.kept_maker(made, kept, "numpy", turn)
    make("a", "F32", (2 << 20,))
    make("b", "F32", (10,))
    there = weakref.ref(turn)
    del turn, make
    made.pop("a")
    assert there() is not None
    made.pop("b")
    assert there() is None


def test_a_pull_that_fails_keeps_no_memory(server):
    """All of it lands, and it is another model than FLARE's reference says. Without a collection of cycles the memory is free then, and the turn."""
    gc.collect()
    gc.disable()
    try:
        way, got = pull(server, "site-1", "numpy", update("numpy", LARGE, 1), publishes="R2")
        assert way == "FLARE's chunks" and (got["T0"] == 1).all()
        assert _process.place_of(server).kept.free_bytes() == 18 << 20
        assert pull(server, "site-2", "numpy", update("numpy", LARGE, 2))[0] == "tensorpull"
    finally:
        gc.enable()
