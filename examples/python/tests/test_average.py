"""Federated averaging from Python."""

from __future__ import annotations

import numpy as np
import pytest

import tensorpull
from tensorpull import Error, WeightedAverage, weighted_average


def clients(n, elements=300_000):
    rng = np.random.default_rng(n)
    return [{"w": rng.normal(size=elements).astype("f4"), "b": rng.normal(size=(7, 3)), "n": rng.integers(0, 100, 5)} for _ in range(n)]


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
    assert average.pull(owner.address, ref, 2.0).outcome == "completed"
    average.pull(owner.address, other, 1.0)
    assert (average.whole_updates, average.partial_updates, average.whole_weight) == (2, 0, 3.0)
    average.result()
    assert torch.equal(model.weight, torch.full((20, 30), 4.0)) and model.weight.requires_grad
    average.reset()
    with pytest.raises(Error) as e:
        average.result()
    assert e.value.code == "no_updates"


@pytest.mark.parametrize("partial", ["divide_by_reached", "error", "staged"])
def test_an_update_that_stops_half_way(owner, partial):
    models = clients(2)
    refs = [owner.add_tensors(m) for m in models]
    average = WeightedAverage(models[0], partial=partial, chunk_size=4096)
    average.pull(owner.address, refs[0], 1.0)

    def stop(event):
        if event.bytes_done:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        average.pull(owner.address, refs[1], 1.0, peer="site-2", progress=stop, progress_interval=0)
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
        WeightedAverage({"w": np.zeros(3)}).pull(owner.address, ref, -1.0)
    assert e.value.code == "invalid_argument"
