"""Only the tensors that changed: `base`, digests of tensors, and what lies about them."""

from __future__ import annotations

import gc
import logging
import os
import random
import threading
import weakref

import numpy as np
import pytest
import processes

import tensorpull
from tensorpull import _changed, _download, _publish

torch = pytest.importorskip("torch")


def same(a, b):
    return list(a) == list(b) and all(a[n].dtype == b[n].dtype and a[n].shape == b[n].shape and bytes_of(a[n]) == bytes_of(b[n]) for n in b)


def bytes_of(t):
    return (t if isinstance(t, np.ndarray) else t.detach().numpy()).tobytes()


def copy(model):
    return {name: t.copy() if isinstance(t, np.ndarray) else t.clone() for name, t in model.items()}


@pytest.fixture(params=["numpy", "torch"])
def framework(request):
    return request.param


def of(framework, arrays):
    return arrays if framework == "numpy" else {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}


def lora(framework, frozen=60):
    rng = np.random.default_rng(3)
    model = {f"layer.{i}.weight": rng.standard_normal((128, 256)).astype(np.float32) for i in range(frozen)}
    model.update({f"layer.{i}.lora_{k}": rng.standard_normal((1, 8)).astype(np.float32) for i in range(frozen) for k in "AB"})
    return of(framework, model)


def trained(model):
    new = copy(model)
    for name, t in new.items():
        if "lora" in name:
            t += 1
    return new


def test_a_round_of_lora_pulls_under_half_a_percent(owner, framework):
    old = lora(framework)
    new = trained(old)
    ref = owner.add_tensors(new, recipients=1, tensor_digests=True)
    got = tensorpull.download_tensors(owner.address, ref, base=old)
    assert same(got, new) and got.receipt.outcome == "completed" and not got.receipt.believed and got.receipt.confirmed
    assert got.receipt.bytes < 0.005 * ref.nbytes
    assert got.receipt.bytes + got.receipt.kept_bytes == sum(len(bytes_of(t)) for t in new.values())
    assert all((got[name] is old[name]) == ("weight" in name) for name in new), "what has not changed is not copied"
    assert got.receipt.version == ref.version
    assert owner.wait(ref, 10)


def test_in_place_only_what_changed_is_landed_in(owner, framework):
    mine = lora(framework)
    new = trained(mine)
    ref = owner.add_tensors(new, recipients=1, tensor_digests=True)
    objects = dict(mine)
    got = tensorpull.download_tensors(owner.address, ref, out=mine, base=mine)
    assert same(mine, new) and all(got[name] is objects[name] is mine[name] for name in new)
    assert got.receipt.kept_bytes > 0.99 * ref.nbytes and owner.wait(ref, 10)


def test_if_nothing_has_changed_the_owner_counts_the_recipient_all_the_same(owner, framework):
    model = of(framework, {"a": np.arange(5000.0), "b": np.ones(3, np.int8), "none": np.empty((0, 3))})
    ref = owner.add_tensors(model, recipients=1, tensor_digests=True)
    got = tensorpull.download_tensors(owner.address, ref, base=copy(model))
    assert same(got, model) and got.receipt.bytes == 1 and owner.wait(ref, 10)
    assert owner.status(ref).completed == 1


@pytest.mark.parametrize("how", ["several addresses", "a session", "datagrams"])
def test_wherever_it_is_pulled_from_the_owner_counts_a_recipient_that_has_it(how):
    model = {"a": np.arange(5000.0), "b": np.ones(30, np.int8)}
    with tensorpull.Downloader("udp://127.0.0.1:0" if how == "datagrams" else "127.0.0.1:0") as owner, tensorpull.Listener() as door:
        owner.start()
        if how == "a session":
            with tensorpull.Session(door.address) as there, door.accept(60) as here:
                ref = here.add_tensors(model, recipients=1, tensor_digests=True)
                serving = processes.JoinedThread(target=here.serve, args=(ref, 60))
                serving.start()
                got = there.download_tensors(ref, base=model)
                serving.join()
                assert here.status(ref).completed == 1
        else:
            ref = owner.add_tensors(model, recipients=1, tensor_digests=True)
            addresses = [owner.address] * 2 if how == "several addresses" else owner.address
            got = tensorpull.download_tensors(addresses, ref, base=model, connections=2 if how == "several addresses" else 1)
            assert owner.wait(ref, 60) and owner.status(ref).completed == 1
        assert same(got, model) and got.receipt.bytes <= 30 and got.receipt.confirmed and not got.receipt.believed


def test_digests_that_lie_of_a_model_that_is_there_cost_a_pull_of_it(owner, monkeypatch):
    mine, model = ({"a": np.full(5000, value)} for value in (1.0, 2.0))
    monkeypatch.setattr(tensorpull._publish._native, "tensor_digests", lambda *a, real=tensorpull._native.tensor_digests: [(name, 7) for name, _ in real(*a)])
    ref = owner.add_tensors(model, recipients=1, tensor_digests=True)
    got = tensorpull.download_tensors(owner.address, ref, base=mine)
    assert same(got, model) and owner.wait(ref, 10) and owner.status(ref).completed == 1


@pytest.mark.parametrize("seed", range(60 if os.environ.get("TENSORPULL_WHOLE_SCHEDULE") == "1" else 20))
def test_what_arrives_is_what_is_published_whatever_the_base_is(owner, seed):
    rng = random.Random(seed)
    kinds = [np.float32, np.float64, np.int8, np.uint16, np.bool_, np.float16, np.complex64]
    shapes = [(), (0,), (1,), (3, 0), (7,), (33, 5), (4096,), (70_000,)]

    def tensor():
        kind, shape = rng.choice(kinds), rng.choice(shapes)
        return np.array(np.random.default_rng(rng.randrange(1 << 30)).integers(0, 2, shape)).astype(kind)

    published = {f"t{i}" + "é" * rng.randrange(2): tensor() for i in range(rng.randrange(1, 20))}
    base = {}
    for name, t in published.items():
        what = rng.randrange(8)
        if what < 4:
            base[name] = t.copy()
        elif what == 4:
            base[name] = np.array(t)
            if t.size:
                base[name].reshape(-1)[-1] = not base[name].reshape(-1)[-1]
        elif what == 5:
            base[name] = tensor()
        elif what == 6:
            base[name] = np.asfortranarray(t)
    if rng.randrange(3) == 0:
        base["gone"] = tensor()
    if rng.randrange(3) == 0:  # tied at the owner: one memory, two names
        name = rng.choice(list(published))
        published["tied"] = published[name]
    items = list(published.items())
    rng.shuffle(items)
    published = dict(items)
    if rng.randrange(2) and base:  # one memory at the recipient, apart at the owner or not
        base["second"] = base[rng.choice(list(base))]
    held = copy(base)
    metadata = {"round": "7"} if rng.randrange(2) else None
    ref = owner.add_tensors(published, recipients=1, tensor_digests=rng.randrange(5) > 0, metadata=metadata, keep_order=True)
    got = tensorpull.download_tensors(owner.address, ref, base=base, chunk_size=rng.choice([None, 1, 4096]), framework="numpy")
    assert list(got) == list(published) and same(got, published)
    assert {key: value for key, value in got.metadata.items() if key not in published} == (metadata or {})  # ties are in it, as ever
    assert got.receipt.outcome == "completed" and not got.receipt.believed and owner.wait(ref, 10)
    assert set(base) == set(held) and all(bytes_of(base[n]) == bytes_of(held[n]) for n in held), "the base is only read"
    assert owner.status(ref).completed == 1


def test_over_a_session_a_list_of_addresses_and_several_connections(owner, framework):
    old = lora(framework, 8)
    new = trained(old)
    with tensorpull.Listener() as door, tensorpull.Session(door.address) as there:
        here = door.accept(10)
        ref = there.add_tensors(new, recipients=1, tensor_digests=True)
        thread = processes.JoinedThread(target=there.serve, args=(ref,))
        thread.start()
        got = here.download_tensors(ref, base=old)
        thread.join()
        assert same(got, new) and got.receipt.kept_bytes
    ref = owner.add_tensors(new, tensor_digests=True)
    for address, more in ((["127.0.0.1:1", owner.address], {}), (owner.address, {"connections": 3}), (owner.address, {"connections": 2, "chunk_size": 4096})):
        got = tensorpull.download_tensors(address, ref, base=old, **more)
        assert same(got, new) and got.receipt.kept_bytes > 0.9 * ref.nbytes


def test_tensors_of_a_tree_and_ties(owner):
    shared = np.arange(6.0)
    old = {"net": {"w": np.zeros(1000), "head": shared, "embedding": shared}, "step": 3}
    new = {"net": {"w": np.zeros(1000), "head": shared + 1, "embedding": None}, "step": 4}
    new["net"]["embedding"] = new["net"]["head"]
    ref = owner.add_tensors(new, tensor_digests=True)
    got = tensorpull.download_tensors(owner.address, ref, base=old)
    tree = tensorpull.unflatten(got)
    assert tree["step"] == 4 and tree["net"]["head"] is tree["net"]["embedding"] and (tree["net"]["head"] == shared + 1).all()
    assert got.receipt.kept_bytes == 8000


@pytest.mark.parametrize("place", ["new", "in place"])
def test_digests_that_lie_cost_a_pull_of_all(owner, monkeypatch, caplog, place):
    old = {"a": np.zeros(5000), "b": np.zeros(5000), "c": np.zeros(10)}
    new = {"a": np.ones(5000), "b": np.zeros(5000), "c": np.ones(10)}
    truth = _changed.digests_said
    lie = {"a": old["a"], "b": new["b"], "c": new["c"]}  # "a has not changed"
    monkeypatch.setattr(_publish, "digests_said", lambda digests: truth(dict(_changed._native.tensor_digests(tensorpull._tensors.Tensors(lie).described))))
    ref = owner.add_tensors(new, tensor_digests=True)
    with caplog.at_level(logging.WARNING, "tensorpull"):
        got = tensorpull.download_tensors(owner.address, ref, base=old, out=old if place == "in place" else None)
    assert same(got, new) and got.receipt.kept_bytes == 0 and "all of it is pulled" in caplog.text
    assert (old["a"] == (place == "in place")).all()


@pytest.fixture
def disturbed(monkeypatch):
    """A base whose tensor "a" changes once it has been compared, and before what has changed is pulled, as a thread that trains it would do."""
    base, real = {"a": np.zeros(5000), "b": np.zeros(5000)}, _download.changes

    def changes(*arguments):
        found = real(*arguments)
        base["a"][0] += 1
        return found

    monkeypatch.setattr(_download, "changes", changes)
    return base


@pytest.mark.parametrize("place", ["new", "in place"])
@pytest.mark.parametrize("recipients", [1, 2])
def test_the_owner_counts_once_a_recipient_whose_base_changed_meanwhile(owner, disturbed, place, recipients):
    new = {"a": np.zeros(5000), "b": np.ones(5000)}
    ref = owner.add_tensors(new, recipients=recipients, tensor_digests=True)
    got = tensorpull.download_tensors(owner.address, ref, base=disturbed, out=disturbed if place == "in place" else None)
    assert same(got, new) and got.receipt.kept_bytes == 0 and got.receipt.confirmed
    assert owner.status(ref).completed == 1 and owner.status(ref).cancelled == 0
    # The connection of the pull in vain may still hold the publication for a moment.
    assert owner.wait(ref, 60) if recipients == 1 else not owner.settled(ref)


def test_over_a_session_a_base_that_changed_meanwhile_costs_a_pull_of_all(disturbed):
    new = {"a": np.zeros(5000), "b": np.ones(5000)}
    with tensorpull.Listener() as door, tensorpull.Session(door.address) as there:
        here = door.accept(10)
        ref = there.add_tensors(new, recipients=1, tensor_digests=True)
        thread = processes.JoinedThread(target=there.serve, args=(ref,))
        thread.start()
        try:
            got = here.download_tensors(ref, base=disturbed, retries=0, abort=lambda: not thread.is_alive())
        finally:
            here.close()
            thread.join()
        assert same(got, new) and there.status(ref).completed == 1


@pytest.mark.parametrize("how", ["memory", "name"])
def test_the_memory_of_the_base_is_held_while_it_is_read(owner, monkeypatch, how):
    """A thread that gives a parameter new memory, or takes it out of the dict, does not free what is being read."""
    new = {"a": torch.zeros(2_000_000), "b": torch.ones(3)}
    base = {"a": torch.nn.Parameter(torch.zeros(2_000_000)), "b": torch.zeros(3)}
    old = weakref.ref(base["a"].untyped_storage())
    real, seen = _changed._native.tensor_digests, []

    def digests(*arguments):
        if how == "name":
            del base["a"]
        else:
            base["a"].data = torch.zeros(1)
        gc.collect()
        seen.append(old() is not None)
        return real(*arguments) if seen[-1] else []

    ref = owner.add_tensors(new, tensor_digests=True)
    monkeypatch.setattr(_changed._native, "tensor_digests", digests)
    got = tensorpull.download_tensors(owner.address, ref, base=base)
    assert seen == [True] and all(torch.equal(got[name], new[name]) for name in new)


def test_the_order_does_not_depend_on_what_changed(owner):
    """Of one dtype and in the order of their names, so that no order is said."""
    model = {name: np.full(9, i, np.float32) for i, name in enumerate("abcd")}
    ref = owner.add_tensors(model, tensor_digests=True)
    for other in model:
        got = tensorpull.download_tensors(owner.address, ref, base={**model, other: np.full(9, 7, np.float32)})
        assert list(got) == list(model) and same(got, model)


def test_what_is_returned_does_not_depend_on_what_changed(owner, framework):
    kind = np.ndarray if framework == "numpy" else torch.Tensor
    for published, mine in (
        ({"a": [1.0]}, {"a": [1.0]}), ({"a": [1.0], "b": [2.0]}, {"a": [1.0], "b": [3.0]}), ({"a": [1.0], "b": [2.0]}, {"a": [0.0], "b": [0.0]}),
        ({"a": [1.0]}, {"other": [1.0]}),
    ):  # fmt: skip
        published, mine = (of(framework, {name: np.array(t) for name, t in model.items()}) for model in (published, mine))
        for digests in (True, False):
            got = tensorpull.download_tensors(owner.address, owner.add_tensors(published, tensor_digests=digests), base=mine)
            assert same(got, published) and all(type(t) is kind for t in got.values())


def test_in_place_the_result_is_as_without_a_base(owner):
    """The names, their order and the numbers are those of `out`."""
    tied = np.arange(6.0)
    for published, mine in (
        ({"z": np.zeros(900), "a": tied, "b": tied}, {"a": np.zeros(6), "z": np.zeros(900)}),
        ({"w": np.zeros(900), "v": np.ones(5), "step": 4}, {"w": np.zeros(900), "v": np.zeros(5), "step": 3}),
    ):  # fmt: skip
        ref = owner.add_tensors(published, tensor_digests=True)
        with_base, without = ({n: t.copy() if isinstance(t, np.ndarray) else t for n, t in mine.items()} for _ in range(2))
        a = tensorpull.download_tensors(owner.address, ref, out=with_base, base=with_base)
        b = tensorpull.download_tensors(owner.address, ref, out=without)
        assert a.receipt.kept_bytes == 7200 and same(a, b) and a.structure == b.structure and a.metadata == b.metadata


@pytest.mark.parametrize("changed", ["head", "w", ""])
def test_in_place_tied_tensors_are_no_reason_to_pull_all(owner, framework, changed):
    def model(of_head, of_w):
        made = of(framework, {"head": np.full(900, of_head), "w": np.full(500, of_w), "b": np.zeros(2)})
        return {**made, "embedding": made["head"]}

    ref = owner.add_tensors(model(1.0, 1.0), tensor_digests=True, recipients=1)
    mine = model(0.0 if changed == "head" else 1.0, 0.0 if changed == "w" else 1.0)
    objects = dict(mine)
    got = tensorpull.download_tensors(owner.address, ref, out=mine, base=mine)
    assert same(mine, model(1.0, 1.0)) and all(got[name] is objects[name] is mine[name] for name in objects)
    assert got.receipt.kept_bytes == {"head": 4016, "w": 7216, "": 11215}[changed] and owner.wait(ref, 10)


def test_in_place_ties_that_are_not_the_owners_are_said_as_ever(owner):
    ref = owner.add_tensors({"a": np.ones(9), "b": np.ones(9)}, tensor_digests=True)
    one = np.ones(9)
    mine = {"a": one, "b": one}
    with pytest.raises(tensorpull.Error) as refused:
        tensorpull.download_tensors(owner.address, ref, out=mine, base=mine)
    assert refused.value.code == "schema_mismatch" and (one == 1).all()


def test_abort_is_heard_while_the_base_is_read(owner, monkeypatch):
    new = {"a": np.zeros(5000), "b": np.ones(3)}
    ref = owner.add_tensors(new, recipients=1, tensor_digests=True)
    for where in ("tensor_digests", "ImageReader"):
        stop, real = threading.Event(), getattr(_changed._native, where)
        with monkeypatch.context() as patch:
            patch.setattr(_changed._native, where, lambda *arguments, real=real, stop=stop: (stop.set(), real(*arguments))[1])
            with pytest.raises(tensorpull.Error) as refused:
                tensorpull.download_tensors(owner.address, ref, base={"a": np.zeros(5000)}, abort=stop)
        assert refused.value.code == "cancelled" and owner.status(ref).completed == 0


@pytest.mark.parametrize("said", ["", "00", "zz" * 16, "0" * 47, " " * 48, "é" * 48, "0x" * 24])
def test_digests_that_are_none_are_as_if_there_were_none(owner, monkeypatch, said):
    model = {"a": np.ones(100), "b": np.zeros(3), "c": np.zeros(5)}
    monkeypatch.setattr(_publish, "digests_said", lambda digests: {"tensorpull.digests": said})
    ref = owner.add_tensors(model, tensor_digests=True)
    got = tensorpull.download_tensors(owner.address, ref, base=copy(model))
    assert same(got, model) and got.receipt.kept_bytes == 0


def test_a_base_that_does_not_fit_is_said_as_ever(owner):
    ref = owner.add_tensors({"a": np.ones(100), "b": np.ones(5)}, tensor_digests=True)
    for wrong in ({"a": np.ones(100)}, {"a": np.ones(100), "b": np.ones(6)}, {"a": np.ones(100), "b": np.ones(5), "c": np.ones(1)}):
        with pytest.raises(tensorpull.Error) as refused:
            tensorpull.download_tensors(owner.address, ref, out=wrong, base=wrong)
        assert refused.value.code == "schema_mismatch"
    with pytest.raises(tensorpull.Error) as refused:
        tensorpull.download_tensors(owner.address, ref, base={"a": np.zeros(100)}, max_bytes=100)
    assert refused.value.code == "too_large"
    with pytest.raises(tensorpull.Error) as refused:
        tensorpull.download_tensors(owner.address, ref, base={"a": np.ones(100)}, version=5)
    assert refused.value.code == "stale_version"
    read_only = {"a": np.ones(100), "b": np.zeros(5)}
    read_only["b"].flags.writeable = False
    with pytest.raises(tensorpull.Error) as refused:
        tensorpull.download_tensors(owner.address, ref, out=read_only, base=read_only)
    assert refused.value.code == "unsupported_layout"


def test_arguments_that_make_no_sense(owner):
    model = {"a": np.ones(3)}
    ref = owner.add_tensors(model, tensor_digests=True)
    for error, more in (
        (ValueError, {"base": model, "out": {"a": np.ones(3)}}), (ValueError, {"base": model, "names": ["a"]}), (ValueError, {"base": model, "matching": ["a"]}),
        (ValueError, {"base": model, "out": model, "subset": True}), (ValueError, {"base": model, "unverified": True}), (TypeError, {"base": 3}), (TypeError, {"base": {"a": 1.5 + 2j}}),
    ):  # fmt: skip
        with pytest.raises(error):
            tensorpull.download_tensors(owner.address, ref, **more)
    with pytest.raises(ValueError, match="URLs"):
        tensorpull.download_tensors("http://127.0.0.1:1/x.safetensors", ref, base=model)
    assert same(tensorpull.download_tensors(owner.address, ref, base={}), model)


def test_one_that_has_the_id_alone_believes_whoever_answers(owner):
    model = {"a": np.ones(3000), "b": np.ones(3)}
    ref = owner.add_tensors(model, tensor_digests=True)
    got = tensorpull.download_tensors(owner.address, ref.id, base={"a": np.ones(3000)})
    assert same(got, model) and got.receipt.believed and got.receipt.kept_bytes == 24000


def test_peers_without_digests_go_on(owner):
    """Of what an owner publishes with digests, one that does not ask for them gets the same; the caller's metadata stays the caller's."""
    model = {"b": np.ones(3), "a": np.zeros(5)}
    ref = owner.add_tensors(model, metadata={"k": "v"}, tensor_digests=True)
    got = tensorpull.download_tensors(owner.address, ref)
    assert same(got, model) and got.metadata == {"k": "v"} and got.receipt.kept_bytes == 0
    assert tensorpull.list_tensors(owner.address, ref).metadata == {"k": "v"}
    with pytest.raises(tensorpull.Error):
        owner.add_tensors({"tensorpull.digests": np.ones(1)})
    with pytest.raises(ValueError):
        owner.add_tensors(model, metadata={"tensorpull.digests": "00"})
