"""Both ends of FLARE's download in this process, without FLARE's processes: what is offered, pulled, refused, and what FLARE's chunks carry."""

from __future__ import annotations

import logging
import os
import threading
import weakref

import numpy as np
import processes
import pytest
from flare_cell import Cell, Silence

pytest.importorskip("nvflare")

from nvflare.fuel.f3.streaming.download_service import ProduceRC  # noqa: E402

import tensorpull  # noqa: E402
from tensorpull.nvflare import _pool, _models, _process, _transfer  # noqa: E402
from tensorpull.nvflare._offer import KEY  # noqa: E402
from tensorpull.nvflare.decomposers.array import ArrayDecomposer, OfferedArrays, PulledArrays  # noqa: E402


@pytest.fixture(scope="module")
def cells():
    made = Cell("server.4d5f"), Cell("site-1.4d5f")
    yield made
    for cell in made:
        place = _process.place_of(cell)
        for door in (place._owner, place._door):
            if door is not None:
                door.close()


def offer_from(monkeypatch, nbytes):
    """FLARE's configuration remembers what it once answered, so the environment of a test comes too late."""
    monkeypatch.setattr(_transfer, "setting", lambda name, default: nbytes if name == "least_bytes" else _process.setting(name, default))


@pytest.fixture(autouse=True)
def small_models_are_offered(monkeypatch):
    offer_from(monkeypatch, 0)


def transfer(offered, pulled, requester, change=lambda state: None):
    """FLARE's loop, as its two processes run it. The states that were sent, and the way it took."""
    state, states = None, []
    for _ in range(10_000):
        rc, data, new = offered.produce(state, requester)
        if rc != ProduceRC.OK:
            break
        change(new)
        states.append(new)
        state = pulled.consume("R1", new, data)
        states.append(state)
    assert rc == ProduceRC.EOF
    pulled.download_completed("R1")
    return states


def is_array(tensor):
    return isinstance(tensor, np.ndarray)


def of(kind, model):
    """Arrays, or torch's tensors, of these numbers."""
    if kind == "numpy":
        return {name: array.copy() for name, array in model.items()}
    torch = pytest.importorskip("torch")
    return {name: torch.from_numpy(array.copy()) for name, array in model.items()}


def same(got, model):
    return got.keys() == model.keys() and all(type(got[n]) is type(v) and got[n].dtype == v.dtype and got[n].shape == v.shape and (got[n] == v).all() for n, v in model.items())


def address(tensor):
    return tensor.__array_interface__["data"][0] if is_array(tensor) else tensor.data_ptr()


def ends(cells, model, back, ref="R1"):
    source, target = (cells[1], cells[0]) if back else cells
    offered, pulled, framework = OfferedArrays, PulledArrays, "numpy"
    if not any(map(is_array, model.values())):
        from tensorpull.nvflare.decomposers.tensor import OfferedTensors, PulledTensors

        offered, pulled, framework = OfferedTensors, PulledTensors, "torch"
    a = offered(model, 1 << 20, source)
    a._flare_ref = "R1"
    a.num_receivers = 1
    b = pulled(None, {}).begin(target, source.get_fqcn(), ref, framework, 60.0, False, None)
    return a, b, target.get_fqcn()


MODEL = {"T0": np.arange(300_000, dtype=np.float32), "T1": np.ones((3, 4)), "T2": np.zeros((0, 2), np.int64)}


@pytest.mark.parametrize("back", [False, True])
def test_arrays_travel_both_ways(cells, back):
    a, b, who = ends(cells, MODEL, back)
    states = transfer(a, b, who)
    assert b.way == "tensorpull" and b.bytes >= 1_200_000
    assert b.result.keys() == MODEL.keys() and all(np.array_equal(b.result[k], v) and b.result[k].dtype == v.dtype for k, v in MODEL.items())
    assert all(KEY in s for s in states if s)
    a.release()
    assert a.base_obj is None


@pytest.mark.parametrize("kind", ["numpy", "torch"])
@pytest.mark.parametrize("back", [False, True])
def test_tensors_that_share_memory_arrive_apart(cells, back, kind):
    weight = np.arange(12, dtype=np.float32).reshape(3, 4)
    model = {"T0": weight, "T1": weight[:], "T2": weight[1:]}
    if kind == "torch":
        import torch

        weight = torch.nn.Parameter(torch.from_numpy(weight))
        model = {"T0": weight, "T1": weight.detach(), "T2": weight.detach()[1:]}
    a, b, who = ends(cells, model, back)
    transfer(a, b, who)
    assert b.way == "tensorpull"
    b.result["T0"] += 1
    assert (b.result["T1"] == model["T1"]).all() and (b.result["T2"] == model["T2"]).all()
    a.release()


LIES = [{"v": 1}, {"bytes": 2**60}, {"bytes": 8}, {"bytes": -1}, {"bytes": True}, {"job": "other"}, {"site": "site-2.4d5f"}, {"is": "nonsense"}, {"more": 1}]


@pytest.mark.parametrize("kind", ["numpy", "torch"])
@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize("lie", LIES, ids=str)
def test_a_lie_ends_in_flares_chunks(cells, back, lie, kind):
    model = of(kind, MODEL)
    a, b, who = ends(cells, model, back)
    told = []

    def change(state):
        if not told and KEY in state:
            told.append(True)
            state[KEY].update(lie)

    transfer(a, b, who, change)
    assert b.way != "tensorpull" and same(b.result, model)
    a.release()


@pytest.mark.parametrize("back", [False, True])
def test_another_model_than_flares_reference_says_is_not_taken(cells, back):
    a, b, who = ends(cells, MODEL, back, ref="R2")
    transfer(a, b, who)
    assert b.way != "tensorpull" and b.result.keys() == MODEL.keys()
    a.release()


def test_what_cannot_be_published_goes_by_flares_chunks(cells):
    model = {"T0": np.array(["text", "more"]), "T1": np.ones(3)}
    a, b, who = ends(cells, model, False)
    transfer(a, b, who)
    assert b.way != "tensorpull" and np.array_equal(b.result["T0"], model["T0"])
    a.release()


def test_a_peer_that_gives_the_offer_back_gets_flares_chunks(cells):
    from nvflare.app_common.np.np_downloader import ArrayConsumer

    a, _, who = ends(cells, MODEL, False)
    stock = ArrayConsumer(None, {})
    transfer(a, stock, who)
    assert stock.result.keys() == MODEL.keys()
    a.release()


def test_switched_off(cells, monkeypatch):
    monkeypatch.setattr(_process, "setting", lambda name, default: False if name == "enabled" else default)
    a, b, who = ends(cells, MODEL, False)
    transfer(a, b, who)
    assert b.way != "tensorpull" and b.result.keys() == MODEL.keys()


def test_a_small_model_is_not_offered(cells, monkeypatch):
    offer_from(monkeypatch, sum(a.nbytes for a in MODEL.values()) + 1)
    for back in (False, True):
        a, b, who = ends(cells, MODEL, back)
        states = transfer(a, b, who)
        assert not any(KEY in s for s in states) and np.array_equal(b.result["T0"], MODEL["T0"])
        a.release()


@pytest.fixture
def published(cells, monkeypatch):
    """The versions that publications of the server were given; None: it was computed."""
    owner, given = _process.place_of(cells[0]).owner()[0], []
    add = owner.add_tensors

    def noted(*args, version=None, **more):
        given.append(version)
        return add(*args, version=version, **more)

    monkeypatch.setattr(owner, "add_tensors", noted)
    yield given
    assert not any(model.users or model.held for model in _process.place_of(cells[0]).models._known.values())


@pytest.fixture(params=["numpy", "torch"])
def kind(request):
    return request.param


BIG = {"T0": np.arange(100_000, dtype=np.float32), "T1": np.ones((3, 4), np.float32)}


def test_sites_of_one_task_share_a_digest_and_have_references_of_their_own(cells, published, kind):
    model = of(kind, BIG)
    pairs = [ends(cells, dict(model), False) for _ in range(3)]
    for a, b, who in pairs:
        transfer(a, b, who)
        assert b.way == "tensorpull" and same(b.result, model)
    first, second, third = (a._published[0] for a, _, _ in pairs)
    assert len({str(first), str(second), str(third)}) == 3
    assert published == [None, first.version, first.version]
    pairs[0][0].release()  # the others stay
    b = ends(cells, model, False)[1]
    transfer(pairs[1][0], b, pairs[1][2])
    assert b.way == "tensorpull" and same(b.result, model)
    for a, _, _ in pairs[1:]:
        a.release()
    a, b, who = ends(cells, model, False)  # a site that comes when the others have gone
    transfer(a, b, who)
    assert published == [None] + 3 * [first.version] and b.way == "tensorpull" and same(b.result, model)
    a.release()


@pytest.mark.parametrize("meanwhile", ["published", "gone"])
def test_a_model_that_was_changed_between_two_tasks_is_another_one(cells, published, kind, meanwhile):
    model = of(kind, BIG)
    first, _, _ = pair = ends(cells, model, False)
    transfer(*pair)
    if meanwhile == "gone":
        first.release()
    model["T0"] += 1
    a, b, who = ends(cells, model, False)
    transfer(a, b, who)
    assert published == [None, None]
    assert b.way == "tensorpull" and same(b.result, model)
    if meanwhile == "published":
        first.release()
    a.release()


def test_what_is_remembered_of_models_is_bounded_and_keeps_none_of_them(cells, published, kind):
    models = _process.place_of(cells[0]).models
    there = [of(kind, BIG) for _ in range(2 * _models.IDLE)]
    for model in there:
        a, b, who = ends(cells, dict(model), False)
        transfer(a, b, who)
        a.release()
    assert len(models._known) == _models.IDLE + 1  # the newest had a user when the others were counted
    gone = [weakref.ref(model["T0"]) for model in there]
    del model, a
    there.clear()
    assert not any(one() for one in gone if one() is not None)
    model = of(kind, {"T0": np.zeros(5)})
    given = models.take(model)
    assert list(models._known.values()) == [given]  # the numbers of the others may be somebody else's
    models.give_back(given)


def test_a_change_that_nothing_counts_is_noticed_by_the_digest(cells, published, kind):
    model = of(kind, BIG)
    first, _, _ = pair = ends(cells, model, False)
    transfer(*pair)
    (model["T0"] if kind == "numpy" else model["T0"].numpy())[5] = 7
    a, b, who = ends(cells, model, False)
    transfer(a, b, who)
    assert published[1] is not None
    assert b.way != "tensorpull" and same(b.result, model)
    again, b, who = ends(cells, model, False)  # once somebody has said so, it is read anew
    transfer(again, b, who)
    assert published[2] is None and b.way == "tensorpull" and same(b.result, model)
    for one in (first, a, again):
        one.release()


def test_a_model_that_changes_while_it_is_pulled_is_not_taken(cells, monkeypatch, kind):
    model = of(kind, {"T0": np.zeros(3_000_000, np.float32)})
    a, b, who = ends(cells, model, False)
    land = b.land

    def changed(*args, **how):
        model["T0"][2_999_999] = 1  # after the digest, and before the bytes leave
        return land(*args, **how)

    monkeypatch.setattr(b, "land", changed)
    transfer(a, b, who)
    assert b.way != "tensorpull" and same(b.result, model)
    a.release()


def test_a_round_lands_in_the_memory_of_the_last_one_and_never_in_what_is_used(cells, kind):
    place, seen, held = _process.place_of(cells[1]), set(), []
    model = of(kind, {"T0": np.arange(2_000_000, dtype=np.float32), "T1": np.arange(3_000_000) % 7 == 0, "T2": np.ones(3_000_000, np.float16)})
    for task in range(6):
        model["T0"] += 1
        a, b, who = ends(cells, model, False)
        transfer(a, b, who)
        assert b.way == "tensorpull" and same(b.result, model)
        addresses = {address(t) for t in b.result.values() if t.nbytes >= 4 << 20}  # a smaller one's memory is the framework's
        assert len(addresses) == 2
        assert task < 3 or addresses <= seen
        if task < 2:
            held.append((model["T0"] + 0, b.result["T0"][1:].reshape(-1)))  # a view keeps the memory, too
        seen |= addresses
        assert all((then[1:] == now).all() for then, now in held)
        a.release()
        del b
    assert 0 < place.kept.free_bytes() <= place.kept.most


def test_kept_memory_has_a_limit():
    kept = _pool.Kept(20 << 20)
    arrays = [kept.take(6 << 20) for _ in range(5)]
    assert kept.free_bytes() == 0 and all(a.ctypes.data % (2 << 20) == 0 for a in arrays)
    arrays.clear()
    assert 0 < kept.free_bytes() <= 20 << 20


def resident():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_prepared_memory_is_there_before_the_first_model_and_the_rest_goes_back(cells, kind, monkeypatch):
    first_use = ends(cells, of(kind, {"T0": np.ones(1_000_000, np.float32)}), True)
    transfer(*first_use)  # so that what is imported for it is there before
    first_use[0].release()
    before = resident()
    prepared = _pool.Prepared(256 << 20)
    monkeypatch.setattr(_pool, "_prepared", prepared)
    for cell in cells:
        monkeypatch.setattr(_process.place_of(cell), "kept", _pool.Kept(1 << 30))
    prepared._thread.join(60)
    assert resident() - before > 250 << 20
    first = np.frombuffer(prepared._memory, np.uint8).ctypes.data
    a, b, who = ends(cells, of(kind, {"T0": np.arange(4_000_000, dtype=np.float32), "T1": np.ones(9_000_000, np.uint8)}), True)
    transfer(a, b, who)
    assert b.way == "tensorpull" and all(first <= address(t) < first + (256 << 20) for t in b.result.values())
    assert resident() - before < 128 << 20, "what the first model did not need went back"
    landed = {name: t + 0 for name, t in b.result.items()}
    a.release()
    b2 = ends(cells, of(kind, {"T0": np.zeros(5_000_000, np.float32)}), True)
    transfer(*b2)
    assert b2[1].way == "tensorpull" and not first <= address(b2[1].result["T0"]) < first + (256 << 20), "later ones are not cut from it"
    assert same(b.result, landed)
    b2[0].release()


def test_memory_that_is_cut_while_it_is_cleared_keeps_what_is_written(monkeypatch):
    for _ in range(5):
        prepared = _pool.Prepared(96 << 20)
        monkeypatch.setattr(_pool, "_prepared", prepared)
        kept = _pool.Kept(256 << 20)
        arrays = [kept.take(4 << 20) for _ in range(14)]
        for i, array in enumerate(arrays):
            array[:] = i + 1
        prepared._thread.join(60)
        assert all((array == i + 1).all() for i, array in enumerate(arrays))
        begins = sorted(array.ctypes.data for array in arrays)
        assert all(b - a >= 4 << 20 for a, b in zip(begins, begins[1:]))
        assert prepared.cut(96 << 20) is None
        prepared.end()
        assert prepared.cut(1) is None
        assert all((array == i + 1).all() for i, array in enumerate(arrays)), "the rest that goes back is nobody's"


def test_prepared_memory_that_is_one_block_goes_back_when_nobody_uses_it(monkeypatch):
    before = resident()
    prepared = _pool.Prepared(256 << 20)
    monkeypatch.setattr(_pool, "_prepared", prepared)
    kept = _pool.Kept(256 << 20)  # with its margin the block is above that
    array = kept.take(256 << 20)
    array[:] = 1
    prepared.end()
    assert resident() - before > 250 << 20
    del array
    assert kept.free_bytes() == 0 and resident() - before < 64 << 20


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork() here")
def test_a_child_of_fork_does_not_wait_for_the_thread_that_clears(monkeypatch):
    prepared = _pool.Prepared(8 << 20)
    prepared._thread.join(60)
    monkeypatch.setattr(_pool, "_prepared", prepared)
    with prepared._lock:  # as the thread holds it while it clears
        child = os.fork()
        if child == 0:
            free = _pool._prepared is None or _pool._prepared._lock.acquire(False)
            os._exit(0 if free else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_memory_is_prepared_once_and_only_if_it_is_asked_for(monkeypatch):
    monkeypatch.setattr(_pool, "_prepared", None)
    _pool.prepare(0)
    _pool.prepare(-1)
    assert _pool._prepared is None
    _pool.prepare(8 << 20)
    once = _pool._prepared
    _pool.prepare(16 << 20)
    assert once is not None and _pool._prepared is once


def test_a_site_that_dies_in_mid_transfer_leaves_the_next_round_alone(cells, monkeypatch):
    a, b, who = ends(cells, MODEL, True)
    real = tensorpull.Session

    class Dying(real):
        def serve(self, *args, **more):
            raise RuntimeError("it died")  # the session is closed when this is raised, before a byte was sent

    monkeypatch.setattr(_transfer.tensorpull, "Session", Dying)
    transfer(a, b, who)
    assert b.way != "tensorpull" and np.array_equal(b.result["T0"], MODEL["T0"])
    a.release()
    monkeypatch.setattr(_transfer.tensorpull, "Session", real)
    assert not _process.place_of(cells[0]).door()._expected
    a, b, who = ends(cells, MODEL, True)
    transfer(a, b, who)
    assert b.way == "tensorpull" and np.array_equal(b.result["T0"], MODEL["T0"])
    a.release()


def test_a_recipient_that_dies_in_mid_transfer_leaves_the_next_round_alone(cells, published, kind):
    model = of(kind, {"T0": np.arange(3_000_000, dtype=np.float32)})
    a, b, who = ends(cells, model, False)
    rc, data, offered = a.produce(None, who)
    assert rc == ProduceRC.OK and KEY in offered
    b._stop.set()  # what it has begun ends in the middle, and nothing more is heard of it
    b.consume("R1", offered, data)
    b._thread.join(60)
    assert not b._thread.is_alive() and b._got is None
    owner = _process.place_of(cells[0]).owner()[0]
    gone = a._published[0]
    a.release()  # FLARE's budget ran out
    assert owner.settled(gone)
    a, b, who = ends(cells, model, False)
    transfer(a, b, who)
    assert b.way == "tensorpull" and same(b.result, model)
    a.release()


def test_another_sites_offer_is_refused(cells):
    a, b, who = ends(cells, MODEL, False)
    offered = a.produce(None, "site-2.4d5f")[2]
    assert offered[KEY]["site"] == "site-2.4d5f"
    states = []
    a.produce, produce = lambda state, requester: states.append(state) or (produce(state, requester) if state else ("ok", [], offered)), a.produce
    transfer(a, b, who)
    assert b.way != "tensorpull" and np.array_equal(b.result["T0"], MODEL["T0"])
    a.release()


ODD = {
    "0-d": np.array(7.5, np.float32),
    "0-d bool": np.array(True),
    "empty": np.zeros((0, 3), np.float16),
    "strided": np.arange(60, dtype=np.int32).reshape(6, 10)[::2, 1::3],
    "backwards": np.arange(6, dtype=np.int64)[::-1],
    "broadcast": np.broadcast_to(np.float32(3), (4, 5)),
    "fortran": np.asfortranarray(np.arange(12, dtype=np.float64).reshape(3, 4)),
    "bool": np.arange(9) % 2 == 0,
    **{d: np.arange(5).astype(d) for d in ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64", "complex64")},
}
ODD["read-only"] = np.arange(4, dtype=np.float32)
ODD["read-only"].flags.writeable = False


@pytest.mark.parametrize("back", [False, True])
def test_an_array_arrives_as_flares_chunks_bring_it(cells, back):
    from nvflare.app_common.np.np_downloader import ArrayConsumer, ArrayDownloadable

    model = {f"T{i}": array for i, array in enumerate(ODD.values())}
    model["T99"] = model["T0"]
    model = {f"T{i}": array for i, array in enumerate(model.values())}  # one of them twice
    a, b, who = ends(cells, model, back)
    transfer(a, b, who)
    assert b.way == "tensorpull"
    stock_owner, stock = ArrayDownloadable(model, 1 << 20), ArrayConsumer(None, {})
    stock_owner.num_receivers = 1
    transfer(stock_owner, stock, who)
    for name, theirs in stock.result.items():
        ours = b.result[name]
        assert type(ours) is np.ndarray and ours.dtype == theirs.dtype and ours.shape == theirs.shape and ours.tobytes() == theirs.tobytes()
        assert ours.flags.writeable and theirs.flags.writeable and ours.flags.aligned
    a.release()


STRUCTURED = np.zeros(3, [("a", np.float32), ("b", np.int8)])


@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize(
    "odd",
    [np.arange(4, dtype=">f4"), STRUCTURED, np.array(["text", "more"]), np.array([b"x"]), np.ones(3, np.complex128), np.ones(3, np.longdouble), np.zeros(2, "M8[ns]"), "ml_dtypes"],
    ids=lambda odd: str(getattr(odd, "dtype", odd)),
)
def test_what_tensorpull_would_bring_differently_stays_with_flares_chunks(cells, back, odd, caplog):
    caplog.set_level(logging.INFO)
    if isinstance(odd, str):
        odd = np.ones(3, pytest.importorskip("ml_dtypes").bfloat16)
    model = {"T0": odd, "T1": np.ones(3)}
    a, b, who = ends(cells, model, back)
    states = transfer(a, b, who)
    assert b.way != "tensorpull" and b.result["T0"].tobytes() == odd.tobytes()
    assert "NumPy's arrays go to" in caplog.text and not any(KEY in s for s in states if s)
    a.release()


def test_an_array_of_objects_is_sent_by_nobody(cells):
    a, _, who = ends(cells, {"T0": np.array([{}], object), "T1": np.ones(3)}, False)
    with pytest.raises(ValueError):  # as FLARE's own
        a.produce(None, who)
    a.release()


def lying_owner(cells, monkeypatch, other, back):
    """What is offered is right, and what is published is `other`, with the word of the offer."""
    a, b, who = ends(cells, MODEL, back)
    place = _process.place_of(cells[0])
    owner, session = place.owner()[0], tensorpull.Session.add_tensors
    add = owner.add_tensors
    if back:
        monkeypatch.setattr(tensorpull.Session, "add_tensors", lambda self, tensors, **more: session(self, other, **more))
    else:
        monkeypatch.setattr(owner, "add_tensors", lambda tensors, **more: add(other, **{**more, "version": None}))
    transfer(a, b, who)
    a.release()
    return b


@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize(
    "other",
    [
        {"X0": MODEL["T0"]}, {"T0": MODEL["T0"], "T2": MODEL["T1"]}, {"T1": MODEL["T0"]}, {"T00": MODEL["T0"]}, {**MODEL, "../T3": MODEL["T1"]}, {"T0": "BF16"}, {"T0": "F8_E4M3"},
    ],
    ids=lambda other: str({n: getattr(v, "shape", v) for n, v in other.items()}),
)  # fmt: skip
def test_a_publication_whose_schema_is_no_model_of_flares_is_not_taken(cells, monkeypatch, back, other):
    torch = pytest.importorskip("torch")
    names = {"BF16": torch.bfloat16, "F8_E4M3": torch.float8_e4m3fn}
    other = {n: torch.ones(64, dtype=names[v]) if isinstance(v, str) else v for n, v in other.items()}
    b = lying_owner(cells, monkeypatch, other, back)
    assert b.way != "tensorpull" and same(b.result, MODEL)


@pytest.mark.parametrize("back", [False, True])
def test_a_publication_with_more_bytes_than_were_offered_is_not_taken(cells, monkeypatch, back):
    more = {**MODEL, "T3": np.zeros(2_000_000)}
    a, b, who = ends(cells, MODEL, back)
    if back:
        real = tensorpull.Session.add_tensors
        monkeypatch.setattr(tensorpull.Session, "add_tensors", lambda self, tensors, **how: real(self, more, **how))
        transfer(a, b, who)
    else:
        owner = _process.place_of(cells[0]).owner()[0]
        add = owner.add_tensors
        monkeypatch.setattr(owner, "add_tensors", lambda tensors, **how: add(more, **{**how, "version": None}))
        transfer(a, b, who, lambda state: KEY in state and "bytes" in state[KEY] and state[KEY].update(bytes=sum(t.nbytes for t in MODEL.values())))
    assert b.way != "tensorpull" and same(b.result, MODEL)
    a.release()


def test_a_peer_without_the_package_is_named_once(cells, caplog):
    from nvflare.app_common.np.np_downloader import ArrayConsumer

    _transfer._said.clear()
    for _ in range(3):
        a, _, who = ends(cells, MODEL, False)
        transfer(a, ArrayConsumer(None, {}), who)
        a.release()
    warned = [r.message for r in caplog.records if r.levelname == "WARNING" and "gave the offer back" in r.message]
    assert len(warned) == 1 and "NumPy's arrays go to site-1.4d5f by FLARE's chunks" in warned[0]


def test_a_peer_that_sends_without_an_offer_is_named_once_unless_it_is_small(cells, caplog, monkeypatch):
    _transfer._said.clear()
    decomposer = ArrayDecomposer()
    for nbytes, warned in ((2_000_000, 0), (1_000, 1), (1_000, 1)):
        offer_from(monkeypatch, nbytes)
        decomposer._warn_of_no_offer("server.4d5f", cells[1], MODEL)
        assert [r.message for r in caplog.records if r.levelname == "WARNING"] == warned * [
            "tensorpull: NumPy's arrays come from server.4d5f by FLARE's chunks: it offers nothing, so it has no tensorpull, or its log says why"
        ]
    decomposer._warn_of_no_offer("site-2.4d5f", cells[1], MODEL)
    assert "come from site-2.4d5f by FLARE's chunks: it offers nothing" in caplog.text
    decomposer._warn_of_no_offer("site-2.other", cells[1], MODEL)
    assert "come from site-2.other by FLARE's chunks: neither end is a FLARE server" in caplog.text


def cut_into(monkeypatch, chunk):
    """FLARE's setting at whoever owns a model."""
    real = OfferedArrays.__init__
    monkeypatch.setattr(OfferedArrays, "__init__", lambda self, items, _, cell: real(self, items, chunk, cell))


@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize("chunk, chunks", [(65_536, 19), (300_000, 5), (1 << 30, 1), (1, 294)])
def test_chunks_are_as_long_as_flares_setting_at_the_owner_says(cells, monkeypatch, back, chunk, chunks):
    cut_into(monkeypatch, chunk)
    a, b, who = ends(cells, of("numpy", MODEL), back)
    transfer(a, b, who)
    assert b.way == "tensorpull" and b.chunks == chunks, b.bytes
    a.release()


@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize("kind, name", [("numpy", "np_download_chunk_size"), ("torch", "tensor_download_chunk_size")])
def test_where_flares_downloads_are_switched_off_nothing_is_pulled(cells, monkeypatch, caplog, back, kind, name):
    monkeypatch.setattr(_transfer, "flares_setting", lambda asked: 0 if asked == name else None)
    model = of(kind, MODEL)
    a, b, who = ends(cells, model, back)
    transfer(a, b, who)
    assert b.way == "FLARE's chunks" and same(b.result, model) and not caplog.text
    a.release()
    other = of("torch" if kind == "numpy" else "numpy", MODEL)
    a, b, who = ends(cells, other, back)
    transfer(a, b, who)
    assert b.way == "tensorpull", "each kind has a setting of its own"
    a.release()


@pytest.mark.parametrize(
    "kind, told, settings, seconds",
    [
        ("numpy", 600.0, {}, 30.0), ("torch", 600.0, {}, 30.0), ("torch", 45.0, {}, 45.0), ("numpy", 7.0, {}, 7.0), ("numpy", None, {}, 30.0),
        ("torch", 600.0, {"streaming_per_request_timeout": 900.0}, 900.0), ("torch", 600.0, {"streaming_per_request_timeout": 600.0}, 600.0),
        ("torch", 120.0, {"streaming_per_request_timeout": 900.0}, 120.0),
        ("numpy", 600.0, {"streaming_per_request_timeout": 0.0}, 30.0), ("numpy", 600.0, {"streaming_per_request_timeout": -1.0}, 30.0),
    ],
)  # fmt: skip
def test_the_time_without_progress_is_what_flares_setting_says(cells, monkeypatch, kind, told, settings, seconds):
    monkeypatch.setattr(_transfer, "flares_setting", settings.get)
    assert _transfer.patience(told) == seconds
    heard = []
    a, b, who = ends(cells, of(kind, MODEL), False)
    b._timeout, real = told, b.land
    b.land = lambda *given, **how: (heard.append(how["per_request_timeout"]), real(*given, **how))[1]
    transfer(a, b, who)
    assert heard == [seconds] and b.way == "tensorpull"
    a.release()


@pytest.fixture
def silence(monkeypatch):
    """`setting` says half a second for what is 5 s otherwise."""
    said = {"connect_timeout": 0.5, "least_bytes": 0}
    for module in (_transfer, _process):
        real = module.setting
        monkeypatch.setattr(module, "setting", lambda name, default, real=real: said.get(name, real(name, default)))
    made = Silence()
    yield made
    made.close()


@pytest.mark.parametrize("back", [False, True])
def test_a_firewalls_silence_is_noticed_and_remembered(cells, monkeypatch, caplog, silence, back):
    server = _process.place_of(cells[0])
    owner, door = server.owner()[0], server.door()
    monkeypatch.setattr(server, "owner", lambda: (owner, f"tcp://*:{silence.port}"))
    monkeypatch.setattr(door, "address", f"tcp://*:{silence.port}")
    tried, real = [], {name: getattr(place, name) for place, name in ((_process.socket, "create_connection"), (tensorpull, "Session"))}
    monkeypatch.setattr(_process.socket, "create_connection", lambda *given, **how: (tried.append(how["timeout"]), real["create_connection"](*given, **how))[1])
    monkeypatch.setattr(tensorpull, "Session", lambda *given, **how: (tried.append(how["timeout"]), real["Session"](*given, **how))[1])
    for _ in range(2):
        a, b, who = ends(cells, of("numpy", MODEL), back)
        transfer(a, b, who)
        assert b.way == "FLARE's chunks" and same(b.result, MODEL)
        a.release()
    assert tried == [0.5], "the second transfer does not wait again"
    assert f"127.0.0.1:{silence.port}" in caplog.text or f"localhost:{silence.port}" in caplog.text
    _process.place_of(cells[1])._failed.clear()


def test_so_long_is_waited_for_a_connection():
    assert _process.setting("connect_timeout", _process.CONNECT_TIMEOUT) == 5.0


def test_asking_for_flares_settings_changes_none_of_them(monkeypatch):
    from nvflare.fuel.utils import app_config_utils as acu

    monkeypatch.setattr(acu.ConfigService, "_var_values", {})
    assert _process.flares_setting("tensor_download_chunk_size") is None
    assert acu.get_int_var("tensor_download_chunk_size", 77) == 77
    assert _process.flares_setting("tensor_download_chunk_size") == 77, "it remembers its own default"


@pytest.mark.parametrize("name", ["np_download_chunk_size", "tensor_download_chunk_size"])
def test_a_chunk_size_that_is_asked_for_stays_a_whole_number_for_flare(monkeypatch, name):
    """FLARE remembers the first answer with its type, and takes no chunk size that is a float."""
    from nvflare.fuel.utils import app_config_utils as acu

    monkeypatch.setattr(acu.ConfigService, "_var_values", {})
    monkeypatch.setattr(acu.ConfigService, "_var_dict", {name: "65536"})
    assert _process.flares_setting(name) == 65536
    assert type(acu.get_int_var(name, 77)) is int and acu.get_int_var(name, 77) == 65536


def test_each_site_pulls_at_its_own_pace(cells):
    """One that has stopped half-way holds up no other."""
    model = of("numpy", MODEL)
    other = Cell("site-2.4d5f")
    slow, fast = threading.Event(), threading.Event()
    a, b, who = ends(cells, model, False)
    c, d = OfferedArrays(model, 1 << 20, cells[0]), PulledArrays(None, {}).begin(other, "server.4d5f", "R1", "numpy", 60.0, False, None)
    c._flare_ref, c.num_receivers = "R1", 1
    real = b.land

    def land(place, through, where, ref, **how):
        tensorpull.download_tensors(where[0], ref, progress=lambda p: (slow.set(), fast.wait(60)) if 0 < p.bytes_done else None, progress_interval=0, chunk_size=65_536)
        return real(place, through, where, ref, **how)

    b.land = land
    first = processes.JoinedThread(target=transfer, args=(a, b, who))
    first.start()
    assert slow.wait(60)
    transfer(c, d, "site-2.4d5f")
    assert d.way == "tensorpull" and not fast.is_set()
    fast.set()
    first.join()
    assert b.way == "tensorpull"
    for one in (a, c):
        one.release()


def test_flares_own_functions_are_left_alone(cells):
    """`add_tensors` and `download_tensors` of its guide make FLARE's own objects, also where this package is registered."""
    from nvflare.app_opt.pt.tensor_downloader import TensorDownloadable, add_tensors
    from nvflare.app_common.np.np_downloader import ArrayDownloadable, add_arrays

    from tensorpull.nvflare.decomposers.tensor import TensorDecomposer

    TensorDecomposer()
    made = []

    class Downloader:
        def add_object(self, obj, *more, **how):
            made.append(obj)
            return "R1"

    add_tensors(Downloader(), of("torch", MODEL), 1 << 20)
    add_arrays(Downloader(), of("numpy", MODEL), 1 << 20)
    assert [type(one) for one in made] == [TensorDownloadable, ArrayDownloadable]


def two_free_ports():
    """A number that is free, and so is the next one."""
    while True:
        with tensorpull.Listener("127.0.0.1:0") as one:
            try:
                with tensorpull.Listener(f"127.0.0.1:{one.port + 1}"):
                    return one.port
            except (tensorpull.Error, OverflowError):
                pass


def test_a_jobs_ports_are_two_of_those_that_a_firewall_lets_in(monkeypatch):
    first = two_free_ports()
    real = _process.setting
    monkeypatch.setattr(_process, "setting", lambda name, default: f"{first}-{first + 1}" if name == "ports" else real(name, default))
    one, other = (_process.Place(Cell(f"server.{job}")) for job in ("j1", "j2"))
    owner, door = one.owner()[0], one.door()
    try:
        assert {owner.port, int(door.address.rpartition(":")[2])} == {first, first + 1}
        with pytest.raises(_process.Refuge, match="no port to listen on"):
            other.owner()
    finally:
        owner.close()
        door.close()
