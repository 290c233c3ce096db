"""Tensors that are not in the CPU's memory: on a stand-in for a device, and on a GPU if there is one.

The stand-in is torch's "meta" device, whose tensors have shapes, strides and views as any other, and no bytes. The bytes are kept beside
them, and only what copies them differs from what a GPU has.
"""

from __future__ import annotations

import contextlib
import os
import threading

import numpy as np
import pytest
import processes

import tensorpull
from tensorpull import Error, _devices

torch = pytest.importorskip("torch")


class StandIn(_devices.Copier):
    """Keeps the bytes of meta tensors, by their storages; counts what is copied and what host memory is asked for."""

    def __init__(self):
        super().__init__()
        self.storages, self.keep = {}, []
        self.blocks, self.longest, self.copied, self.fail_at = [], 0, 0, None

    def put(self, host):
        """The device's copy of a tensor, with its strides."""
        made = torch.empty_strided(host.shape, host.stride(), dtype=host.dtype, device="meta")
        bytes_of = torch.zeros(made.untyped_storage().nbytes(), dtype=torch.uint8)
        self.storages[made.untyped_storage()._cdata] = (len(self.storages) + 1 << 40, bytes_of)
        self.keep.append(made)
        self.host(made).copy_(host)
        return made

    def host(self, tensor):
        _, of = self.storages[tensor.untyped_storage()._cdata]
        return torch.as_strided(of.view(tensor.dtype), tensor.shape, tensor.stride(), tensor.storage_offset())

    def block(self, nbytes):
        self.blocks.append(nbytes)
        return super().block(nbytes)

    def copy(self, to, source):
        assert to.shape == source.shape and to.dtype == source.dtype and {to.device.type, source.device.type} == {"meta", "cpu"}
        self.longest = max(self.longest, to.numel() * to.element_size())
        self.copied += to.numel() * to.element_size()
        if self.fail_at is not None and self.copied > self.fail_at:
            raise RuntimeError("the device is gone")
        super().copy(*(self.host(t) if t.device.type == "meta" else t for t in (to, source)))

    def address(self, tensor):
        return self.storages[tensor.untyped_storage()._cdata][0] + tensor.storage_offset() * tensor.element_size()


class Gpu:
    blocks, longest = (), 0

    def put(self, host):
        made = torch.empty_strided(host.shape, host.stride(), dtype=host.dtype, device="cuda")
        made.copy_(host)
        return made

    def host(self, tensor):
        return tensor.cpu()


@pytest.fixture(params=["stand-in"] + (["cuda"] if torch.cuda.is_available() else []))
def device(request, monkeypatch):
    if request.param == "cuda":
        return Gpu()
    made = StandIn()
    monkeypatch.setitem(_devices.COPIERS, "meta", made)
    return made


@pytest.fixture
def stand_in(monkeypatch):
    made = StandIn()
    monkeypatch.setitem(_devices.COPIERS, "meta", made)
    return made


def layouts():
    torch.manual_seed(1)
    base = torch.randn(6, 5, 4, 3)
    return {
        "plain": base.clone(),
        "channels_last": base.clone(memory_format=torch.channels_last),
        "transposed": torch.randn(300, 200).T,
        "every_third": torch.arange(100, dtype=torch.int64)[::3],
        "bytes": torch.randint(0, 256, (7, 3), dtype=torch.uint8).T,
        "flags": torch.rand(77) > 0.5,
        "half": torch.randn(33, 3).bfloat16().T,
        "eighth": torch.randn(64).to(torch.float8_e4m3fn),
        "complex": torch.randn(5, 4, dtype=torch.complex64).T,
        "scalar": torch.tensor(3.5),
        "none": torch.zeros(0, 3),
        "large": torch.randn(1500, 1000),
        "packed": torch.randint(0, 256, (4, 8), dtype=torch.uint8).view(torch.float4_e2m1fn_x2),
    }


def blank(t):
    made = torch.empty_strided(t.shape, t.stride(), dtype=t.dtype)
    made.untyped_storage().fill_(0)
    return made


def bits(t):
    return t.contiguous().reshape(-1).view(torch.uint8).tolist()


@pytest.mark.parametrize("chunk_size", [None, 1000, 7 * 8])
def test_tensors_on_a_device_are_published_and_landed_in(owner, device, chunk_size):
    sent = layouts()
    if chunk_size is not None:  # each chunk is a call
        del sent["large"]
    if chunk_size == 56:
        del sent["transposed"]
    ref = owner.add_tensors({name: device.put(t) for name, t in sent.items()})
    got = tensorpull.download_tensors(owner.address, ref, framework="torch", chunk_size=chunk_size)
    assert list(got) == list(sent) and all(bits(got[name]) == bits(t) and got[name].dtype == t.dtype for name, t in sent.items())
    out = {name: device.put(blank(t)) for name, t in sent.items()}
    tensorpull.download_tensors(owner.address, ref, out=out, chunk_size=chunk_size)
    for name, t in sent.items():
        assert bits(device.host(out[name])) == bits(t) and out[name].stride() == t.stride(), name
    if device.blocks:
        assert device.blocks == [_devices.BLOCK_BYTES] * len(device.blocks) and len(device.blocks) <= 3 and device.longest <= _devices.BLOCK_BYTES


@pytest.mark.parametrize("address", ["udp://127.0.0.1:0", "unix:@devices-{}", "shm:@devices-{}"])
def test_every_link_takes_them(device, address):
    with tensorpull.Downloader(address.format(os.getpid()), accept_timeout=None).start() as over:
        sent = {"w": torch.randn(200, 300), "t": torch.randn(30, 50).T, "n": torch.arange(7)}
        out = {"w": device.put(torch.zeros(300, 200).T), "t": device.put(torch.zeros(50, 30)), "n": torch.zeros(7, dtype=torch.int64)}
        ref = over.add_tensors({"w": device.put(sent["w"]), "t": device.put(sent["t"]), "n": sent["n"]})
        tensorpull.download_tensors(over.address, ref, out=out)
        assert all(bits(device.host(out[name]) if name != "n" else out[name]) == bits(t) for name, t in sent.items())


def test_a_session_takes_them(device):
    with tensorpull.Listener() as door:
        out = {"w": device.put(torch.zeros(40, 50))}

        def client():
            with tensorpull.Session(door.address, timeout=120) as session:
                session.send(1, b"", [session.add_tensors({"w": device.put(torch.ones(40, 50))}, recipients=1)])
                session.receive(timeout=120)  # and closes at once

        thread = processes.JoinedThread(target=client)
        thread.start()
        with door.accept() as session:
            session.download_tensors(session.receive(timeout=120).references[0], out=out)
            session.send(2)
            thread.join()
    assert device.host(out["w"]).eq(1).all()


def test_what_is_on_a_device_and_what_is_not_travel_together(owner, device):
    weight = device.put(torch.randn(30, 20))
    ref = owner.add_tensors({"b": weight, "a": torch.ones(3), "n": np.arange(4), "tied": weight})
    got = tensorpull.download_tensors(owner.address, ref, framework="torch")
    assert list(got) == ["b", "a", "n", "tied"] and got["tied"] is got["b"] and ref.nbytes < 30 * 20 * 4 + 1000
    landed = device.put(torch.zeros(30, 20))
    out = {"b": landed, "a": torch.zeros(3), "n": np.zeros(4, "i8"), "tied": landed}
    tensorpull.download_tensors(owner.address, ref, out=out)
    assert bits(device.host(out["b"])) == bits(got["b"]) and out["a"].eq(1).all() and out["n"].tolist() == [0, 1, 2, 3]
    some = {"a": torch.zeros(3), "b": device.put(torch.zeros(20, 30).T)}
    tensorpull.download_tensors(owner.address, ref, out=some, subset=True)
    assert bits(device.host(some["b"])) == bits(got["b"])


def test_landing_on_a_device_keeps_grad_and_takes_inference_tensors(owner, device):
    ref = owner.add_tensors({"w": torch.full((5, 4), 2.0), "v": torch.full((9,), 3.0)})
    with torch.inference_mode():
        frozen = {"w": device.put(torch.zeros(4, 5)).T, "v": device.put(torch.zeros(9))}
    tensorpull.download_tensors(owner.address, ref, out=frozen, chunk_size=24)
    learnt = {name: device.put(torch.zeros(shape)).requires_grad_() for name, shape in (("w", (5, 4)), ("v", (9,)))}
    before = learnt["w"]._version
    tensorpull.download_tensors(owner.address, ref, out=learnt, chunk_size=24)
    assert learnt["w"].requires_grad and learnt["w"].is_leaf and learnt["w"]._version > before
    for out in (frozen, learnt):
        assert device.host(out["w"]).eq(2).all() and device.host(out["v"]).eq(3).all()


def test_what_shares_a_devices_memory_is_not_landed_in_twice(owner, device):
    memory = device.put(torch.zeros(100))
    ref = owner.add_tensors({"a": torch.zeros(60), "b": torch.zeros(60)})
    with pytest.raises(Error) as e:
        tensorpull.download_tensors(owner.address, ref, out={"a": memory[:60], "b": memory[40:]})
    assert (e.value.code, e.value.name) == ("unsupported_layout", "b")


def test_a_device_that_fails_is_the_error_of_the_call_that_waits_for_it(owner, stand_in, monkeypatch):
    w = torch.randn(1000, 1000)
    stand_in.fail_at = 0
    with pytest.raises(RuntimeError, match="the device is gone"):
        owner.add_tensors({"w": stand_in.put(w)})
    stand_in.fail_at = None
    ref = owner.add_tensors({"w": w})
    out = {"w": stand_in.put(torch.zeros(1000, 1000))}
    stand_in.copied, stand_in.fail_at = 0, 1_000_000
    with pytest.raises(RuntimeError, match="the device is gone"):
        tensorpull.download_tensors(owner.address, ref, out=out)
    stand_in.fail_at = None
    ref = owner.add_tensors({"w": stand_in.put(w)})
    stand_in.fail_at = 0
    said = []
    monkeypatch.setattr("sys.unraisablehook", lambda what: said.append(str(what.exc_value)))
    with pytest.raises(Error):
        tensorpull.download_tensors(owner.address, ref, framework="torch", retries=0)
    assert said[0] == "the device is gone"
    stand_in.fail_at = None
    assert tensorpull.download_tensors(owner.address, owner.add_tensors({"w": w}), framework="torch")["w"].equal(w)


def test_ctrl_c_in_a_copy_is_for_the_thread_that_serves_and_ends_no_publication(stand_in, monkeypatch):
    w, copy, got = torch.randn(500, 300), stand_in.copy, []
    with tensorpull.Downloader() as owner:
        ref = owner.add_tensors({"w": stand_in.put(w)})
        pull = processes.JoinedThread(target=lambda: got.append(tensorpull.download_tensors(owner.address, ref, framework="torch")))

        def interrupted(to, source):
            monkeypatch.setattr(stand_in, "copy", copy)
            raise KeyboardInterrupt

        monkeypatch.setattr(stand_in, "copy", interrupted)
        pull.start()
        with pytest.raises(KeyboardInterrupt):
            owner.serve(timeout=120)
        owner.start()
        pull.join()
    assert got[0]["w"].equal(w)


def test_an_abort_is_heard_while_a_device_is_slow(owner, stand_in, monkeypatch):
    ref = owner.add_tensors({"w": torch.zeros(2000, 1000)})
    out = {"w": stand_in.put(torch.zeros(2000, 1000))}
    copy = stand_in.copy

    def slow(to, source):  # longer than the time in which an abort is heard
        copy(to, source)
        processes.be_slow(0.2)

    monkeypatch.setattr(stand_in, "copy", slow)
    with pytest.raises(Error) as e:
        tensorpull.download_tensors(owner.address, ref, out=out, abort=lambda: stand_in.copied > 1_000_000)
    assert e.value.code == "cancelled"


def test_many_recipients_on_several_threads(stand_in):
    w = {f"w{i}": torch.randn(300, 300) if i % 2 else torch.randn(300, 300).T for i in range(4)}
    with contextlib.ExitStack() as stack:
        owner = stack.enter_context(tensorpull.Downloader())
        ref = owner.add_tensors({name: stand_in.put(t) for name, t in w.items()})
        servers = [processes.JoinedThread(target=lambda: owner.serve(until=done)) for _ in range(2)]
        done = threading.Event()
        got = []
        for s in servers:
            s.start()
        pulls = [processes.JoinedThread(target=lambda: got.append(tensorpull.download_tensors(owner.address, ref, framework="torch", chunk_size=10_000))) for _ in range(4)]
        for p in pulls:
            p.start()
        for p in pulls:
            p.join()
        done.set()
        for s in servers:
            s.join()
        assert len(got) == 4 and all(bits(one[name]) == bits(t) for one in got for name, t in w.items())


def test_meta_tensors_and_averages_on_devices_are_refused(owner, stand_in, monkeypatch):
    with pytest.raises(Error) as e:
        tensorpull.WeightedAverage(out={"w": stand_in.put(torch.zeros(3))})
    assert (e.value.code, e.value.name) == ("unsupported_layout", "w")
    monkeypatch.delitem(_devices.COPIERS, "meta")
    with pytest.raises(Error, match="has no bytes") as e:
        owner.add_tensors({"w": torch.zeros(3, device="meta")})
    assert (e.value.code, e.value.name) == ("unsupported_layout", "w")


def test_a_transaction_of_what_is_on_a_device_and_of_trees(device, owner):
    host = torch.arange(60.0).reshape(6, 10)
    there, strided = device.put(host), device.put(host + 1).t()
    tied = device.put(host + 2)
    refs = owner.add_transaction([{"z": there, "a": strided}, {"s": {0: [tied, 3]}, "again": tied}, {"cpu": host[::2, ::3]}], recipients=1)
    first, second, third = (tensorpull.download_tensors(owner.address, ref, framework="torch", recipient="one") for ref in refs)
    assert list(first) == ["z", "a"] and first["z"].equal(host) and first["a"].equal((host + 1).t())
    tree = tensorpull.unflatten(second)
    assert tree["s"][0][1] == 3 and tree["s"][0][0] is tree["again"] and tree["again"].equal(host + 2)
    assert third["cpu"].equal(host[::2, ::3])
    assert owner.wait(refs, 120) and owner.outcome(refs[0]).verdict == "completed"


def test_an_image_by_ranges_of_what_is_on_a_device(device):
    host = torch.arange(60.0).reshape(6, 10)
    image = tensorpull.PublishedImage({"z": device.put(host), "a": device.put(host + 1).t()})
    landing = tensorpull.Landing(image.nbytes, framework="torch")
    for at in range(0, image.nbytes, 33):
        landing.write(at, image.read(at, 33))
    got = landing.finish(image.version)
    assert list(got) == ["z", "a"] and got["z"].equal(host) and got["a"].equal((host + 1).t())


def test_a_base_on_a_device_is_read_through_one_block(owner, stand_in):
    new = {f"t{i}": torch.full((1000,), float(i)) for i in range(20)}
    ref = owner.add_tensors(new, tensor_digests=True)
    base = {name: stand_in.put(t) for name, t in new.items()}
    base["t3"] = stand_in.put(torch.zeros(1000))
    got = tensorpull.download_tensors(owner.address, ref, out=base, base=base)
    assert all(torch.equal(stand_in.host(base[name]), new[name]) for name in new) and got.receipt.kept_bytes == 19 * 4000
    assert len(stand_in.blocks) <= 4, "one for the digests, two for landing, one for the digest of the whole"
