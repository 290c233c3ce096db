"""FLARE's FedAvg with the aggregator that keeps what did not change."""

from __future__ import annotations

import itertools
import random

import numpy
import pytest

pytest.importorskip("nvflare")
torch = pytest.importorskip("torch")

from nvflare.apis.fl_context import FLContext  # noqa: E402
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType  # noqa: E402
from nvflare.app_common.abstract.model import make_model_learnable  # noqa: E402
from nvflare.app_common.app_constant import AppConstants  # noqa: E402
from nvflare.app_common.app_event_type import AppEventType  # noqa: E402
from nvflare.app_common.utils.fl_model_utils import FLModelUtils  # noqa: E402

from tensorpull.nvflare import DifferenceAggregator  # noqa: E402


def model():
    some = torch.Generator().manual_seed(1)
    return {
        "f": torch.randn(1000, generator=some),
        "h": torch.randn(50, generator=some).to(torch.float16),
        "d": torch.randn(50, generator=some).double(),
        "n": torch.tensor([7, -8, 2**40]),
        "z": torch.tensor([-0.0, float("nan"), float("inf"), 1e-41, float("inf"), float("nan")]),
        "c": torch.complex(torch.ones(3), -torch.zeros(3)),
        "b": torch.tensor([True, False]),
    }


def in_format(tensors, format_):
    return {name: t.numpy() for name, t in tensors.items()} if format_ == "numpy" else tensors


def started(base, **options):
    aggregator, context = DifferenceAggregator(**options), FLContext()
    context.set_prop(AppConstants.GLOBAL_MODEL, make_model_learnable(base, {}), private=True, sticky=False)
    aggregator.handle_event(AppEventType.ROUND_STARTED, context)
    aggregator.reset_stats()
    return aggregator


def update(params, who="site-1", steps=1, type_=ParamsType.FULL, **more):
    return FLModel(params=params, params_type=type_, meta={"NUM_STEPS_CURRENT_ROUND": steps, "client_name": who}, **more)


def bits(value):
    return torch.as_tensor(value).contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


@pytest.mark.parametrize("format_", ["pytorch", "numpy"])
def test_what_no_update_changed_keeps_its_bits(format_):
    base = model()
    aggregator = started(in_format(base, format_), aggregation_weights={"site-2": 2.0})
    steps = {"site-1": 3, "site-2": 5, "site-3": 0.7}
    for k, (who, n) in enumerate(steps.items()):
        new = {name: t.clone() for name, t in base.items()}
        new["f"][:10] += k
        new["z"][4:] = 3.0  # there is no difference to what is no number
        new["n"][0] = 10
        aggregator.accept_model(update(in_format(new, format_), who, n, metrics={"accuracy": float(k)}))
    got = aggregator.aggregate_model()
    mean = (10 * 1 + 0.7 * 2) / 13.7
    for name, t in base.items():
        if name != "b":  # FLARE's own mean of a bool
            assert torch.as_tensor(got.params[name]).dtype == t.dtype and tuple(got.params[name].shape) == tuple(t.shape), name
    assert bits(got.params["f"][10:]) == bits(base["f"][10:])
    assert torch.allclose(torch.as_tensor(got.params["f"][:10]), base["f"][:10] + mean)
    for name in ("h", "d", "c"):
        assert bits(got.params[name]) == bits(base[name]), name
    assert bits(got.params["z"][:4]) == bits(base["z"][:4]) and got.params["z"][4:].tolist() == [3.0, 3.0]
    assert got.params["n"].tolist() == [10, -8, 2**40]
    assert got.params_type == ParamsType.FULL and got.metrics["accuracy"] == pytest.approx(mean)


@pytest.mark.parametrize("metric", [10**400, torch.ones(3)], ids=["no float", "tensor"])
def test_a_metric_that_cannot_be_added_is_left_out_and_the_update_counts_once(metric):
    aggregator = started({"w": torch.zeros(3)})
    aggregator.accept_model(update({"w": torch.full((3,), 2.0)}, "site-1", metrics={"shape": torch.ones(2), "accuracy": 1.0}))
    aggregator.accept_model(update({"w": torch.full((3,), 4.0)}, "site-2", metrics={"shape": metric, "accuracy": 0.0}))
    got = aggregator.aggregate_model()
    assert got.params["w"].tolist() == [3.0] * 3
    assert got.metrics["shape"].tolist() == [1.0, 1.0] and got.metrics["accuracy"] == 0.5


def test_without_a_global_model_it_is_flares_own_sum():
    aggregator = started({})
    for value in (1.0, 3.0):
        aggregator.accept_model(update({"w": torch.full((3,), value)}))
    assert aggregator.aggregate_model().params["w"].tolist() == [2.0] * 3
    for types in ((ParamsType.DIFF, ParamsType.FULL), (ParamsType.FULL, ParamsType.DIFF), (ParamsType.DIFF,)):
        for type_ in types:  # FLARE's FedOpt may have none in its first round
            aggregator.accept_model(update({"w": torch.full((3,), 2.0 if type_ == ParamsType.FULL else 0.5)}, type_=type_))
        got = aggregator.aggregate_model()
        assert got.params_type == types[-1] if len(types) == 1 else ParamsType.FULL
        assert got.params["w"].tolist() == [0.5 if len(types) == 1 else 2.0] * 3


def test_an_update_that_is_refused_leaves_nothing():
    class Lost:
        def materialize(self):
            raise RuntimeError("it could not be had")

    base = {"a": torch.zeros(3), "b": torch.zeros(2)}
    aggregator = started(base)
    aggregator.accept_model(update({"a": torch.ones(3), "b": torch.ones(2)}, "site-1"))
    for wrong, of in (
        (update({"a": torch.full((3,), 9.0), "b": Lost()}), RuntimeError),
        (update({"a": torch.full((3,), 9.0), "b": torch.ones(5)}), ValueError),
        (update({"a": torch.full((3,), 9.0), "b": torch.ones(2, dtype=torch.complex64)}), ValueError),
        (update({"a": torch.full((3,), 9.0), "b": [1.0, 1.0]}), ValueError),
        (update({"a": torch.full((3,), 9.0), "other": torch.ones(2)}, type_=ParamsType.DIFF), ValueError),
        (update({"a": torch.full((3,), 9.0), "b": torch.ones(5)}, type_=ParamsType.DIFF), ValueError),
    ):
        with pytest.raises(of):
            aggregator.accept_model(wrong)
    got = aggregator.aggregate_model()
    assert got.params["a"].tolist() == [1.0] * 3 and got.params["b"].tolist() == [1.0] * 2
    with pytest.raises(ValueError, match="weight"):
        started(base, aggregation_weights={"site-1": -1.0}).accept_model(update({"a": torch.ones(3)}))


@pytest.mark.parametrize("format_", ["pytorch", "numpy"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("name", ["f", "h", "d", "c"])
def test_an_update_that_is_no_number_is_refused_with_its_site_and_its_tensor(format_, value, name):
    base = model()
    aggregator = started(in_format(base, format_))
    good, bad = ({name: t.clone() for name, t in base.items()} for _ in range(2))
    good["f"] += 1
    bad["f"] += 100
    bad[name][2] = value
    with pytest.raises(ValueError, match=f"site-2 has a NaN or an infinity in {name}"):
        aggregator.accept_model(update(in_format(bad, format_), "site-2"))
    aggregator.accept_model(update(in_format(good, format_), "site-1"))
    assert torch.allclose(torch.as_tensor(aggregator.aggregate_model().params["f"]), base["f"] + 1), "nothing of it was added"


@pytest.mark.parametrize("format_", ["pytorch", "numpy"])
def test_a_difference_that_is_no_number_is_refused_where_the_old_model_has_a_number(format_):
    base = in_format({"w": torch.zeros(3), "mask": torch.tensor([0.0, -float("inf")])}, format_)
    aggregator = started(base)
    bad = {"w": torch.tensor([1.0, float("nan"), 1.0]), "mask": torch.zeros(2)}
    with pytest.raises(ValueError, match="site-2 has a NaN or an infinity in w"):
        aggregator.accept_model(update(in_format(bad, format_), "site-2", type_=ParamsType.DIFF))
    good = {"w": torch.ones(3), "mask": torch.tensor([0.0, float("nan")])}  # -inf less -inf
    aggregator.accept_model(update(in_format(good, format_), type_=ParamsType.DIFF))
    got = aggregator.aggregate_model()
    assert got.params_type == ParamsType.DIFF and got.params["w"].tolist() == [1.0] * 3 and got.params["mask"].tolist() == [0.0, 0.0]
    moved = FLModelUtils.update_model(FLModel(params=base, params_type=ParamsType.FULL), got)
    assert moved.params["w"].tolist() == [1.0] * 3 and moved.params["mask"].tolist() == [0.0, -float("inf")]


@pytest.mark.parametrize("type_", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_tensors_of_8_bits_have_a_mean_and_are_looked_at(type_):
    base = {"w": torch.ones(8).to(type_), "f": torch.zeros(3)}
    aggregator = started(base)
    aggregator.accept_model(update({"w": torch.full((8,), 2.0).to(type_), "f": torch.ones(3)}))
    with pytest.raises(ValueError, match="site-2 has a NaN or an infinity in w"):
        aggregator.accept_model(update({"w": torch.full((8,), float("nan")).to(type_), "f": torch.ones(3)}, "site-2"))
    aggregator.accept_model(update({"w": torch.full((8,), 4.0).to(type_), "f": torch.ones(3)}, "site-3"))
    got = aggregator.aggregate_model().params
    assert got["w"].dtype == type_ and got["w"].float().tolist() == [3.0] * 8 and got["f"].tolist() == [1.0] * 3


@pytest.mark.parametrize("steps, by_server", [(1e300, 1.0), (1.0, 1e-50), (1e15, 1e15)])
def test_a_weight_that_sums_of_32_bits_do_not_hold_is_refused_with_its_site(steps, by_server):
    base = {"w": torch.zeros(10)}
    aggregator = started(base, aggregation_weights={"site-2": by_server})
    aggregator.accept_model(update({"w": torch.ones(10)}, "site-1", 600))
    with pytest.raises(ValueError, match="the weight of site-2"):
        aggregator.accept_model(update({"w": torch.full((10,), 2.0)}, "site-2", steps))
    assert aggregator.aggregate_model().params["w"].tolist() == [1.0] * 10


def test_a_site_that_says_that_it_has_made_billions_of_steps_decides_nothing(caplog):
    base = {"w": torch.zeros(10)}
    for cap in (None, 600):
        aggregator = started(base, max_steps=cap)
        caplog.clear()
        with caplog.at_level("WARNING"):
            for i in range(10):
                aggregator.accept_model(update({"w": torch.full((10,), -1.0 if i == 9 else 1.0)}, f"site-{i}", 6e9 if i == 9 else 600))
            got = aggregator.aggregate_model().params["w"]
        assert torch.allclose(got, torch.full((10,), -1.0 if cap is None else 0.8), atol=1e-4)
        assert ("site-9 has more than half" in caplog.text) == (cap is None)
    for wrong in (0, -1, True, float("nan"), "1"):
        with pytest.raises(ValueError, match="max_steps"):
            DifferenceAggregator(max_steps=wrong)
    bounded = started(base, max_steps=600)
    bounded.accept_model(update({"w": torch.ones(10)}, "site-1", 1e300))
    assert bounded.aggregate_model().params["w"].tolist() == [1.0] * 10, "and so is one that no sum holds"


def trained(base, k):
    """Of each tensor but "frozen", which some updates do not have at all."""
    new = {name: t.clone() for name, t in base.items()}
    new["f"][:10] += k
    new["n"][0] += 3 * k
    new["h"][1] += k
    return new


@pytest.mark.parametrize("format_", ["pytorch", "numpy"])
def test_whole_models_and_differences_in_any_order_have_one_mean_over_rounds(format_):
    """Each site sends its model in one way or the other, in each order: the results are the same, and the mean."""
    kinds = {"whole": ParamsType.FULL, "difference": ParamsType.DIFF}
    for ways in itertools.product(kinds, repeat=3):
        of_order = []
        for order in itertools.permutations(range(3)):
            model_ = FLModel(params=in_format(start(), format_), params_type=ParamsType.FULL)
            for round_ in range(3):
                base = {name: torch.as_tensor(value) for name, value in model_.params.items()}
                aggregator = started(dict(model_.params))
                for i in order:
                    way = ways[(i + round_) % 3]
                    new = trained(base, i + 1)
                    if way == "difference":
                        new = {name: new[name] - base[name] for name in ("f", "h", "n", "z")}
                    aggregator.accept_model(update(in_format(new, format_), f"site-{i}", i + 1, type_=kinds[way]))
                got = aggregator.aggregate_model()
                assert got.params_type == (ParamsType.DIFF if set(ways) == {"difference"} else ParamsType.FULL)
                FLModelUtils.update_model(model_, got)
            of_order.append({name: torch.as_tensor(value) for name, value in model_.params.items()})
        mean = 14 / 6 * 3  # of 1, 2 and 3 with those weights, in three rounds
        for params in of_order:
            assert set(params) == set(start()), ways
            assert torch.allclose(params["f"][:10], start()["f"][:10] + mean, atol=1e-5) and bits(params["f"][10:]) == bits(start()["f"][10:])
            assert params["n"].tolist() == [7 + 21, -8, 2**62 + 1], ways
            assert torch.allclose(params["h"][1].float(), start()["h"][1].float() + mean, rtol=2e-3)
            for name in ("frozen", "z"):
                assert bits(params[name]) == bits(start()[name]), (ways, name)
            for name in params:
                assert torch.allclose(params[name].double(), of_order[0][name].double(), atol=1e-5, equal_nan=True) and params[name].dtype == start()[name].dtype


def start():
    made = {name: t for name, t in model().items() if name in "fhn"}
    made["n"][2] = 2**62 + 1  # no double has it
    return {**made, "z": torch.tensor([float("inf"), -float("inf"), float("nan")]), "frozen": torch.tensor([[-0.0, 1e-41]])}


def test_one_odd_site_that_comes_first_hurts_nobody():
    """Whatever it sends of a tensor that the global model has: it alone is refused, or counts as what it says."""
    base = {"w": torch.zeros(3), "mask": torch.tensor([True, False])}
    honest = {"w": torch.full((3,), 2.0), "mask": torch.tensor([True, False]), "new": torch.ones(2)}
    odd = {
        "a difference": (update({"w": torch.full((3,), 2.0)}, "odd", type_=ParamsType.DIFF), True),
        "another shape": (update({"w": torch.full((5,), 9.0)}, "odd"), False),
        "no tensor": (update({"w": 9.0}, "odd"), False),
        "complex": (update({"w": torch.full((3,), 9.0 + 0j)}, "odd"), False),
        "sparse": (update({"w": torch.full((3,), 9.0).to_sparse()}, "odd"), False),
        "another shape of what has no mean": (update({"mask": torch.ones(5, dtype=torch.bool)}, "odd"), False),
        "another shape of what is new": (update({"new": torch.full((5,), 9.0)}, "odd"), True),
        "text of what is new": (update({"new": "9"}, "odd"), True),
        "the other framework": (update({"w": numpy.full(3, 2.0, "f4")}, "odd"), True),
    }
    for what, (sent, taken) in odd.items():
        aggregator = started(base)
        try:
            aggregator.accept_model(sent)
            assert taken, what
        except ValueError as e:
            assert "odd" in str(e) and not taken, (what, e)
        for k in range(2):
            aggregator.accept_model(update(honest, f"site-{k}"))
        got = aggregator.aggregate_model()
        assert got.params_type == ParamsType.FULL and got.params["w"].tolist() == [2.0] * 3 and got.params["new"].tolist() == [1.0] * 2, what
        assert tuple(got.params["mask"].shape) == (2,), what


@pytest.mark.parametrize("format_", ["pytorch", "numpy"])
@pytest.mark.parametrize("type_", ["int64", "uint64", "int32", "uint8"])
@pytest.mark.parametrize("sent", [ParamsType.FULL, ParamsType.DIFF])
def test_the_mean_of_whole_numbers_is_pythons(format_, type_, sent):
    """Beside Python's integers, which have no end: near the ends of the type, and where a double has no digits left."""
    limits, some = numpy.iinfo(type_), random.Random(1)
    near = [limits.min, limits.min + 1, limits.max, limits.max - 1, 0, 1, limits.max // 2 + 1]
    values = [(some.choice(near), some.choice(near)) for _ in range(200)] + [(v, v) for v in near]
    values += [(v, min(limits.max, v + some.randrange(100))) for v in [some.randrange(limits.min, limits.max) for _ in range(200)]]
    if sent == ParamsType.DIFF:  # which its own type has
        values = [(old, new) for old, new in values if limits.min <= new - old <= limits.max]
    old = numpy.array([pair[0] for pair in values], type_)
    new = numpy.array([pair[1] - (pair[0] if sent == ParamsType.DIFF else 0) for pair in values], type_)
    aggregator = started({"n": torch.from_numpy(old) if format_ == "pytorch" else old})
    for k in range(2):
        aggregator.accept_model(update({"n": torch.from_numpy(new) if format_ == "pytorch" else new}, f"site-{k}", 3, type_=sent))
    got = numpy.asarray(aggregator.aggregate_model().params["n"])
    assert got.dtype == old.dtype
    with numpy.errstate(over="ignore"):
        result = got + old if sent == ParamsType.DIFF else got
    for (was, to), made in zip(values, result.tolist()):
        assert abs(made - to) <= abs(to - was) * 2.0**-50, (was, to, made)


@pytest.mark.parametrize("format_", ["pytorch", "numpy"])
@pytest.mark.parametrize("sent", [3.0, numpy.float64(3.0), numpy.asarray(3.0), torch.tensor(3.0), 3])
def test_a_number_is_a_tensor_without_dimensions(format_, sent):
    base = {"temperature": torch.tensor(1.0) if format_ == "pytorch" else numpy.asarray(1.0, "f4"), "rate": 0.5}
    aggregator = started(base)
    for k in range(2):
        aggregator.accept_model(update({"temperature": sent, "rate": numpy.float64(0.25)}, f"site-{k}"))
    with pytest.raises(ValueError, match="site-2"):
        aggregator.accept_model(update({"temperature": "3", "rate": 0.25}, "site-2"))
    got = aggregator.aggregate_model().params
    assert float(got["temperature"]) == 3.0 and got["temperature"].dtype == base["temperature"].dtype and float(got["rate"]) == 0.25
