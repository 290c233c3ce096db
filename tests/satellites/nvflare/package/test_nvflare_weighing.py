"""FLARE's FedAvg with the aggregator that looks at all updates before it weighs them."""

from __future__ import annotations

import logging

import numpy as np
import pytest

pytest.importorskip("nvflare")
torch = pytest.importorskip("torch")

from nvflare.apis.fl_constant import ReservedKey  # noqa: E402
from nvflare.apis.fl_context import FLContext  # noqa: E402
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType  # noqa: E402
from nvflare.app_common.abstract.model import make_model_learnable  # noqa: E402
from nvflare.app_common.aggregators.weighted_aggregation_helper import WeightedAggregationHelper  # noqa: E402
from nvflare.app_common.app_constant import AppConstants  # noqa: E402
from nvflare.app_common.app_event_type import AppEventType  # noqa: E402
from nvflare.app_common.utils.fl_model_utils import FLModelUtils  # noqa: E402

import tensorpull  # noqa: E402
from tensorpull.nvflare import WeighingAggregator  # noqa: E402

FORMATS = pytest.mark.parametrize("format_", ["pytorch", "numpy"])
SITES = 5


def old_model(seed=1):
    some = torch.Generator().manual_seed(seed)
    return {
        "f": torch.randn(30, 7, generator=some), "h": torch.randn(50, generator=some).half(), "d": torch.randn((), generator=some, dtype=torch.float64),
        "mask": torch.tensor([float("-inf"), 0.0, float("nan")]), "n": torch.tensor(5), "b": torch.tensor([True, False]), "empty": torch.zeros(0, 3),
    }  # fmt: skip


def step(k, times=1.0):
    """What site k has learnt: nearly the same as the others, all steps above 0."""
    some = torch.Generator().manual_seed(100 + k)
    new = old_model()
    for name in ("f", "h", "d"):
        new[name] = (new[name].double() + times * (0.5 + 0.1 * torch.rand(new[name].shape, generator=some, dtype=torch.float64))).to(new[name].dtype)
    new["n"] += k
    return new


def in_format(tensors, format_):
    return {name: np.asarray(t) for name, t in tensors.items()} if format_ == "numpy" else tensors


def started(base, **options):
    aggregator = WeighingAggregator(**options)
    begin(aggregator, base)
    return aggregator


def begin(aggregator, base):
    context = FLContext()
    context.set_prop(AppConstants.GLOBAL_MODEL, make_model_learnable(base, {}), private=True, sticky=False)
    aggregator.handle_event(AppEventType.ROUND_STARTED, context)
    aggregator.reset_stats()


def update(params, who="site-1", steps=1, type_=ParamsType.FULL, **more):
    return FLModel(params=params, params_type=type_, meta={"NUM_STEPS_CURRENT_ROUND": steps, "client_name": who}, **more)


def moved(base, got):
    """How far f went, as a part of what a site learns."""
    return float((torch.as_tensor(got["f"]).double() - torch.as_tensor(base["f"]).double()).mean()) / 0.55


def bits(tensors):
    return {name: (str(t.dtype), tuple(t.shape), np.asarray(t).tobytes()) for name, t in tensors.items()}


class NearestToTheOthers:
    """Leaves out the update that is farthest from the others."""

    def __call__(self, seen):
        squares = np.diag(seen.products)
        distances = (squares[:, None] + squares[None, :] - 2 * seen.products).sum(axis=1)
        return np.where(distances == distances.max(), 0.0, seen.weights)


@FORMATS
@pytest.mark.parametrize("how", [{}, {"weights": tensorpull.clip_norms(9.0)}, {"trimmed": 1}, {"weights": NearestToTheOthers()}])
def test_a_site_that_is_out_of_proportion_does_not_decide_and_rounds_follow_each_other(format_, how):
    base, aggregator = in_format(old_model(), format_), WeighingAggregator(**how)
    if "trimmed" in how:  # it refuses all infinities
        del base["mask"]
    for _ in range(2):
        begin(aggregator, base)
        held = bits(base)
        made = []
        for order in (range(SITES), reversed(range(SITES))):
            for k in order:
                hostile = k == 2
                params = {name: t for name, t in in_format(step(k, -10.0 if hostile else 1.0), format_).items() if name in base}
                aggregator.accept_model(update(params, f"site-{k}", 10**9 if hostile else 20, metrics={"accuracy": float(k)}))
            made.append(aggregator.aggregate_model())
        got = made[0].params
        assert bits(got) == bits(made[1].params), "the order of arrival does not matter"
        assert bits(base) == held, "the old model is FLARE's"
        assert made[0].params_type == ParamsType.FULL and list(got) == list(base)
        assert {name: (t.dtype, tuple(t.shape), type(t)) for name, t in got.items()} == {name: (t.dtype, tuple(t.shape), type(t)) for name, t in base.items()}
        assert format_ == "pytorch" or all(t.dtype.isbuiltin == 1 for t in got.values()), "FLARE's chunks carry other types"
        assert 0.4 < moved(base, got) < 1.2, moved(base, got)
        others = [0, 1, 3, 4] if "weights" in how and isinstance(how["weights"], NearestToTheOthers) else range(SITES)
        assert int(got["n"]) == 5 + sorted(others)[(len(others) - 1) // 2]
        assert got["b"].tolist() == [True, False]
        assert "trimmed" in how or torch.equal(torch.isfinite(torch.as_tensor(got["mask"])), torch.tensor([False, True, False]))
        assert made[0].metrics["accuracy"] == pytest.approx(sum(others) / len(others))


@FORMATS
@pytest.mark.parametrize("how", [{}, {"trimmed": 0}])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_an_update_with_what_is_no_number_is_refused_by_the_sites_name_and_the_others_count(format_, how, value):
    base = {name: t for name, t in old_model().items() if name != "mask"}
    results = []
    for bad in (None, 0, 3):
        aggregator = started(in_format(base, format_), **how)
        for k in range(SITES):
            params = {name: t for name, t in step(k).items() if name != "mask"}
            if k == bad:
                nasty = {**params, "h": params["h"].clone()}
                nasty["h"][7] = value
                with pytest.raises(ValueError, match="site-9 is left out.*infinities or NaNs"):
                    aggregator.accept_model(update(in_format(nasty, format_), "site-9", metrics={"accuracy": 1e9}))
            aggregator.accept_model(update(in_format(params, format_), f"site-{k}", metrics={"accuracy": 0.5}))
        results.append(aggregator.aggregate_model())
    assert bits(results[0].params) == bits(results[1].params) == bits(results[2].params)
    assert all(made.metrics == {"accuracy": 0.5} for made in results)


class Fixed:
    def __init__(self, made):
        self.made = made

    def __call__(self, seen):
        return self.made(seen)


@pytest.mark.parametrize("wrong, said", [
    (lambda s: [np.nan] * 3, "invalid_argument"), (lambda s: [-1.0, 1.0, 1.0], "invalid_argument"), (lambda s: [0.0] * 3, "invalid_argument"),
    (lambda s: None, "TypeError"), (lambda s: [1.0], "there are 3 updates"), (lambda s: 1 / 0, "ZeroDivisionError"),
])  # fmt: skip
def test_weights_that_are_none_leave_the_old_model_and_the_next_round_is_right(wrong, said, caplog):
    base, weights = old_model(), Fixed(wrong)
    aggregator = started(base, weights=weights)
    for after in range(2):
        for k in range(3):
            aggregator.accept_model(update(step(k), f"site-{k}", metrics={"accuracy": 0.5}))
        with caplog.at_level(logging.ERROR):
            got = aggregator.aggregate_model()
        if after == 0:
            assert bits(got.params) == bits(base) and got.metrics is None
            assert "the old model stays" in caplog.text and said in caplog.text
            weights.made = lambda seen: seen.weights
            begin(aggregator, base)
    assert moved(base, got.params) == pytest.approx(1, abs=0.05)


def test_a_round_without_updates_leaves_the_old_model(caplog):
    base = old_model()
    aggregator = started(base)
    for refused in (None, update({"f": base["f"]})):
        if refused is not None:
            with pytest.raises(ValueError, match="site-1.*lacks b"):
                aggregator.accept_model(refused)
        assert bits(aggregator.aggregate_model().params) == bits(base)
    assert caplog.text.count("no update counts") == 2
    with pytest.raises(ValueError, match="site-1.*no global model"):
        started({}).accept_model(update(base))


def test_own_weights_are_the_servers_word_and_steps_up_to_the_median():
    base, seen = {"w": torch.zeros(4)}, []
    weights = Fixed(lambda of: (seen.append(of), of.weights)[1])
    aggregator = started(base, weights=weights, aggregation_weights={"site-2": 3.0})
    for who, steps, value in (("site-1", 5, 1.0), ("site-2", 20, 2.0), ("site-3", 10**12, 3.0)):
        aggregator.accept_model(update({"w": torch.full((4,), value)}, who, steps))
    got = aggregator.aggregate_model().params["w"]
    assert dict(zip(seen[0].peers, seen[0].weights)) == {"site-1": 5.0, "site-2": 60.0, "site-3": 20.0}
    assert got.tolist() == pytest.approx([(5 + 120 + 60) / 85] * 4)


@pytest.mark.parametrize("metric", [10**400, np.ones(2), torch.ones(3)], ids=["no float", "array", "tensor"])
def test_a_metric_that_cannot_be_added_is_left_out_and_the_round_counts(metric, caplog):
    base = old_model()
    aggregator = started(base)
    for k in range(3):
        aggregator.accept_model(update(step(k), f"site-{k}", metrics={"accuracy": 0.5, "shape": np.ones(4), "more": 1.0} if k != 1 else {"shape": metric, "accuracy": 0.8}))
    got = aggregator.aggregate_model()
    assert moved(base, got.params) == pytest.approx(1, abs=0.05)
    assert got.metrics["accuracy"] == pytest.approx(0.6) and got.metrics["more"] == 1.0 and got.metrics["shape"].tolist() == [1.0] * 4
    assert "'shape' of site-1 is left out" in caplog.text


def test_types_without_arithmetic_are_refused_by_the_sites_name():
    base = {"f": torch.ones(3), "n": torch.tensor([3], dtype=torch.uint16)}
    aggregator = started(base)
    with pytest.raises(ValueError, match="site-1"):
        aggregator.accept_model(update({"f": torch.ones(3), "n": torch.tensor([1], dtype=torch.uint16)}, type_=ParamsType.DIFF))
    aggregator.accept_model(update({"f": torch.ones(3) * 2, "n": base["n"]}, "site-2"))
    assert aggregator.aggregate_model().params["f"].tolist() == [2.0] * 3


def test_differences_are_added_to_the_old_model_and_sites_may_send_one_or_the_other():
    base = old_model()
    whole, mixed = started(base), started(base)
    for k in range(3):
        new = step(k)
        whole.accept_model(update(new, f"site-{k}"))
        if k == 1:
            mixed.accept_model(update(new, f"site-{k}"))
        else:
            less = {name: (t if name in ("b", "mask") else t - base[name]) for name, t in new.items()}
            less["mask"], less["b"] = torch.zeros(3), torch.zeros(2, dtype=torch.bool)
            mixed.accept_model(update(less, f"site-{k}", type_=ParamsType.DIFF))
    got, want = mixed.aggregate_model(), whole.aggregate_model()
    assert got.params_type == ParamsType.FULL and int(got.params["n"]) == 6
    for name in ("f", "h", "d"):
        assert torch.allclose(got.params[name].double(), want.params[name].double(), atol=1e-3 if name == "h" else 1e-6)


def test_references_that_wait_views_ties_and_other_types():
    class Waits:
        def __init__(self, value, asked):
            self.value, self.asked = value, asked

        def materialize(self):
            self.asked.append(1)
            return self.value

    tied, asked = torch.arange(12.0).reshape(3, 4), []
    base = {"a": tied, "b": tied, "c": torch.ones(4, 3).t()}
    aggregator = started(base)
    for k in range(3):
        new = {"a": Waits((tied + k).double(), asked), "b": Waits((tied + 1).t().contiguous().t(), asked), "c": Waits(torch.ones(3, 4) + k, asked)}
        aggregator.accept_model(update(new, f"site-{k}"))
    assert len(asked) == 9
    got = aggregator.aggregate_model().params
    # differences of 1, sqrt(12 + 12 + 12) and so on are clipped to the median norm, that of site 1
    assert torch.equal(got["b"] - tied > 0, torch.ones(3, 4) > 0) and got["a"].data_ptr() != got["b"].data_ptr()
    assert float((got["a"] - tied).mean()) == pytest.approx(float((got["c"] - 1).mean()), abs=1e-5) and got["a"].dtype == torch.float32

    class Lost:
        def materialize(self):
            raise RuntimeError("it could not be had")

    with pytest.raises(RuntimeError, match="could not be had"):
        aggregator.accept_model(update({**base, "c": Lost()}))
    aggregator.accept_model(update(base))
    assert bits(aggregator.aggregate_model().params) == bits(base)


def test_what_is_no_update_of_this_model():
    base = {"a": torch.zeros(3), "n": torch.zeros(2, dtype=torch.int64)}
    aggregator = started(base, max_updates=2)
    good = {"a": torch.ones(3), "n": torch.ones(2, dtype=torch.int64)}
    aggregator.accept_model(update(good, "site-1"))
    for wrong, why in (
        ({"a": good["a"]}, "lacks n"), ({**good, "more": good["a"]}, "has more"), ({**good, "a": torch.ones(4)}, "a has another"), ({**good, "a": np.ones(3, np.float32)}, "a has another"),
        ({**good, "n": torch.ones(2)}, "n has another"), ({**good, "a": "ones"}, "a has another"), ({**good, "a": torch.full((3,), 1e300, dtype=torch.float64)}, "infinities"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=f"site-7 is left out of this round.*{why}"):
            aggregator.accept_model(update(wrong, "site-7"))
    with pytest.raises(ValueError, match="an update of site-1 is left out.*update_changed"):
        aggregator.accept_model(update({**good, "a": torch.full((3,), -50.0)}, "site-1"))
    aggregator.accept_model(update(good, "site-2"))
    with pytest.raises(ValueError, match="site-3.*table_full"):
        aggregator.accept_model(update(good, "site-3"))
    got = aggregator.aggregate_model().params
    assert got["a"].tolist() == [1.0] * 3 and got["n"].tolist() == [1, 1]
    for bad in ({"trimmed": -1}, {"trimmed": True}, {"trimmed": 1, "weights": tensorpull.clip_norms()}):
        with pytest.raises(ValueError):
            WeighingAggregator(**bad)
    with pytest.raises(TypeError):
        WeighingAggregator(weights=[1.0, 2.0])
    assert WeighingAggregator(trimmed=1).trimmed == 1 and WeighingAggregator().weights is None
    with pytest.raises(ValueError, match="c of the global model"):
        started({"a": torch.zeros(1), "c": torch.zeros(1, dtype=torch.complex128)}).accept_model(update({"a": torch.zeros(1)}))


def test_an_update_is_looked_at_when_it_comes_and_let_go_with_the_round():
    import gc
    import weakref

    base = {"w": torch.zeros(5)}
    aggregator, known = started(base), []
    for k in range(3):
        value = torch.full((5,), float(k + 1))
        known.append(weakref.ref(value))
        aggregator.accept_model(update({"w": value}, f"site-{k}"))
        if k == 1:
            held = value
        del value
    held[:] = 7.0  # nobody may do so; it shows that norms are not read again
    got = aggregator.aggregate_model().params["w"]
    median = 2 * 5**0.5
    assert got.tolist() == pytest.approx([(1 + 7 + 3 * median / (3 * 5**0.5)) / 3] * 5)
    del held
    gc.collect()
    assert all(one() is None for one in known)


def test_in_scatter_and_gather_a_site_is_who_flare_says():
    base = {"w": torch.zeros(2)}
    aggregator = started(base)
    for k in range(3):
        context, peer = FLContext(), FLContext()
        peer.set_prop(ReservedKey.IDENTITY_NAME, f"site-{k}", private=False, sticky=False)
        context.set_peer_context(peer)
        assert aggregator.accept(FLModelUtils.to_shareable(update({"w": torch.full((2,), 1.0 + k)}, "site-0")), context)
    shareable = aggregator.aggregate(FLContext())
    assert FLModelUtils.from_shareable(shareable).params["w"].tolist() == pytest.approx([(1 + 2 + 2) / 3] * 2)


def test_a_sum_of_ones_own_is_left_alone():
    """Also once FLARE's own asks for an update first."""
    from tensorpull.nvflare._lazy import aggregators_ask_first

    class Own(WeightedAggregationHelper):
        def add(self, data, weight, contributor_name, contribution_round, *, half=True):
            super().add({name: value / (2 if half else 1) for name, value in data.items()}, weight, contributor_name, contribution_round)

    class Another(WeightedAggregationHelper):
        def add(self, data, weight, contributor_name, contribution_round):
            self.total = dict(data)
            self.counts = dict.fromkeys(data, 1)

    before = WeightedAggregationHelper.add, Own.add, Another.add
    try:
        assert aggregators_ask_first() == ""
        assert (Own.add, Another.add) == before[1:]
        for made, want in ((Own(), 2.0), (Another(), 6.0)):
            for value in (2.0, 6.0):
                made.add({"w": torch.full((2,), value)}, 1.0, "site", 0)
            assert made.get_result()["w"].tolist() == [want] * 2
    finally:
        WeightedAggregationHelper.add = before[0]


@FORMATS
def test_norms_are_of_named_tensors_and_a_site_decides_no_other(format_):
    """The variances move by thousands, and one site sends more: unnamed, they are the median, and what is named is clipped by its own norm."""
    base = {**old_model(), "running_var": torch.ones(9)}
    aggregator = started(in_format(base, format_), names=["f", "h", "d"])
    for k in range(SITES):
        new = {**step(k, times=-50.0 if k == 2 else 1.0), "running_var": torch.full((9,), float("nan") if k == 2 else 1000.0 * (k + 1))}
        aggregator.accept_model(update(in_format(new, format_), f"site-{k}"))
    got = aggregator.aggregate_model().params
    assert torch.as_tensor(got["running_var"]).tolist() == [4000.0] * 9, "1000, 2000, 4000, 5000, and what is none"
    assert 0.4 < moved(base, got) < 0.8
    for wrong in ("f", [], [1], ()):
        with pytest.raises(ValueError, match="names"):
            WeighingAggregator(names=wrong)
    with pytest.raises(ValueError, match="names"):
        WeighingAggregator(names=["f"], trimmed=1)
