"""Federated averaging from Python."""

from __future__ import annotations

import os
import shlex
import socket
import sys
import textwrap
import threading

import numpy as np
import pytest
import processes

import tensorpull
from tensorpull import Downloader, Error, WeightedAverage, weighted_average


def test_others_run_while_the_sums_are_made():
    model, turns, done = {"w": np.empty(48 << 20, "f4")}, [0], threading.Event()

    def count():
        while not done.wait(0.001):
            turns[0] += 1

    other = processes.JoinedThread(target=count)
    other.start()
    try:
        before = turns[0]
        WeightedAverage(out=model)  # 192 MiB are cleared
        assert turns[0] - before > 5
    finally:
        done.set()
        other.join()


def test_updates_have_the_whole_names_of_their_peers(owner):
    model, sites = {"w": np.ones(3, "f4")}, ["site " * 20 + "\u00e9" + str(i) for i in range(2)]
    average = WeightedAverage(model, max_peers=2)
    for i in range(9):  # such a peer has no update, and is not remembered
        with pytest.raises(Error):
            average.pull(owner.address, "ab" * 16, 1, peer=f"absent {i}", round=1, retries=0)
    for i, site in enumerate(sites):
        average.pull(owner.address, owner.add_tensors({"w": np.full(3, i, "f4")}), 1, peer=site, round=1)
        assert [u.peer for u in average.updates] == sites[: i + 1]
    with pytest.raises(Error) as e:
        average.pull(owner.address, owner.add_tensors(model), 1, peer="one more", round=1)
    assert e.value.code == "table_full" and [u.peer for u in average.updates] == sites
    average.reset()
    average.pull(owner.address, owner.add_tensors(model), 1, peer=sites[1], round=2)
    assert [u.peer for u in average.updates] == sites[1:]


def clients(n, elements=300_000):
    rng = np.random.default_rng(n)
    return [{"w": rng.normal(size=elements).astype("f4"), "b": rng.normal(size=(7, 3)), "n": rng.integers(0, 100, 5)} for _ in range(n)]


def test_who_waits_for_its_turn_hears_wait_and_abort(owner):
    model = {"w": np.ones(3, "f4")}
    average, entered, over = WeightedAverage(model), threading.Event(), threading.Event()

    def looked_at():
        entered.set()
        return over.is_set()

    def stay(address):
        with pytest.raises(Error, match="cancelled"):
            average.pull(address, "ab" * 24, 1, peer="silent", round=1, abort=looked_at)

    with socket.create_server(("127.0.0.1", 0)) as silent:
        first = processes.JoinedThread(target=stay, args=(f"127.0.0.1:{silent.getsockname()[1]}",))
        first.start()
        try:
            assert entered.wait(processes.AMPLE)
            ref = owner.add_tensors(model)
            for how, code in (({"wait": 0.05}, "timed_out"), ({"abort": lambda: True}, "cancelled")):
                with pytest.raises(Error) as e:
                    average.pull(owner.address, ref, 1, peer="b", round=1, **how)
                assert e.value.code == code and first.is_alive()
        finally:
            over.set()
            first.join()
    assert average.pull(owner.address, ref, 1, peer="b", round=1, timeout=processes.AMPLE).confirmed


def test_the_average_of_several_references(owner):
    models, weights = clients(5), [1.0, 20, 3, 4, 5]
    updates = [(owner.address, owner.add_tensors(m, recipients=1), w) for m, w in zip(models, weights)]
    got = weighted_average(updates, like=models[0], chunk_size=65536)
    for key in models[0]:
        expected = sum(m[key].astype("f8") * w for m, w in zip(models, weights)) / sum(weights)
        if models[0][key].dtype.kind == "i":
            assert got[key].tolist() == np.rint(expected).tolist()
        else:
            np.testing.assert_allclose(got[key], expected, rtol=2e-5 if key == "w" else 1e-12, atol=1e-6)
    assert all(owner.outcome(ref).verdict == "completed" for _, ref, _ in updates)


def test_the_result_may_go_into_the_model_itself(owner):
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(30, 20)
    ref = owner.add_tensors({k: torch.full_like(v, 3.0) for k, v in model.state_dict().items()})
    other = owner.add_tensors({k: torch.full_like(v, 6.0) for k, v in model.state_dict().items()})
    average = WeightedAverage(out=model.state_dict())
    assert average.pull(owner.address, ref, 2.0, peer="a", round=1).outcome == "completed"
    average.pull(owner.address, other, 1.0, peer="b", round=1)
    assert (average.whole_updates, average.partial_updates, average.whole_weight) == (2, 0, 3.0)
    average.result()
    assert torch.equal(model.weight, torch.full((20, 30), 4.0)) and model.weight.requires_grad
    average.reset()
    with pytest.raises(Error) as e:
        average.result()
    assert e.value.code == "no_updates"


@pytest.mark.parametrize("partial", ["divide_by_reached", "error", "staged"])
@pytest.mark.parametrize("link", ["shm:@tensorpull-average-{}", "unix:@tensorpull-average-{}", "udp://127.0.0.1:0", "serial", "nats"])
def test_updates_come_over_every_link(link, partial, request):
    if link == "nats" and not tensorpull._native.has_nats:
        pytest.skip("libnats was not there when this was built")
    listen = address = link.format(os.getpid())
    if link == "serial":
        listen, address = (f"serial:{end}?speed=4000000" for end in request.getfixturevalue("line"))
    elif link == "nats":
        listen = request.getfixturevalue("nats_server")
    models = clients(2, 5000)
    with Downloader(listen) as owner:
        owner.start()
        average = WeightedAverage(models[0], partial=partial)
        for i, model in enumerate(models):
            ref = owner.add_tensors(model, recipients=1)
            average.pull(address if link == "serial" else owner.address, ref, 1.0, peer=f"site-{i}", round=1)
            assert owner.wait(ref, timeout=60)
        got = average.result()
    for key in ("w", "b"):
        np.testing.assert_allclose(got[key], (models[0][key].astype("f8") + models[1][key]) / 2, rtol=2e-5, atol=1e-6)


def test_an_update_comes_from_a_command_that_is_started():
    ref = "0" * 30 + "77"
    program = f"""
        import numpy, tensorpull
        with tensorpull.Session("pipe:-") as s:
            s.serve(until=s.add_tensors({{"w": numpy.full(1000, 3.0)}}, recipients=1, ref_id="{ref}"), timeout=60)
    """
    command = "pipe:" + shlex.join([sys.executable, "-c", textwrap.dedent(program)])
    got = weighted_average([(command, ref, 2.0)], like={"w": np.zeros(1000)})
    assert (got["w"] == 3.0).all()


def test_an_update_may_have_several_addresses(owner):
    model = clients(1, 3000)[0]
    average = WeightedAverage(model)
    average.pull(["127.0.0.1:1", owner.address], owner.add_tensors(model), 1.0, peer="a", round=1, retries=0)
    np.testing.assert_allclose(average.result()["b"], model["b"])


def test_a_web_server_has_no_updates(owner):
    with pytest.raises(Error, match="no digest of each chunk") as e:
        WeightedAverage({"w": np.zeros(1)}).pull("http://127.0.0.1:1/x", "0" * 31 + "1", 1.0, peer="a", round=1)
    assert e.value.code == "bad_address"


@pytest.mark.parametrize("partial", ["divide_by_reached", "error", "staged"])
def test_an_update_that_stops_half_way(owner, partial):
    models = clients(2)
    refs = [owner.add_tensors(m) for m in models]
    average = WeightedAverage(models[0], partial=partial, chunk_size=4096)
    average.pull(owner.address, refs[0], 1.0, peer="site-1", round=1)

    def stop(event):
        if event.bytes_done:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        average.pull(owner.address, refs[1], 1.0, peer="site-2", round=1, progress=stop, progress_interval=0)
    if partial == "error":
        with pytest.raises(Error) as e:
            average.result()
        assert (e.value.code, e.value.name) == ("partial_update", "site-2")
        return
    got = average.result()
    both = {k: (models[0][k].astype("f8") + models[1][k]) / 2 for k in models[0]}
    reached = np.isclose(got["w"], both["w"], atol=1e-6)
    first = np.isclose(got["w"], models[0]["w"], atol=1e-6)
    assert (reached | first).all() and (not reached[100_000:].all())
    if partial == "staged":
        assert first.all()


def test_failed_updates_can_be_left_out(owner):
    models = clients(3)
    refs = [owner.add_tensors(m) for m in models]
    owner.withdraw(refs[1])
    updates = [(owner.address, ref, 1.0) for ref in refs]
    with pytest.raises(Error) as e:
        weighted_average(updates, models[0])
    assert e.value.code == "withdrawn"
    got = weighted_average(updates, models[0], skip_failed=True)
    np.testing.assert_allclose(got["b"], (models[0]["b"] + models[2]["b"]) / 2)


class LastWordLost:
    """Between a puller and its owner: everything passes until the data has, and then the connection is cut instead of the confirmation."""

    def __init__(self, address, nbytes):
        self._to, self._left = address.rsplit(":", 1), nbytes
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self._listener.getsockname()[1]
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        here, _ = self._listener.accept()
        self._listener.close()
        there = socket.create_connection((self._to[0], int(self._to[1])))
        threading.Thread(target=self._down, args=(there, here), daemon=True).start()
        while data := here.recv(65536):
            if self._left <= 0:
                break
            there.sendall(data)
        for s in (here, there):
            s.shutdown(socket.SHUT_RDWR)

    def _down(self, there, here):
        try:
            while data := there.recv(65536):
                self._left -= len(data)
                here.sendall(data)
        except OSError:
            pass  # it was cut


@pytest.mark.parametrize("partial", ["divide_by_reached", "error", "staged"])
def test_an_update_counts_once_when_its_confirmation_is_lost(owner, partial):
    models = clients(2, 3000)
    average = WeightedAverage(models[0], partial=partial)
    ref = owner.add_tensors(models[0])
    try:
        average.pull(LastWordLost("127.0.0.1:" + owner.address.rsplit(":", 1)[1], ref.nbytes).address, ref, 1.0, peer="site-1", round=1, retries=0)
    except Error as e:
        assert e.code == "connection_lost"
    assert [(u.peer, u.state, u.counts) for u in average.updates] == [("site-1", "counted", True)]
    # it comes again: under another reference, and then with other values, which changes nothing
    assert average.pull(owner.address, owner.add_tensors(models[0]), 1.0, peer="site-1", round=1).outcome == "completed"
    average.pull(owner.address, owner.add_tensors(models[1]), 5.0, peer="site-1", round=1)
    average.pull(owner.address, owner.add_tensors(models[1]), 1.0, peer="site-2", round=1)
    assert [(u.peer, u.state, u.weight) for u in average.updates] == [("site-1", "told", 1.0), ("site-2", "told", 1.0)]
    assert (average.whole_updates, average.whole_weight) == (2, 2.0)
    np.testing.assert_allclose(average.result()["b"], (models[0]["b"] + models[1]["b"]) / 2)


def test_a_late_repeat_adds_nothing_to_the_next_round(owner):
    models = clients(2, 3000)
    average = WeightedAverage(models[0])
    ref = owner.add_tensors(models[0])
    average.pull(owner.address, ref, 1.0, peer="a", round=1)
    average.reset()
    assert average.round == 2
    average.pull(owner.address, ref, 1.0, peer="a", round=1)
    assert average.updates == [] and average.whole_updates == 0
    average.pull(owner.address, owner.add_tensors(models[1]), 1.0, peer="a", round=2)
    np.testing.assert_allclose(average.result()["b"], models[1]["b"])


def test_an_update_that_stopped_goes_on_and_another_one_is_refused(owner):
    models = clients(2)
    average = WeightedAverage(models[0], chunk_size=4096)

    def stop(event):
        if event.bytes_done > 100_000:
            raise InterruptedError

    ref = owner.add_tensors(models[0])
    with pytest.raises(InterruptedError):
        average.pull(owner.address, ref, 1.0, peer="a", round=1, progress=stop, progress_interval=0)
    assert average.updates[0].state == "stopped" and 0 < average.updates[0].added_bytes < ref.nbytes
    with pytest.raises(Error) as e:
        average.pull(owner.address, owner.add_tensors(models[1]), 1.0, peer="a", round=1)
    assert (e.value.code, e.value.name) == ("update_changed", "a")
    average.pull(owner.address, owner.add_tensors(models[0]), 1.0, peer="a", round=1)
    np.testing.assert_array_equal(average.result()["b"], models[0]["b"])


def test_an_average_by_default_is_of_whole_updates_or_an_error(owner):
    models = clients(2)
    average = WeightedAverage(models[0], chunk_size=4096)
    average.pull(owner.address, owner.add_tensors(models[0]), 1.0, peer="a", round=1)

    def stop(event):
        if event.bytes_done > 100_000:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        average.pull(owner.address, owner.add_tensors(models[1]), 1.0, peer="b", round=1, progress=stop, progress_interval=0)
    with pytest.raises(Error) as e:
        average.result()
    assert (e.value.code, e.value.name) == ("partial_update", "b")


def test_keys_that_are_none_and_too_many_peers(owner):
    ref = owner.add_tensors({"w": np.zeros(3)})
    average = WeightedAverage({"w": np.zeros(3)}, max_peers=1)
    for key in ({"peer": "", "round": 1}, {"peer": None, "round": 1}, {"peer": "a", "round": 0}, {"peer": "a", "round": 2}):
        with pytest.raises(ValueError):
            average.pull(owner.address, ref, 1.0, **key)
    for key in ({}, {"peer": "a", "round": "1"}, {"peer": "a", "round": 1.0}):
        with pytest.raises(TypeError):
            average.pull(owner.address, ref, 1.0, **key)
    average.pull(owner.address, ref, 1.0, peer="a", round=np.int64(1))
    with pytest.raises(Error) as e:
        average.pull(owner.address, ref, 1.0, peer="b", round=1)
    assert (e.value.code, e.value.name) == ("table_full", "b")
    for peers, wrong in ((0, ValueError), (-1, ValueError), (None, TypeError), (2**32, ValueError)):
        with pytest.raises(wrong, match="max_peers"):
            WeightedAverage({"w": np.zeros(3)}, max_peers=peers)
    WeightedAverage({"w": np.zeros(3)}, max_peers=np.int64(2))


def test_a_reference_that_is_listed_twice_counts_once(owner):
    models = clients(2, 3000)
    first, second = (owner.add_tensors(m) for m in models)
    got = weighted_average([(owner.address, r, 1.0) for r in (first, second, first)], models[0])
    np.testing.assert_allclose(got["b"], (models[0]["b"] + models[1]["b"]) / 2)


def test_a_reference_counts_once_however_it_is_written_and_wherever_it_is(owner):
    first, second = (owner.add_tensors({"w": np.full(2, x)}) for x in (1.0, 4.0))
    at = owner.address
    with Downloader() as replica:
        replica.start().add_tensors({"w": np.full(2, 1.0)}, ref_id=first)
        others = [(at, first.upper()), ("tcp://" + at, first), ([at], first), ([replica.address, at], first), (replica.address, first), (at, first.id), (replica.address, first.id.upper())]
        for again in others:
            for listed in ([(at, first), again], [again, (at, first)]):
                got = weighted_average([(*one, 1.0) for one in (*listed, (at, second))], {"w": np.zeros(2)})
                assert got["w"].tolist() == [2.5, 2.5], again


def test_the_same_id_with_another_version_is_another_update(owner):
    first = owner.add_tensors({"w": np.full(2, 1.0)})
    with Downloader() as other:
        second = other.start().add_tensors({"w": np.full(2, 4.0)}, ref_id=first.id)
        assert first.id == second.id
        got = weighted_average([(owner.address, first, 1.0), (other.address, second, 1.0)], {"w": np.zeros(2)})
        assert got["w"].tolist() == [2.5, 2.5]
        for again in (first.id, second):  # of other bytes than those that counted under the bare ID
            with pytest.raises(Error) as e:
                weighted_average([(owner.address, first.id, 1.0), (other.address, again, 1.0)], {"w": np.zeros(2)})
            assert e.value.code == "update_changed"


@pytest.mark.parametrize("partial", ["divide_by_reached", "error", "staged"])
def test_what_a_callback_of_a_pull_may_do_with_the_average(owner, partial):
    model = {"w": np.ones(100_000, "f4")}
    ref, other = owner.add_tensors(model), owner.add_tensors(model)
    average = WeightedAverage(model, partial=partial, chunk_size=4096)
    said = []

    def pulls(p):
        with pytest.raises(RuntimeError, match="has to end first"):
            average.pull(owner.address, other, 1.0, peer="b", round=1, per_request_timeout=1, retries=0)
        if p.bytes_done < p.bytes_total:
            with pytest.raises(Error):
                average.result()
        said.append(average.whole_updates)

    average.pull(owner.address, ref, 1.0, peer="a", round=1, progress=pulls, progress_interval=0)
    assert said and average.result()["w"].tolist() == model["w"].tolist()
    average.pull(owner.address, other, 1.0, peer="b", round=1)
    with pytest.raises(Error) as e:
        average.pull(owner.address, ref, 1.0, peer="c", round=1, progress=lambda p: average.round == 1 and p.bytes_done and average.reset(), progress_interval=0)
    assert (e.value.code, average.round, average.updates) == ("cancelled", 2, [])
    average.pull(owner.address, ref, 1.0, peer="c", round=2)
    assert average.result()["w"].tolist() == model["w"].tolist()


def test_an_update_of_which_nothing_was_added_may_come_again_as_another(owner):
    models = clients(2)
    average = WeightedAverage(models[0], chunk_size=4096, partial="staged")

    def stop(event):
        if event.bytes_done > 100_000:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        average.pull(owner.address, owner.add_tensors(models[0]), 1.0, peer="a", round=1, progress=stop, progress_interval=0)
    assert (average.updates[0].state, average.updates[0].added_bytes) == ("stopped", 0)
    average.pull(owner.address, owner.add_tensors(models[1]), 2.0, peer="a", round=1)
    assert average.whole_weight == 2.0
    np.testing.assert_array_equal(average.result()["b"], models[1]["b"])


def test_the_result_is_in_the_tensors_that_were_given(owner):
    w = np.zeros(2, "f4")
    out = {"w": w}
    average = WeightedAverage(out=out)
    average.pull(owner.address, owner.add_tensors({"w": np.full(2, 7, "f4")}), 1.0, peer="a", round=1)
    out["w"] = np.full(2, -1, "f4")
    assert average.result()["w"] is w and w.tolist() == [7, 7]


def test_another_schema_and_what_cannot_be_averaged(owner):
    ref = owner.add_tensors({"w": np.zeros(3)})
    with pytest.raises(Error) as e:
        weighted_average([(owner.address, ref, 1.0)], {"w": np.zeros(4)})
    assert e.value.code == "schema_mismatch"
    with pytest.raises(Error) as e:
        WeightedAverage({"mask": np.zeros(3, bool)})
    assert (e.value.code, e.value.name) == ("unsupported_dtype", "mask")
    for arguments in ({}, {"like": {}, "out": {}}, {"like": {}, "partial": "half"}, {"like": {}, "chunk_size": 0}):
        with pytest.raises(ValueError):
            WeightedAverage(**arguments)
    with pytest.raises(Error) as e:
        WeightedAverage({"w": np.zeros(3)}).pull(owner.address, ref, -1.0, peer="a", round=1)
    assert e.value.code == "invalid_argument"


def odd_floats(n, seed):
    """Floats of every kind: also subnormals, -0.0, infinities and NaNs with any bits."""
    rng = np.random.default_rng(seed)
    values = np.copysign(rng.uniform(0.01, 0.1, n), rng.normal(size=n)).astype("f4")
    values[:6] = [-0.0, 0.0, 1e-41, -1e-45, np.inf, -np.inf]
    values.view("u4")[6:8] = [0x7FC12345, 0xFFC00001]
    return values


@pytest.mark.parametrize("partial", ["divide_by_reached", "error", "staged"])
def test_with_a_base_what_no_update_changed_keeps_its_bits(owner, partial):
    base = {"w": odd_floats(20_000, 1), "i": np.arange(7) + 2**60, "h": np.float16([0.1, -0.0, np.nan])}
    models, updates = [], []
    for k in range(10):
        model = {name: value.copy() for name, value in base.items()}
        model["w"][10_000:] += np.float32(1e-5 * (k + 1))
        models.append(model)
        updates.append((owner.address, owner.add_tensors(model), 50 + 197.3 * k))
    got = weighted_average(updates, base=base, partial=partial, chunk_size=65537)
    for name in base:
        assert got[name][:10_000].tobytes() == base[name][:10_000].tobytes(), name
    weights = [w for _, _, w in updates]
    exact = sum(np.longdouble(w) * m["w"][10_000:].astype("g") for w, m in zip(weights, models)) / np.longdouble(sum(weights))
    ulp = np.spacing(np.abs(exact).astype("f4")).astype("g")
    far = {"with a base": got, "without": weighted_average(updates, like=base, partial=partial, refuse_no_numbers=False)}
    far = {how: float(np.max(np.abs(result["w"][10_000:].astype("g") - exact) / ulp)) for how, result in far.items()}
    assert far["with a base"] <= 0.51 < far["without"] / 3, far
    without = weighted_average(updates, like=base, partial=partial, refuse_no_numbers=False)["w"][8:10_000]
    assert without.tobytes() != base["w"][8:10_000].tobytes(), "then nobody needs a base"


def test_a_base_may_be_the_result_and_torchs(owner):
    torch = pytest.importorskip("torch")
    old = torch.from_numpy(odd_floats(3000, 2))
    model = {"w": old.clone(), "b": torch.ones(5, dtype=torch.bfloat16)}
    base = {"w": old.numpy().copy(), "b": torch.ones(5, dtype=torch.bfloat16)}
    base["w"].flags.writeable = False
    grown = {"w": old.clone(), "b": torch.full((5,), 3.0, dtype=torch.bfloat16)}
    grown["w"][100:] += 0.25
    here, apart = WeightedAverage(base=model, out=model), WeightedAverage(base=base)
    for average in (here, apart):
        average.pull(owner.address, owner.add_tensors(grown), 1.5, peer="a", round=1)
        average.pull(owner.address, owner.add_tensors({"w": old, "b": model["b"].clone()}), 4.5, peer="b", round=1)
    result = apart.result()
    assert here.result()["w"] is model["w"] and model["b"].tolist() == [1.5] * 5 == result["b"].tolist()
    assert np.asarray(model["w"]).tobytes() == np.asarray(result["w"]).tobytes()
    assert model["w"][:100].numpy().tobytes() == old[:100].numpy().tobytes()
    again = model["w"].clone()
    assert here.result()["w"].numpy().tobytes() == again.numpy().tobytes(), "nothing has come since"
    here.reset()
    here.pull(owner.address, owner.add_tensors(model), 2.0, peer="a", round=2)
    assert here.result()["w"].numpy().tobytes() == again.numpy().tobytes()


def test_a_base_that_does_not_fit_is_refused_by_name():
    model = {"a": np.zeros((2, 3), "f4"), "b": np.zeros(4, "f4")}
    for base in ({**model, "b": np.zeros(5, "f4")}, {**model, "b": np.zeros(4, "f8")}, {"a": model["a"]}, {**model, "c": np.zeros(1)}):
        with pytest.raises(Error) as e:
            WeightedAverage(model, base=base)
        assert e.value.code == "schema_mismatch" and e.value.name == ("c" if "c" in base else "b") and "base" in str(e.value)
    numbers = np.zeros(10, "f4")
    with pytest.raises(Error) as e:
        WeightedAverage(out={"w": numbers[:6]}, base={"w": numbers[3:9]})
    assert e.value.code == "invalid_argument" and e.value.name == "w"
    with pytest.raises(Error) as e:
        WeightedAverage(model, base={**model, "a": np.zeros((3, 2), "f4").T})
    assert e.value.code == "unsupported_layout" and e.value.name == "a"
    with pytest.raises(ValueError, match="base"):
        WeightedAverage()
    with pytest.raises(TypeError):
        WeightedAverage(base=[1])


@pytest.mark.parametrize("partial", ["error", "divide_by_reached", "staged"])
def test_a_value_that_is_no_number_is_an_error_with_the_clients_name(owner, partial):
    base = {"w": np.ones(4, "f4"), "mask": np.array([0, -np.inf], "f4")}
    good, bad = {"w": base["w"] + 1, "mask": base["mask"]}, {"w": np.array([1, np.nan, 1, 1], "f4"), "mask": base["mask"]}
    average = WeightedAverage(base=base, partial=partial)
    average.pull(owner.address, owner.add_tensors(good), 1, peer="site-1", round=1)
    ref = owner.add_tensors(bad)
    with pytest.raises(Error, match="a NaN or an infinity") as e:
        average.pull(owner.address, ref, 1, peer="site-2", round=1)
    assert (e.value.code, e.value.name) == ("value_out_of_range", "site-2") and "in the tensor 'w'" in e.value.message
    assert [u.refused for u in average.updates] == ["", "w"]
    got = average.result()
    assert np.array_equal(got["w"], good["w"]) and np.array_equal(got["mask"], base["mask"])
    lenient = WeightedAverage(base=base, partial=partial, refuse_no_numbers=False)
    lenient.pull(owner.address, ref, 1, peer="site-2", round=1)
    assert np.isnan(lenient.result()["w"][1])


@pytest.mark.parametrize("narrowed", [False, True])
def test_an_update_that_is_out_of_proportion_is_shortened_when_it_has_landed(owner, narrowed):
    """As `Weighing` does it, with one update in memory; and a counter is no part of a step."""
    r = np.random.default_rng(0)
    base = {"w": r.standard_normal((100, 100)).astype("f4"), "b": np.zeros(7, "f8"), "steps": np.array([5])}
    updates = [{name: t + (r.standard_normal(t.shape) * size).astype(t.dtype) if name != "steps" else t + 4 for name, t in base.items()} for size in (0.01, 0.02, 100.0)]
    average = WeightedAverage(base=base, partial="staged", longest=1.5)
    weighing = tensorpull.Weighing(base)
    for i, update in enumerate(updates):
        sent = tensorpull.narrowed(update, base) if narrowed else update
        average.pull(owner.address, owner.add_tensors(sent, narrow=narrowed), 1 + i, peer=f"site-{i}", round=1, narrowed=narrowed)
        weighing.add(f"site-{i}", 1 + i, dict(sent))
    seen = weighing.look()
    assert {u.peer: u.norm for u in average.updates} == dict(zip(seen.peers, seen.norms)), "bit by bit"
    got, right = average.result(), weighing.result(tensorpull.clip_norms(1.5, heaviest=np.inf))
    for name in ("w", "b"):
        np.testing.assert_allclose(got[name], right[name], rtol=1e-5, atol=1e-6)
    assert got["steps"] == right["steps"] == 9
    assert np.linalg.norm(np.concatenate([(got[name] - base[name]).ravel() for name in ("w", "b")])) < 1.5
    # the next round is clipped to what was usual in this one
    average.reset()
    average.clip(sorted(seen.norms)[1])
    average.pull(owner.address, owner.add_tensors(updates[2]), 1, peer="site-2", round=2)
    assert abs(np.sqrt(sum(((average.result()[name] - base[name]).astype("f8") ** 2).sum() for name in ("w", "b"))) / sorted(seen.norms)[1] - 1) < 1e-3


def test_a_difference_without_a_length_is_refused_with_its_client_and_its_tensor(owner):
    base = {"a": np.zeros(3), "w": np.zeros(3)}
    average = WeightedAverage(base=base, partial="staged", longest=1)
    with pytest.raises(Error, match="in the tensor 'w'") as e:
        average.pull(owner.address, owner.add_tensors({"a": np.ones(3), "w": np.array([0, 1e200, 0])}), 1, peer="site-2", round=1)
    assert (e.value.code, e.value.name) == ("value_out_of_range", "site-2")
    assert tensorpull.weighted_average([(owner.address, owner.add_tensors({"a": np.ones(3), "w": np.zeros(3)}), 1)], base=base, partial="staged", longest=1)["a"][0] < 0.6


@pytest.mark.parametrize("partial", ["error", "divide_by_reached", "staged"])
def test_a_weight_is_capped_where_it_is_the_clients_word(owner, partial):
    base, up, down = {"w": np.zeros(3, "f4")}, {"w": np.ones(3, "f4")}, {"w": -np.ones(3, "f4")}
    updates = [(owner.address, owner.add_tensors(up), 600.0) for _ in range(9)] + [(owner.address, owner.add_tensors(down), 6e9)]
    assert tensorpull.weighted_average(updates, base=base, partial=partial)["w"][0] < -0.99, "the control"
    assert abs(tensorpull.weighted_average(updates, base=base, partial=partial, heaviest=600)["w"][0] - 0.8) < 1e-5


def test_a_length_and_a_cap_that_are_none(owner):
    base = {"w": np.zeros(3, "f4")}
    for wrong in (0, -1, float("nan"), float("inf"), "1"):
        with pytest.raises(ValueError, match="longest is a length"):
            WeightedAverage(base=base, partial="staged", longest=wrong)
        with pytest.raises(ValueError, match="longest is a length"):
            WeightedAverage(base=base, partial="staged").clip(wrong)
    for wrong in (0, -1, float("nan"), 2.0**61, "1", None):
        with pytest.raises(ValueError, match="heaviest is a weight"):
            WeightedAverage(base=base, heaviest=wrong)
    for how in ({"base": base}, {"like": base, "partial": "staged"}):
        with pytest.raises(ValueError, match='wants partial="staged" and base'):
            WeightedAverage(**how, longest=1)
        with pytest.raises(ValueError, match='wants partial="staged" and base'):
            WeightedAverage(**how).clip(1)


@pytest.mark.parametrize("weight", [2e-38, 1e38, 0, -1, float("nan")])
def test_a_weight_that_sums_of_32_bits_cannot_hold_is_refused_by_the_clients_name(owner, weight):
    average = WeightedAverage({"w": np.zeros(3, "f4")})
    with pytest.raises(Error, match="from 2[*][*]-60 to 2[*][*]60" if weight > 0 else "leave out whose update") as e:
        average.pull(owner.address, owner.add_tensors({"w": np.ones(3, "f4")}), weight, peer="site-1", round=1)
    assert (e.value.code, e.value.name) == ("invalid_argument", "site-1")


@pytest.mark.parametrize("partial", ["error", "staged"])
def test_narrowed_updates_come_in_a_quarter_of_the_bytes_and_count_once(owner, partial):
    r = np.random.default_rng(0)
    base = {"w": r.standard_normal((300, 1000)).astype("f4"), "n": np.arange(4)}
    average = WeightedAverage(base=base, partial=partial)
    sent, came = [], 0
    for i, weight in enumerate((1.0, 3.0)):
        step = tensorpull.narrowed({"w": base["w"] + r.standard_normal((300, 1000)).astype("f4") * 1e-2, "n": base["n"]}, base)
        ref = owner.add_tensors(step, narrow=True, recipients=2)  # it is there for the second time too
        sent.append((weight, step["w"]))
        for _ in range(2):  # again: it counts once
            receipt = average.pull(owner.address, ref, weight, peer=f"site-{i}", round=1, narrowed=True)
        came += receipt.bytes
        assert owner.wait(ref, 60)
    assert came < 0.4 * 2 * base["w"].nbytes and average.whole_updates == 2 and [u.state for u in average.updates] == ["counted", "counted"]
    expected = sum(weight * w.astype("f8") for weight, w in sent) / 4
    np.testing.assert_allclose(average.result()["w"], expected, rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match="narrowed wants base"):
        WeightedAverage(base).pull(owner.address, ref, 1, peer="a", round=1, narrowed=True)


@pytest.mark.parametrize("narrowed", [False, True])
def test_a_client_hears_of_an_update_that_is_refused_whichever_way_it_came(owner, narrowed):
    base = {"w": np.ones(300_000, "f4")}
    wrong = {"w": base["w"].copy()}
    wrong["w"][5] = np.inf
    ref = owner.add_tensors(wrong, base=base, recipients=1)
    average, peer = WeightedAverage(base=base, partial="staged"), "site " * 20
    with pytest.raises(Error, match="NaN or an infinity") as e:
        average.pull(owner.address, ref, 1, peer=peer, round=1, narrowed=narrowed)
    assert e.value.code == "value_out_of_range" and e.value.name == peer and not any(u.counts for u in average.updates)
    with pytest.raises(Error) as e:
        owner.wait(ref, processes.AMPLE)
    assert e.value.code == "not_delivered"


@pytest.mark.parametrize("narrowed", [False, True])
def test_a_client_hears_that_its_update_has_no_round_any_more_whichever_way_it_came(owner, narrowed):
    base = {"w": np.zeros(300_000, "f4")}
    ref = owner.add_tensors({"w": np.ones(300_000, "f4")}, base=base, recipients=1)
    average = WeightedAverage(base=base, partial="staged")
    with pytest.raises(Error) as e:
        average.pull(owner.address, ref, 1, peer="a", round=1, narrowed=narrowed, progress=lambda p: average.round == 1 and average.reset(), progress_interval=0)
    assert e.value.code == "cancelled" and average.updates == []
    with pytest.raises(Error) as e:
        owner.wait(ref, processes.AMPLE)
    assert e.value.code == "not_delivered"


def test_a_narrowed_update_that_is_there_whole_alone_is_added_as_it_comes(owner):
    base = {"w": np.zeros(5, "f4")}
    ref = owner.add_tensors({"w": np.arange(5, dtype="f4")}, recipients=1)
    average = WeightedAverage(base=base)
    average.pull(owner.address, ref, 1, peer="a", round=1, narrowed=True)
    assert owner.wait(ref, processes.AMPLE) and average.result()["w"].tolist() == [0, 1, 2, 3, 4]


def test_errors_about_updates_of_a_list_are_in_the_callers_words(owner):
    like = {"w": np.ones(3, "f4")}
    for tensors, weight, words in ((like, 1e-30, "weights from 2\\*\\*-60"), ({"w": np.full(3, np.nan, "f4")}, 1, "NaN or an infinity")):
        with pytest.raises(Error, match=words):
            weighted_average([(owner.address, owner.add_tensors(tensors), weight)], like)
