"""Nested dicts and lists by dotted names, and the order of names."""

from __future__ import annotations

import collections
import json
import math
import random
import struct

import numpy as np
import pytest

import tensorpull
from tensorpull import Error, FlatTree, flatten, unflatten
from tensorpull._trees import MAX_DEPTH, arrive

torch = pytest.importorskip("torch")


def same(a, b):
    """Equal in kind, order and bits."""
    if isinstance(b, dict):
        return isinstance(a, dict) and list(a) == list(b) and [type(k) for k in a] == [type(k) for k in b] and all(same(a[k], b[k]) for k in b)
    if isinstance(b, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(b, torch.Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b)
    if isinstance(b, np.ndarray):
        return np.array_equal(a, b)
    return type(a) is type(b) and (struct.pack("d", a) == struct.pack("d", b) if isinstance(b, float) else a == b)


def trained(steps=3):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, amsgrad=True)
    step(model, optimizer, steps)
    return model, optimizer


def step(model, optimizer, steps=1):
    for i in range(steps):
        optimizer.zero_grad()
        model(torch.full((3, 5), float(i))).sum().backward()
        optimizer.step()


def test_adams_state_arrives_as_it_was_and_trains_on(owner):
    model, optimizer = trained()
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 7}
    ref = owner.add_tensors(state)
    got = tensorpull.download_tensors(owner.address, ref, framework="torch")
    assert "optimizer.state.0.exp_avg" in got and "model.0.weight" in got
    tree = unflatten(got)
    assert same(tree, state)
    mine, his = trained(0)
    mine.load_state_dict(tree["model"])
    his.load_state_dict(tree["optimizer"])
    step(mine, his)
    step(model, optimizer)
    assert same(mine.state_dict(), model.state_dict())


def test_landing_in_a_tree(owner):
    model, optimizer = trained()
    other, its = trained(1)
    out = {"model": other.state_dict(), "optimizer": its.state_dict()}
    ref = owner.add_tensors({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    got = tensorpull.download_tensors(owner.address, ref, out=out)
    assert same(out, {"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    assert got["model.0.weight"].data_ptr() == other[0].weight.data_ptr()
    assert same(unflatten(got), out)


def generated(rng, depth=0):
    roll = rng.random()
    if depth == 0 or (roll < 0.5 and depth < 6):
        n = rng.randint(0, 4)
        kind = rng.choice("dlt")
        if kind == "d":
            return {rng.choice([f"k{i}", i, f"é{i}"]): generated(rng, depth + 1) for i in range(n)}
        made = [generated(rng, depth + 1) for _ in range(n)]
        return made if kind == "l" else tuple(made)
    if roll < 0.8:
        return torch.tensor([rng.random()] * rng.randint(0, 3), dtype=rng.choice([torch.float32, torch.float64, torch.int8]))
    bits = struct.unpack(">d", rng.randbytes(8))[0]
    return rng.choice([None, True, False, 0, -1, 2**1023, 1.0, -0.0, 0.1, bits, math.inf, -math.inf, math.nan, "", "a.b", "\ud800", "f", "d"])


@pytest.mark.parametrize("block", range(2))
def test_generated_trees_are_the_same_afterwards(owner, block):
    for seed in range(block * 100, block * 100 + 100):
        tree = generated(random.Random(seed))
        flat = flatten(tree)
        assert same(unflatten(flat), tree), seed
        assert same(unflatten(dict(flat), flat.structure), tree), seed
        ref = owner.add_tensors(tree, recipients=1)
        got = tensorpull.download_tensors(owner.address, ref, framework="torch")
        assert same(dict(got) if got.structure is None else unflatten(got), tree), seed


def cyclic():
    a = {"t": torch.zeros(1)}
    a["again"] = [a]
    return a


def deep(n):
    tree = [torch.zeros(1)]
    for _ in range(n - 1):
        tree = [tree]
    return tree


Point = collections.namedtuple("Point", "x y")


@pytest.mark.parametrize(
    "tree, error, says",
    [
        ({"a.b": torch.zeros(1), "a": {"b": torch.ones(1)}}, ValueError, "'a.b'"),
        ({"a.b": 1, "a": {"b": torch.ones(1)}}, ValueError, "'a.b'"),
        ({"a.b": {"c": torch.zeros(1)}, "a": {"b": {"d": torch.ones(1)}}}, ValueError, "'a.b'"),
        ({"a": {0: torch.zeros(1), "0": torch.ones(1)}}, ValueError, "'a.0'"),
        (cyclic(), ValueError, "within itself"),
        (deep(MAX_DEPTH + 1), ValueError, "containers within each other"),
        ({"a": {"b": object()}}, TypeError, "'a.b' is no tensor"),
        ({"a": {"b": Point(1, 2)}}, TypeError, "Point"),
        ({"a": {"b": np.longdouble(1)}}, TypeError, "longdouble"),
        ({"a": {"b": 1 + 2j}}, TypeError, "complex"),
        ({"a": {"b": 2**1024}}, ValueError, "bits"),
        ({"a": {1.5: torch.zeros(1)}}, TypeError, "1.5"),
        ({"a": {True: torch.zeros(1)}}, TypeError, "bool"),
        ({"a": {"k" * (1 << 20): [0] * 100}}, ValueError, "together"),
    ],
    ids=["leaf", "number", "container", "int and str", "cycle", "depth", "object", "namedtuple", "numpy's scalar", "complex", "huge", "float key", "bool key", "long key"],
)
def test_what_has_no_dotted_names_is_refused(owner, tree, error, says):
    for refused in (lambda: flatten(tree), lambda: owner.add_tensors(tree), lambda: tensorpull.download_tensors(owner.address, "0" * 31 + "1", out=tree)):
        with pytest.raises(error, match=says):
            refused()


def test_the_deepest_tree_travels(owner):
    ref = owner.add_tensors(deep(MAX_DEPTH))
    assert same(unflatten(tensorpull.download_tensors(owner.address, ref, framework="torch")), deep(MAX_DEPTH))


def test_the_same_container_twice_is_no_cycle():
    shared = [torch.zeros(1)]
    assert same(unflatten(flatten({"a": shared, "b": shared})), {"a": shared, "b": shared})


def test_order_is_kept(owner):
    rng = random.Random(1)
    names = [f"t{i}" for i in range(500)]
    rng.shuffle(names)
    sent = {name: np.zeros(1, rng.choice(["f4", "f8", "u1"])) for name in names}
    got = tensorpull.download_tensors(owner.address, owner.add_tensors(sent))
    assert list(got) == names and got.metadata == {} and got.structure is None
    assert list(tensorpull.download_tensors(owner.address, owner.add_tensors(got))) == names
    of_image = tensorpull.download_tensors(owner.address, owner.add_tensors(sent, keep_order=False))
    assert list(of_image) == sorted(names, key=lambda n: (-sent[n].itemsize, n))
    with pytest.raises(ValueError, match="no structure"):
        unflatten(got)


def test_order_is_kept_beside_metadata_that_names_tensors(owner):
    sent = {"b": np.zeros(1), "a": np.zeros(2)}
    got = tensorpull.download_tensors(owner.address, owner.add_tensors(sent, metadata={"best": "b", "round": "7"}))
    assert list(got) == ["b", "a", "best"] and got["best"] is got["b"] and got.metadata == {"best": "b", "round": "7"}
    tree = {"x": [np.zeros(1)]}
    got = tensorpull.download_tensors(owner.address, owner.add_tensors(tree, metadata={"best": "x.0"}))
    assert list(got) == ["x.0"] and same(unflatten(got), tree)


def test_what_came_as_a_tree_goes_on_as_one(owner):
    tree = {"z": [np.arange(3), {"lr": 0.5}], "a": np.zeros(2)}
    got = tensorpull.download_tensors(owner.address, owner.add_tensors(tree))
    assert same(unflatten(tensorpull.download_tensors(owner.address, owner.add_tensors(got))), tree)
    got["new"] = np.zeros(1)
    with pytest.raises(ValueError, match="new"):
        owner.add_tensors(got)
    assert list(tensorpull.download_tensors(owner.address, owner.add_tensors(dict(got)))) == ["z.0", "a", "new"]


def test_metadata_of_this_package_is_not_the_callers(owner):
    with pytest.raises(ValueError, match="tensorpull."):
        owner.add_tensors({"a": np.zeros(1)}, metadata={"tensorpull.order": "0"})
    with pytest.raises(Error) as e:
        owner.add_tensors({"tensorpull.tree": np.zeros(1)})
    assert e.value.code == "reserved_name"


A, B = np.zeros(1), np.ones(1)


@pytest.mark.parametrize(
    "order",
    ["", "0", "0 0", "0 2", "0 1 2", "-1 0", "0  1", "0 1 ", "1e0 0", "0 ٠", "99999999999999999999 0", "0 x", "0 " * 9_000_000],
)
def test_a_lie_about_the_order_is_an_error(order):
    with pytest.raises(Error) as e:
        arrive({"a": A, "b": B}, {"tensorpull.order": order})
    assert e.value.code == "bad_frame"


GOOD = ["d", ["a", []], ["b", []]]


@pytest.mark.parametrize(
    "structure",
    [
        "", "{", "[]", "1", "null", "NaN", '"d"', "{}", '["x"]', '["d"]', '["d",["a",[]]]', '["d",["a",[]],["a",[]]]', '["d",["a",[]],["b",[]],["c",[]]]', '["d",["a",[]],["b"]]',
        '["d",["a",[]],["b",[],1]]', '["d",["a",[]],[null,[]]]', '["d",["a",[]],[true,[]]]', '["d",["a",[]],["b",[]],["c",{}]]', '["d",["a",[]],["b",[]],["c",["f","00"]]]',
        '["d",["a",[]],["b",[]],["c",["f",7]]]', '["d",["a",[]],["b",[]],["c",["f","zzzzzzzzzzzzzzzz"]]]', '["d",["a",[]],["b",[]],["c",NaN]]', '["d",["a",[]],["b",[]],["c",["q",1]]]',
        '["d",["a",[]],["b",[]],["c",' + "9" * 400 + "]]", '["d",["a",[]],["b",[]],["c",' + "9" * 5000 + "]]", "[" * 100_000, '["l",' * 65 + "1" + "]" * 65,
        json.dumps([*GOOD, ["k" * 4_000_000, ["l", *[0] * 1000]]]), "[" + " " * (9 << 20) + "]",
    ],
    ids=range(29),
)  # fmt: skip
def test_a_lie_about_the_tree_is_an_error(structure):
    assert list(arrive({"b": B, "a": A}, {"tensorpull.tree": json.dumps(GOOD)}).tensors) == ["a", "b"]
    with pytest.raises(Error) as e:
        arrive({"a": A, "b": B}, {"tensorpull.tree": structure})
    assert e.value.code == "bad_frame"
    with pytest.raises(Error):
        unflatten({"a": A, "b": B}, structure)


def test_a_structure_and_an_order_contradict_each_other():
    with pytest.raises(Error):
        arrive({"a": A, "b": B}, {"tensorpull.tree": json.dumps(GOOD), "tensorpull.order": "0 1"})


def test_mutated_metadata_is_an_error_or_a_tree():
    flat = flatten({"m": {"w": A, "n": [B, 0.5, math.nan, None, "x"]}, 3: (A,)})
    rng = random.Random(5)
    outcomes = collections.Counter()
    for _ in range(3000):
        text = list(flat.structure)
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(text))
            text[at : at + rng.randint(0, 2)] = rng.choice(["", "[", "]", '"', ",", "0", "d", "t", "f", "\\", "null", "[]", "\u0000"])
        try:
            arrived = arrive(flat, {"tensorpull.tree": "".join(text)})
            assert arrived.tensors.keys() == flat.keys()
            unflatten(arrived.tensors, arrived.structure)
            outcomes["tree"] += 1
        except Error as e:
            assert e.code == "bad_frame"
            outcomes["error"] += 1
    assert len(outcomes) == 2


def test_a_peer_that_lies_is_an_error_of_the_download(owner, monkeypatch):
    from tensorpull import _publish

    real = _publish.said
    for key, value in (("tensorpull.order", "0 0"), ("tensorpull.tree", '["d",["a",[]],["c",[]]]')):
        monkeypatch.setattr(_publish, "said", lambda *rest: {**real(*rest), key: value})
        ref = owner.add_tensors({"a": A, "b": B})
        with pytest.raises(Error) as e:
            tensorpull.download_tensors(owner.address, ref)
        assert e.value.code == "bad_frame" and (key != "tensorpull.tree" or e.value.name == "c")


def test_more_names_than_whose_order_is_kept_are_refused(owner, monkeypatch):
    from tensorpull import _trees

    monkeypatch.setattr(_trees, "MAX_NAMES", 2)
    sent = {"c": A, "b": B, "a": A.copy()}
    with pytest.raises(Error, match="keep_order=False") as e:
        owner.add_tensors(sent)
    assert e.value.code == "too_large"
    assert sorted(tensorpull.download_tensors(owner.address, owner.add_tensors(sent, keep_order=False))) == ["a", "b", "c"]
    with pytest.raises(ValueError, match="places"):
        flatten([A, B, 1])


def test_a_session_and_a_view_keep_order_and_tree(tmp_path):
    tree = {"z": [np.arange(3.0), 1.5], "a": np.zeros(2, "u1")}
    with tensorpull.Downloader(f"shm:{tmp_path}/m").start() as over:
        view = tensorpull.view_tensors(f"shm:{tmp_path}/m", over.add_tensors(tree))
        assert same(unflatten(view), tree)
        assert list(tensorpull.view_tensors(f"shm:{tmp_path}/m", over.add_tensors({"z": A, "a": B.astype("u1")}))) == ["z", "a"]
    assert isinstance(flatten(tree), FlatTree)


def test_a_key_that_is_too_large_a_number_is_refused():
    for digits, fits in ((str(2**1024 - 1), True), (str(2**1024), False), ("9" * 4000, False)):
        structure = f'["d",[{digits},[]]]'
        if fits:
            assert list(tensorpull.unflatten({digits: np.ones(1)}, structure)) == [int(digits)]
            continue
        with pytest.raises(Error) as e:
            tensorpull.unflatten({digits: np.ones(1)}, structure)
        assert e.value.code == "bad_frame"
