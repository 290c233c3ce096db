"""Models of a FLARE job that travel as what has changed since the one before: who gets how much, that all of them get the same, and what the ends keep for it."""

from __future__ import annotations

import gc
import logging
import threading
import time
import weakref

import numpy as np
import pytest
from flare_cell import Cell
from processes import eventually

pytest.importorskip("nvflare")

from nvflare.fuel.f3.streaming.download_service import ProduceRC  # noqa: E402

import tensorpull  # noqa: E402
from tensorpull.nvflare import _changes, _offer, _process, _transfer  # noqa: E402
from tensorpull.nvflare._offer import KEY  # noqa: E402
from tensorpull.nvflare.decomposers.array import OfferedArrays, PulledArrays  # noqa: E402

ALL = 1_200_000  #: bytes of MODEL, about
MODEL = {"T0": np.arange(200_000, dtype=np.float32), "T1": np.linspace(0, 1, 100_000, dtype=np.float32), "T2": np.ones((3, 4), np.float64), "T3": np.zeros((0, 2), np.int64)}


@pytest.fixture(params=["numpy", "torch"])
def kind(request):
    return request.param


def of(kind, model):
    """Arrays, or torch's tensors, of these numbers."""
    if kind == "numpy":
        return {name: array.copy() for name, array in model.items()}
    torch = pytest.importorskip("torch")
    return {name: torch.from_numpy(array.copy()) for name, array in model.items()}


def stepped(model, names=("T0", "T1"), by=1e-3):
    """A later round's: new tensors, and those of the other names as they were."""
    return {name: value + value * by if name in names else value for name, value in model.items()}


def same(got, model):
    return got.keys() == model.keys() and all(got[n].dtype == v.dtype and got[n].shape == v.shape and (got[n] == v).all() for n, v in model.items())


class Job:
    """A server and its sites, in this process."""

    def __init__(self, settings):
        self.settings, self.cells, self.offered = settings, {"server": Cell("server.4d5f")}, []

    def cell(self, name):
        return self.cells.setdefault(name, Cell(f"{name}.4d5f"))

    def place(self, name):
        return _process.place_of(self.cell(name))

    def restart(self, name):
        del self.cells[name]

    def offer(self, model, of="server"):
        """FLARE makes one for each site and task."""
        offering = OfferedArrays
        if any(not isinstance(t, np.ndarray) for t in model.values()):
            from tensorpull.nvflare.decomposers.tensor import OfferedTensors as offering
        offered = offering(dict(model), 1 << 20, self.cell(of))
        offered._flare_ref, offered.num_receivers = "R1", 1
        self.offered.append(offered)
        return offered

    def pull(self, site, model, offered=None, change=lambda state: None, source="server", late=False, rounded=None):
        """One site has the model in the end, or what was `rounded`; the consumer. `late`: when something asks for it."""
        offered = offered or self.offer(model, source)
        framework, consuming = offered.framework, PulledArrays
        if framework == "torch":
            from tensorpull.nvflare.decomposers.tensor import AwaitedTensors, PulledTensors

            consuming = AwaitedTensors if late else PulledTensors
        cell = self.cell(site)
        pulled = consuming(None, {}).begin(cell, self.cell(source).get_fqcn(), "R1", framework, 60.0, False, None)
        pulled.states, ended = [], threading.Event()

        def download():
            state = None
            for _ in range(10_000):
                rc, data, new = offered.produce(state, cell.get_fqcn())
                if rc != ProduceRC.OK:
                    break
                change(new)
                pulled.states.append(_offer.what(new.get(KEY)))
                state = pulled.consume("R1", new, data)
                pulled.states.append(_offer.what(state.get(KEY)))
            assert rc == ProduceRC.EOF
            ended.set()

        if late:
            error, update = pulled.through(download)
            assert not error and same({name: update[name] for name in model}, rounded or model)
            assert ended.wait(60)
        else:
            download()
            assert same(pulled.result, rounded or model)
        return pulled

    def update(self, site, model, **more):
        """FLARE's server has the update of a site in the end, by tensorpull; how many bytes came."""
        offered = self.offer(model, site)
        pulled = self.pull("server", model, offered, source=site, **more)
        assert pulled.way == "tensorpull"
        offered.release()
        return pulled.bytes

    def round(self, model, *sites):
        """All of them pull by tensorpull, each at the time of its own, and FLARE lets go of it; how many bytes came to each."""
        made = [self.offer(model) for _ in sites]
        came = [self.pull(site, model, offered) for site, offered in zip(sites, made)]
        assert all(pulled.way == "tensorpull" for pulled in came)
        for offered in made:
            offered.release()
        return [pulled.bytes for pulled in came]

    def close(self):
        for offered in self.offered:
            offered.release()
        for cell in self.cells.values():
            place = _process._places.get(id(cell))
            for end in (place._owner, place._door) if place is not None else ():
                if end is not None:
                    end.close()


@pytest.fixture
def job(monkeypatch):
    settings = {"least_bytes": 0, "differences": "coded", "keep_bytes": 1 << 28}
    real = _process.setting
    for module in (_process, _transfer):
        monkeypatch.setattr(module, "setting", lambda name, default: settings.get(name, real(name, default)))
    made = Job(settings)
    yield made
    made.close()


def test_a_site_that_has_the_model_before_pulls_what_has_changed(job, kind, caplog):
    caplog.set_level(logging.INFO)
    model = of(kind, MODEL)
    assert job.round(model, "site-1", "site-2") > [ALL, ALL]
    for _ in range(3):
        model = stepped(model)
        assert all(100 < came < 0.8 * ALL for came in job.round(model, "site-1", "site-2"))
    assert caplog.text.count("the next model is a coded difference") == 3, "once for both sites"


def test_tensors_that_have_not_changed_are_not_sent_and_nothing_is_coded(job, kind, caplog):
    caplog.set_level(logging.INFO)
    job.settings["differences"] = "tensors"
    model = of(kind, MODEL)
    job.round(model, "site-1")
    for name, nbytes in (("T1", 400_000), ("T0", 800_000)):
        model = stepped(model, (name,))
        (came,) = job.round(model, "site-1")
        assert nbytes <= came < nbytes + 5000
    assert "a coded difference" not in caplog.text and caplog.text.count("the tensors that have changed, made") == 2
    model = {name: value + 1 for name, value in model.items()}
    assert job.round(model, "site-1")[0] > ALL
    assert "nothing that is less than all" in caplog.text


def test_a_site_that_was_away_and_one_that_has_restarted_get_all(job, kind):
    model = of(kind, MODEL)
    job.round(model, "site-1", "site-2", "site-3")
    job.restart("site-3")
    model = stepped(model)
    less, all_ = job.round(model, "site-1", "site-3")
    assert less < 0.8 * ALL < ALL < all_
    model = stepped(model)
    one, two, three = job.round(model, "site-1", "site-2", "site-3")
    assert one < 0.8 * ALL and three < 0.8 * ALL and two > ALL
    model = stepped(model)
    assert all(came < 0.8 * ALL for came in job.round(model, "site-3", "site-2", "site-1"))


def test_a_site_whose_copy_is_another_one_by_a_byte_gets_that_tensor_or_all(job, kind):
    model = of(kind, MODEL)
    job.round(model, "site-1", "site-2")
    base = job.place("site-1").base._of[kind].tensors
    base["T0"][77] += 1
    model = stepped(model)
    one, two = job.round(model, "site-1", "site-2")
    assert two < 0.8 * ALL and one >= 800_000, "the difference is of no use to it"
    model = stepped(model)
    assert all(came < 0.8 * ALL for came in job.round(model, "site-1", "site-2"))


@pytest.mark.parametrize("end", ["server", "sites"])
def test_nothing_is_kept_or_coded_unless_both_ends_have_it(job, kind, end):
    for name in ("server", "site-1"):
        job.settings["differences"] = "coded" if name.startswith(end[:4]) else "off"
        job.place(name)
    model = of(kind, MODEL)
    for _ in range(3):
        assert job.round(model, "site-1")[0] > ALL
        model = stepped(model)
    earlier, base = job.place("server").earlier, job.place("site-1").base
    assert (earlier is None) == (end == "sites") and (base is None) == (end == "server")
    assert not (earlier and earlier._newest) and not (base and base._of)


def test_a_trainer_that_writes_to_what_it_got_disturbs_nobody(job, kind):
    model = of(kind, MODEL)
    seen = []
    for _ in range(3):
        pulled = job.pull("site-1", model)
        assert pulled.way == "tensorpull"
        seen.append((pulled, {name: value + 0 for name, value in model.items()}))
        pulled.result["T1"] *= 0
        seen[-1][1]["T1"] *= 0
        assert all(same(then.result, was) for then, was in seen)
        model = stepped(model)
    assert seen[2][0].bytes < 0.8 * ALL and seen[2][0].kept_bytes > 0.2 * ALL


def test_a_server_that_changes_its_model_in_place_sends_all_of_it(job, kind):
    model = of(kind, MODEL)
    job.round(model, "site-1")
    for value in model.values():
        value += 1
    assert job.round(model, "site-1")[0] > ALL
    assert job.round(stepped(model), "site-1")[0] < 0.8 * ALL


def test_tensors_that_share_memory(job, kind):
    for _ in range(3):
        model = of(kind, MODEL)
        model["T0"] += float(_)
        model["T4"] = model["T0"][:]
        pulled = job.pull("site-1", model)
        assert pulled.way == "tensorpull"
        pulled.result["T0"] += 1
        assert (pulled.result["T4"] == model["T4"]).all(), "they arrive apart"
    assert pulled.bytes < 0.9 * ALL


def test_another_model_in_between_is_pulled_as_a_whole(job, kind, caplog):
    caplog.set_level(logging.INFO)
    model, other = of(kind, MODEL), of(kind, {"T0": np.ones(70_000, np.float32), "T1": np.arange(5, dtype=np.int32)})
    job.round(model, "site-1")
    assert job.round(other, "site-1")[0] > 280_000
    model = stepped(model)
    assert job.round(model, "site-1")[0] > ALL
    assert "the next model is" not in caplog.text
    assert job.round(stepped(model), "site-1")[0] < 0.8 * ALL


def test_nothing_is_made_for_a_site_that_does_not_have_the_model_before(job, kind, caplog):
    caplog.set_level(logging.INFO)
    first = of(kind, MODEL)
    second, third = stepped(first), stepped(stepped(first))
    job.round(first, "site-1", "site-2")
    job.round(first, "site-3")
    job.round(second, "site-1")
    caplog.clear()
    assert job.round(third, "site-2")[0] > ALL
    job.round(third, "site-1")
    assert caplog.text.count("the next model is a coded difference") == 1
    job.round(second, "site-1")  # it goes back to an older one
    caplog.clear()
    assert job.round(stepped(third), "site-1")[0] > ALL
    assert "the next model is" not in caplog.text


def test_what_takes_long_is_waited_for_and_what_takes_too_long_is_not(job, kind, monkeypatch):
    model = of(kind, MODEL)
    job.round(model, "site-1")
    monkeypatch.setattr(_transfer, "SOON", 0.0)
    go, coded = threading.Event(), _changes.code
    monkeypatch.setattr(_changes, "code", lambda *a: go.wait(60) and coded(*a))
    model, told = stepped(model), []

    def ready_when_told_twice(state):
        told.append(_offer.what(state.get(KEY)))
        if told.count("soon") == 2:
            go.set()

    pulled = job.pull("site-1", model, change=ready_when_told_twice)
    assert pulled.way == "tensorpull" and pulled.bytes < 0.8 * ALL
    waited = pulled.states[:-1].count("soon")
    assert 2 <= waited == pulled.states.count("asks") <= 10 and pulled.states[2 * waited] == "offer"
    go.clear()
    monkeypatch.setattr(_changes, "LONGEST", 0.5)
    pulled = job.pull("site-1", stepped(model))
    assert pulled.way == "tensorpull" and pulled.bytes > ALL and "soon" in pulled.states
    go.set()


def test_a_model_that_goes_away_while_a_site_waits_is_not_offered(job, kind, monkeypatch):
    model = of(kind, MODEL)
    job.round(model, "site-1")
    monkeypatch.setattr(_transfer, "SOON", 0.0)
    go, coded = threading.Event(), _changes.code
    monkeypatch.setattr(_changes, "code", lambda *a: go.wait(60) and coded(*a))
    model = stepped(model)
    offered = job.offer(model)
    assert _offer.what(offered.produce(None, "site-1.4d5f")[2][KEY]) == "soon"
    place = job.place("server")
    offered.release()
    assert not any(known.users for known in place.models._known.values())
    go.set()
    assert job.round(model, "site-1")[0] < 0.8 * ALL, "it was made all the same, for the next task of the same model"


def test_a_server_that_says_soon_for_ever_is_left_to_flares_chunks(job, kind, monkeypatch):
    monkeypatch.setattr(_transfer, "LONGEST", 0.2)
    model = of(kind, MODEL)

    def change(new):
        if KEY in new:
            new[KEY] = _offer.word("soon")

    offered, began = job.offer(model), time.monotonic()
    pulled = job.pull("site-1", model, offered, change)
    assert pulled.way != "tensorpull" and time.monotonic() - began < 20


def test_an_error_of_coding_is_logged_and_all_is_offered(job, kind, monkeypatch, caplog):
    model = of(kind, MODEL)
    job.round(model, "site-1")

    def fails(*_):
        raise tensorpull.Error("out_of_memory", "there is none")

    monkeypatch.setattr(_changes, "code", fails)
    assert job.round(stepped(model), "site-1")[0] > ALL
    assert "cannot be told, so all of it is offered" in caplog.text


def test_a_site_without_memory_for_the_copy_has_the_model_all_the_same(job, kind, monkeypatch, caplog):
    def fails(*_):
        raise MemoryError("there is none")

    monkeypatch.setattr(_changes, "copied", fails)
    model = of(kind, MODEL)
    for _ in range(2):
        assert job.round(model, "site-1")[0] > ALL
        model = stepped(model)
    assert "this model is not kept" in caplog.text and not job.place("server").earlier._newest


def test_who_says_that_it_keeps_a_model_that_it_was_not_offered_is_not_believed(job, kind):
    offered = job.offer(of(kind, MODEL))
    assert job.pull("site-1", of(kind, MODEL), offered).way == "tensorpull"
    assert offered.produce({KEY: _offer.pulled(True)}, "site-2.4d5f")[0] == ProduceRC.EOF
    assert job.place("server").earlier._newest[kind].sites == {"site-1.4d5f"}


def test_a_peer_that_says_something_else_than_yes_keeps_nothing(job):
    offered = job.offer(of("numpy", MODEL))
    offered.produce(None, "site-1.4d5f")
    for said in (1, "True", [True], None, {"keeps": True}):
        assert offered.produce({KEY: {**_offer.word("pulled"), "keeps": said}}, "site-1.4d5f")[0] == ProduceRC.EOF
    assert not job.place("server").earlier._newest


def test_the_server_keeps_one_model_and_one_difference(job, kind):
    place, gone, beside = job.place("server"), [], set()
    model = of(kind, MODEL)
    for _ in range(5):
        job.round(model, "site-1", "site-2")
        gone.append(weakref.ref(model["T0"]))
        made = place.earlier._next[kind].changes
        beside |= {made._id} if made else set()
        model = stepped(model)
        job.offered.clear()
        gc.collect()
        assert [one() is not None for one in gone] == [False] * (len(gone) - 1) + [True]
    assert len(beside) == 4
    states = sorted(place.owner()[0].outcome(one).verdict for one in beside)
    assert states == ["open"] + ["withdrawn"] * 3, states


def test_a_site_keeps_one_copy_of_each_kind(job):
    for kind in ("numpy", "torch", "numpy", "torch"):
        job.round(of(kind, MODEL), "site-1")
    assert sorted(job.place("site-1").base._of) == ["numpy", "torch"]


def test_a_pull_that_fails_in_the_middle_leaves_no_copy(job, kind, monkeypatch):
    model = of(kind, MODEL)
    job.round(model, "site-1")
    model = stepped(model)
    pull = _changes.pull

    def dies(*args, base, **more):
        next(iter(base.values()))[:10] = 7
        raise tensorpull.Error("connection_lost", "it is gone")

    monkeypatch.setattr(_changes, "pull", dies)
    pulled = job.pull("site-1", model)
    assert pulled.way != "tensorpull", "FLARE's chunks have brought it"
    assert not job.place("site-1").base._of
    monkeypatch.setattr(_changes, "pull", pull)
    assert job.round(stepped(model), "site-1")[0] > ALL


def test_a_model_of_another_site_leaves_the_copy_alone(job, kind):
    model, other = of(kind, MODEL), {name: value + 5 for name, value in of(kind, MODEL).items()}
    job.round(model, "site-1")
    pulled = (type(job.pull("site-1", model)))(None, {}).begin(job.cell("site-1"), "site-2.4d5f", "R1", kind, 60.0, False, None)
    with tensorpull.Downloader() as owner:
        owner.start()
        ref = owner.add_tensors(other, metadata={_changes.ASKS_TO_KEEP: "1"})
        got = pulled.land(job.place("site-1"), tensorpull, (owner.address,), ref.id, per_request_timeout=30.0, chunk_size=1 << 21, retries=1, max_bytes=1 << 30, abort=None, version=ref.version)
    assert same(got, other) and not pulled._keeps and same(job.place("site-1").base._of[kind].tensors, model)
    assert job.round(stepped(model), "site-1")[0] < 0.8 * ALL


def test_a_server_without_the_setting_has_no_copy_kept(job, kind):
    model = of(kind, MODEL)
    job.round(model, "site-1")
    job.place("server").earlier = None
    assert job.round(stepped(model), "site-1")[0] > ALL
    assert not job.place("site-1").base._of


def test_another_word_than_the_four_is_refused(job, caplog):
    job.settings["differences"] = "yes"
    offered = job.offer(of("numpy", MODEL))
    pulled = job.pull("site-1", of("numpy", MODEL), offered)
    assert pulled.way != "tensorpull" and "tensorpull_differences is" in caplog.text


def test_an_update_is_pulled_as_what_has_changed_since_the_model_that_its_site_keeps(job, kind, caplog):
    """Tensors also if they wait until something asks for them; arrays never wait."""
    caplog.set_level(logging.INFO)
    model = of(kind, MODEL)
    for late in (False, False, False) if kind == "numpy" else (False, True, False, True):
        job.round(model, "site-1", "site-2")
        updates = {site: stepped(model, by=1e-3 * k) for k, site in enumerate(("site-1", "site-2"), 1)}
        caplog.clear()
        for site, update in updates.items():
            assert 100 < job.update(site, update, late=late) < 0.8 * ALL
        assert caplog.text.count("this update is a coded difference") == 2
        model = stepped(model, by=1.5e-3)


def test_updates_travel_in_8_bits_and_models_without_loss(job, kind, caplog):
    caplog.set_level(logging.INFO)
    job.settings["differences"] = "narrowed"
    model = of(kind, {**MODEL, "T0": MODEL["T0"].reshape(400, 500), "T1": MODEL["T1"].reshape(100, 1000), "T4": np.exp(np.linspace(-9, 9, 500, dtype=np.float32))})
    for late in (False, False) if kind == "numpy" else (False, True):
        job.round(model, "site-1", "site-2")
        caplog.clear()
        for k, site in enumerate(("site-1", "site-2"), 1):
            update = stepped(model, ("T0", "T1", "T4"), by=1e-3 * k)
            rounded = dict(tensorpull.narrowed(update, model))
            assert not same(rounded, update) and (rounded["T4"] == update["T4"]).all()
            assert 100 < job.update(site, update, late=late, rounded=rounded) < 0.3 * ALL
        assert caplog.text.count("this update is a step in 8 bits") == 2
        model = stepped(model, by=1.5e-3)
    assert "the next model is a coded difference" in caplog.text or all(came < 0.8 * ALL for came in job.round(model, "site-1"))
    # what cannot be narrowed is sent without loss, and what is no number as a whole
    vector = of(kind, {"T0": np.linspace(1, 2, 300_000, dtype=np.float32)})
    job.round(vector, "site-1")
    caplog.clear()
    job.update("site-1", stepped(vector, ("T0",)))
    assert "this update is a coded difference" in caplog.text
    job.round(model, "site-1")
    spoiled = stepped(model)
    spoiled["T0"][0, 0] = float("inf")
    caplog.clear()
    job.update("site-1", spoiled)
    assert "cannot be told, so all of it is offered" in caplog.text


def test_what_was_published_of_an_update_is_withdrawn_by_the_thread_that_has_its_session(job, kind, monkeypatch):
    """FLARE lets go of an update on a thread of its own, while the session still serves."""
    threads, real = [], tensorpull._native.Session.withdraw

    def withdraw(self, ref_id):
        threads.append(threading.current_thread().name)
        real(self, ref_id)

    monkeypatch.setattr(tensorpull._native.Session, "withdraw", withdraw)
    model = of(kind, MODEL)
    job.round(model, "site-1")
    for by in (1e-3, 2e-3):
        assert job.update("site-1", stepped(model, by=by)) < 0.8 * ALL
    eventually(lambda: len(threads) >= 2)
    assert threads == ["tensorpull-call"] * 2


def test_the_turn_of_an_update_lasts_as_long_as_its_tensors_though_only_what_has_changed_came(job, kind):
    job.settings["updates"] = 1
    model = of(kind, MODEL)
    job.round(model, "site-1", "site-2")
    update = stepped(model)
    pulled = job.pull("server", update, source="site-1")
    assert pulled.bytes < 0.8 * ALL
    held = job.place("server").turns._held
    last = pulled.result["T0"]
    del pulled
    gc.collect()
    assert [turn() is not None for turn in held.values()] == [True]
    del last
    gc.collect()
    assert not [turn for turn in held.values() if turn() is not None]
    assert job.pull("server", update, source="site-2").bytes < 0.8 * ALL


def test_of_an_update_only_the_tensors_that_have_changed_come(job, kind):
    job.settings["differences"] = "tensors"
    model = of(kind, MODEL)
    job.round(model, "site-1")
    came = job.update("site-1", stepped(model, ("T1",)))
    assert 400_000 <= came < 420_000
    assert job.round(stepped(model, ("T1",)), "site-1")[0] < 420_000, "the site has its copy again"


@pytest.mark.parametrize("tied", ["neither", "the model", "the update", "both"])
def test_tensors_of_an_update_that_share_memory(job, kind, tied):
    model = of(kind, {**MODEL, "T4": MODEL["T1"]})
    if tied in ("the model", "both"):
        model["T4"] = model["T1"]
    job.round(model, "site-1")
    update = stepped(model, ("T0", "T1", "T4"))
    if tied in ("the update", "both"):
        update["T4"] = update["T1"]
    assert job.update("site-1", update) < 0.8 * (ALL + (0 if tied in ("the update", "both") else 400_000))


def test_an_update_of_a_site_that_keeps_nothing_comes_as_a_whole(job, kind):
    model = of(kind, MODEL)
    job.round(model, "site-1")
    assert job.update("site-2", stepped(model)) > ALL
    job.restart("site-1")
    assert job.update("site-1", stepped(model)) > ALL


def test_an_update_that_the_server_knows_no_model_for_comes_as_a_whole(job, kind):
    """Its site keeps a model, and the server has started anew, or keeps another, or has the setting no more."""
    model = of(kind, MODEL)
    job.round(model, "site-1")
    earlier = job.place("server").earlier
    job.place("server").earlier = None
    assert job.update("site-1", stepped(model)) > ALL
    job.place("server").earlier = _changes.Earlier("coded")
    assert job.update("site-1", stepped(model)) > ALL
    held = earlier._newest[kind]
    earlier._newest[kind] = held._replace(tensors={name: value + 1 for name, value in held.tensors.items()})
    job.place("server").earlier = earlier
    assert job.update("site-1", stepped(model)) > 0.8 * ALL


def test_an_update_of_other_tensors_than_the_model_comes_as_a_whole(job, kind):
    model = of(kind, MODEL)
    job.round(model, "site-1")
    for other in (
        {**model, "T4": model["T2"] + 1},
        {name: value for name, value in model.items() if name != "T3"},
        {**model, "T1": model["T1"].reshape(-1, 2)},
        {**model, "T1": of(kind, {"T1": np.linspace(0, 1, 100_000)})["T1"]},
    ):
        assert job.update("site-1", other) > 0.9 * ALL
    assert job.update("site-1", stepped(model)) < 0.8 * ALL


def test_updates_that_are_differences_already_are_not_coded_each_time(job, kind, monkeypatch):
    model, tried, code = of(kind, MODEL), [], _changes.code
    job.round(model, "site-1")
    monkeypatch.setattr(_changes, "code", lambda *a: (tried.append(k), code(*a))[1])
    some = np.random.default_rng(1)
    for k in range(8):
        # numbers of any size, none of them infinite
        noise = {name: (some.bytes(value.nbytes), value) for name, value in MODEL.items()}
        noise = {name: (np.frombuffer(bits, np.uint8) & np.where(np.arange(len(bits)) % 4 == 3, 0xBF, 0xFF)).astype(np.uint8).view(value.dtype).reshape(value.shape) for name, (bits, value) in noise.items()}
        assert job.update("site-1", of(kind, noise)) > 0.9 * ALL
    assert tried == [0, 2, 5], "the first, then after one that was not tried, then after two"


def test_a_server_without_memory_for_a_copy_pulls_the_update_as_a_whole(job, kind, monkeypatch, caplog):
    model = of(kind, MODEL)
    job.round(model, "site-1")

    def fails(*_, **__):
        raise MemoryError("there is none")

    monkeypatch.setattr(_changes, "copied", fails)
    assert job.update("site-1", stepped(model)) > ALL
    assert "is pulled as a whole: there is none" in caplog.text


def test_an_update_that_lies_about_what_has_changed_arrives_all_the_same_or_not_at_all(job, kind, monkeypatch):
    """Its site says digests of other tensors, or a difference to another model."""
    model = of(kind, MODEL)
    job.round(model, "site-1")
    update, real = stepped(model), _changes.digests_said
    monkeypatch.setattr(_changes, "digests_said", lambda digests: real({name: digest ^ (name == "T0") for name, digest in digests.items()}))
    assert job.update("site-1", update) > 0.6 * ALL
    monkeypatch.setattr(_changes, "digests_said", real)
    job.round(stepped(model, by=2e-3), "site-1")
    code = _changes.code
    monkeypatch.setattr(_changes, "code", lambda now, digests, base: code(now, digests, {name: value + value for name, value in base.items()}))
    assert job.update("site-1", update) > ALL


def test_a_model_that_comes_while_an_update_is_coded_is_pulled_as_a_whole_and_is_the_next_copy(job, kind, monkeypatch):
    model, go, code = of(kind, MODEL), threading.Event(), _changes.code
    job.round(model, "site-1")
    base = job.place("site-1").base
    coding = []
    monkeypatch.setattr(_changes, "code", lambda *a: (coding.append(1) or len(coding) > 1 or go.wait(60), code(*a))[1])
    update = base.changes(kind, stepped(model))
    assert update is not None and base.changes(kind, stepped(model)) is None
    later = stepped(model, by=5e-3)
    assert eventually(lambda: coding) and job.round(later, "site-1")[0] > ALL
    go.set()
    assert update.there.wait(60) and update.said
    assert same(base._of[kind].tensors, later), "the older copy has not come back"
    update.end()


def test_an_update_that_goes_away_while_it_is_coded_keeps_nothing(job, kind, monkeypatch):
    model, go, code = of(kind, MODEL), threading.Event(), _changes.code
    job.round(model, "site-1")
    monkeypatch.setattr(_changes, "code", lambda *a: go.wait(60) and code(*a))
    offered = job.offer(stepped(model), "site-1")
    assert _offer.what(offered.produce(None, "server.4d5f")[2][KEY]) == "soon"
    update = offered._update
    offered.release()
    go.set()
    assert update.there.wait(60) and update._coded is None and update._owner is None
    assert same(job.place("site-1").base._of[kind].tensors, model)
