"""Landing in tensors that a program has: all or none, going on, whose memory it is; and what a download tells afterwards."""

from __future__ import annotations

import functools
import inspect
import pydoc
import re
import sys
import textwrap
import typing

import numpy as np
import processes
import pytest
import torch
from processes import eventually

import tensorpull
from tensorpull import Error, aio

CHUNK = 65536


class Model(torch.nn.Module):
    """Its names are in another order than an image has them, so that the order is in the metadata."""

    def __init__(self, value):
        super().__init__()
        self.z, self.b, self.a = (torch.nn.Parameter(torch.full((100_000,), value, dtype=kind)) for kind in (torch.float32, torch.float64, torch.float32))


def broken_off(address, ref, bytes_done=300_000, **options):
    """Ends a download in the middle, and gives its error."""
    stop = []

    def watch(event):
        if event.bytes_done >= bytes_done:
            stop.append(1)
            processes.be_slow(0.03)  # longer than from one look at `abort` to the next

    with pytest.raises(Error) as e:
        tensorpull.download_tensors(address, ref, chunk_size=CHUNK, window=1, progress=watch, progress_interval=0, abort=lambda: bool(stop), **options)
    return e.value


@pytest.mark.parametrize("with_base", [False, True])
def test_an_atomic_download_changes_nothing_before_all_has_come(owner, with_base):
    new, live = Model(2.0), Model(1.0)
    ref = owner.add_tensors(new.state_dict(), tensor_digests=with_base)

    def landing(**more):
        return {"out": live.state_dict(), "atomic": True, **({"base": live.state_dict()} if with_base else {}), **more}

    error = broken_off(owner.address, ref, **landing())
    assert error.code == "cancelled" and error.landed > 0 and "old and new" not in str(error)
    assert all((p == 1).all() for p in live.parameters())
    got = tensorpull.download_tensors(owner.address, ref, **landing())
    assert got.receipt.outcome == "completed" and list(got) == ["z", "b", "a"] and all((p == 2).all() for p in live.parameters())
    with pytest.raises(ValueError, match="atomic is for out"):
        tensorpull.download_tensors(owner.address, ref, atomic=True)


@pytest.mark.parametrize("out", [{"a": np.zeros(4, ">f8")}, {"a": np.broadcast_to(np.zeros(1), 4).view()}, dict(zip("ab", (lambda x: (x[:4], x[2:]))(np.zeros(6))))], ids=["another byte order", "one element", "overlapping"])
def test_an_atomic_download_into_what_cannot_be_landed_in_is_counted_by_nobody(owner, out):
    for tensor in out.values():
        tensor.flags.writeable = True
    ref = owner.add_tensors({name: np.ones(4) for name in out}, recipients=1)
    with pytest.raises(Error) as e:
        tensorpull.download_tensors(owner.address, ref, out=out, atomic=True)
    assert e.value.code == "unsupported_layout" and not owner.settled(ref) and not any(tensor.any() for tensor in out.values())


def test_ctrl_c_leaves_an_atomic_download_as_it_was_or_whole():
    """It is sent while the last step copies, which is not left in the middle; however it falls, all tensors are old, or all are new."""
    done = processes.run(
        [sys.executable, "-c", textwrap.dedent("""
            import os, signal, threading, time
            import numpy as np, tensorpull
            mine = {f"t{i}": np.zeros(1_000_000, np.float32) for i in range(20)}
            with tensorpull.Downloader().start() as owner:
                ref = owner.add_tensors({name: np.ones_like(t) for name, t in mine.items()})
                def hit():
                    while not mine["t0"][0]:
                        time.sleep(0.0002)
                    os.kill(os.getpid(), signal.SIGINT)
                threading.Thread(target=hit, daemon=True).start()
                try:
                    tensorpull.download_tensors(owner.address, ref, out=mine, atomic=True)
                    threading.Event().wait(60)
                except KeyboardInterrupt:
                    pass
                print(sorted({bool(t.all()) for t in mine.values()}), all(bool(t.all()) == bool(t.any()) for t in mine.values()))
        """)],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout in ("[True] True\n", "[False] True\n"), done.stderr


def test_what_is_broken_off_says_what_is_in_out_and_a_cursor_goes_on(owner):
    new, live = Model(2.0), Model(1.0)
    ref, cursor = owner.add_tensors(new.state_dict()), tensorpull.Cursor()
    error = broken_off(owner.address, ref, out=live.state_dict(), cursor=cursor)
    assert "the tensors of out are old and new by now" in str(error) and 0 < cursor.offset <= error.landed
    got = tensorpull.download_tensors(owner.address, ref, out=live.state_dict(), cursor=cursor)
    assert all((p == 2).all() for p in live.parameters()) and got.receipt.outcome == "completed"
    assert got.receipt.bytes == ref.nbytes - error.landed, "the rest came, and no more is said to have come"
    with tensorpull.Session(owner.address) as session:
        for pulls in (functools.partial(tensorpull.download_tensors, owner.address), session.download_tensors):
            for wrong in ({}, {"out": live.state_dict(), "atomic": True}, {"out": live.state_dict(), "subset": True}):
                with pytest.raises(ValueError, match="cursor is for out alone"):
                    pulls(ref, cursor=cursor, **wrong)
                with pytest.raises(TypeError, match="cursor is a tensorpull.Cursor"):
                    pulls(ref, cursor=1, **wrong)


@pytest.mark.parametrize("changed", ["before", "between"])
def test_a_cursor_of_other_bytes_begins_anew(owner, changed):
    new, live = Model(2.0), Model(1.0)
    ref, cursor = owner.add_tensors(new.state_dict()), tensorpull.Cursor()
    broken_off(owner.address, ref, out=live.state_dict(), cursor=cursor)
    if changed == "before":
        live.b.data[0] = 7  # what had landed is not what it was
    else:
        ref = owner.add_tensors(Model(3.0).state_dict())
    got = tensorpull.download_tensors(owner.address, ref, out=live.state_dict(), cursor=cursor)
    assert all((p == (2 if changed == "before" else 3)).all() for p in live.parameters()) and got.receipt.bytes >= ref.nbytes


def test_two_state_dicts_of_a_module_are_one_base(owner):
    new, live = Model(1.0), Model(1.0)
    with torch.no_grad():
        new.b.add_(1)
    ref = owner.add_tensors(new.state_dict(), tensor_digests=True)
    got = tensorpull.download_tensors(owner.address, ref, out=live.state_dict(), base=live.state_dict())
    assert torch.equal(live.b, new.b) and got.receipt.kept_bytes > 0
    other = Model(1.0)
    with pytest.raises(ValueError, match="'a' is another one"):
        tensorpull.download_tensors(owner.address, ref, out=live.state_dict(), base={**live.state_dict(), "a": other.a.data})


@pytest.mark.parametrize("copy", [False, True])
def test_a_state_dict_that_training_changes_is_published_by_a_copy(owner, caplog, copy):
    model = Model(1.0)
    tree = {"model": model.state_dict(), "epoch": 3}
    flat, nested = owner.add_tensors(model.state_dict(), copy=copy), owner.add_tensors(tree, copy=copy)
    together = owner.add_transaction([model.state_dict()], copy=copy)
    with torch.no_grad():
        model.a.add_(1)
    for ref in (flat, nested, *together):
        if copy:
            got = tensorpull.download_tensors(owner.address, ref, framework="torch")
            assert all((t == 1).all() for t in got.values())
            continue
        with pytest.raises(Error, match="the owner's tensors may have changed since they were published") as e:
            tensorpull.download_tensors(owner.address, ref)
        assert e.value.code == "digest_mismatch"
        assert eventually(lambda ref=ref: any(r.levelname == "WARNING" and ref[:8] in r.message and "copy=True" in r.message for r in caplog.records))


def test_the_owners_numbers_are_told_where_out_has_its_own(owner):
    tree = {"model": {"w": np.ones(3)}, "epoch": 7, "history": [0.5, "x", None], "empty": []}
    ref = owner.add_tensors(tree)
    mine = {"model": {"w": np.zeros(3)}, "epoch": 0, "history": [0.0, "", None], "empty": []}
    leaves = {"epoch": 7, "history.0": 0.5, "history.1": "x", "history.2": None}
    got = tensorpull.download_tensors(owner.address, ref, out=mine)
    assert got.leaves == leaves and tensorpull.unflatten(got)["epoch"] == 0 and mine["model"]["w"].all()
    assert tensorpull.download_tensors(owner.address, ref, out={"model.w": np.zeros(3)}).leaves == leaves
    assert tensorpull.download_tensors(owner.address, ref).leaves == leaves
    assert tensorpull.download_tensors(owner.address, owner.add_tensors({"w": np.ones(3)})).leaves == {}


def test_names_that_the_owner_was_given_are_told(owner, caplog):
    caplog.set_level("INFO", logger="tensorpull")
    told, ended = [], []
    ref = owner.add_tensors({"w": np.ones(9)}, recipients=["site-1", "site-2"], progress=told.append, settled=ended.append)
    tensorpull.download_tensors(owner.address, ref, recipient="site-1")
    tensorpull.download_tensors(owner.address, ref, recipient="stranger")
    owner.withdraw(ref)
    assert eventually(lambda: ended)
    assert ended[0].recipients == owner.outcome(ref).recipients == {"site-1": "completed", "site-2": "absent"}
    assert {event.name for event in told if event.phase == "completed"} == {"site-1", ""}
    lines = [record.getMessage() for record in caplog.records]
    assert f"{ref[:8]}...: recipient site-1 completed" in lines and any("(site-2 absent: withdrawn)" in line for line in lines)
    both = owner.add_transaction([{"a": np.ones(3)}, {"b": np.ones(3)}], recipients=["x", "y"])
    for one in both:
        tensorpull.download_tensors(owner.address, one, recipient="x")
    tensorpull.download_tensors(owner.address, both[0], recipient="y")
    assert eventually(lambda: owner.outcome(both[1]).recipients == {"x": "completed", "y": "acquired"})


def test_figures_count_what_went_over_the_line(owner):
    r = np.random.default_rng(0)
    old = {"w": r.standard_normal(1_000_000).astype("f4"), "b": np.zeros(10, "f4")}
    new = {"w": old["w"] + 1e-3 * r.standard_normal(1_000_000).astype("f4"), "b": old["b"]}
    ref = owner.add_tensors(new, base=old, recipients=1)
    got = tensorpull.download_tensors(owner.address, ref, base=old)
    assert owner.wait(ref, 60)
    assert owner.status(ref).bytes_sent == owner.outcome(ref).counts.bytes_sent
    # the recipient has looked twice at the header, a chunk each
    assert 0 < owner.status(ref).bytes_sent - got.receipt.bytes <= 2 * CHUNK and got.receipt.bytes < 0.7 * ref.nbytes
    with tensorpull.Listener() as door, tensorpull.Session(door.address) as client, door.accept() as server:
        ref = client.add_tensors(new, base=old, recipients=1)
        serving = processes.JoinedThread(target=lambda: client.serve(until=ref))
        serving.start()
        got = server.download_tensors(ref, base=old)
        serving.join()
        assert 0 < client.status(ref).bytes_sent - got.receipt.bytes <= 2 * CHUNK


def test_the_time_for_all_of_it_is_limited():
    with tensorpull.Downloader() as silent:
        ref = silent.add_tensors({"w": np.ones(3)})
        for call in (
            lambda: tensorpull.download_tensors(silent.address, ref, timeout=0.1),
            lambda: tensorpull.download_tensors([silent.address, silent.address], ref, timeout=0.1),
            lambda: tensorpull.download_tensors("127.0.0.1:1", ref, timeout=0.1),
            lambda: tensorpull.list_tensors(silent.address, ref, timeout=0.1),
            lambda: tensorpull.WeightedAverage({"w": np.ones(3)}).pull(silent.address, ref, 1, peer="a", round=1, timeout=0.1),
        ):
            with pytest.raises(TimeoutError, match="within timeout=0.1 seconds") as e:
                call()
            assert e.value.code == "timed_out"
        with pytest.raises(Error) as e:  # what the caller ends is no time-out
            tensorpull.download_tensors(silent.address, ref, timeout=60, abort=lambda: True)
        assert e.value.code == "cancelled"


def test_types_are_those_of_the_calls():
    hints = typing.get_type_hints(tensorpull.Downloaded)
    assert hints["receipt"] is tensorpull.Receipt and inspect.signature(tensorpull.download_tensors).return_annotation == "Downloaded"
    for name in ("download_tensors", "download_file", "list_tensors", "weighted_average"):
        assert inspect.signature(getattr(aio, name)) == inspect.signature(getattr(tensorpull, name))
    assert tensorpull.ErrorFeedback and tensorpull.Cursor
    for kind in filter(inspect.isclass, vars(tensorpull).values()):
        for _, method in inspect.getmembers(kind, inspect.isfunction):
            assert not method.__module__.startswith("tensorpull.") or typing.get_type_hints(method) is not None, "each name in them is one"
    assert typing.get_type_hints(tensorpull.Session.download_tensors)["framework"] == typing.Optional[typing.Literal["numpy", "torch"]]


def test_help_is_a_page_that_names_everything():
    page = pydoc.plain(pydoc.render_doc(tensorpull))
    assert page.count("\n") < 120
    named = [name for name, value in vars(tensorpull).items() if not name.startswith("_") and not inspect.ismodule(value) and name != "annotations"]
    assert len(named) > 30 and all(re.search(rf"\b{name}\b", tensorpull.__doc__) for name in named), named


def test_leaves_are_under_the_dotted_names_of_their_tree_whatever_its_keys_are(owner):
    ref = owner.add_tensors({"a": 2, "": {"a": 1, "": 3, "w": np.ones(1)}})
    assert tensorpull.download_tensors(owner.address, ref).leaves == {"a": 2, ".a": 1, ".": 3}


def test_leaves_of_a_tree_may_be_numbers_of_numpy_sizes_and_bytes(owner):
    tree = {"loss": np.float32(0.1), "step": np.int64(7), "done": np.bool_(True), "size": torch.Size([2, 3]), "key": b"\x00\xff", "w": np.ones(2)}
    back = tensorpull.unflatten(tensorpull.download_tensors(owner.address, owner.add_tensors(tree)))
    assert (back["loss"], back["step"], back["done"], back["size"], back["key"]) == (float(np.float32(0.1)), 7, True, (2, 3), b"\x00\xff")
    assert type(back["step"]) is int and type(back["done"]) is bool

    class Foreign:
        def __dlpack__(self):
            raise NotImplementedError

    for call in (lambda: owner.add_tensors({"w": Foreign()}), lambda: owner.add_tensors({"a": {"w": Foreign()}}), lambda: tensorpull.PublishedImage({"w": Foreign()})):
        with pytest.raises(TypeError, match="'w' is no tensor|a.w' is no tensor"):
            call()
    for broken in ('["d",["a",["b","0"]]]', '["d",["a",["b",1]]]', '["d",["a",["b","FF"]]]'):
        with pytest.raises(Error, match="bytes that are none"):
            tensorpull.unflatten({}, broken)


def test_a_port_of_another_protocol_is_said():
    with tensorpull.Downloader(http="127.0.0.1:0").start() as owner:
        ref = owner.add_tensors({"w": np.ones(3)})
        with pytest.raises(ConnectionError, match="is not for http://") as e:
            tensorpull.download_tensors("http://" + owner.address, ref, bearer=ref, retries=0)
        assert e.value.code == "connection_lost"
        for address in (owner.http_address[7:], "tcp://" + owner.http_address[7:]):
            with pytest.raises(Error, match="something else than tensorpull may listen there") as e:
                tensorpull.download_tensors(address, ref, retries=0)
            assert address in str(e.value)


def test_a_tensor_without_memory_is_refused_by_its_name(owner):
    def publish(x):
        with pytest.raises(Error) as e:
            owner.add_tensors({"layer.w": x})
        assert (e.value.code, e.value.name) == ("unsupported_layout", "layer.w")
        return x

    torch.vmap(publish)(torch.ones(2, 2))
