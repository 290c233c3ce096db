"""Look, then weigh: whole updates are compared before it is decided what each is worth."""

import threading

import numpy as np
import pytest
import processes

import tensorpull
from tensorpull import Weighing, clip_norms

N = 7


def model(seed, scale=1.0):
    rng = np.random.default_rng(seed)
    return {"w": (scale * rng.standard_normal((40, 33))).astype(np.float32), "b": scale * rng.standard_normal(5), "h": (scale * rng.standard_normal(9)).astype(np.float16)}


def a_round(base=None, count=N, **options):
    base = model(0) if base is None else base
    updates = {f"client-{i}": {name: (t + step).astype(t.dtype) for (name, t), step in zip(base.items(), model(i + 1, 0.1).values())} for i in range(count)}
    w = Weighing(base, **options)
    for i, (peer, tensors) in enumerate(updates.items()):
        w.add(peer, i + 1.0, tensors)
    return base, updates, w


def flat(m):
    return np.concatenate([t.astype(np.float64).ravel() for t in m.values()])


def near(a, b):
    return all(np.allclose(a[n].astype(float), b[n], rtol=0, atol=2e-3 if a[n].dtype == np.float16 else 1e-6) for n in b)


def test_norms_and_products_are_numpys():
    base, updates, w = a_round()
    seen = w.look()
    d = {peer: flat(u) - flat(base) for peer, u in updates.items()}
    assert sorted(seen.peers) == sorted(updates) == sorted(w.peers)
    assert seen.norms.shape == (N,) and seen.products.shape == (N, N) and seen.norms.dtype == np.float64
    for i, a in enumerate(seen.peers):
        assert seen.weights[i] == list(updates).index(a) + 1.0
        assert np.isclose(seen.norms[i], np.linalg.norm(d[a]), rtol=1e-12)
        for k, b in enumerate(seen.peers):
            assert np.isclose(seen.products[i, k], d[a] @ d[b], rtol=1e-9, atol=1e-12)


def test_a_look_after_each_update_finds_what_one_at_the_end_does_and_so_does_the_next_round():
    base, updates, whole = a_round()
    w = Weighing(base, out={n: t.copy() for n, t in base.items()})
    for _ in range(2):
        w.reset()
        for i, (peer, tensors) in reversed(list(enumerate(updates.items()))):
            w.add(peer, i + 1.0, tensors)
            seen = w.look()
        end = whole.look()
        assert seen.peers == end.peers and np.array_equal(seen.norms, end.norms) and np.array_equal(seen.products, end.products)
        got, want = w.result(clip_norms()), whole.result(clip_norms())
        assert all(np.array_equal(got[n], want[n]) for n in base)


def test_a_function_says_what_each_is_worth_and_by_how_much_it_moves():
    base, updates, w = a_round()
    order = w.look().peers

    def weigh(seen):
        assert seen.peers == order
        return [1.0 if p in ("client-1", "client-4") else 0.0 for p in seen.peers], np.where(np.array(seen.peers) == "client-4", 0.5, 1.0)

    got = w.result(weigh)
    want = {n: (base[n] + ((updates["client-1"][n] - base[n].astype(float)) + 0.5 * (updates["client-4"][n] - base[n].astype(float))) / 2) for n in base}
    assert near(got, want)
    # the same round again, and weights alone
    got = w.result(lambda seen: seen.weights)
    total = sum(range(1, N + 1))
    want = {n: base[n] + sum((i + 1) * (u[n] - base[n].astype(float)) for i, u in enumerate(updates.values())) / total for n in base}
    assert near(got, want)


def test_one_hostile_client_does_not_decide_the_mean_and_rounds_follow_each_other():
    base, out = model(0), None
    for round in range(3):
        honest = model(round + 50, 0.1)
        w = Weighing(base, out=base) if out is None else w
        w.reset()
        for i in range(9):
            noise = model(1000 * round + i, 0.01)
            w.add(f"c{i}", 10, {n: (t + honest[n] + noise[n]).astype(t.dtype) for n, t in base.items()})
        w.add("hostile", 10, {n: (t - 100 * honest[n]).astype(t.dtype) for n, t in base.items()})
        before = {n: t.copy() for n, t in base.items()}
        out = w.result(clip_norms())
        assert all(out[n] is base[n] for n in base)
        moved = (flat(base) - flat(before)) @ flat(honest) / (flat(honest) @ flat(honest))
        assert 0.6 < moved < 1.2, moved


def test_norms_of_named_tensors_alone_and_the_median_of_the_rest():
    base, updates, w = a_round(names=["w"])
    updates["client-1"]["b"][0] = np.nan  # nobody looks at it, and it decides nothing
    seen = w.look()
    for i, peer in enumerate(seen.peers):
        assert np.isclose(seen.norms[i], np.linalg.norm(updates[peer]["w"].astype(float) - base["w"]), rtol=1e-12)
    made = w.result(lambda of: ([1.0] * N, [0.0] * N))
    assert np.array_equal(made["w"], base["w"]), "a scale is that of what is compared"
    for name in ("b", "h"):
        rest = np.sort(np.stack([np.nan_to_num(u[name], nan=np.inf) for u in updates.values()]), axis=0)
        assert np.array_equal(made[name], rest[N // 2]), name
    for wrong, error in (("w", TypeError), (1, TypeError), ([1], TypeError), ([], ValueError), (["w", "x"], tensorpull.Error)):
        with pytest.raises(error) as e:
            Weighing(base, names=wrong)
    assert e.value.code == "bad_request" and "(x)" in str(e.value)


def test_a_trimmed_mean_and_sums_that_wrap():
    updates = [np.array([3, 1, 2], np.float32), np.array([1, 9, 2], np.float32), np.array([2, 2, -100], np.float32)]
    w = Weighing(like={"a": updates[0]})
    for i, u in enumerate(updates):
        w.add(str(i), 1, {"a": u})
    assert w.trimmed_mean(1)["a"].tolist() == [2, 2, 2]
    with pytest.raises(tensorpull.Error, match="invalid_argument"):
        w.look()
    out = {"a": np.zeros(2, np.uint32)}
    w = Weighing(out=out)
    for i in range(3):
        w.add(str(i), 1, {"a": np.array([2**31, i], np.uint32)})
    assert w.wrapping_sum()["a"] is out["a"] and out["a"].tolist() == [2**31, 3]


@pytest.mark.parametrize("given, error", [
    (lambda s: [np.nan] * N, "invalid_argument"), (lambda s: [-1.0] + [1.0] * (N - 1), "invalid_argument"), (lambda s: [0.0] * N, "invalid_argument"),
    (lambda s: [float("inf")] * N, "invalid_argument"), (lambda s: ([1.0] * N, [-1.0] * N), "invalid_argument"), (lambda s: [1.0], ValueError),
    (lambda s: None, TypeError), (lambda s: "weights", ValueError), (lambda s: 1 / 0, ZeroDivisionError),
])  # fmt: skip
def test_weights_that_are_none_leave_the_old_model(given, error):
    out = model(77)
    held = {n: t.copy() for n, t in out.items()}
    base, _, w = a_round(out=out)
    with pytest.raises(tensorpull.Error if isinstance(error, str) else error) as e:
        w.result(given)
    if isinstance(error, str):
        assert e.value.code == error
    assert all(np.array_equal(out[n], held[n]) for n in out)
    assert near(w.result(lambda s: s.weights), {n: t.astype(float) for n, t in out.items()}), "the next one is right"


def test_an_update_with_nan_is_refused_by_name_or_seen():
    base, updates, w = a_round()
    w.add("bad", 1, {n: np.full_like(t, np.nan) for n, t in base.items()})
    for call in (lambda: w.result(clip_norms()), lambda: w.result(lambda s: s.weights), lambda: w.trimmed_mean(1)):
        with pytest.raises(tensorpull.Error) as e:
            call()
        assert (e.value.code, e.value.name) == ("value_out_of_range", "bad") and any(repr(name) in e.value.message for name in base)
    got = w.result(lambda s: np.where(np.isfinite(s.norms), s.weights, 0), refuse_no_numbers=False)
    assert all(np.isfinite(t).all() for t in got.values())
    assert all(np.isfinite(t).all() for t in w.result(clip_norms(), refuse_no_numbers=False).values())


def test_without_an_update_that_is_removed_the_round_goes_on():
    base, updates, w = a_round()
    _, _, without = a_round()
    without.remove("client-2")
    w.look()
    w.add("bad", 1, {n: np.full_like(t, np.nan) for n, t in base.items()})
    for goes in ("client-2", "bad"):
        with pytest.raises(tensorpull.Error) as e:
            w.trimmed_mean(1)
        assert e.value.name == "bad"
        w.remove(goes)
    assert sorted(w.peers) == sorted(set(updates) - {"client-2"})
    seen, end = w.look(), without.look()
    assert seen.peers == end.peers and np.array_equal(seen.products, end.products)
    for make in (lambda it: it.result(clip_norms()), lambda it: it.trimmed_mean(1)):
        got, want = make(w), make(without)
        assert all(np.array_equal(got[n], want[n]) for n in base)
    for nobody in ("client-2", "bad"):
        with pytest.raises(tensorpull.Error) as e:
            w.remove(nobody)
        assert (e.value.code, e.value.name) == ("no_updates", nobody)
    with pytest.raises(TypeError):
        w.remove(2)
    w.add("client-2", 3.0, updates["client-2"])
    assert w.look().peers == a_round()[2].look().peers


def test_what_is_removed_is_let_go():
    import gc
    import weakref

    w = Weighing({"w": np.zeros(9)})
    tensors = {peer: np.full(9, float(k)) for k, peer in enumerate("abc")}
    for peer, t in tensors.items():
        w.add(peer, 1, {"w": t})
    known = {peer: weakref.ref(t) for peer, t in tensors.items()}
    del tensors, t
    w.remove("b")
    gc.collect()
    assert [known[peer]() is None for peer in "abc"] == [False, True, False]
    assert w.result(clip_norms(1e9))["w"].tolist() == [1.0] * 9


def test_clipping_is_a_function_of_norms():
    seen = tensorpull.Differences(tuple("abcd"), (1.0, 2.0, 3.0, 4.0), np.array([1.0, 8.0, np.nan, 2.0]), np.eye(4))
    assert clip_norms()(seen) == ([1.0, 2.0, 0.0, 2.0], [1.0, 0.25, 1.0, 1.0])  # NaN is the longest; the lower ones in the middle are 2
    assert clip_norms(heaviest=np.inf)(seen) == ([1.0, 2.0, 0.0, 4.0], [1.0, 0.25, 1.0, 1.0])
    assert clip_norms(1.5, 3)(seen) == ([1.0, 2.0, 0.0, 3.0], [1.0, 1.5 / 8, 1.0, 0.75])
    for wrong in ({"longest": 0}, {"longest": np.inf}, {"heaviest": 0}, {"heaviest": np.nan}):
        with pytest.raises(ValueError, match="above 0"):
            clip_norms(**wrong)
    base, updates, w = a_round()
    norms, weights = w.look().norms, w.look().weights
    most = np.sort(norms)[(N - 1) // 2]
    got = w.result(clip_norms(heaviest=np.inf))
    by = {p: x * min(1, most / n) / sum(weights) for p, x, n in zip(w.peers, weights, norms)}
    want = {n: base[n] + sum(by[p] * (u[n] - base[n].astype(float)) for p, u in updates.items()) for n in base}
    assert near(got, want)


def test_a_weight_of_billions_decides_nothing():
    """9 honest sites of 600 samples, and one of 6e9 with the opposite step of honest length."""
    way = np.random.default_rng(0).normal(size=1000)
    way /= np.linalg.norm(way)
    w = Weighing({"w": np.zeros(1000, "f4")})
    for i in range(10):
        w.add(f"site-{i}", 6e9 if i == 9 else 600, {"w": (way * (-1 if i == 9 else 1)).astype("f4")})
    assert abs(w.result(clip_norms())["w"] @ way - 0.8) < 1e-4
    assert w.result(clip_norms(heaviest=np.inf))["w"] @ way < -0.99


def test_what_is_no_update():
    base, updates, w = a_round(max_updates=N)
    one = updates["client-1"]
    for peer, weight, tensors, code in (
        ("client-1", 1, one, "update_changed"), ("x", 1, one, "table_full"), ("x", 0, one, "invalid_argument"), ("x", float("nan"), one, "invalid_argument"),
        ("x", -1, one, "invalid_argument"), 
    ):  # fmt: skip
        with pytest.raises(tensorpull.Error) as e:
            w.add(peer, weight, tensors)
        assert e.value.code == code
    w.reset()
    assert w.peers == []
    with pytest.raises(tensorpull.Error, match="no_updates"):
        w.result(clip_norms())
    for tensors, name in (({**one, "more": np.ones(2)}, "more"), ({"w": one["w"]}, "b"), ({**one, "w": one["w"].astype(np.float64)}, "w"), ({**one, "w": one["w"].T}, "w")):
        with pytest.raises(tensorpull.Error) as e:
            w.add("x", 1, tensors)
        assert e.value.code in ("schema_mismatch", "unsupported_layout"), e.value
    for bad in ((5, 1, one), ("", 1, one), ("x", "1", one), ("x", None, one), ("x", 1, [one]), ("x", 1, {"w": 3})):
        with pytest.raises((TypeError, ValueError)):
            w.add(*bad)
    for bad in ({}, {"base": base, "like": base}, {"like": base, "out": base}, {"base": 5}, {"base": base, "max_updates": 0}):
        with pytest.raises((TypeError, ValueError)):
            Weighing(**bad)
    for bad in (0, -1, float("nan"), float("inf")):
        with pytest.raises(ValueError):
            clip_norms(bad)
    with pytest.raises(TypeError):
        w.result("mean")


def test_the_function_may_not_use_the_object_and_threads_take_turns():
    _, _, w = a_round()
    for call in (lambda: w.look(), lambda: w.reset(), lambda: w.result(clip_norms()), lambda: w.peers):
        with pytest.raises(RuntimeError, match="has called it"):
            w.result(lambda s: call())
    got, inside, go = [], threading.Event(), threading.Event()

    def slow(s):
        inside.set()
        go.wait(10)
        return s.weights

    other = processes.JoinedThread(target=lambda: got.append(w.result(slow)))
    other.start()
    assert inside.wait(10)
    threading.Timer(0.1, go.set).start()
    assert near(w.result(lambda s: s.weights), {n: t.astype(float) for n, t in w.result(lambda s: s.weights).items()})
    other.join()
    assert len(got) == 1


def test_updates_are_held_and_let_go():
    import gc
    import weakref

    base = {"w": np.zeros(1000, np.float32)}
    w = Weighing(base)
    t = np.ones(1000, np.float32)
    known = weakref.ref(t)
    w.add("a", 1, {"w": t})
    del t
    gc.collect()
    assert known() is not None and w.result(clip_norms())["w"].tolist() == [1] * 1000
    w.reset()
    gc.collect()
    assert known() is None


def test_torch_tensors():
    torch = pytest.importorskip("torch")
    base = {"w": torch.zeros(100, dtype=torch.bfloat16), "b": torch.zeros(3)}
    w = Weighing(base)
    for i in range(3):
        w.add(str(i), 1, {n: t + i for n, t in base.items()})
    got = w.result(lambda s: s.weights)
    assert isinstance(got["w"], torch.Tensor) and got["w"].dtype == torch.bfloat16 and got["w"].tolist() == [1.0] * 100 and got["b"].tolist() == [1.0] * 3
