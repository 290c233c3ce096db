"""Both ends of FLARE's download in this process, without FLARE's processes: what is offered, pulled, refused, and what FLARE's chunks carry."""

from __future__ import annotations

import types

import numpy as np
import pytest

pytest.importorskip("nvflare")

from nvflare.fuel.f3.streaming.download_service import ProduceRC  # noqa: E402

import tensorpull  # noqa: E402
from tensorpull.nvflare import _place, _transfer  # noqa: E402
from tensorpull.nvflare._offer import KEY  # noqa: E402
from tensorpull.nvflare.decomposers.array import OfferedArrays, PulledArrays  # noqa: E402


class Cell:
    def __init__(self, fqcn):
        self._fqcn = fqcn
        self.core_cell = types.SimpleNamespace(root_url="tcp://localhost:8002", secure=False, get_fobs_context=dict)

    def get_fqcn(self):
        return self._fqcn


@pytest.fixture(scope="module")
def cells():
    made = Cell("server.4d5f"), Cell("site-1.4d5f")
    yield made
    for cell in made:
        place = _place.place_of(cell)
        for door in (place._owner, place._door):
            if door is not None:
                door.close()


def offer_from(monkeypatch, nbytes):
    """FLARE's configuration remembers what it once answered, so the environment of a test comes too late."""
    monkeypatch.setattr(_transfer, "setting", lambda name, default: nbytes if name == "least_bytes" else _place.setting(name, default))


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


def ends(cells, model, back, offered=OfferedArrays, pulled=PulledArrays, framework="numpy", ref="R1"):
    source, target = (cells[1], cells[0]) if back else cells
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


@pytest.mark.parametrize("back", [False, True])
def test_tensors_that_share_memory_arrive_apart(cells, back):
    torch = pytest.importorskip("torch")
    from tensorpull.nvflare.decomposers.tensor import OfferedTensors, PulledTensors

    weight = torch.nn.Parameter(torch.arange(12.0).reshape(3, 4))
    a, b, who = ends(cells, {"T0": weight, "T1": weight.detach()}, back, OfferedTensors, PulledTensors, "torch")
    transfer(a, b, who)
    assert b.way == "tensorpull"
    b.result["T0"] += 1
    assert torch.equal(b.result["T1"], weight.detach())
    a.release()


@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize("lie", [{"v": 1}, {"bytes": 2**60}, {"job": "other"}, {"site": "site-2.4d5f"}, {"is": "nonsense"}])
def test_a_lie_ends_in_flares_chunks(cells, back, lie):
    a, b, who = ends(cells, MODEL, back)
    told = []

    def change(state):
        if not told and KEY in state:
            told.append(True)
            state[KEY].update(lie)

    transfer(a, b, who, change)
    assert b.way != "tensorpull" and all(np.array_equal(b.result[k], v) for k, v in MODEL.items())
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
    monkeypatch.setattr(_place, "setting", lambda name, default: False if name == "enabled" else default)
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
    owner, given = _place.place_of(cells[0]).owner()[0], []
    add = owner.add_tensors

    def noted(*args, version=None, **more):
        given.append(version)
        return add(*args, version=version, **more)

    monkeypatch.setattr(owner, "add_tensors", noted)
    yield given
    assert not _place.place_of(cells[0]).models._known


def torch_ends(cells, model, ref):
    from tensorpull.nvflare.decomposers.tensor import OfferedTensors, PulledTensors

    return ends(cells, model, False, OfferedTensors, PulledTensors, "torch", ref)


def test_sites_of_one_task_share_a_digest_and_have_references_of_their_own(cells, published):
    torch = pytest.importorskip("torch")
    model = {"T0": torch.arange(100_000.0), "T1": torch.ones(3, 4)}
    pairs = [torch_ends(cells, dict(model), "R1") for _ in range(3)]
    for a, b, who in pairs:
        transfer(a, b, who)
        assert b.way == "tensorpull" and all(torch.equal(b.result[k], v) for k, v in model.items())
    first, second, third = (a._published[0] for a, _, _ in pairs)
    assert len({str(first), str(second), str(third)}) == 3
    assert published == [None, first.version, first.version]
    pairs[0][0].release()  # the others stay
    b = torch_ends(cells, model, "R1")[1]
    transfer(pairs[1][0], b, pairs[1][2])
    assert b.way == "tensorpull" and torch.equal(b.result["T0"], model["T0"])
    for a, _, _ in pairs[1:]:
        a.release()


def test_a_model_that_was_changed_between_two_tasks_is_another_one(cells, published):
    torch = pytest.importorskip("torch")
    model = {"T0": torch.zeros(100_000)}
    first, _, _ = pair = torch_ends(cells, model, "R1")
    transfer(*pair)
    model["T0"] += 1
    a, b, who = torch_ends(cells, model, "R1")
    transfer(a, b, who)
    assert published == [None, None]
    assert b.way == "tensorpull" and torch.equal(b.result["T0"], model["T0"])
    first.release()
    a.release()


def test_a_change_that_torch_does_not_count_is_noticed_by_the_digest(cells, published):
    torch = pytest.importorskip("torch")
    model = {"T0": torch.zeros(100_000)}
    first, _, _ = pair = torch_ends(cells, model, "R1")
    transfer(*pair)
    model["T0"].numpy()[5] = 7
    a, b, who = torch_ends(cells, model, "R1")
    transfer(a, b, who)
    assert published[1] is not None
    assert b.way != "tensorpull" and torch.equal(b.result["T0"], model["T0"])
    first.release()
    a.release()


def test_a_model_that_changes_while_it_is_pulled_is_not_taken(cells, monkeypatch):
    torch = pytest.importorskip("torch")
    model = {"T0": torch.zeros(3_000_000)}
    a, b, who = torch_ends(cells, model, "R1")
    land = b.land

    def changed(*args, **how):
        model["T0"][2_999_999] = 1  # after the digest, and before the bytes leave
        return land(*args, **how)

    monkeypatch.setattr(b, "land", changed)
    transfer(a, b, who)
    assert b.way != "tensorpull" and torch.equal(b.result["T0"], model["T0"])
    a.release()


def test_a_round_lands_in_the_memory_of_the_last_one_and_never_in_what_is_used(cells):
    torch = pytest.importorskip("torch")
    place, seen, held = _place.place_of(cells[1]), set(), []
    model = {"T0": torch.arange(2_000_000.0), "T1": torch.arange(3_000_000) % 7 == 0, "T2": torch.ones(3_000_000, dtype=torch.bfloat16)}
    for task in range(6):
        model["T0"] += 1
        a, b, who = torch_ends(cells, model, "R1")
        transfer(a, b, who)
        assert b.way == "tensorpull" and all(torch.equal(b.result[k], v) and b.result[k].dtype == v.dtype for k, v in model.items())
        addresses = {t.data_ptr() for t in b.result.values() if t.nbytes >= 4 << 20}  # a smaller one's memory is torch's
        assert len(addresses) == 2
        assert task < 3 or addresses <= seen
        if task < 2:
            held.append((model["T0"].clone(), b.result["T0"][1:].view(-1)))  # a view keeps the memory, too
        seen |= addresses
        assert all(torch.equal(then[1:], now) for then, now in held)
        a.release()
        del b
    assert 0 < place.kept.free_bytes() <= place.kept.most


def test_kept_memory_has_a_limit():
    from tensorpull.nvflare._memory import Kept

    kept = Kept(20 << 20)
    arrays = [kept.take(6 << 20) for _ in range(5)]
    assert kept.free_bytes() == 0 and all(a.ctypes.data % (2 << 20) == 0 for a in arrays)
    arrays.clear()
    assert 0 < kept.free_bytes() <= 20 << 20


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
    assert not _place.place_of(cells[0]).door()._expected
    a, b, who = ends(cells, MODEL, True)
    transfer(a, b, who)
    assert b.way == "tensorpull" and np.array_equal(b.result["T0"], MODEL["T0"])
    a.release()


def test_a_recipient_that_dies_in_mid_transfer_leaves_the_next_round_alone(cells, published):
    torch = pytest.importorskip("torch")
    model = {"T0": torch.arange(3_000_000.0)}
    a, b, who = torch_ends(cells, model, "R1")
    rc, data, offered = a.produce(None, who)
    assert rc == ProduceRC.OK and KEY in offered
    b._stop.set()  # what it has begun ends in the middle, and nothing more is heard of it
    b.consume("R1", offered, data)
    b._thread.join(60)
    assert not b._thread.is_alive() and b._got is None
    owner = _place.place_of(cells[0]).owner()[0]
    gone = a._published[0]
    a.release()  # FLARE's budget ran out
    assert owner.settled(gone)
    a, b, who = torch_ends(cells, model, "R1")
    transfer(a, b, who)
    assert b.way == "tensorpull" and torch.equal(b.result["T0"], model["T0"])
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
