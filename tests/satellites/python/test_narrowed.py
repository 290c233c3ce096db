"""Steps in 8 and 4 bits towards a new version: `narrowed`, `add_tensors(narrow=True)` and `download_tensors(base=)`."""

from __future__ import annotations

import copy as copying
import pickle
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest
from test_changed import copy, same
from test_difference import alike, difference_of, fine_tuned
import processes
from processes import eventually

import tensorpull

torch = pytest.importorskip("torch")
if not hasattr(tensorpull._native, "encode_difference"):
    pytest.skip("optional: this build has no differences", allow_module_level=True)


def nbytes(model):
    return sum(t.numel() * t.element_size() for t in model.values())


def _metadata(owner, ref):
    route = tensorpull._native.Route([f"tcp://{owner.address}"], None, None, None)
    return tensorpull._listing.look_closely(route, ref[:32], 1 << 20, 100, tensorpull._listing.looking(ref, 10, None, retries=0)).metadata


@pytest.mark.parametrize("place", ["new", "in place"])
@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("dtype, most", [(torch.float32, 0.26), (torch.bfloat16, 0.515), (torch.float64, 0.135), (torch.float16, 0.515)])
def test_a_step_takes_a_quarter_or_an_eighth_and_both_ends_have_the_same_bits(owner, dtype, most, bits, place):
    old, new = fine_tuned(dtype)
    most *= 0.52 if bits == 4 else 1
    kept = copy(old)
    moved = tensorpull.narrowed(new, old, bits=bits)
    assert alike(old, kept), "the base is only read"
    assert not alike(moved, new) and not alike(moved, old)
    for name, t in moved.items():
        step = (new[name].double() - old[name].double()).abs().max()
        ulp = torch.finfo(dtype).eps * old[name].double().abs().max()
        assert (t.double() - new[name].double()).abs().max() <= 0.51 * step / (127 if bits == 8 else 7) + 2 * ulp
    ref = owner.add_tensors(moved, recipients=1, narrow=True)
    mine = copy(old)
    got = tensorpull.download_tensors(owner.address, ref, base=mine, out=mine if place == "in place" else None)
    assert alike(got, moved) and alike(mine, moved if place == "in place" else old)
    assert got.receipt.outcome == "completed" and got.receipt.confirmed and not got.receipt.believed
    assert got.receipt.bytes < most * nbytes(new) and got.receipt.bytes + got.receipt.kept_bytes == nbytes(new)
    assert owner.wait(ref, 10) and owner.status(ref).completed == 1


@pytest.mark.parametrize("how", ["whole", "base", "narrow", "narrow and base", "digests", "tree"])
def test_a_copy_is_published_whichever_way_it_travels(owner, how):
    old, new = fine_tuned(torch.float32)
    options = {"base": {"base": old}, "narrow": {"narrow": True}, "narrow and base": {"narrow": True, "base": old}, "digests": {"tensor_digests": True}}.get(how, {})
    given = tensorpull.narrowed(new, old) if how == "narrow" else {"t": new} if how == "tree" else new
    expected = copy(tensorpull.narrowed(new, old) if "narrow" in how else new)
    ref = owner.add_tensors(given, copy=True, recipients=1, **options)
    for t in given["t"].values() if how == "tree" else given.values():
        t.zero_()
    got = tensorpull.download_tensors(owner.address, ref, framework="torch", base=copy(old) if how != "tree" else None)
    assert alike(tensorpull.unflatten(got)["t"] if how == "tree" else got, expected) and owner.wait(ref, 10)
    assert (got.receipt.bytes < 0.3 * nbytes(new)) == ("narrow" in how)


def test_with_base_the_same_is_published(owner):
    old, new = fine_tuned(torch.float32)
    ref = owner.add_tensors(new, base=old, narrow=True)
    moved = tensorpull.narrowed(new, old)
    for base in (old, None):
        assert alike(tensorpull.download_tensors(owner.address, ref, base=base, framework="torch"), moved)


def test_round_after_round_the_bits_stay_the_same_and_a_late_one_gets_the_tensors(owner):
    g = torch.Generator().manual_seed(1)
    model = {"w": 0.05 * torch.randn(100, 1000, generator=g), "b": torch.ones(8), "steps": torch.zeros(100, dtype=torch.int64)}
    mine, late, exact = copy(model), copy(model), copy(model)
    for i in range(6):
        exact = {"w": exact["w"] + 1e-5 * torch.randn(100, 1000, generator=g), "b": exact["b"] + 1e-3, "steps": exact["steps"] - 1}
        model = tensorpull.narrowed(exact, model)
        ref = owner.add_tensors(model, recipients=1 + i % 2, narrow=True)
        got = tensorpull.download_tensors(owner.address, ref, base=mine, out=mine)
        assert got.receipt.bytes < 0.27 * ref.nbytes and alike(mine, model)
        if i % 2:
            assert alike(tensorpull.download_tensors(owner.address, ref, base=late, out=late), model)
        assert owner.wait(ref, 10)
        # what a step has left out is in the next one: the error does not grow
        assert (model["w"] - exact["w"]).abs().max() < 1e-6 and torch.equal(model["steps"], exact["steps"]) and torch.equal(model["b"], exact["b"])


def test_what_has_not_changed_is_not_in_the_step(owner):
    """And may be what is not narrowed."""
    old, new = fine_tuned(torch.float32)
    frozen = {"mask": torch.full((1000,), float("-inf")), "steps": torch.arange(1000), "frozen": torch.full((200_000,), float("nan"))}
    old, new = {**old, **frozen}, {**new, **copy(frozen)}
    moved = tensorpull.narrowed(new, old)
    ref = owner.add_tensors(moved, narrow=True)
    got = tensorpull.download_tensors(owner.address, ref, base=old)
    assert alike(got, moved) and got.receipt.kept_bytes > 0.7 * ref.nbytes
    assert all(got[name] is old[name] for name in frozen)


def test_a_tensor_that_the_step_does_not_move_is_left_out_of_it(owner):
    """-0.0 becomes 0.0 in the new version: that is a change, but none that a step has."""
    old, new = fine_tuned(torch.float32)
    old["zero"], new["zero"] = torch.full((3, 100), -0.0), torch.zeros(3, 100)
    moved = tensorpull.narrowed(new, old)
    assert {one[0] for one in moved.step[0]} == {"w", "w.scales", "b", "b.scales"}
    assert torch.signbit(moved["zero"]).all()
    ref = owner.add_tensors(moved, narrow=True)
    got = tensorpull.download_tensors(owner.address, ref, base=old)
    assert alike(got, moved) and got.receipt.bytes < 0.27 * ref.nbytes


@pytest.mark.parametrize("kind", ["torch", "numpy"])
def test_what_a_step_of_4_bits_leaves_out_comes_with_the_next_one(owner, kind):
    """A client's: its base is the owner's model in each round, not what it sent."""
    g = torch.Generator().manual_seed(1)
    base = {"w": torch.zeros(137, 73), "scalar": torch.tensor(1.0), "steps": torch.zeros(3, dtype=torch.int64)}
    of_kind = copy if kind == "torch" else (lambda tensors: {name: t.numpy().copy() for name, t in tensors.items()})
    base, feedback = of_kind(base), tensorpull.ErrorFeedback()
    meant = got = alone = 0.0
    for i in range(20):
        update = 0.02 + 0.01 * torch.rand(10_001, generator=g, dtype=torch.float64)
        update[::256] = 1.0  # so that what is small is no code of 4 bits
        update = update.reshape(137, 73)
        new = of_kind({"w": update.float(), "scalar": torch.tensor(1.0 + i), "steps": torch.full((3,), i)})
        kept = copying.deepcopy(new)
        moved = tensorpull.narrowed(new, base, bits=4, feedback=feedback)
        assert all((new[name] == kept[name]).all() for name in new), "what is given is only read"
        ref = owner.add_tensors(moved, narrow=True)
        arrived = tensorpull.download_tensors(owner.address, ref, base=copying.deepcopy(base))
        assert arrived.receipt.bytes < 0.15 * ref.nbytes and all((arrived[name] == moved[name]).all() for name in moved)
        assert (arrived["steps"] == i).all() and arrived["scalar"].shape == ()
        meant, got = meant + update.numpy(), got + np.asarray(arrived["w"], np.float64)
        alone = alone + np.asarray(tensorpull.narrowed(new, base, bits=4)["w"], np.float64)
    assert np.abs(got - meant).max() < 0.1 and np.abs(alone - meant).flat[1:256].min() > 0.3


def test_feedback_is_of_one_model_and_stays_if_a_step_fails():
    old, new = fine_tuned(torch.float32)
    feedback, other = tensorpull.ErrorFeedback(), tensorpull.ErrorFeedback()
    for one in (feedback, other):
        tensorpull.narrowed(new, old, bits=4, feedback=one)
    bad = {**new, "w": torch.full_like(new["w"], float("nan"))}
    for refused, code in ((bad, "invalid_argument"), ({"w": new["w"]}, "schema_mismatch"), ({**new, "w": new["w"][:-1]}, "schema_mismatch"), ({**new, "w": new["w"].double()}, "schema_mismatch")):
        with pytest.raises(tensorpull.Error) as e:
            tensorpull.narrowed(refused, {name: torch.zeros_like(t) for name, t in refused.items()}, bits=4, feedback=feedback)
        assert e.value.code == code
    assert alike(tensorpull.narrowed(new, old, bits=4, feedback=feedback), tensorpull.narrowed(new, old, bits=4, feedback=other))


def test_bits_and_feedback_of_other_kinds_are_refused():
    old, new = fine_tuned(torch.float32)
    for bits in (0, 16, True, None, "8", 8.5, [8]):
        with pytest.raises((ValueError, TypeError)):
            tensorpull.narrowed(new, old, bits=bits)
    for feedback in (1, {}, tensorpull.ErrorFeedback):
        with pytest.raises(TypeError):
            tensorpull.narrowed(new, old, feedback=feedback)


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), float("-inf"), 1e300])
def test_what_is_not_narrowed_is_refused_by_name(owner, wrong):
    old, new = fine_tuned(torch.float64 if wrong == 1e300 else torch.float32)
    new["w"][777] = wrong
    for refused in (lambda: tensorpull.narrowed(new, old), lambda: owner.add_tensors(new, base=old, narrow=True)):
        with pytest.raises(tensorpull.Error) as e:
            refused()
        assert (e.value.code, e.value.name) == ("invalid_argument", "w")


def test_a_base_that_is_another_is_refused_by_name(owner):
    old, new = fine_tuned(torch.float32)
    for base, name in (
        ({"w": old["w"]}, "b"), ({**old, "more": old["b"]}, "more"), ({**old, "b": old["b"][:-1]}, "b"), ({**old, "w": old["w"].double()}, "w"), ({}, "w"),
    ):  # fmt: skip
        for refused in (lambda: tensorpull.narrowed(new, base), lambda: owner.add_tensors(new, base=base, narrow=True)):
            with pytest.raises(tensorpull.Error) as e:
                refused()
            assert e.value.code == "schema_mismatch" and e.value.name == name
    old["w.scales"] = torch.ones(16, 16)
    with pytest.raises(tensorpull.Error) as e:
        tensorpull.narrowed({**new, "w.scales": torch.zeros(16, 16)}, old)
    assert e.value.code == "duplicate_name"


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("elements", [{"flat": 20_000}, {f"layer{i}": 20_000 for i in range(8)}, {"a": 18_000, "b": 2_100}])
def test_a_model_without_a_small_tensor_has_a_step(owner, bits, elements):
    g = torch.Generator().manual_seed(1)
    old = {name: 0.05 * torch.randn(n, generator=g) for name, n in elements.items()}
    new = {name: t + 1e-5 * torch.randn(t.shape, generator=g) for name, t in old.items()}
    assert alike(tensorpull.narrowed(new, old, bits=bits), new), "tensors of one dimension travel whole"
    moved = tensorpull.narrowed(new, old, bits=bits, names=list(new))
    ref = owner.add_tensors(moved, narrow=True, recipients=1)
    for place in ("new", "in place"):
        mine = copy(old)
        got = tensorpull.download_tensors(owner.address, ref, base=mine, out=mine if place == "in place" else None)
        assert alike(got, moved) and not alike(got, new) and got.receipt.bytes < (0.28 if bits == 8 else 0.16) * nbytes(new)
        if place == "new":
            assert owner.wait(ref, 10) and owner.status(ref).completed == 1
            ref = owner.add_tensors(moved, narrow=True)


@pytest.mark.parametrize("names", [None, ["w"]])
def test_a_model_that_would_travel_whole_is_not_rounded(owner, names):
    old, new = {"w": torch.zeros(10, 10)}, {"w": torch.rand(10, 10)}
    ref = owner.add_tensors(tensorpull.narrowed(new, old, names=names), narrow=True)
    assert alike(tensorpull.download_tensors(owner.address, ref, base=old), new)


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("place", ["new", "in place"])
def test_only_matrices_of_a_block_or_more_are_rounded_unless_others_are_named(owner, bits, place):
    """A running variance with a wide range, a bias and a small kernel keep every bit."""
    g = torch.Generator().manual_seed(4)
    kinds = {"conv": (16, 8, 3, 3), "fc": (300, 300), "kernel": (3, 5, 17), "running_var": (512,), "bias": (300,), "scale": (), "count": (400,)}
    draw = lambda: {name: torch.exp(3 * torch.randn(shape, generator=g)) if name != "count" else torch.randint(0, 9, shape, generator=g) for name, shape in kinds.items()}
    old, new = draw(), draw()
    for names in (None, ["running_var", "fc"], [], ("conv",), {"kernel", "fc", "bias"}):
        rounded = {"conv", "fc"} if names is None else set(names)
        moved = tensorpull.narrowed(new, old, bits=bits, names=names)
        step = moved.step is not None
        assert step == bool(rounded)
        assert {name for name in new if not torch.equal(moved[name], new[name])} == (rounded if step else set())
        ref = owner.add_tensors(moved, narrow=True)
        mine = copy(old)
        got = tensorpull.download_tensors(owner.address, ref, base=mine, out=mine if place == "in place" else None)
        assert alike(got, moved)
        whole = sum(t.numel() * t.element_size() for name, t in new.items() if name not in rounded)
        assert got.receipt.bytes < whole + (0.3 if bits == 8 else 0.17) * (nbytes(new) - whole) + 2000
        # a recipient of something else, and one with nothing, get the tensors
        assert alike(tensorpull.download_tensors(owner.address, ref, base=new), moved)
        assert alike(tensorpull.download_tensors(owner.address, ref, framework="torch"), moved)


def test_names_that_cannot_be_narrowed_are_refused(owner):
    old, new = fine_tuned(torch.float32)
    old["steps"], new["steps"] = torch.zeros(300, 300, dtype=torch.int64), torch.ones(300, 300, dtype=torch.int64)
    for names, code, name in ((["w", "x"], "bad_request", "x"), (["steps"], "unsupported_dtype", "steps"), ([7], "bad_request", "7")):
        with pytest.raises(tensorpull.Error) as e:
            tensorpull.narrowed(new, old, names=names)
        assert (e.value.code, e.value.name) == (code, name)
    for names in ("w", b"w", 5):
        with pytest.raises(TypeError, match="names is a list"):
            tensorpull.narrowed(new, old, names=names)


@pytest.mark.parametrize("lie", ["", "1", "11", "1111", "000", "xyz", "011"])
def test_a_list_that_lies_costs_a_pull_of_more(owner, monkeypatch, lie):
    """Of b, bias and w, in the order of the image, w alone is in the step."""
    old, new = fine_tuned(torch.float32)
    old["bias"], new["bias"] = torch.zeros(500), torch.ones(500)
    monkeypatch.setattr(tensorpull._publish, "tensors_said", lambda chosen, digests: {"tensorpull.narrowed_tensors": lie})
    moved = tensorpull.narrowed(new, old, names=["w"])
    ref = owner.add_tensors(moved, narrow=True, recipients=1)
    got = tensorpull.download_tensors(owner.address, ref, base=copy(old))
    assert alike(got, moved) and owner.wait(ref, 10) and owner.status(ref).completed == 1
    monkeypatch.undo()
    ref = owner.add_tensors(moved, narrow=True)
    assert tensorpull.download_tensors(owner.address, ref, base=old).receipt.bytes < 0.27 * ref.nbytes, "the control"


def test_weights_are_not_narrowed(owner):
    old, new = fine_tuned(torch.float32)
    moved = tensorpull.narrowed(new, old)
    for refused in (lambda: owner.add_tensors(new, narrow=True), lambda: owner.add_tensors(dict(moved), narrow=True), lambda: owner.add_tensors(moved, base=old, narrow=True)):
        with pytest.raises(ValueError, match="base"):
            refused()
    for wrong in (1, "8 bits", None):
        with pytest.raises(TypeError, match="narrow is True or False"):
            owner.add_tensors(new, base=old, narrow=wrong)
    # a copy has no step, and travels whole
    for again in (copying.deepcopy(moved), pickle.loads(pickle.dumps(moved))):
        assert alike(again, moved) and type(again) is tensorpull.FlatTree
        with pytest.raises(ValueError, match="base"):
            owner.add_tensors(again, narrow=True)


def test_a_tree_ties_strides_and_kinds_of_tensors(owner):
    rng = np.random.default_rng(2)
    shared = torch.from_numpy(rng.standard_normal((300, 200)).astype(np.float32))

    def tree(by):
        tied = shared + by
        return {
            "layers": [tied, tied.t().contiguous().t() * (1 + by)], "head": tied, "np": (rng_of(3) + by).astype(">f4"), "n": 3, "scalar": torch.tensor(1.0 + by), "empty": torch.zeros(0, 3),
            "f16": np.asfortranarray((rng_of(4) + by).astype(np.float16)), "flag": torch.tensor([True, by > 0]),
        }  # fmt: skip

    def rng_of(seed):
        return np.random.default_rng(seed).standard_normal((200, 50))

    old, new = tree(0.0), tree(1e-3)
    moved = tensorpull.narrowed(new, old)
    assert moved["head"] is moved["layers.0"] and isinstance(moved["np"], np.ndarray) and moved["flag"].tolist() == [True, True]
    back = tensorpull.unflatten(moved)
    assert back["n"] == 3 and torch.allclose(back["layers"][1], new["layers"][1], atol=1e-4) and np.allclose(back["f16"], new["f16"], atol=4e-3)
    ref = owner.add_tensors(moved, narrow=True)
    got = tensorpull.download_tensors(owner.address, ref, base=old, framework="torch")
    assert got.structure == moved.structure and got["head"] is got["layers.0"] and got.receipt.bytes < 0.3 * ref.nbytes
    for name, t in moved.items():
        assert torch.equal(got[name], torch.as_tensor(t)), name
    assert owner.status(ref).completed == 1


@pytest.mark.parametrize("place", ["new", "in place"])
@pytest.mark.parametrize("other", ["w", "b", "all", "shape", "strided"])
def test_a_recipient_of_another_base_gets_the_tensors_as_they_are(owner, other, place):
    old, new = fine_tuned(torch.float32)
    moved = tensorpull.narrowed(new, old)
    ref = owner.add_tensors(moved, recipients=1, narrow=True)
    mine = copy(old)
    if other == "shape":
        if place == "in place":
            return  # what does not fit is not landed in
        mine["b"] = torch.ones(7)
    elif other == "strided":
        mine["w"] = torch.stack([old["w"], old["w"]], 1)[:, 0]
    else:
        for name in mine:
            if other in (name, "all"):
                mine[name][3] += 1
    got = tensorpull.download_tensors(owner.address, ref, base=mine, out=mine if place == "in place" else None)
    assert same(got, moved) and owner.wait(ref, 10) and owner.status(ref).completed == 1
    assert (got.receipt.bytes < 0.27 * ref.nbytes) == (other == "strided")


def step_that(change):
    """A step as an owner of its own making publishes it: metadata and tensors go through `change`."""
    real = tensorpull._native.narrow_tensors

    def made(now, base, bits):
        described, metadata, held = real(now, base, bits)
        tensors = {}
        for name, dtype, shape, _, address, _ in described:
            count = int(np.prod(shape)) * (4 if dtype == "F32" else 1)
            tensors[name] = np.frombuffer((tensorpull_bytes(address, count)), {"F32": np.float32, "I8": np.int8, "U8": np.uint8}[dtype]).reshape(shape).copy()
        said = dict(metadata)
        change(tensors, said)
        mine = tensorpull._tensors.Tensors(tensors)
        return mine.described, list(said.items()), (tensors, held)

    return made


def tensorpull_bytes(address, count):
    import ctypes

    return ctypes.string_at(address, count)


def _scheme(metadata):
    return next(key for key in metadata if key.startswith("tensorpull.blocks_of_"))


HOSTILE = {
    "a scale that is NaN": lambda t, m: t["w.scales"].__setitem__(5, np.nan),
    "the last scale is infinite": lambda t, m: t["w.scales"].__setitem__(-1, np.inf),
    "a scale below zero": lambda t, m: t["b.scales"].__setitem__(0, -1e-6),
    "a scale that is subnormal": lambda t, m: t["b.scales"].__setitem__(0, 1e-40),
    "another code": lambda t, m: t["w"].__setitem__(-1, 1 + t["w"][-1] % 100),
    "another base": lambda t, m: m.update({"tensorpull.base": "0" * 16}),
    "another result": lambda t, m: m.update({"tensorpull.moved": "0" * 16}),
    "no result": lambda t, m: m.pop("tensorpull.moved"),
    "no scheme": lambda t, m: m.pop(_scheme(m)),
    "other blocks": lambda t, m: m.update({_scheme(m): "128"}),
    "the other scheme": lambda t, m: m.update({_scheme(m).translate({ord("8"): "4", ord("4"): "8"}): m.pop(_scheme(m))}),
    "fewer scales": lambda t, m: t.update({"w.scales": t["w.scales"][:-1].copy()}),
    "fewer tensors": lambda t, m: (t.pop("b"), t.pop("b.scales")),
    "no codes but floats": lambda t, m: t.update({"w": t["w"].astype(np.float32)}),
    "much metadata": lambda t, m: m.update({"more": "x" * 100_000}),
}


@pytest.mark.parametrize("place", ["new", "in place"])
@pytest.mark.parametrize("bits, key", [(8, "tensorpull.narrowed"), (4, "tensorpull.narrowed_4")])
@pytest.mark.parametrize("how", HOSTILE)
def test_a_step_that_is_none_costs_a_pull_of_all(owner, monkeypatch, how, bits, key, place):
    old, new = fine_tuned(torch.float32)
    monkeypatch.setattr(tensorpull._native, "narrow_tensors", step_that(HOSTILE[how]))
    moved = tensorpull.narrowed(new, old, bits=bits)
    ref = owner.add_tensors(moved, recipients=1, narrow=True)
    assert key in _metadata(owner, ref)
    mine = copy(old)
    got = tensorpull.download_tensors(owner.address, ref, base=mine, out=mine if place == "in place" else None)
    assert alike(got, moved) and got.receipt.kept_bytes == 0 and owner.wait(ref, 10) and owner.status(ref).completed == 1


def test_a_model_that_has_a_tensor_with_the_name_of_scales_is_pulled(owner, monkeypatch):
    """Its owner says that it has a step all the same."""
    old, new = fine_tuned(torch.float32)
    old["w.scales"], new["w.scales"] = torch.ones(10, 100), torch.zeros(10, 100)
    real = tensorpull._native.narrow_tensors

    def without(now, base, bits):
        made, others = ([one for one in described if one[0] != "w.scales"] for described in (now, base))
        tensorpull._native.copy_tensors([one for one in now if one[0] == "w.scales"], [one for one in base if one[0] == "w.scales"])
        return real(made, others, bits)

    monkeypatch.setattr(tensorpull._native, "narrow_tensors", without)
    ref = owner.add_tensors(new, base=old, narrow=True, recipients=1)
    assert "tensorpull.narrowed" in _metadata(owner, ref)
    got = tensorpull.download_tensors(owner.address, ref, base=old)
    assert alike(got, tensorpull.narrowed(new, old)) and got.receipt.kept_bytes == 0 and owner.wait(ref, 10)


@pytest.mark.parametrize("bits, most", [(8, 0.26), (4, 0.14)])
def test_the_same_step_through_these_hands_is_taken(owner, monkeypatch, bits, most):
    """The control of the test above."""
    old, new = fine_tuned(torch.float32)
    monkeypatch.setattr(tensorpull._native, "narrow_tensors", step_that(lambda t, m: None))
    moved = tensorpull.narrowed(new, old, bits=bits)
    got = tensorpull.download_tensors(owner.address, owner.add_tensors(moved, narrow=True), base=old)
    assert alike(got, moved) and got.receipt.bytes < most * nbytes(new)


@pytest.mark.parametrize("how", ["settled", "withdrawn", "replaced"])
def test_a_step_ends_with_what_it_is_beside(owner, how):
    old, new = fine_tuned(torch.float32)
    moved = tensorpull.narrowed(new, old)
    ref = owner.add_tensors(moved, recipients=1, narrow=True)
    beside = _metadata(owner, ref)["tensorpull.narrowed"]
    assert not owner.settled(beside)
    if how == "settled":
        tensorpull.download_tensors(owner.address, ref, base=old)
    elif how == "withdrawn":
        owner.withdraw(ref)
    else:
        owner.add_tensors(moved, ref_id=ref)
    assert eventually(lambda: owner.settled(beside))


def test_a_coded_difference_to_the_same_tensors_has_another_place(owner):
    old, new = fine_tuned(torch.float32)
    moved = tensorpull.narrowed(new, old)
    first = owner.add_tensors(moved, base=old, ref_id="c" * 32)
    coded = difference_of(owner, first)
    step = _metadata(owner, owner.add_tensors(moved, narrow=True, ref_id="c" * 32))["tensorpull.narrowed"]
    assert coded != step and eventually(lambda: owner.settled(coded)) and not owner.settled(step)


def test_nothing_that_changed_and_a_model_of_a_few_bytes_have_no_step(owner):
    one = {"w": torch.randn(200)}
    for old, new in ((one, one), (one, {"w": one["w"] + 1e-3})):
        moved = tensorpull.narrowed(new, old)
        ref = owner.add_tensors(moved, recipients=1, narrow=True)
        assert "tensorpull.narrowed" not in _metadata(owner, ref)
        assert alike(tensorpull.download_tensors(owner.address, ref, base=old), moved) and owner.wait(ref, 10)


def test_an_owner_whose_table_is_full_publishes_the_tensors_alone(caplog):
    old, new = fine_tuned(torch.float32)
    moved = tensorpull.narrowed(new, old)
    with tensorpull.Downloader(max_references=1) as owner:
        owner.start()
        ref = owner.add_tensors(moved, narrow=True)
        assert "no room for what has changed" in caplog.text
        assert alike(tensorpull.download_tensors(owner.address, ref, base=old), moved)


def test_what_was_changed_after_it_was_made_costs_bytes_and_is_never_wrong(owner):
    old, new = fine_tuned(torch.float32)
    moved = tensorpull.narrowed(new, old)
    moved["w"] += 1e-3
    ref = owner.add_tensors(moved, narrow=True)
    assert alike(tensorpull.download_tensors(owner.address, ref, base=old), moved)


def test_over_a_session_both_ways():
    old, new = fine_tuned(torch.float32)
    moved = tensorpull.narrowed(new, old)
    with tensorpull.Listener() as door, tensorpull.Session(door.address) as there, door.accept(10) as here:
        for own, other in ((there, here), (here, there)):
            ref = own.add_tensors(moved, recipients=1, narrow=True)
            thread = processes.JoinedThread(target=own.serve, args=(ref,))
            thread.start()
            got = other.download_tensors(ref, base=old)
            thread.join()
            assert alike(got, moved) and got.receipt.bytes < 0.26 * ref.nbytes


@pytest.mark.parametrize("link", ["unix:", "shm:", "udp://127.0.0.1:0"])
@pytest.mark.parametrize("chunk_size", [None, 0, 1000])
def test_over_other_links_in_any_chunks(tmp_path, link, chunk_size):
    old, new = fine_tuned(torch.float32, elements=100_000)
    moved = tensorpull.narrowed(new, old)
    if chunk_size == 0 and link.startswith("udp"):
        chunk_size = 1200
    with tensorpull.Downloader(link if "udp" in link else f"{link}{tmp_path}/s") as owner:
        owner.start()
        ref = owner.add_tensors(moved, narrow=True)
        mine = copy(old)
        got = tensorpull.download_tensors(owner.address, ref, base=mine, out=mine, chunk_size=chunk_size)
        assert alike(got, moved) and got.receipt.bytes < 0.3 * ref.nbytes


def test_progress_and_abort_are_heard_while_the_step_comes(owner):
    old, new = fine_tuned(torch.float32)
    moved = tensorpull.narrowed(new, old)
    ref = owner.add_tensors(moved, narrow=True)
    for place in ("new", "in place"):
        stop, mine = threading.Event(), copy(old)
        with pytest.raises(tensorpull.Error) as e:
            tensorpull.download_tensors(
                owner.address, ref, base=mine, out=mine if place == "in place" else None, chunk_size=4096, abort=stop, progress_interval=0,
                progress=lambda p: stop.set() if p.bytes_done > 100_000 else None,
            )  # fmt: skip
        assert e.value.code == "cancelled" and (place == "in place" or alike(mine, old))
        assert alike(tensorpull.download_tensors(owner.address, ref, base=mine, out=mine if place == "in place" else None), moved)


def test_a_name_of_the_package_is_no_tensors(owner):
    with pytest.raises(tensorpull.Error) as e:
        owner.add_tensors({"tensorpull.narrowed": np.zeros(1)})
    assert e.value.code == "reserved_name"


@pytest.mark.parametrize("how", [8, 4, "difference"])
@pytest.mark.parametrize("kind", ["channels_last", "every second", "numpy"])
def test_in_place_one_tensor_that_is_not_contiguous_costs_no_pull_of_all(owner, how, kind):
    g = torch.Generator().manual_seed(3)
    old = {"fc": torch.randn(300, 300, generator=g), "conv": torch.randn(8, 16, 4, 4, generator=g), "b": torch.randn(8, generator=g)}
    if kind == "channels_last":
        old["conv"] = old["conv"].to(memory_format=torch.channels_last)
    else:
        old["conv"] = torch.randn(8, 16, 4, 8, generator=g)[..., ::2]
    new = {name: t + 1e-5 * torch.randn(t.shape, generator=g) for name, t in old.items()}
    if kind == "numpy":
        old, new = ({name: t.numpy() for name, t in model.items()} for model in (old, new))
    right = new if how == "difference" else tensorpull.narrowed(new, old, bits=how)
    ref = owner.add_tensors(right, **({"base": old} if how == "difference" else {"narrow": True}))
    place = {name: t for name, t in old.items()}
    got = tensorpull.download_tensors(owner.address, ref, base=place, out=place)
    assert got.receipt.bytes < 0.4 * ref.nbytes
    assert all((place[name] == right[name]).all() and place[name] is old[name] for name in old)


@pytest.mark.parametrize("kind", ["torch", "numpy"])
def test_a_step_that_nobody_took_comes_with_the_next_one(kind):
    """The owner's model stays as it is, since a round's update was lost; the client's is told again."""
    g = np.random.default_rng(1)
    of_kind = (lambda values: {"w": torch.from_numpy(values)}) if kind == "torch" else (lambda values: {"w": values})
    base, feedback = of_kind(np.zeros((4, 256), "f4")), tensorpull.ErrorFeedback()
    got, meant = np.zeros((4, 256)), np.zeros((4, 256))
    for i in range(12):
        update = (1e-3 * (1 + g.random((4, 256)))).astype("f4")
        meant += update
        moved = tensorpull.narrowed(of_kind(update.copy()), base, bits=4, feedback=feedback)
        if i in (3, 4, 9):
            feedback.lost(moved, base)
        else:
            got += np.asarray(moved["w"])
        if i == 6:  # the program ends, and goes on with what it kept
            kept = {name: np.array(t) if kind == "numpy" else t.clone() for name, t in feedback.left.items()}
            feedback = tensorpull.ErrorFeedback(kept)
            kept["w"][:] = 0  # it has a copy
    assert np.abs(meant - got).max() < 1e-3  # at most what one step of 4 bits leaves out


@pytest.mark.parametrize("kind", ["torch", "numpy"])
@pytest.mark.filterwarnings("error")
def test_an_infinity_or_nan_that_stands_still_has_left_nothing_out(kind):
    """As a mask of attention, which no step moves."""
    of_kind = torch.from_numpy if kind == "torch" else lambda tensor: tensor
    mask, some = np.array([[0, -np.inf], [np.inf, np.nan]], "f4"), np.full((4, 256), 0.06, "f4")
    some[0, 0] = 1
    feedback, got = tensorpull.ErrorFeedback(), 0.0
    for i in range(6):
        base = {"mask": of_kind(mask.copy()), "scalar": of_kind(np.array(-np.inf, "f4")), "w": of_kind(np.zeros((4, 256), "f4"))}
        new = {"mask": of_kind(mask.copy()), "scalar": of_kind(np.array(-np.inf, "f4")), "w": of_kind(some.copy())}
        moved = tensorpull.narrowed(new, base, bits=4, feedback=feedback)
        assert np.asarray(moved["mask"]).tobytes() == mask.tobytes() and float(moved["scalar"]) == -np.inf
        if i == 2:
            feedback.lost(moved, base)
        else:
            got += float(moved["w"][0, 1])
        assert all(np.isfinite(np.asarray(left)).all() for left in feedback.left.values()), "what is left are numbers"
    assert abs(got - 6 * 0.06) < 0.25, "and the other tensors' errors are in the next step"


def test_what_was_left_out_is_of_one_model_wherever_it_comes_from():
    old, new = fine_tuned(torch.float32)
    feedback = tensorpull.ErrorFeedback()
    assert feedback.left == {}
    moved = tensorpull.narrowed(new, old, bits=4, feedback=feedback)
    before = copy(feedback.left)
    with pytest.raises(TypeError, match="sent is what narrowed"):
        feedback.lost(dict(moved), old)
    with pytest.raises(tensorpull.Error) as e:
        feedback.lost(moved, {name: t for name, t in old.items() if name != "w"})
    assert (e.value.code, e.value.name) == ("schema_mismatch", "w")
    assert alike(feedback.left, before)
    with pytest.raises(tensorpull.Error) as e:
        tensorpull.ErrorFeedback({"steps": torch.zeros(3, dtype=torch.int64)})
    assert (e.value.code, e.value.name) == ("unsupported_dtype", "steps")
    with pytest.raises(tensorpull.Error, match="another model"):
        tensorpull.narrowed(new, old, bits=4, feedback=tensorpull.ErrorFeedback({"other": torch.zeros(3)}))


def test_ctrl_c_is_heard_while_a_step_is_made():
    """A step of many seconds ends at once; nothing that was given has changed."""
    child = processes.Program(
        [
            sys.executable, "-c",
            "import numpy as np, tensorpull, time\n"
            "a = np.ones(60_000_000, np.float32)\nb = {'a': a}\nc = {'a': a + np.arange(60_000_000, dtype=np.float32) % 251 * np.float32(1e-5)}\n"
            "tensorpull.narrowed({'a': c['a'][:3000]}, {'a': a[:3000]})\n"
            "try:\n  print('r', flush=True)\n  while True: tensorpull._native.narrow_tensors([('a', 'F32', (60_000_000,), None, c['a'].ctypes.data, 0)], [('a', 'F32', (60_000_000,), None, a.ctypes.data, 0)], 8)\n"
            "except KeyboardInterrupt: print('heard', bool((a == 1).all()), flush=True)\n",
        ],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert child.stdout.readline() == "r\n"
        child.send_signal(signal.SIGINT)
        assert child.communicate(timeout=processes.AMPLE)[0] == "heard True\n"
    finally:
        child.kill()
        child.wait()
