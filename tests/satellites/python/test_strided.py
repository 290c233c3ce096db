"""Tensors that are not contiguous: landed in by slices, and how it is found out which of them share memory."""

from __future__ import annotations

import random
import threading
import tracemalloc

import numpy as np
import pytest

import tensorpull
from tensorpull import Error

torch = pytest.importorskip("torch")


def sent_and_memory(rng):
    """A tensor to send, and one of its shape to land in that is strided somehow, within memory of which the rest has to stay as it is."""
    rank = rng.randint(1, 5)
    shape = [rng.choice([1, 2, 3, 5, 17]) for _ in range(rank)]
    kind = rng.choice(["u1", "i2", "f4", "f8", "c8"])
    large = [extent + rng.randint(0, 2) for extent in shape]
    steps = [rng.choice([1, 1, 2, -1, -2]) for _ in shape]
    order = rng.sample(range(rank), rank)
    memory = np.full([extent * abs(step) for extent, step in zip(large, steps)], 7, kind)[...]
    inverse = np.argsort(order)
    memory = np.ascontiguousarray(memory.transpose(order))
    view = memory.transpose(inverse)[tuple(slice(None, None, step) for step in steps)][tuple(slice(0, extent) for extent in shape)]
    assert list(view.shape) == shape
    return np.frombuffer(rng.randbytes(view.nbytes), kind).reshape(shape), view, memory


def test_generated_layouts_are_landed_in_and_nothing_beside_them_is_touched(owner):
    for seed in range(150):
        rng = random.Random(seed)
        sent, out, rest = {}, {}, []
        for i in range(rng.randint(1, 5)):
            sent[f"t{i}"], out[f"t{i}"], memory = sent_and_memory(rng)
            rest.append((sent[f"t{i}"], out[f"t{i}"], memory))
        ref = owner.add_tensors(sent)
        tensorpull.download_tensors(owner.address, ref, out=out, chunk_size=rng.choice([8, 24, 1000, None, 0]))
        for there, view, memory in rest:
            assert view.tobytes() == there.tobytes(), seed
            view[...] = 7
            assert (memory == 7).all(), seed


@pytest.mark.parametrize("address", ["127.0.0.1:0", "udp://127.0.0.1:0", "unix:@strided-{}", "shm:@strided-{}"])
def test_every_link_lands_in_strides(address):
    import os

    with tensorpull.Downloader(address.format(os.getpid())).start() as owner:
        sent = {"w": np.arange(30000, dtype="f4").reshape(100, 300), "v": np.arange(1000.0)}
        out = {"w": np.zeros((300, 100), "f4").T, "v": np.zeros(2000)[::-2]}
        tensorpull.download_tensors(owner.address, owner.add_tensors(sent), out=out)
        assert all(np.array_equal(out[name], a) for name, a in sent.items())


def residual():
    torch.manual_seed(3)

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a = torch.nn.Conv2d(8, 8, 3, padding=1)
            self.n = torch.nn.BatchNorm2d(8)
            self.b = torch.nn.Conv2d(8, 8, 3, padding=1)

        def forward(self, x):
            return torch.relu(x + self.b(torch.relu(self.n(self.a(x)))))

    return torch.nn.Sequential(torch.nn.Conv2d(3, 8, 7, stride=2), Block(), Block(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(8, 4))


def test_a_network_in_channels_last_is_sent_from_and_landed_in(owner):
    model = residual().to(memory_format=torch.channels_last).eval()
    mine = residual().to(memory_format=torch.channels_last).eval()
    with torch.no_grad():
        for p in mine.parameters():
            p.zero_()
    assert not mine[0].weight.is_contiguous()
    tensorpull.download_tensors(owner.address, owner.add_tensors(model.state_dict()), out=mine.state_dict())
    x = torch.randn(2, 3, 32, 32)
    assert torch.equal(mine(x), model(x)) and mine[0].weight.is_contiguous(memory_format=torch.channels_last)
    plain = tensorpull.download_tensors(owner.address, owner.add_tensors(mine.state_dict()), framework="torch")
    assert list(plain) == list(model.state_dict()) and all(torch.equal(plain[k], v) for k, v in model.state_dict().items())
    assert plain["0.weight"].is_contiguous()


def resident():
    import pathlib

    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * 4096


def test_the_memory_that_strides_take_is_a_slices(owner):
    sent = {"w": torch.zeros(4096, 4096)}
    out = {"w": torch.ones(4096, 4096).T}
    ref = owner.add_tensors({"w": sent["w"].T})
    peak = [0]
    before = resident()
    tensorpull.download_tensors(owner.address, ref, out=out, progress=lambda e: peak.__setitem__(0, max(peak[0], resident())), progress_interval=0)
    assert not out["w"].any() and 0 < peak[0] < before + (32 << 20)


def columns(n, rows=100):
    matrix = np.zeros((rows, n), "f4")
    return matrix, {f"c{i:05}": matrix[:, i] for i in range(n)}


def test_five_thousand_columns_of_a_matrix(owner):
    matrix, out = columns(5000)
    sent = np.random.default_rng(1).random(matrix.shape, "f4")
    ref = owner.add_tensors({name: sent[:, i] for i, name in enumerate(out)})
    got = tensorpull.download_tensors(owner.address, ref, out=out)
    assert np.array_equal(matrix, sent) and len(got) == 5000
    out["c04999"] = matrix[:, 17]
    out["c00017"] = matrix[:, 17][::-1]
    with pytest.raises(Error) as e:
        tensorpull.download_tensors(owner.address, ref, out=out)
    assert e.value.code == "unsupported_layout" and e.value.name in ("c04999", "c00017") and np.array_equal(matrix, sent)


def as_strided(offset, shape, strides, memory=None):
    memory = torch.zeros(100) if memory is None else memory
    return torch.as_strided(memory, shape, strides, offset)


M = torch.zeros(1000)
APART = [
    {"a": as_strided(0, (10,), (2,), M), "b": as_strided(1, (10,), (2,), M)},
    {"a": as_strided(0, (2, 2), (2, 3))},  # 0, 3, 2, 5: not nested, and yet apart
    {"a": as_strided(0, (5, 4), (20, 1), M), "b": as_strided(4, (5, 16), (20, 1), M), "c": M[100:]},
    {"a": M[:100].view(10, 10)[:5, :5], "b": M[:100].view(10, 10)[5:, 5:], "c": M[:100].view(10, 10)[:5, 5:], "d": M[:100].view(10, 10)[5:, :5]},
    {"a": M[0::3], "b": M[1::3], "c": M[2::3]},
    {"a": M[:600].view(torch.uint8)[0::4], "b": M[:600].view(torch.uint8)[3::4], "c": M[600:]},
]
TOGETHER = [
    {"a": as_strided(0, (10,), (2,), M), "b": as_strided(18, (3,), (1,), M)},
    {"a": as_strided(0, (3, 3), (2, 2))},
    {"a": torch.zeros(1).expand(10)},
    {"a": as_strided(0, (3, 5), (4, 1))},
    {"a": M[:100].view(10, 10)[:6, :6], "b": M[:100].view(10, 10)[5:, 5:]},
    {"a": M[0::3], "b": M[1::2]},
    {"a": M[:600].view(torch.uint8)[0::4], "b": M[:600]},
    {"a": M[0::2], "b": M[500:501]},
    {"a": M[::2], "b": M[::2].view(50, 10)},
]


@pytest.mark.parametrize("out", APART, ids=range(len(APART)))
def test_tensors_between_each_other_are_landed_in(owner, out):
    sent = {name: torch.rand(t.shape).mul(200).to(t.dtype) for name, t in out.items()}
    tensorpull.download_tensors(owner.address, owner.add_tensors(sent), out=out)
    assert all(torch.equal(out[name], t) for name, t in sent.items())


@pytest.mark.parametrize("out", TOGETHER, ids=range(len(TOGETHER)))
def test_L9_what_would_be_landed_in_twice_is_refused(owner, out):
    before = M.numpy().tobytes()
    sent = {name: torch.ones(t.shape).to(t.dtype) for name, t in out.items()}
    with pytest.raises(Error) as e:
        tensorpull.download_tensors(owner.address, owner.add_tensors(sent), out=out)
    assert e.value.code == "unsupported_layout" and e.value.name in out and M.numpy().tobytes() == before


def test_generated_overlaps_are_found_as_by_a_list_of_all_elements(owner):
    memory = np.zeros(400, "u1")
    seen = set()
    for seed in range(300):
        rng = random.Random(seed)
        out, count = {}, np.zeros(400, int)
        for i in range(rng.randint(1, 3)):
            kind, shape = rng.choice(["u1", "u2", "u4"]), [rng.randint(1, 4) for _ in range(rng.randint(1, 3))]
            size = np.dtype(kind).itemsize
            strides = [size * rng.randint(-6, 12) for _ in shape]
            low = sum(min(0, (e - 1) * s) for e, s in zip(shape, strides))
            high = sum(max(0, (e - 1) * s) for e, s in zip(shape, strides)) + size
            begin = -low + size * rng.randint(0, (400 - (high - low)) // size)
            out[f"t{i}"] = np.ndarray(shape, kind, memory, begin, strides)
            where = begin + sum(index * s for index, s in zip(np.indices(shape), strides)).reshape(-1)
            for byte in range(size):
                np.add.at(count, where + byte, 1)
        shared = count.max() > 1
        tied = len({(a.__array_interface__["data"][0], a.shape, a.strides, a.dtype) for a in out.values()}) < len(out)
        if tied:
            continue
        seen.add(shared)
        ref = owner.add_tensors({name: np.ones(a.shape, a.dtype) for name, a in out.items()})
        try:
            tensorpull.download_tensors(owner.address, ref, out=out)
            assert not shared, seed
        except Error as e:
            assert shared and e.code == "unsupported_layout", seed
        owner.withdraw(ref)
    assert seen == {True, False}


def test_a_frame_that_is_longer_than_a_slice(owner):
    sent = {"w": np.random.default_rng(3).random((600, 700))}
    out = {"w": np.zeros((700, 600)).T}
    got = tensorpull.download_tensors(owner.address, owner.add_tensors(sent), out=out, chunk_size=0)
    assert got.receipt.chunks == 1 and np.array_equal(out["w"], sent["w"])


def test_the_search_for_shared_memory_hears_an_abort(owner):
    matrix = torch.zeros(1500, 1500)
    out = {f"c{i}": matrix[:, i] for i in range(1500)}
    out["twice"] = matrix[1:, 1499]  # looked at last
    for abort, code in ((None, "unsupported_layout"), (lambda: True, "cancelled")):
        with pytest.raises(Error) as e:
            tensorpull.download_tensors(owner.address, "0" * 31 + "1", out=out, abort=abort)
        assert e.value.code == code

    class Stop(Exception):
        pass

    def fails():
        raise Stop

    with pytest.raises(Stop):
        tensorpull.download_tensors(owner.address, "0" * 31 + "1", out=out, abort=fails)


def test_a_pull_that_goes_on_after_a_lost_connection_lands_in_strides():
    """The connection is cut in the middle, so what has landed is read back."""
    import socket

    with tensorpull.Downloader().start() as owner:
        sent = {"w": np.random.default_rng(2).random((500, 700))}
        ref = owner.add_tensors(sent)
        with socket.create_server(("127.0.0.1", 0)) as between:
            cut = threading.Event()

            def forward():
                for budget in (1_500_000, 1 << 30):
                    client, _ = between.accept()
                    with client, socket.create_connection(("127.0.0.1", owner.port)) as server:

                        def up(client=client, server=server):
                            try:
                                while data := client.recv(65536):
                                    server.sendall(data)
                            except OSError:
                                pass

                        threading.Thread(target=up, daemon=True).start()
                        try:
                            while budget > 0 and (data := server.recv(65536)):
                                client.sendall(data)
                                budget -= len(data)
                        except OSError:
                            pass
                        if budget <= 0:
                            cut.set()
                        for s in (client, server):
                            try:
                                s.shutdown(socket.SHUT_RDWR)
                            except OSError:
                                pass

            threading.Thread(target=forward, daemon=True).start()
            out = {"w": np.zeros((700, 500)).T}
            tensorpull.download_tensors(f"127.0.0.1:{between.getsockname()[1]}", ref, out=out, chunk_size=100_000)
            assert cut.is_set() and np.array_equal(out["w"], sent["w"])


def test_an_average_wants_contiguous_memory(owner):
    for out in ({"w": np.zeros((3, 4)).T}, {"w": torch.zeros(3, 4).T}):
        with pytest.raises(Error) as e:
            tensorpull.WeightedAverage(out=out)
        assert (e.value.code, e.value.name) == ("unsupported_layout", "w")


def test_python_allocates_nothing_that_grows_with_the_tensor(owner):
    ref = owner.add_tensors({"w": np.zeros((2000, 2000))})
    out = {"w": np.ones((2000, 2000)).T}
    tracemalloc.start()
    tensorpull.download_tensors(owner.address, ref, out=out)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20 and not out["w"].any()
