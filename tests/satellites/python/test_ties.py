"""Tensors that share memory, kinds of tensors that would arrive as something else, and shards."""

from __future__ import annotations

import os
import sys
import threading

import ml_dtypes
import numpy as np
import pytest
import processes

import tensorpull
from tensorpull import Error
from tensorpull._trees import arrive

torch = pytest.importorskip("torch")


class Tied(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(4, 10, bias=False)
        self.embed = torch.nn.Embedding(10, 4)
        self.head.weight = self.embed.weight


def test_numpys_arrays_that_share_memory_are_sent_once(owner):
    w = np.arange(1000.0)
    sent = {"z": w, "a": w[:], "part": w[:10], "turned": w.reshape(10, 100).T, "again": w.reshape(10, 100).T, "empty": w[:0], "nothing": w[:0]}
    ref = owner.add_tensors(sent)
    assert ref.nbytes < 3 * w.nbytes
    got = tensorpull.download_tensors(owner.address, ref)
    assert list(got) == list(sent) and got.metadata == {"z": "a", "turned": "again"}
    assert got["z"] is got["a"] and got["turned"] is got["again"] and got["part"].base is None and got["empty"] is not got["nothing"]
    assert all(np.array_equal(got[name], a) for name, a in sent.items())


def test_arrays_and_tensors_of_one_memory_are_sent_once(owner):
    w = np.arange(100, dtype="f4")
    ref = owner.add_tensors({"numpy": w, "torch": torch.from_numpy(w)})
    got = tensorpull.download_tensors(owner.address, ref, framework="torch")
    assert got["numpy"] is got["torch"] and got.metadata == {"torch": "numpy"}


def test_a_module_with_tied_weights_in_a_tree(owner):
    model, mine = Tied(), Tied()
    ref = owner.add_tensors({"model": model.state_dict(), "epoch": 3})
    tree = tensorpull.unflatten(tensorpull.download_tensors(owner.address, ref, framework="torch"))
    assert list(tree["model"]) == ["head.weight", "embed.weight"] and tree["model"]["head.weight"] is tree["model"]["embed.weight"]
    tensorpull.download_tensors(owner.address, ref, out={"model": mine.state_dict()})
    assert mine.embed.weight.equal(model.embed.weight) and mine.head.weight is mine.embed.weight


def test_ties_of_out_are_those_of_the_owner(owner):
    shared = torch.zeros(4)
    tied, free = owner.add_tensors({"a": shared, "b": shared}), owner.add_tensors({"a": torch.ones(4), "b": torch.ones(4)})
    for ref, out in (
        (free, {"a": shared, "b": shared}),
        (tied, {"a": torch.zeros(4), "b": torch.zeros(4)}),
        (tied, {"a": shared, "c": shared, "b": torch.zeros(4)}),
    ):
        with pytest.raises(Error, match="tied") as e:
            tensorpull.download_tensors(owner.address, ref, out=out)
        assert (e.value.code, e.value.landed) == ("schema_mismatch", 0) and not any(t.any() for t in out.values())
    strided = torch.ones(2, 8)[0, ::2]
    tensorpull.download_tensors(owner.address, tied, out={"a": strided, "b": strided})
    assert not strided.any()


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "unix:@ties-{}", "shm:@ties-{}", "udp://127.0.0.1:0", "http"])
def test_a_tie_that_the_owner_has_not_is_found_and_those_that_it_has_are_told(listen):
    first = np.full(5, 3.0)
    with tensorpull.Downloader("127.0.0.1:0" if listen == "http" else listen.format(os.getpid()), http="127.0.0.1:0" if listen == "http" else None).start() as owner:

        def pull(ref, **more):
            return tensorpull.download_tensors(owner.url(ref), ref, bearer=ref, **more) if listen == "http" else tensorpull.download_tensors(owner.address, ref, **more)

        for metadata in (None, {"b": "c"}, {"a": "b"}, {"c": "a"}):
            ref, shared = owner.add_tensors({"a": first}, metadata=metadata), np.zeros(5)
            assert pull(ref, out={"a": shared}).metadata == (metadata or {}) and shared.all()
        other, shared, c = first + 1, np.zeros(5), np.zeros(5)
        with pytest.raises(Error, match="tied") as e:
            pull(owner.add_tensors({"a": first, "b": other, "c": other}), out={"a": shared, "b": shared, "c": c})
        assert e.value.code == "schema_mismatch" and not shared.any() and not c.any()
        ref, shared = owner.add_tensors({"a": first, "b": first}, metadata={"x": "y"}), np.zeros(5)
        assert pull(ref, out={"a": shared, "b": shared}).metadata == {"b": "a", "x": "y"} and shared.all()
        assert pull(ref, out={"a": np.zeros(5)}).metadata == {"b": "a", "x": "y"}  # a name that only the owner has is no more than a name
        if listen == "http":  # there the header has to be read in any case
            return
        assert pull(ref, out={"a": np.zeros(5)}, max_header_bytes=8).metadata == {}
        with pytest.raises(Error) as e:
            pull(ref, out={"a": shared, "b": shared}, max_header_bytes=8)
        assert e.value.code == "too_large"


def test_ties_over_a_session():
    shared, w, done = np.zeros(5), np.ones(5), threading.Event()
    with tensorpull.Listener() as door, tensorpull.Session(door.address) as client, door.accept(timeout=30) as server:
        refs = [server.add_tensors(model) for model in ({"a": np.ones(5)}, {"a": np.ones(5), "b": np.ones(5)}, {"a": w, "b": w})]
        serving = processes.JoinedThread(target=lambda: server.serve(until=done, timeout=60))
        serving.start()
        try:
            with pytest.raises(Error) as e:
                client.download_tensors(refs[1], out={"a": shared, "b": shared})
            assert e.value.code == "schema_mismatch" and not shared.any()
            assert client.download_tensors(refs[0], out={"a": shared, "b": shared}).metadata == {} and shared.all()
            shared[:] = 0
            assert client.download_tensors(refs[2], out={"a": shared, "b": shared}).metadata == {"b": "a"} and shared.all()
        finally:
            done.set()
            serving.join()


def test_header_and_ties_come_in_small_pieces(owner):
    names = {f"layer.{i}": np.full(3, float(i)) for i in range(500)}
    sent = {**names, **{f"tied.{i}": names[f"layer.{i}"] for i in range(0, 500, 2)}}
    out = {name: np.zeros(3) for name in names}
    mine = {**out, **{f"tied.{i}": out[f"layer.{i}"] for i in range(0, 500, 2)}}
    ref = owner.add_tensors(sent)
    for chunk_size in (64, 1000, 0):
        got = tensorpull.download_tensors(owner.address, ref, out=mine, chunk_size=chunk_size)
        assert got.metadata["tied.498"] == "layer.498" and all(np.array_equal(out[name], w) for name, w in names.items())
    mine["tied.1"] = out["layer.1"]
    ref = owner.add_tensors({**sent, "tied.1": names["layer.2"]})
    with pytest.raises(Error) as e:
        tensorpull.download_tensors(owner.address, ref, out=mine, chunk_size=64)
    assert (e.value.code, e.value.name) == ("schema_mismatch", "tied.1")


@pytest.mark.parametrize("saved", [["embed"], ["head"], ["embed", "head"]])
def test_a_checkpoint_with_one_name_of_a_tied_weight_lands_in_a_tied_model(owner, saved):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.head, self.norm = torch.nn.Embedding(5, 3), torch.nn.Linear(3, 5, bias=False), torch.nn.LayerNorm(3)
            self.head.weight = self.embed.weight

    theirs, live = Model().state_dict(), Model()
    checkpoint = {name: tensor for name, tensor in theirs.items() if name.split(".")[0] in [*saved, "norm"]}
    got = tensorpull.download_tensors(owner.address, owner.add_tensors(checkpoint), out=live.state_dict())
    assert torch.equal(live.embed.weight, theirs["embed.weight"]) and live.head.weight is live.embed.weight and set(got) == set(theirs)


def test_what_lands_twice_in_one_place_is_refused_unless_it_is_one_tie(owner):
    memory = np.zeros(20)
    ref = owner.add_tensors({"a": np.ones(10), "b": np.ones(10)})
    for b in (memory[5:15], memory[9::-1], memory[:10].view("i8")):
        with pytest.raises(Error) as e:
            tensorpull.download_tensors(owner.address, ref, out={"a": memory[:10], "b": b})
        assert e.value.code == "unsupported_layout" and not memory.any()


def test_an_average_of_tied_models(owner):
    w = np.full(8, 3.0, "f4")
    for model in ({"a": w, "b": w[:]}, Tied().state_dict()):
        ref = owner.add_tensors(model)
        mean = tensorpull.weighted_average([(owner.address, ref, 2.0)], like=model)
        first, second = mean.values()
        assert first is second and np.array_equal(np.asarray(first), np.asarray(next(iter(model.values()))))


A = np.zeros(3)


@pytest.mark.parametrize(
    "pairs, name",
    [
        ({"b": "c", "c": "b"}, "b"),
        ({"b": "b"}, "b"),
        ({"b": "c", "c": "a"}, "b"),
        ({"b": "missing"}, "b"),
    ],
    ids=["cycle", "itself", "chain", "missing"],
)
def test_a_lie_about_ties_is_an_error(pairs, name):
    for more in ({"tensorpull.tree": '["d",["a",[]],["b",[]]]'}, {"tensorpull.order": "1 0"}):
        with pytest.raises(Error) as e:
            arrive({"a": A}, {**pairs, **more})
        assert e.value.code == "bad_frame" and e.value.name in (name, "c", "")
    assert arrive({"a": A}, {"b": "missing"}).tensors == {"a": A}


def test_a_tie_cannot_replace_a_tensor():
    made = {"a": np.zeros(3), "b": np.ones(2)}
    assert arrive(made, {"a": "b", "b": "a"}).tensors == made


def test_metadata_does_not_hide_a_tie(owner):
    w = np.zeros(2)
    with pytest.raises(ValueError, match="'b'"):
        owner.add_tensors({"a": w, "b": w}, metadata={"b": "x"})
    got = tensorpull.download_tensors(owner.address, owner.add_tensors({"a": w, "format": w}, metadata={"format": "np"}))
    assert sorted(got) == ["a", "format"] and got.metadata == {"format": "np"}


class Named(torch.Tensor):
    pass


class Array(np.ndarray):
    pass


@pytest.mark.parametrize(
    "bad, says",
    [
        (lambda: torch.zeros(2).as_subclass(Named), "Named"),
        (lambda: torch.nn.parameter.UninitializedParameter(), "UninitializedParameter"),
        (lambda: np.zeros(2).view(Array), "Array"),
        (lambda: np.matrix([1.0]), "matrix"),
    ],
    ids=["subclass", "uninitialised", "array", "matrix"],
)
@pytest.mark.filterwarnings("ignore")
def test_a_subclass_is_refused_by_name(owner, bad, says):
    ref = owner.add_tensors({"good": np.zeros(2)})
    for refused in (lambda t: owner.add_tensors({"good": np.zeros(2), "bad": t}), lambda t: tensorpull.download_tensors(owner.address, ref, out={"good": np.zeros(2), "bad": t})):
        with pytest.raises(Error, match=says) as e:
            refused(bad())
        assert (e.value.code, e.value.name) == ("unsupported_layout", "bad")


def test_parameters_and_mapped_files_travel(owner, tmp_path):
    mapped = np.memmap(tmp_path / "m", "f4", "w+", shape=(5,))
    mapped[:] = 2
    got = tensorpull.download_tensors(owner.address, owner.add_tensors({"p": torch.nn.Parameter(torch.ones(3)), "m": mapped}))
    assert got["p"].tolist() == [1, 1, 1] and got["m"].tolist() == [2] * 5 and type(got["m"]) is np.ndarray


@pytest.mark.parametrize("kind", [f"{u}int{bits}" for u in ("", "u") for bits in (1, 2, 3, 4, 5, 6, 7)] + ["bits8", "bits1x8", "bits16"])
def test_elements_that_safetensors_has_no_dtype_for_are_refused_by_name(owner, kind):
    with pytest.raises(Error, match=f"torch.{kind}, for which safetensors has no dtype") as e:
        owner.add_tensors({"w": torch.empty(4, dtype=getattr(torch, kind))})
    assert (e.value.code, e.value.name) == ("unsupported_dtype", "w")


def test_small_elements_of_numpy_are_refused_with_what_to_do(owner):
    for kind, says in ((ml_dtypes.int4, "no dtype"), (ml_dtypes.uint2, "no dtype"), (ml_dtypes.float6_e2m3fn, "packs them"), (ml_dtypes.float4_e2m1fn, "packs them")):
        with pytest.raises(Error, match=says) as e:
            owner.add_tensors({"w": np.zeros(4, kind)})
        assert (e.value.code, e.value.name) == ("unsupported_dtype", "w")


def test_packed_floats_of_four_bits_travel(owner):
    sent = torch.arange(24, dtype=torch.uint8).view(torch.float4_e2m1fn_x2).reshape(4, 6)
    ref = owner.add_tensors({"w": sent})
    got = tensorpull.download_tensors(owner.address, ref, framework="torch")["w"]
    assert got.dtype == sent.dtype and got.shape == sent.shape and got.view(torch.uint8).equal(sent.view(torch.uint8))
    out = {"w": torch.zeros(4, 6, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)}
    tensorpull.download_tensors(owner.address, ref, out=out)
    assert out["w"].view(torch.uint8).equal(sent.view(torch.uint8))
    with pytest.raises(Error, match="F4"):
        tensorpull.download_tensors(owner.address, ref)


def test_bfloat16_without_ml_dtypes_is_a_clear_error(owner):
    """In a process of its own: NumPy knows the names of ml_dtypes's types once anything has imported it."""
    program = """
import sys
sys.modules["ml_dtypes"] = None
import tensorpull
try:
    tensorpull.download_tensors(sys.argv[1], sys.argv[2])
except tensorpull.Error as e:
    assert (e.code, e.name) == ("unsupported_dtype", "w") and "ml_dtypes" in e.message, e
else:
    raise SystemExit("it was taken")
"""
    ref = owner.add_tensors({"w": torch.ones(3, dtype=torch.bfloat16)})
    processes.run([sys.executable, "-c", program, owner.address, str(ref)], check=True)


def test_local_shards_of_a_dtensor(owner, tmp_path):
    distributed = pytest.importorskip("torch.distributed")
    tensor = pytest.importorskip("torch.distributed.tensor")
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/rendezvous", rank=0, world_size=1)
    try:
        mesh = tensor.init_device_mesh("cpu", (1,))
        full = torch.randn(8, 4)
        state = {"layer": {"weight": tensor.distribute_tensor(full.clone(), mesh, [tensor.Shard(0)]), "bias": torch.ones(4)}, "lr": [0.5]}
        with pytest.raises(Error, match="local_shards") as e:
            owner.add_tensors(state)
        assert (e.value.code, e.value.name) == ("unsupported_layout", "layer.weight")
        shards = tensorpull.local_shards(state)
        assert type(shards["layer"]["weight"]) is torch.Tensor and shards["lr"] == [0.5]
        ref = owner.add_tensors(shards)
        mine = {"layer": {"weight": tensor.distribute_tensor(torch.zeros(8, 4), mesh, [tensor.Shard(0)]), "bias": torch.zeros(4)}, "lr": [0.5]}
        tensorpull.download_tensors(owner.address, ref, out=tensorpull.local_shards(mine))
        assert mine["layer"]["weight"].to_local().equal(full) and mine["layer"]["bias"].eq(1).all()
    finally:
        distributed.destroy_process_group()


def test_a_look_at_the_ties_of_a_url_ends_nothing():
    w, shared = np.ones(5), np.zeros(5)
    with tensorpull.Downloader(http="127.0.0.1:0").start() as owner:
        ref = owner.add_tensors({"a": w, "b": w}, recipients=1)
        tensorpull.download_tensors(owner.url(ref), ref, bearer=ref, out={"a": shared, "b": shared})
        assert shared.all() and owner.wait(ref, 60) and owner.outcome(ref).verdict == "completed"
