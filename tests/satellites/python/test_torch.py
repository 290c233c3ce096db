"""torch's tensors and modules, and what the package does to them."""

from __future__ import annotations

import copy
import random
import threading

import numpy as np
import pytest
import processes
from generated import name

import tensorpull
from tensorpull import Error

torch = pytest.importorskip("torch")

DTYPES = [
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.uint16, torch.int32, torch.uint32, torch.int64, torch.uint64, torch.float16,
    torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.float8_e5m2, torch.float8_e4m3fn, torch.float8_e5m2fnuz,
    torch.float8_e4m3fnuz, torch.float8_e8m0fnu,
]  # fmt: skip


def bits(t):
    return torch.empty(t.numel(), dtype=t.dtype).copy_(t.detach().reshape(-1)).view(torch.uint8) if t.numel() else t.new_empty(0, dtype=torch.uint8)


def assert_same(got, sent):
    assert got.keys() == sent.keys()
    for key, t in sent.items():
        assert got[key].dtype == t.dtype and got[key].shape == t.shape and torch.equal(bits(got[key]), bits(t)), key


def tensor(rng):
    rank = rng.randint(0, 8)
    shape = [rng.choice([0, 1, 2, 3] if rank > 4 else [0, 1, 2, 5, 16]) for _ in range(rank)]
    kind = rng.choice(DTYPES)
    raw = torch.randint(0, 2 if kind == torch.bool else 256, (*shape, kind.itemsize), dtype=torch.uint8, generator=GENERATOR)
    made = raw.view(kind).reshape(shape)
    layout = rng.random()
    if layout < 0.3 and rank > 1:
        made = made.permute(rng.sample(range(rank), rank))
    elif layout < 0.4 and rank and kind.itemsize > 1:
        made = made.repeat_interleave(2, dim=-1)[..., ::2] if kind in (torch.float32, torch.int64, torch.float64) else made[..., : shape[-1] // 2]
    elif layout < 0.5 and rank and shape[0] == 1:
        made = made.expand(3, *shape[1:])
    return made.requires_grad_() if kind in (torch.float32, torch.bfloat16) and rng.random() < 0.3 else made


GENERATOR = torch.Generator()


@pytest.mark.parametrize("block", range(5))
def test_generated_state_dicts_arrive_bit_for_bit(owner, block):
    for seed in range(block * 100, block * 100 + 100):
        rng = random.Random(seed)
        GENERATOR.manual_seed(seed)
        sent = {name(rng): tensor(rng) for _ in range(rng.randint(0, 6))}
        ref = owner.add_tensors(sent, recipients=1)
        try:
            assert_same(tensorpull.download_tensors(owner.address, ref, framework="torch", chunk_size=rng.choice([8, 100, 2097152])), sent)
        except Exception as e:
            raise AssertionError(f"seed {seed}") from e


def network():
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    return torch.nn.Sequential(torch.nn.Conv1d(4, 16, 3, padding=1), torch.nn.BatchNorm1d(16), torch.nn.Flatten(2), torch.nn.LazyLinear(16), torch.nn.TransformerEncoder(layer, 2))


def test_a_network_computes_the_same_before_and_after(owner):
    model = network().eval()
    x = torch.randn(2, 4, 16)
    expected = model(x)
    mine = network().eval()
    mine(x)
    with torch.no_grad():
        for p in mine.parameters():
            p.zero_()
    assert not torch.equal(mine(x), expected)
    ref = owner.add_tensors(model.state_dict())
    tensorpull.download_tensors(owner.address, ref, out=mine.state_dict())
    assert torch.equal(mine(x), expected)
    other = copy.deepcopy(mine)
    other.load_state_dict(tensorpull.download_tensors(owner.address, ref, framework="torch"))
    assert torch.equal(other(x), expected)


def test_landing_keeps_grad_and_is_told_to_autograd(owner):
    ref = owner.add_tensors({"w": torch.full((3,), 2.0)})
    w = torch.ones(3, requires_grad=True)
    w.grad = torch.full((3,), 7.0)
    loss = (w * w).sum()  # saves w
    tensorpull.download_tensors(owner.address, ref, out={"w": w})
    assert w.requires_grad and w.is_leaf and torch.equal(w.grad, torch.full((3,), 7.0)) and torch.equal(w.detach(), torch.full((3,), 2.0))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    with torch.inference_mode():
        frozen = torch.zeros(3)
    tensorpull.download_tensors(owner.address, ref, out={"w": frozen})
    assert frozen[0] == 2


def test_tied_weights_are_sent_once_and_tied_again(owner, tmp_path):
    import safetensors.torch

    class Tied(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = torch.nn.Embedding(10, 4)
            self.head = torch.nn.Linear(4, 10, bias=False)
            self.head.weight = self.embed.weight

    model = Tied()
    ref = owner.add_tensors(model.state_dict())
    safetensors.torch.save_model(model, str(tmp_path / "m"), metadata={})
    assert ref.nbytes == (tmp_path / "m").stat().st_size
    got = tensorpull.download_tensors(owner.address, ref, framework="torch")
    assert got.keys() == {"embed.weight", "head.weight"} and got["embed.weight"] is got["head.weight"]
    assert got.metadata == {"head.weight": "embed.weight"}
    assert torch.equal(got["head.weight"], model.head.weight)
    as_numpy = tensorpull.download_tensors(owner.address, ref)
    assert as_numpy["embed.weight"] is as_numpy["head.weight"]
    mine = Tied()
    tensorpull.download_tensors(owner.address, ref, out=mine.state_dict())
    assert torch.equal(mine.embed.weight, model.embed.weight) and mine.head.weight is mine.embed.weight


@pytest.mark.parametrize(
    "bad, code",
    [
        (lambda: torch.eye(3).to_sparse(), "unsupported_layout"),
        (lambda: torch.empty(3, device="meta"), "unsupported_layout"),
        (lambda: torch.zeros(3, dtype=torch.complex64).conj(), "unsupported_layout"),
        (lambda: torch.zeros(3, dtype=torch.complex128), "unsupported_dtype"),
        (lambda: torch.quantize_per_tensor(torch.zeros(3), 0.1, 0, torch.quint8), "unsupported_layout"),
        (lambda: torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)]), "unsupported_layout"),
    ],
    ids=["sparse", "meta", "conjugated", "complex128", "quantised", "nested"],
)
@pytest.mark.filterwarnings("ignore")
def test_what_cannot_travel_is_refused_by_name(owner, bad, code):
    with pytest.raises(Error) as e:
        owner.add_tensors({"good": torch.zeros(2), "the.bad.one": bad()})
    assert (e.value.code, e.value.name) == (code, "the.bad.one")


@pytest.mark.parametrize("bytes_left", [0, 16])
def test_a_tensor_beyond_its_storage_is_neither_read_nor_written(owner, bytes_left):
    short = torch.zeros(2, 500)
    views = {"itself": short, "turned": short.T, "a part": short[1:, ::2]}
    ref = owner.add_tensors({name: np.ones(view.shape, "f4") for name, view in views.items()})
    short.untyped_storage().resize_(bytes_left)
    for name, view in views.items():
        for call in (
            lambda: owner.add_tensors({name: view}),
            lambda: tensorpull.PublishedImage({name: view}),
            lambda: tensorpull.download_tensors(owner.address, ref, out={name: view}, subset=True),
        ):
            with pytest.raises(Error) as e:
                call()
            assert (e.value.code, e.value.name) == ("unsupported_layout", name)
    still = torch.zeros(1000)
    part = still[500:800]
    still.untyped_storage().resize_(3200)
    assert owner.add_tensors({"w": part}).nbytes > 1200  # its storage has all of it


def test_what_a_module_gets_as_new_memory_does_not_free_what_is_published(owner):
    layer = torch.nn.Linear(300, 300)
    before = layer.weight.detach().clone()
    ref = owner.add_tensors({"w": layer.weight})
    layer.weight.data = torch.zeros(300, 300)
    assert torch.equal(tensorpull.download_tensors(owner.address, ref, framework="torch")["w"], before)


def test_torch_and_numpy_meet(owner):
    t = torch.arange(6, dtype=torch.bfloat16).reshape(2, 3)
    ref = owner.add_tensors({"a": t, "b": np.arange(3)})
    got = tensorpull.download_tensors(owner.address, ref)
    assert got["a"].dtype.name == "bfloat16" and got["a"].astype("f4").tolist() == t.tolist()
    mixed = {"a": torch.zeros(2, 3, dtype=torch.bfloat16), "b": np.zeros(3, "i8")}
    tensorpull.download_tensors(owner.address, ref, out=mixed)
    assert torch.equal(mixed["a"], t) and mixed["b"].tolist() == [0, 1, 2]


def test_a_shape_that_the_recipients_library_cannot_make_is_an_error(owner):
    ref = owner.add_tensors({"many": torch.zeros([1] * 65)})
    with pytest.raises(Error) as e:
        tensorpull.download_tensors(owner.address, ref)
    assert (e.value.code, e.value.name) == ("unsupported_layout", "many")
    assert tensorpull.download_tensors(owner.address, ref, framework="torch")["many"].dim() == 65


def test_the_interpreter_runs_while_bytes_move(owner):
    sent = {"w": torch.zeros(64 << 20, dtype=torch.uint8)}
    ref = owner.add_tensors(sent)
    counted, done = [0], threading.Event()

    def count():
        while not done.is_set():
            counted[0] += 1

    other = processes.JoinedThread(target=count)
    other.start()
    try:
        tensorpull.download_tensors(owner.address, ref, framework="torch")
        assert counted[0] > 1000
    finally:
        done.set()
        other.join()
