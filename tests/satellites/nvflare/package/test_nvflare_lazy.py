"""Updates that stay with their sites until FLARE's server asks for a tensor: what is counted, what is not, and that nothing of what is not is in a sum."""

from __future__ import annotations

import copy
import gc
import io
import threading

import pytest
import processes
import flare_cell

pytest.importorskip("nvflare")
torch = pytest.importorskip("torch")

import nvflare.fuel.utils.fobs as fobs  # noqa: E402
from nvflare.app_common.aggregators.weighted_aggregation_helper import WeightedAggregationHelper  # noqa: E402
from nvflare.app_opt.pt.decomposers import TensorDecomposer as FlaresDecomposer  # noqa: E402
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey, ReturnCode  # noqa: E402
from nvflare.fuel.f3.message import Message  # noqa: E402
from nvflare.fuel.f3.streaming.download_service import ProduceRC  # noqa: E402

import tensorpull  # noqa: E402
from tensorpull.nvflare import _pool, _lazy, _process, _transfer  # noqa: E402
from tensorpull.nvflare._offer import KEY  # noqa: E402
from tensorpull.nvflare.decomposers import tensor as ours  # noqa: E402


class Cell(flare_cell.Cell):
    """A server, or a site. The server's requests go to the offers in `sites`."""

    def __init__(self, fqcn):
        super().__init__(fqcn)
        self.sites, self.change, self.cancelled = {}, lambda state: None, []

    def get_fobs_context(self):
        return {}

    def register_request_cb(self, *_, **__):
        pass

    def fire_and_forget(self, targets, message, **_):
        if message.payload.get("cancel"):
            self.cancelled.append(targets)

    def send_request(self, target, request, **_):
        offered = self.sites.get(target)
        if offered is None:
            return Message({MessageHeaderKey.RETURN_CODE: ReturnCode.TARGET_UNREACHABLE}, None)
        rc, data, state = offered.produce(request.payload.get("state"), self._fqcn)
        if rc == ProduceRC.OK:
            self.change(state)
        return Message({MessageHeaderKey.RETURN_CODE: ReturnCode.OK}, {"status": rc, "data": data, "state": state, "cancel_capable": True})


@pytest.fixture(scope="module")
def server():
    cell = Cell("server.4d5f")
    yield cell
    place = _process.place_of(cell)
    for door in (place._owner, place._door):
        if door is not None:
            door.close()


Session = tensorpull.Session
SETTINGS = {"lazy": True, "least_bytes": 0, "sign_of_life": 0.2, "keep_bytes": 0}


@pytest.fixture(autouse=True)
def settings(monkeypatch, server):
    real = _process.setting
    for module in (_process, _transfer, ours):
        monkeypatch.setattr(module, "setting", lambda name, default: SETTINGS[name] if name in SETTINGS else real(name, default))
    server.sites.clear()
    server.cancelled.clear()
    server.change = lambda state: None
    yield
    until(lambda: not any(t.name == "tensorpull-later" for t in threading.enumerate()))


def until(what, seconds=30):
    end = threading.Event()
    for _ in range(int(seconds / 0.05)):
        gc.collect()
        if what():
            return
        end.wait(0.05)
    raise AssertionError("it does not come")


def calls_have_ended():
    until(lambda: not any(t.name == "tensorpull-call" for t in threading.enumerate()))


def model(n=3, factor=1.0):
    return {f"T{i}": torch.arange(i, 50_000 + i, dtype=torch.float32).reshape(2, -1) * factor for i in range(n)}


def publishes(server, site, tensors, publish=None):
    """A site with an update; `publish`: another one than it offers."""
    offered = ours.OfferedTensors(tensors, 1 << 16, Cell(f"{site}.4d5f"))
    offered._flare_ref, offered.num_receivers = "R1", 1
    server.sites[f"{site}.4d5f"] = offered
    return offered


def downloads(server, site):
    """What FLARE gets, and what recompose() makes of it."""
    error, items = ours.TensorDecomposer().download(f"{site}.4d5f", "R1", 60.0, server)
    assert not error, error
    return {name: items.make_lazy_ref(name) for name in [f"T{i}" for i in range(len(items))]} if hasattr(items, "make_lazy_ref") else dict(items)


def waits(params):
    return all(type(v) is _lazy.Awaited for v in params.values())


def is_of(params, tensors):
    return params.keys() == tensors.keys() and all(torch.equal(params[k], v) for k, v in tensors.items())


def average(*updates):
    helper = WeightedAggregationHelper()
    for i, update in enumerate(updates):
        helper.add(update, i + 1.0, f"site-{i + 1}", 0)
    return helper.get_result()


def test_an_update_is_pulled_when_it_is_asked_for_and_the_sum_is_the_same(server):
    updates = [model(factor=f) for f in (0.1, 0.7)]
    offers = [publishes(server, f"site-{i + 1}", dict(u)) for i, u in enumerate(updates)]
    params = [downloads(server, f"site-{i + 1}") for i in range(2)]
    assert all(map(waits, params))
    values = [p["T0"]._update._values for p in params]
    assert not any(v.there.is_set() for v in values)
    params[0]["T1"].materialize()
    assert values[0].there.is_set() and not values[1].there.is_set()
    assert is_of(average(*params), average(*updates))
    for offer in offers:
        offer.release()


def test_it_is_off_by_default_and_for_sites(server, monkeypatch):
    offer = publishes(server, "site-1", model())
    monkeypatch.setitem(SETTINGS, "lazy", False)
    assert not waits(downloads(server, "site-1"))
    monkeypatch.setitem(SETTINGS, "lazy", True)
    assert type(ours.TensorDecomposer().consumer(Cell("site-1.4d5f"), {})) is ours.PulledTensors
    offer.release()


def test_what_is_asked_for_twice_is_there_twice(server):
    tensors = model()
    offer = publishes(server, "site-1", dict(tensors))
    params = downloads(server, "site-1")
    for _ in range(2):
        assert {name: v.materialize() for name, v in params.items()}.keys() == tensors.keys() and is_of(params, tensors)
    assert params["T0"].materialize() is params["T0"].materialize() is params["T0"]._update.get("T0")
    offer.release()


def test_threads_that_ask_at_the_same_time_get_the_same(server):
    tensors, got = model(8), []
    offer = publishes(server, "site-1", dict(tensors))
    params = downloads(server, "site-1")
    threads = [processes.JoinedThread(target=lambda n=n: got.append(torch.equal(params[n].materialize(), tensors[n]))) for n in tensors]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert got == [True] * 8
    offer.release()


USES = {
    "arithmetic": lambda v: v * 2 - v,
    "numpy": lambda v: torch.from_numpy(v.numpy().copy()),
    "asarray": lambda v: torch.from_numpy(__import__("numpy").asarray(v).copy()),
    "as_tensor": lambda v: torch.as_tensor(v) + 0,
    "tensor": lambda v: v.detach().cpu().clone(),
    "stack": lambda v: torch.stack([v, v])[1],
    "out": lambda v: torch.add(v, 0, out=torch.empty(v.shape)),
    "copy_": lambda v: torch.empty(v.shape).copy_(v),
    "add_": lambda v: torch.zeros(v.shape).add_(v, alpha=1.0),
    "deepcopy": copy.deepcopy,
    "indexing": lambda v: torch.cat([v[:1], v[1:]]),
    "data": lambda v: v.data,
    "load_state_dict": lambda v: loaded(v),
    "save": lambda v: saved(v),
    "safetensors": lambda v: __import__("safetensors.torch").torch.load(__import__("safetensors.torch").torch.save({"v": v}))["v"],
    "fobs": lambda v: fobs.loads(fobs.dumps({"v": v}))["v"],
}


def loaded(v):
    module = torch.nn.Linear(v.shape[1], v.shape[0], bias=False)
    module.load_state_dict({"weight": v})
    return module.weight.detach()


def saved(v):
    file = io.BytesIO()
    torch.save({"v": v}, file)
    file.seek(0)
    return torch.load(file, weights_only=True)["v"]


@pytest.mark.parametrize("use", USES)
def test_what_needs_a_value_gets_it(server, use):
    fobs.register(FlaresDecomposer)
    tensors = model(1)
    offer = publishes(server, "site-1", dict(tensors))
    value = downloads(server, "site-1")["T0"]
    assert value.shape == (2, 25_000) and value.dtype == torch.float32 and value.nbytes == 200_000 and value.numel() == 50_000 and isinstance(value, torch.Tensor)
    assert not value._update._values.there.is_set()
    got = USES[use](value)
    assert type(got) is torch.Tensor and torch.equal(got, tensors["T0"])
    offer.release()


ODD = [torch.tensor(7.5), torch.zeros((0, 2), dtype=torch.int64), torch.arange(9) % 2 == 0, torch.ones(3, 4, dtype=torch.bfloat16), torch.arange(6, dtype=torch.uint8).reshape(2, 3)]


@pytest.mark.parametrize("chunks", [False, True])
def test_tensors_of_any_type_and_shape_wait(server, monkeypatch, chunks):
    """And the digest of what FLARE's chunks bring is right, also where some are tied."""
    tensors = {f"T{i}": t for i, t in enumerate(ODD + ODD[3:])}
    offer = publishes(server, "site-1", dict(tensors))
    if chunks:
        monkeypatch.setattr(_lazy.Pulling, "land", lambda *_, **__: (_ for _ in ()).throw(OSError("the connection is lost")))
    params = downloads(server, "site-1")
    assert waits(params) and [(v.dtype, v.shape) for v in params.values()] == [(t.dtype, t.shape) for t in tensors.values()]
    assert not params["T0"]._update._values.there.is_set() and is_of(params, tensors)
    offer.release()


def test_it_is_offered_again_as_the_tensor_that_it_is(server):
    tensors = model()
    offer = publishes(server, "site-1", dict(tensors))
    again = ours.TensorDecomposer().to_downloadable(downloads(server, "site-1"), 1 << 16, {"cell": server})
    assert all(type(t) is torch.Tensor for t in again.base_obj.values()) and is_of(again.base_obj, tensors)
    offer.release()


def test_a_filter_and_an_aggregator_of_ones_own_get_values(server):
    tensors = model()
    offer = publishes(server, "site-1", dict(tensors))
    params = downloads(server, "site-1")
    filtered = {name: v.clamp(max=100.0) for name, v in params.items()}
    assert is_of(filtered, {name: v.clamp(max=100.0) for name, v in tensors.items()})
    norms = [sum(float(v.norm()) for v in params.values()) for _ in range(2)]
    assert norms[0] == norms[1] == sum(float(v.norm()) for v in tensors.values())
    offer.release()


def session_that(monkeypatch, **methods):
    """What a site's session does instead."""
    monkeypatch.setattr(_transfer.tensorpull, "Session", type("Other", (Session,), methods))


def counts_nothing_of(server, params, why):
    """The other site's update is in the sum alone, also where the bad one has values that came in the message itself."""
    helper, good = WeightedAggregationHelper(), model(factor=0.5)
    helper.add(good, 2.0, "site-2", 0)
    before = {name: t.clone() for name, t in helper.total.items()}
    with pytest.raises(RuntimeError, match=why):
        helper.add({"in the message": 1.0, "array": good["T0"].numpy(), **params}, 3.0, "site-1", 0)
    assert helper.total.keys() == before.keys() and all(torch.equal(helper.total[k], v) for k, v in before.items())
    assert helper.counts == dict.fromkeys(before, 2.0) and helper.get_len() == 1
    with pytest.raises(RuntimeError, match=why):  # and not the second time
        params["T2"].materialize()
    assert is_of(helper.get_result(), good)


def test_an_owner_that_is_gone_with_flares_download_counts_for_nothing(server):
    offer = publishes(server, "site-1", model())
    params = downloads(server, "site-1")
    offer.release()
    del server.sites["site-1.4d5f"]
    calls_have_ended()
    counts_nothing_of(server, params, "nothing of it counts")


def test_an_owner_whose_connection_is_gone_goes_on_by_flares_chunks(server, monkeypatch, caplog):
    tensors, gone = model(), threading.Event()

    def serve(self, until=None, timeout=None):
        real = Session.serve(self, gone)
        self.close()
        return real

    session_that(monkeypatch, serve=serve)
    offer = publishes(server, "site-1", dict(tensors))
    params = downloads(server, "site-1")
    assert waits(params)
    gone.set()
    calls_have_ended()
    assert is_of(params, tensors) and "goes on with FLARE's chunks" in caplog.text
    offer.release()


def dies_half_way(monkeypatch):
    """The owner goes away when it has sent the header, and as much as a socket holds."""
    gone, maker = threading.Event(), _pool.kept_maker

    def dying(*given):
        make = maker(*given)

        def made(*tensor):
            if not gone.is_set():
                gone.set()
                threading.Event().wait(0.3)
            return make(*tensor)

        return made

    session_that(monkeypatch, serve=lambda self, until=None, timeout=None: Session.serve(self, lambda: gone.is_set() or until()))
    monkeypatch.setattr(_pool, "kept_maker", dying)


@pytest.mark.parametrize("chunks", [True, False])
def test_an_owner_that_goes_away_half_way(server, monkeypatch, caplog, chunks):
    """FLARE's chunks bring the whole, or nothing of it counts."""
    tensors = {f"T{i}": torch.randn(2_000_000) for i in range(6)}
    dies_half_way(monkeypatch)
    offer = publishes(server, "site-1", dict(tensors))
    params = downloads(server, "site-1")
    if not chunks:
        server.change = lambda state: server.sites.clear() if KEY not in state else None
        counts_nothing_of(server, params, "nothing of it counts")
    else:
        assert is_of(params, tensors)
    assert "goes on with FLARE's chunks" in caplog.text
    offer.release()


def test_flares_chunks_with_other_bytes_than_the_digest_count_for_nothing(server, monkeypatch):
    """The trainer has gone on in the same memory, and its connection is gone: nobody would notice."""
    tensors = model()
    offer = publishes(server, "site-1", tensors)
    params = downloads(server, "site-1")
    tensors["T2"][0, 5] += 1
    counts_nothing_of(server, params, "FLARE's chunks brought other bytes than the site's digest says")
    offer.release()


def test_tied_tensors_come_apart_also_by_flares_chunks(server, monkeypatch):
    tensors = model(2)
    tensors["T2"] = tensors["T0"]
    for _ in range(2):
        offer = publishes(server, "site-1", dict(tensors))
        params = downloads(server, "site-1")
        assert is_of(params, tensors) and params["T0"].data_ptr() != params["T2"].data_ptr()
        offer.release()
        monkeypatch.setattr(_lazy.Pulling, "land", lambda *_, **__: (_ for _ in ()).throw(OSError("the connection is lost")))


def lying(monkeypatch, other):
    real = Session.add_tensors
    session_that(monkeypatch, add_tensors=lambda self, tensors, **more: real(self, other, **more))


@pytest.mark.parametrize(
    "other",
    [{"X0": torch.ones(3)}, {"T0": torch.ones(3), "T2": torch.ones(3)}, {**model(), "T3": torch.zeros(2_000_000)}],
    ids=["other names", "a gap", "more bytes than were offered"],
)
def test_a_publication_that_is_not_what_was_offered_is_known_before_flare_hears_of_it(server, monkeypatch, caplog, other):
    tensors = model()
    lying(monkeypatch, other)
    offer = publishes(server, "site-1", dict(tensors))
    params = downloads(server, "site-1")
    assert not waits(params) and is_of(params, tensors) and "goes on with FLARE's chunks" in caplog.text
    offer.release()


def test_fewer_tensors_than_the_message_names_are_an_error_of_the_message(server, monkeypatch):
    lying(monkeypatch, {"T0": torch.ones(3)})
    offer = publishes(server, "site-1", model())
    _, items = ours.TensorDecomposer().download("site-1.4d5f", "R1", 60.0, server)
    assert "T0" in items and "T1" not in items and items.get("T1") is None  # FLARE: "FOBS download data is incomplete"
    offer.release()


def test_a_schema_that_is_another_one_than_what_is_pulled(server, monkeypatch, caplog):
    tensors = model()
    offer = publishes(server, "site-1", dict(tensors))
    real = tensorpull.Session.list_tensors

    def other(self, *given, **more):
        told = real(self, *given, **more)
        return told._replace(tensors={**told.tensors, "T0": told.tensors["T0"]._replace(shape=(50_000,))})

    monkeypatch.setattr(tensorpull.Session, "list_tensors", other)
    params = downloads(server, "site-1")
    assert params["T0"].shape == (50_000,)
    counts_nothing_of(server, params, "it told of other tensors than it has")
    offer.release()


def test_a_reference_without_a_digest_is_not_waited_for(server, monkeypatch):
    tensors = model()
    real = Session.send
    session_that(monkeypatch, send=lambda self, kind, body, refs, **more: real(self, kind, body, [r.id for r in refs], **more))
    offer = publishes(server, "site-1", dict(tensors))
    params = downloads(server, "site-1")
    assert not waits(params) and is_of(params, tensors)
    offer.release()


def test_an_update_that_nothing_refers_to_is_given_up(server):
    offer = publishes(server, "site-1", model())
    params = downloads(server, "site-1")
    assert waits(params) and not server.cancelled
    params.clear()
    until(lambda: server.cancelled == ["site-1.4d5f"])
    offer.release()


def test_an_update_that_nobody_asks_for_is_pulled_all_the_same(server, monkeypatch):
    monkeypatch.setattr(_lazy, "PATIENCE", 0.5)
    offer = publishes(server, "site-1", model())
    params = downloads(server, "site-1")
    until(lambda: params["T0"]._update._values.there.is_set())
    offer.release()
    server.sites.clear()
    assert is_of(params, model())


def test_an_abort_of_flares_ends_what_waits(server):
    from nvflare.apis.signal import Signal

    abort = Signal()
    offer = publishes(server, "site-1", model())
    _, items = ours.TensorDecomposer().download("site-1.4d5f", "R1", 60.0, server, abort_signal=abort)
    abort.trigger(True)
    with pytest.raises(RuntimeError, match="nothing of it counts"):
        items["T0"]
    offer.release()


def test_a_helper_of_another_flare_is_left_alone(server, monkeypatch):
    monkeypatch.setattr(WeightedAggregationHelper, "add", lambda self, data, weight: None)
    offer = publishes(server, "site-1", model())
    assert not waits(downloads(server, "site-1"))
    offer.release()
