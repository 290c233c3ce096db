"""Models and updates of Flower by tensorpull, with Flower's own messages and strategies, and without its processes."""

from __future__ import annotations

import copy
import gc
import glob
import os
import socket
import threading

import flwr.clientapp
import numpy as np
import processes
import pytest
from fake_grid import FakeGrid
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.app.message import make_message
from flwr.serverapp.strategy import FedAdam, FedAvg, FedMedian, Krum

import tensorpull
import tensorpull.flower
from tensorpull import _peers
from tensorpull.flower import _client, _grid, _offer, _spool


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(_grid, "PAUSE", 0.05)
    monkeypatch.setattr(_grid, "SOON", 0.01)
    monkeypatch.setattr(_client, "CONNECT", 30.0)


@pytest.fixture
def pulled(tmp_path):
    """A function that puts a grid around another one; all are closed at the end, and nothing is left."""
    made = []

    def around(grid, **more):
        more.setdefault("folder", tmp_path)
        made.append(tensorpull.flower.Grid(grid, **{"least_bytes": 1, **more}))
        made[-1].of = grid
        return made[-1]

    yield around
    for grid in made:
        grid.close()
        for thread in grid.of.threads:
            thread.join()
    gc.collect()
    assert processes.eventually(lambda: not glob.glob(f"{tmp_path}/tensorpull-flower.*"), 1), "files are left"
    assert not [t.name for t in threading.enumerate() if t.name.startswith("tensorpull-")], "threads are left"


def model(seed=0):
    random = np.random.default_rng(seed)
    return ArrayRecord({
        "layer.weight": Array(random.standard_normal((64, 33)).astype("f4")), "layer.bias": Array(random.standard_normal(64).astype("f4")),
        "naïve \"name\"": Array(random.standard_normal((2, 3, 4)).astype("f4")), "scalar": Array(np.asarray(np.float32(3))), "": Array(np.zeros((0, 4), "f4")),
    })  # fmt: skip


def train(message, context):
    """A step that depends on the node, and on all that it was sent."""
    step = np.float32(context.node_id) / np.float32(7)
    new = ArrayRecord({name: Array(np.asarray(a.numpy() * np.float32(0.9) + step)) for name, a in message.content["arrays"].items()})
    content = RecordDict({"arrays": new, "metrics": MetricRecord({"num-examples": context.node_id, "loss": 0.5})})
    return Message(content, reply_to=message)


def evaluate(message, context):
    total = float(sum(a.numpy().sum() for a in message.content["arrays"].values()))
    return Message(RecordDict({"metrics": MetricRecord({"num-examples": 1, "sum": total})}), reply_to=message)


def app(kind=None, train=train):
    made = (kind or tensorpull.flower.ClientApp)()
    made.train()(train)
    made.evaluate()(evaluate)
    return made


def stock(**more):
    return app(flwr.clientapp.ClientApp, **more)


def ask(grid, nodes, record=None, timeout=60.0, kind="train"):
    """One message for each node; the replies by node."""
    content = RecordDict({"arrays": record or model(), "config": ConfigRecord({"lr": 0.1})})
    replies = list(grid.send_and_receive([Message(content, node, kind) for node in nodes], timeout=timeout))
    assert len({reply.metadata.src_node_id for reply in replies}) == len(replies)
    return {reply.metadata.src_node_id: reply for reply in replies}


def same(one, other):
    assert list(one) == list(other)
    for name in one:
        a, b = one[name].numpy(), other[name].numpy()
        assert a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes(), name
    return True


def expected(node, record=None):
    step = np.float32(node) / np.float32(7)
    return ArrayRecord({name: Array(np.asarray(a.numpy() * np.float32(0.9) + step)) for name, a in (record or model()).items()})


def by_us(fake, key="arrays"):
    """How many messages to nodes had a reference, and how many a record of Flower's."""
    trained = [content for content, kind in zip(fake.contents, fake.types) if kind != _offer.QUERY]
    return sum(key not in content for content in trained), sum(key in content for content in trained)


# What it is for


@pytest.mark.parametrize("strategy", [FedAvg, FedMedian, FedAdam, Krum])
def test_strategies_give_the_same_bits_as_with_flowers_transport(strategy, pulled, monkeypatch):
    results = []
    for kind, wrap in ((flwr.clientapp.ClientApp, lambda grid: grid), (tensorpull.flower.ClientApp, pulled)):
        fake = FakeGrid({node: app(kind) for node in (1, 2, 3, 4)})
        # nodes are sampled at random, and threads end in any order: sums of floats depend on it
        monkeypatch.setattr("random.sample", lambda nodes, k: sorted(nodes)[:k])
        grid = wrap(fake)
        inner = grid.send_and_receive if grid is not fake else lambda messages, timeout: collected(fake, messages)
        grid.send_and_receive = lambda messages, *, timeout=None, inner=inner: sorted(inner(messages, timeout=timeout), key=lambda m: m.metadata.src_node_id)
        results.append(strategy(min_train_nodes=4, min_available_nodes=4).start(grid=grid, initial_arrays=model(), num_rounds=3))
        if kind is tensorpull.flower.ClientApp:
            assert by_us(fake) == (24, 0)
    assert same(results[0].arrays, results[1].arrays)
    assert results[0].train_metrics_clientapp == results[1].train_metrics_clientapp and results[0].evaluate_metrics_clientapp == results[1].evaluate_metrics_clientapp


def collected(fake, messages):
    ids, replies = set(fake.push_messages(list(messages))), []
    while ids:
        for reply in fake.pull_messages(ids):
            ids.discard(reply.metadata.reply_to_message_id)
            replies.append(reply)
    return replies


def test_a_model_is_published_once_for_all_nodes_and_withdrawn_afterwards(pulled):
    fake = FakeGrid({node: app() for node in range(1, 9)})
    grid = pulled(fake)
    added, publish = [], grid._owner.add_tensors
    grid._owner.add_tensors = lambda *a, **k: added.append(publish(*a, **k)) or added[-1]
    large = ArrayRecord({"w": Array(np.arange(1 << 20, dtype="f4"))})
    replies = ask(grid, range(1, 9), large)
    assert all(same(replies[node].content["arrays"], expected(node, large)) for node in replies) and len(replies) == 8
    assert len(added) == 1
    with pytest.raises(tensorpull.Error) as gone:
        grid._owner.status(added[0])
        tensorpull.download_tensors(grid._owner.address, added[0], retries=0)
    assert gone.value.code in ("unknown_reference", "withdrawn")
    assert fake.bytes < 100_000 and grid._sent == {} and grid._by_message == {} and grid._may == {} and grid._models == {}


def test_arrays_are_flowers_own_to_whoever_uses_them(pulled):
    grid = pulled(FakeGrid({1: app()}))
    record = ask(grid, [1])[1].content["arrays"]
    one = record["layer.weight"]
    first, second = one.numpy(), one.numpy()
    assert isinstance(one, Array) and (one.dtype, one.shape, one.stype) == ("float32", (64, 33), "numpy.ndarray")
    first += 1  # as with Flower, what a program does with one copy is not in the next
    assert first.flags.writeable and not np.array_equal(first, second) and np.array_equal(second, one.numpy())
    assert one.data == Array(second).data and one == Array(second) and one.object_id == Array(second).object_id
    assert same(copy.deepcopy(record), record) and same(ArrayRecord(dict(record)), record) and record.count_bytes() == expected(1).count_bytes()
    one.data = Array(np.zeros((64, 33), "f4")).data
    assert not one.numpy().any()
    sent_on = pulled(FakeGrid({2: app()}))
    assert same(ask(sent_on, [2], record)[2].content["arrays"], expected(2, record))
    plain = FakeGrid({1: stock()})
    assert same(collected(plain, [Message(RecordDict({"arrays": record}), 1, "train")])[0].content["arrays"], expected(1, record))


def test_received_arrays_outlive_the_grid_and_their_file_goes_with_them(tmp_path):
    with tensorpull.flower.Grid(FakeGrid({1: app()}), least_bytes=1, folder=tmp_path) as grid:
        record = ask(grid, [1])[1].content["arrays"]
    assert same(record, expected(1))
    assert sum(len(files) for _, _, files in os.walk(tmp_path)) == 1
    del record
    gc.collect()
    assert os.listdir(tmp_path) == []


def test_a_strategy_that_reads_some_reads_only_those(pulled):
    record = ask(pulled(FakeGrid({1: app()})), [1])[1].content["arrays"]
    path = record["layer.weight"].__dict__["_read"]._file.path
    with open(path, "r+b") as f:  # only what is read is looked at
        f.truncate(os.path.getsize(path) - 1)
    shorter = {name: read(array) for name, array in record.items()}
    assert list(shorter.values()).count("cut_file") == 1


def read(array):
    try:
        return array.numpy().shape
    except tensorpull.Error as e:
        return e.code


def test_push_and_pull_messages(pulled):
    fake = FakeGrid({1: app(), 2: app()})
    grid = pulled(fake)
    grid.set_run("a run")
    assert fake.was_set == "a run" and grid.run == "the run" and list(grid.get_node_ids()) == [1, 2] and [n.node_id for n in grid.get_nodes()] == [1, 2]
    content = RecordDict({"arrays": model()})
    ids = list(grid.push_messages(m for m in [grid.create_message(content, "train", node, "7") for node in (1, 2)]))
    got = {}
    while len(got) < 2:
        got.update({reply.metadata.reply_to_message_id: reply for reply in grid.pull_messages(iter(ids))})
    assert all(got[i].metadata.group_id == "7" and same(got[i].content["arrays"], expected(node)) for node, i in zip((1, 2), ids))
    assert list(content) == ["arrays"] and same(content["arrays"], model())  # the caller's is as it was
    assert grid._sent == {} and grid._may == {} and by_us(fake) == (2, 0)


def test_several_records_keep_their_order_and_small_ones_stay(pulled):
    def echo(message, context):
        assert list(message.content) == ["b", "config", "a", "small"]
        return Message(RecordDict({**message.content}), reply_to=message)

    fake = FakeGrid({1: app(train=echo)})
    grid = pulled(fake, least_bytes=2000)
    b, small = ArrayRecord({"x": Array(np.arange(999, dtype="i8"))}), ArrayRecord([np.ones(3)])
    sent = RecordDict({"b": b, "config": ConfigRecord({"lr": 0.1}), "a": model(), "small": small})
    reply = next(iter(grid.send_and_receive([Message(sent, 1, "train")], timeout=60)))
    assert list(reply.content) == list(sent) and same(reply.content["a"], model()) and same(reply.content["b"], b) and same(reply.content["small"], small)
    assert "small" in fake.contents[-1] and by_us(fake, "a") == (1, 0)


@pytest.mark.parametrize("array", [
    np.arange(6, dtype=">f4"), np.arange(6, dtype="c16"), np.asfortranarray(np.ones((3, 4), "f4")), np.array(["a"]), np.array(["2026-01-01"], "M8[D]"),
    np.arange(6, dtype="longdouble"),
], ids=lambda a: str(a.dtype) + str(a.ndim))  # fmt: skip
def test_what_would_not_arrive_as_it_is_goes_by_flowers_record(array, pulled):
    def echo(message, context):
        return Message(RecordDict({"arrays": message.content["arrays"]}), reply_to=message)

    fake = FakeGrid({1: app(train=echo)})
    reply = ask(pulled(fake), [1], ArrayRecord({"ours": Array(np.ones(500)), "x": Array(array)}))[1]
    got = reply.content["arrays"]["x"].numpy()
    assert got.dtype == array.dtype and got.strides == array.strides and got.tobytes() == array.tobytes() and by_us(fake) == (0, 1)


@pytest.mark.parametrize("dtype", ["?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8"])
def test_every_dtype_that_both_have(dtype, pulled):
    values = np.random.default_rng(1).integers(0, 2, 50).astype(dtype)

    def echo(message, context):
        return Message(RecordDict({"arrays": message.content["arrays"]}), reply_to=message)

    fake = FakeGrid({1: app(train=echo)})
    record = ArrayRecord({"x": Array(values), "y": Array(values), "z": Array(values.reshape(5, 10))})
    record["tied"] = record["x"]
    assert same(ask(pulled(fake), [1], record)[1].content["arrays"], record) and by_us(fake) == (1, 0)


# A node's folder


@pytest.fixture
def arrived(monkeypatch):
    """The bytes that each pull of a model into a file took; None: it failed."""
    taken, download = [], tensorpull.download_file

    def noted(*a, **k):
        taken.append(None)
        receipt = download(*a, **k)
        taken[-1] = receipt.bytes
        return receipt

    monkeypatch.setattr(tensorpull, "download_file", noted)
    return taken


def test_a_model_that_a_node_has_already_is_not_sent_again(pulled, tmp_path, arrived):
    folder = tmp_path / "node"
    folder.mkdir()
    grid = pulled(FakeGrid({1: app()}, {1: {"tensorpull-folder": str(folder)}}))
    first, second = model(), model(1)
    ask(grid, [1], first, kind="evaluate")
    for record in (first, second, second, first):  # the same arrays are another publication in each exchange
        assert same(ask(grid, [1], record)[1].content["arrays"], expected(1, record))
    whole = arrived[0]
    assert whole > first.count_bytes() // 2 and arrived == [whole, 1, whole, 1, whole] and os.listdir(folder) == [_client.LAST]


def test_what_a_killed_node_has_left_in_its_folder_is_no_model(pulled, tmp_path, arrived):
    grid = pulled(FakeGrid({1: app()}, {1: {"tensorpull-folder": str(tmp_path)}}), folder=None)
    (tmp_path / f".{_client.LAST}.part").write_bytes(bytes(100))
    assert same(ask(grid, [1])[1].content["arrays"], expected(1)) and os.listdir(tmp_path) == [_client.LAST]
    changed = bytearray((tmp_path / _client.LAST).read_bytes())
    changed[-1] ^= 1
    (tmp_path / _client.LAST).write_bytes(changed)
    assert same(ask(grid, [1])[1].content["arrays"], expected(1)) and arrived[1] == arrived[0]


def test_arrays_of_a_model_stay_when_the_next_takes_its_place(pulled, tmp_path):
    seen = []

    def keep(message, context):
        seen.append(message.content["arrays"])
        return train(message, context)

    grid = pulled(FakeGrid({1: app(train=keep)}, {1: {"tensorpull-folder": str(tmp_path)}}), folder=None)
    ask(grid, [1], model())
    ask(grid, [1], model(1))
    assert same(seen[0], model()) and same(seen[1], model(1))
    seen.clear()


@pytest.mark.parametrize("folder", ["missing", "file", "taken", "full"])
def test_a_folder_that_cannot_be_used_is_a_warning(folder, pulled, tmp_path, caplog, monkeypatch):
    path = tmp_path / "node"
    if folder == "file":
        path.write_bytes(b"")
    elif folder != "missing":
        path.mkdir()
    held = _spool.hold(str(path)) if folder == "taken" else None
    if folder == "full":
        monkeypatch.setattr(_client.shutil, "disk_usage", lambda path: type("usage", (), {"free": 1000}))
    fake = FakeGrid({1: app()}, {1: {"tensorpull-folder": str(path)}})
    assert same(ask(pulled(fake), [1])[1].content["arrays"], expected(1)) and by_us(fake) == (1, 0)
    assert sum("the model is not kept in" in r.getMessage() for r in caplog.records) == 1
    if held is not None:
        os.close(held)


# Negotiation


def test_a_node_without_the_package_gets_flowers_records_and_no_round_fails(pulled, caplog):
    fake = FakeGrid({1: app(), 2: stock()})
    grid = pulled(fake)
    for _ in range(2):
        replies = ask(grid, [1, 2])
        assert all(same(replies[node].content["arrays"], expected(node)) for node in (1, 2))
    assert by_us(fake) == (2, 2) and fake.types.count(_offer.QUERY) == 2
    assert sum("Flower's own records go to node 2: it has no tensorpull" in r.getMessage() for r in caplog.records) == 1


def test_a_node_with_another_version_gets_flowers_records(pulled, monkeypatch):
    def older(message, context):
        said = message.content.get(_offer.KEY)
        if said is not None:  # it knows version 0 alone
            said["v"] = 0
        return app()(message, context)

    fake = FakeGrid({1: app(), 2: older})
    replies = ask(pulled(fake), [1, 2])
    assert all(same(replies[node].content["arrays"], expected(node)) for node in (1, 2)) and by_us(fake) == (1, 1)


@pytest.mark.parametrize("door", ["updates", "models"])
def test_a_node_that_does_not_reach_a_door_gets_flowers_records(door, pulled, caplog, monkeypatch):
    monkeypatch.setattr(_client, "CONNECT", 2.0)
    fake = FakeGrid({1: app()})
    grid = pulled(fake)
    with processes.OwnPort() as nobody:
        there = list(grid._addresses)
        there["models updates".split().index(door)] = f"tcp://{nobody.address}"
        grid._addresses = tuple(there)
        assert same(ask(grid, [1])[1].content["arrays"], expected(1)) and by_us(fake) == (0, 1)
    assert any("Flower's own records go to node 1" in r.getMessage() for r in caplog.records)


@pytest.mark.parametrize("config, address, taken", [
    ({}, None, True),
    ({"tensorpull-hosts": "server.example.org"}, None, False),
    ({"tensorpull-hosts": "server.example.org, 127.0.0.1"}, None, True),
    ({}, "tcp://192.0.2.1:1", False),
    ({"tensorpull-without-tls": "true"}, "tcp://192.0.2.1:1", False),
])  # fmt: skip
def test_a_node_decides_where_it_connects_to(config, address, taken, pulled, monkeypatch):
    fake = FakeGrid({1: app()}, {1: config})
    grid = pulled(fake)
    if address is not None:
        monkeypatch.setattr(tensorpull, "Session", lambda *a, **k: pytest.fail("it has connected"))
        grid._addresses = (address, address)
    assert same(ask(grid, [1])[1].content["arrays"], expected(1)) and by_us(fake) == ((1, 0) if taken else (0, 1))


def test_a_node_that_does_not_answer_the_query_gets_flowers_records_and_is_asked_again_later(pulled):
    deaf = [True]

    def second(message, context):
        return None if deaf[0] and message.metadata.message_type == _offer.QUERY else app()(message, context)

    fake = FakeGrid({1: app(), 2: second})
    grid = pulled(fake, greeting_timeout=0.5)
    assert set(ask(grid, [1, 2])) == {1, 2} and by_us(fake) == (1, 1)
    deaf[0], grid._greeting_timeout = False, 60.0
    assert set(ask(grid, [1, 2])) == {1, 2} and by_us(fake) == (3, 1)


def test_a_node_that_has_lost_the_package_fails_once_and_is_asked_again(pulled):
    fake = FakeGrid({1: app(), 2: app()})
    grid = pulled(fake)
    assert set(ask(grid, [1, 2])) == {1, 2}
    fake.apps[2] = stock()
    replies = ask(grid, [1, 2])
    assert replies[2].has_error() and not replies[1].has_error()
    replies = ask(grid, [1, 2])
    assert same(replies[2].content["arrays"], expected(2)) and by_us(fake) == (5, 1)


def test_a_model_that_cannot_be_pulled_is_sent_again_within_the_call(pulled, monkeypatch):
    fake = FakeGrid({1: app(), 2: app()})
    grid = pulled(fake)
    ask(grid, [1, 2])
    download = tensorpull.download_tensors

    def breaks(*arguments, recipient, **more):
        if grid._sent[recipient].node == 2:
            raise tensorpull.Error("connection_lost", "the cable was cut")
        return download(*arguments, recipient=recipient, **more)

    monkeypatch.setattr(tensorpull, "download_tensors", breaks)
    replies = ask(grid, [1, 2])
    assert all(same(replies[node].content["arrays"], expected(node)) for node in (1, 2)) and by_us(fake) == (4, 1)


def test_an_update_that_the_server_cannot_take_goes_by_flowers_record(pulled, caplog):
    fake = FakeGrid({1: app()})
    grid = pulled(fake, max_update_bytes=0)
    grid._most = -_grid.MAX_HEADER_BYTES + 100
    reply = ask(grid, [1])[1]
    assert same(reply.content["arrays"], expected(1)) and by_us(fake) == (1, 0)
    assert any("too_large" in r.getMessage() for r in caplog.records)


# One bad node


def test_errors_of_an_app_are_flowers_and_end_nothing(pulled):
    def raises(message, context):
        raise ValueError("no data today")

    fake = FakeGrid({1: app(), 2: app(train=raises), 3: app()})
    grid = pulled(fake)
    replies = ask(grid, [1, 2, 3])
    assert replies[2].has_error() and "no data today" in replies[2].error.reason and same(replies[3].content["arrays"], expected(3))
    result = FedAvg(min_train_nodes=3, min_available_nodes=3, fraction_evaluate=0.0).start(grid=grid, initial_arrays=model(), num_rounds=2)
    assert result.arrays is not None and grid._sent == {} and grid._may == {}


def test_a_node_that_dies_costs_its_own_reply(pulled):
    fake = FakeGrid({1: app(), 2: app()})
    grid = pulled(fake)
    ask(grid, [1, 2])
    fake.apps[2] = lambda message, context: None
    replies = ask(grid, [1, 2], timeout=2.0)
    assert set(replies) == {1} and grid._sent == {} and grid._may == {}


def lying(change):
    """The reply of node 2, as `change` makes it of its record."""

    def tamper(reply):
        if reply.metadata.src_node_id == 2 and reply.has_content() and reply.metadata.message_type == "train":
            said = reply.content[_offer.KEY]
            reply.content[_offer.KEY] = ConfigRecord({name: value for name, value in {**said, **change}.items() if value is not None})
        return reply

    return tamper


@pytest.mark.parametrize("change", [
    {"token": "0" * 32}, {"token": "short"}, {"token": None}, {"token": 7}, {"keys": []}, {"keys": ["other"]}, {"keys": ["arrays", "arrays"]}, {"keys": ["arrays", "more"]},
    {"keys": "arrays"}, {"order": []}, {"order": ["arrays"]}, {"order": ["arrays", "metrics", "tensorpull"]}, {"order": ["arrays", "metrics", "more"]}, {"v": 2}, {"v": True},
    {"is": "offer"}, {"is": "greeting"}, {"more": 1}, {"keys": ["a"] * 2000},
], ids=str)  # fmt: skip
def test_records_that_lie_are_one_nodes_error(change, pulled):
    fake = FakeGrid({1: app(), 2: app()})
    fake.tamper = lying(change)
    grid = pulled(fake)
    replies = ask(grid, [1, 2])
    assert same(replies[1].content["arrays"], expected(1))
    assert replies[2].has_error() and replies[2].error.code == 6 and replies[2].error.reason.startswith("tensorpull: ")
    assert grid._sent == {} and grid._may == {}


def test_a_node_cannot_use_the_secret_of_another_message(pulled):
    """Neither that of an earlier one of its own, nor another node's."""
    tokens = {}
    fake = FakeGrid({1: app(), 2: app()})

    def tamper(reply):
        if reply.has_content() and reply.metadata.message_type == "train" and _offer.KEY in reply.content:
            tokens.setdefault(reply.metadata.src_node_id, []).append(reply.content[_offer.KEY]["token"])
            if reply.metadata.src_node_id == 2 and len(tokens[2]) > 1:
                assert processes.eventually(lambda: len(tokens.get(1, [])) == len(tokens[2]))
                reply.content[_offer.KEY]["token"] = {2: tokens[2][0], 3: tokens[1][-1]}[len(tokens[2])]
        return reply

    fake.tamper = tamper
    grid = pulled(fake)
    assert not any(reply.has_error() for reply in ask(grid, [1, 2]).values())
    for _ in range(2):
        replies = ask(grid, [1, 2])
        assert replies[2].has_error() and "another message" in replies[2].error.reason and same(replies[1].content["arrays"], expected(1))


def test_a_node_cannot_answer_for_another(pulled):
    fake = FakeGrid({1: app(), 2: app()})
    grid = pulled(fake)
    ask(grid, [1, 2])

    def tamper(reply):
        if reply.metadata.src_node_id == 2:
            reply.metadata.__dict__["_src_node_id"] = 3
        return reply

    fake.tamper = tamper
    replies = ask(grid, [1, 2])
    assert replies[3].has_error() and "answers a message to node 2" in replies[3].error.reason and same(replies[1].content["arrays"], expected(1))


def test_a_node_cannot_greet_for_another(pulled):
    fake = FakeGrid({2: app()})

    def tamper(reply):
        if reply.metadata.message_type == _offer.QUERY:
            reply.metadata.__dict__["_src_node_id"] = 3
        return reply

    fake.tamper = tamper
    assert same(ask(pulled(fake), [2])[2].content["arrays"], expected(2)) and by_us(fake) == (0, 1)


def test_who_claims_to_have_connected_and_has_not_gets_flowers_records(pulled):
    def claims(message, context):
        if message.metadata.message_type == _offer.QUERY:
            return Message(RecordDict({_offer.KEY: _offer.greeting(message.content[_offer.KEY]["token"], "")}), reply_to=message)
        return stock()(message, context)

    fake = FakeGrid({1: claims})
    assert same(ask(pulled(fake), [1])[1].content["arrays"], expected(1)) and by_us(fake) == (0, 1)


def test_what_a_node_tells_is_one_line_of_the_log(pulled, caplog):
    def refuses(message, context):
        if message.metadata.message_type == _offer.QUERY:
            return Message(RecordDict({_offer.KEY: _offer.greeting(message.content[_offer.KEY]["token"], "no\nERROR all is lost\x1b[2J")}), reply_to=message)
        return stock()(message, context)

    fake = FakeGrid({1: refuses})
    assert same(ask(pulled(fake), [1])[1].content["arrays"], expected(1)) and by_us(fake) == (0, 1)
    assert "node 1: no ERROR all is lost [2J" in caplog.text


def test_a_reply_whose_update_is_not_kept_any_more_is_an_error(pulled):
    fake = FakeGrid({1: app()})
    grid = pulled(fake)
    ids = list(grid.push_messages([Message(RecordDict({"arrays": model()}), 1, "train")]))
    assert processes.eventually(lambda: fake.replies)
    grid._end(grid._sent_as(ids[0]))  # as when its time is over
    reply = list(grid.pull_messages(ids))[0]
    assert reply.has_error() and "not kept any more" in reply.error.reason and reply.metadata.reply_to_message_id == ids[0]


class Held:
    """A node that keeps its offer: the test is what it does with it. Its reply goes on when `go` is set."""

    def __init__(self):
        self.offers, self.there, self.go, self.inner = [], threading.Event(), threading.Event(), app()

    def __call__(self, message, context):
        if message.metadata.message_type != _offer.QUERY:
            self.offers.append(_offer.parse_offer(message.content[_offer.KEY], _offer.Trust()))
            self.there.set()
            assert self.go.wait(60)
        return self.inner(message, context)


def asking(grid, nodes):
    found = {}
    thread = processes.JoinedThread(target=lambda: found.update(ask(grid, nodes)))
    thread.start()
    return thread, found


def test_a_model_is_only_for_those_that_were_sent_it_and_only_until_they_have_answered(pulled):
    held = Held()
    grid = pulled(FakeGrid({1: held, 2: app()}))
    thread, replies = asking(grid, [1])
    assert held.there.wait(60)
    mine = held.offers[0]
    pull = lambda **more: tensorpull.download_tensors(mine.doors.models, mine.references[0], retries=0, **more)  # noqa: E731
    assert pull(recipient=mine.doors.token)
    for other in ({}, {"recipient": "0" * 32}, {"recipient": "1"}):
        with pytest.raises(tensorpull.Error) as refused:
            pull(**other)
        assert refused.value.code == "unknown_reference"
    held.go.set()
    thread.join()
    assert same(replies[1].content["arrays"], expected(1))
    with pytest.raises(tensorpull.Error) as old:
        pull(recipient=mine.doors.token)
    assert old.value.code in ("unknown_reference", "withdrawn")
    held.go.clear()
    held.there.clear()
    thread, replies = asking(grid, [1, 2])  # the same model again
    assert held.there.wait(60)
    with pytest.raises(tensorpull.Error):
        pull(recipient=mine.doors.token)
    held.go.set()
    thread.join()
    assert not any(reply.has_error() for reply in replies.values())


def call(doors, kind, token, records=()):
    """What somebody does at the door for updates: what became of what it published."""
    with tensorpull.Session(doors.updates) as session:
        refs = [session.add_tensors({"0": np.full(4, 9, "f4")}, recipients=1, metadata={"flower": '[["w", 0]]'}) for _ in records]
        session.send(kind, token.encode(), refs)
        try:
            session.serve(until=refs or None, timeout=60)
        except tensorpull.Error as e:
            return e.code
        return "taken"


def test_nobody_else_gives_an_update_for_a_node(pulled, caplog):
    held = Held()
    grid = pulled(FakeGrid({1: held}))
    thread, replies = asking(grid, [1])
    assert held.there.wait(60)
    doors = held.offers[0].doors
    for kind, token, records in (
        (_offer.UPDATE, "0" * 32, [1]), (_offer.UPDATE, "x", [1]), (_offer.UPDATE, "é" * 16, [1]), (_offer.TRIES, doors.token, ()), (_offer.UPDATE, doors.token, ()), (7, doors.token, [1]),
        (_offer.TRIES, doors.token, [1]),
    ):  # fmt: skip
        assert call(doors, kind, token, records) in ("connection_lost", "truncated"), (kind, token)
    held.go.set()
    thread.join()
    assert same(replies[1].content["arrays"], expected(1))
    assert call(doors, _offer.UPDATE, doors.token, [1]) in ("connection_lost", "truncated")  # an old secret
    assert any("secret" in r.getMessage() for r in caplog.records)


def test_an_update_counts_once(pulled):
    """The first one that has landed is the one: a second call with the same secret changes nothing."""
    held = Held()
    grid = pulled(FakeGrid({1: held}))
    thread, replies = asking(grid, [1])
    assert held.there.wait(60)
    doors = held.offers[0].doors
    assert call(doors, _offer.UPDATE, doors.token, [1]) == "taken"
    assert call(doors, _offer.UPDATE, doors.token, [1]) in ("connection_lost", "truncated")
    held.go.set()  # its app now finds that the server does not take it, and so Flower's record goes
    thread.join()
    assert same(replies[1].content["arrays"], expected(1))


@pytest.mark.parametrize("metadata", [
    {}, {"flower": "no json"}, {"flower": "[" * 100_000}, {"flower": "{}"}, {"flower": '[["w", 1]]'}, {"flower": '[["w", true]]'},
    {"flower": '[["w", 0], ["w", 0]]'}, {"flower": '[[1, 0]]'}, {"flower": "[]"}, {"flower": '[["w"]]'}, {"flower": '[["w", 0.0]]'},
], ids=lambda m: str(m)[:40])  # fmt: skip
def test_an_update_whose_names_lie_is_not_taken(metadata, pulled):
    held = Held()
    grid = pulled(FakeGrid({1: held}))
    thread, replies = asking(grid, [1])
    assert held.there.wait(60)
    doors = held.offers[0].doors
    with tensorpull.Session(doors.updates) as session:
        ref = session.add_tensors({"0": np.full(4, 9, "f4")}, recipients=1, metadata=metadata)
        session.send(_offer.UPDATE, doors.token.encode(), [ref])
        try:
            session.serve(until=ref, timeout=60)
        except tensorpull.Error:
            pass
    assert processes.eventually(lambda: not grid._sent[doors.token].busy) and grid._sent[doors.token].records is None
    held.go.set()
    thread.join()
    assert same(replies[1].content["arrays"], expected(1))  # which the node itself sends afterwards


def test_callers_that_say_nothing_hold_up_nobody(pulled, monkeypatch):
    monkeypatch.setattr(_peers, "HANDSHAKE", 60.0)
    grid = pulled(FakeGrid({1: app()}))
    silent = [tensorpull.Session(grid._addresses[1]) for _ in range(20)]
    assert same(ask(grid, [1])[1].content["arrays"], expected(1))
    for session in silent:
        session.close()


# The server's offers, as a node reads them

_DOORS = _offer.Doors("a" * 32, "tcp://127.0.0.1:1", "tcp://127.0.0.1:2")


def an_offer(**change):
    made = {**_offer.offer(_DOORS, {"arrays": "b" * 48}, ["arrays", "config"], 1), **change}
    return ConfigRecord({name: value for name, value in made.items() if value is not None})


@pytest.mark.parametrize("change", [
    {"v": 0}, {"v": None}, {"is": "hello"}, {"token": "g" * 32}, {"token": "a" * 31}, {"models": "127.0.0.1:1"}, {"models": "tcp://127.0.0.1:0"}, {"updates": "tcp://127.0.0.1:65536"},
    {"updates": "unix:@name"}, {"updates": "pipe:sh"}, {"models": "tcp://user@127.0.0.1:1"}, {"models": "tls://*:1"}, {"models": "tcp://192.0.2.1:1"}, {"models": "tcp://127.0.0.1.example.org:1"}, {"models": 1},
    {"references": []}, {"references": ["b" * 32]}, {"references": ["b" * 48, "b" * 48]}, {"references": [1]}, {"keys": ["other"]}, {"keys": [b"arrays"]}, {"order": ["config"]},
    {"order": ["arrays", "arrays"]}, {"least": -1}, {"least": 1.0}, {"more": 1}, {"updates": "tcp://127.0.0.1:1" + " " * 300},
], ids=str)  # fmt: skip
def test_offers_that_lie_are_the_nodes_error_before_the_app_begins(change):
    def begun(message, context):
        raise AssertionError("the app has begun")

    message = Message(RecordDict({_offer.KEY: an_offer(**change), "config": ConfigRecord()}), 1, "train")
    fake = FakeGrid({})
    reply = app(train=begun)(fake.over(message), flwr.app.Context(1, 1, {}, RecordDict(), {}))
    assert reply.has_error() and reply.error.code == 6 and reply.error.reason.startswith("tensorpull: the model cannot be had")


def test_content_that_the_offer_does_not_name_is_refused():
    message = Message(RecordDict({_offer.KEY: an_offer(), "config": ConfigRecord(), "hidden": ConfigRecord()}), 1, "train")
    reply = app()(FakeGrid({}).over(message), flwr.app.Context(1, 1, {}, RecordDict(), {}))
    assert reply.has_error() and "order" in reply.error.reason


def test_a_users_own_record_of_this_name_is_left_alone(pulled):
    def echo(message, context):
        assert message.content["tensorpull"]["mine"] == 1
        return Message(RecordDict({"arrays": message.content["arrays"], "tensorpull": ConfigRecord({"mine": 2})}), reply_to=message)

    fake = FakeGrid({1: app(train=echo)})
    grid = pulled(fake)
    sent = RecordDict({"arrays": model(), "tensorpull": ConfigRecord({"mine": 1})})
    reply = next(iter(grid.send_and_receive([Message(sent, 1, "train")], timeout=60)))
    assert reply.content["tensorpull"]["mine"] == 2 and same(reply.content["arrays"], model())
    assert _offer.QUERY not in fake.types


# Rounds, and their end


def test_forty_rounds_with_participants_that_vary_leave_nothing(pulled, tmp_path):
    fake = FakeGrid({node: app() for node in range(1, 13)})
    grid = pulled(fake)
    counted, resident = [], []
    for turn in range(40):
        nodes = [1 + (turn * 5 + i) % 12 for i in range(3)]
        large = ArrayRecord({"w": Array(np.full(2_000_000, turn, "f4"))})
        replies = ask(grid, nodes, large)
        assert all(same(replies[node].content["arrays"], expected(node, large)) for node in nodes)
        del replies
        for thread in fake.threads:
            thread.join()
        fake.threads.clear()
        gc.collect()
        assert processes.eventually(lambda: len(grid._door._threads) == 1)  # the one that accepts
        counted.append((
            len(os.listdir("/proc/self/fd")), threading.active_count(), len(os.listdir(grid._spool.path)), len(grid._sent), len(grid._by_message), len(grid._may), len(grid._models), len(grid._greeted),
        ))  # fmt: skip
        with open("/proc/self/statm") as f:
            resident.append(int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE"))
    # one model of 8 MB that stays in each round would be 240 MB; what an allocator keeps for its threads is less than a third of that
    assert max(resident[30:]) - max(resident[:10]) < 80_000_000, resident
    assert counted[5][1:] == counted[-1][1:] == (counted[-1][1], 0, 0, 0, 0, 0, 0) and counted[-1][0] <= counted[5][0] + 4
    assert fake.types.count(_offer.QUERY) == 12  # each once


def test_nodes_that_change_for_ever_are_not_remembered_for_ever(pulled, monkeypatch):
    monkeypatch.setattr(_grid, "MOST_NODES", 4)
    fake = FakeGrid({node: app() for node in range(1, 13)})
    grid = pulled(fake)
    for first in (1, 4, 7, 10, 1):
        assert not any(reply.has_error() for reply in ask(grid, range(first, first + 3)).values())
        assert len(grid._nodes) <= 4 and len(grid._peers) <= 4
    assert by_us(fake) == (15, 0) and fake.types.count(_offer.QUERY) == 15


def test_messages_that_nobody_answers_are_forgotten_when_their_time_is_over(pulled):
    fake = FakeGrid({1: app()})
    grid = pulled(fake)
    ask(grid, [1])
    fake.apps[1] = lambda message, context: None
    list(grid.push_messages([Message(RecordDict({"arrays": model()}), 1, "train", ttl=0.2)]))
    assert len(grid._sent) == len(grid._may) == 1
    assert processes.eventually(lambda: list(grid.push_messages([])) == [] and not grid._sent and not grid._may, 30)


def test_the_files_of_a_process_that_was_killed_are_removed_by_the_next(tmp_path):
    code = f"from tensorpull.flower._spool import Spool; s = Spool({str(tmp_path)!r}); open(s.name(), 'w').close(); print('there', flush=True); input()"
    with processes.Program([os.sys.executable, "-c", code], stdin=-1, stdout=-1, text=True) as child:
        assert child.stdout.readline() == "there\n"
        spool = _spool.Spool(str(tmp_path))
        assert len(os.listdir(tmp_path)) == 2  # it lives
        child.kill()
        child.wait()
        another = _spool.Spool(str(tmp_path))
        assert sorted(os.listdir(tmp_path)) == sorted(map(os.path.basename, (spool.path, another.path)))
    spool.close()
    another.close()
    os.symlink("/", tmp_path / "tensorpull-flower.link")
    (tmp_path / "tensorpull-flower.file").write_text("")
    _spool.Spool(str(tmp_path)).close()
    assert sorted(os.listdir(tmp_path)) == ["tensorpull-flower.file", "tensorpull-flower.link"]


# TLS


def test_tls_and_certificates_of_nodes(pulled, tmp_path_factory):
    from authority import certificates

    folder = tmp_path_factory.mktemp("certificates")
    ssl = certificates(folder, "site-1", "site-2")["server"]
    config = {
        node: {"tensorpull-ca-file": f"{folder}/ca.pem", "tensorpull-cert-file": f"{folder}/site-{node}.pem", "tensorpull-key-file": f"{folder}/site-{node}.key"} for node in (1, 2)
    }
    config[3] = {"tensorpull-ca-file": f"{folder}/ca.pem"}  # none of its own
    config[4] = {}  # it does not know the authority
    fake = FakeGrid({node: app() for node in (1, 2, 3, 4)}, config)
    grid = pulled(fake, ssl=ssl)
    replies = ask(grid, [1, 2, 3, 4])
    assert all(same(replies[node].content["arrays"], expected(node)) for node in (1, 2, 3, 4)) and by_us(fake) == (2, 2)
    assert all(address.startswith("tls://127.0.0.1:") for address in grid._addresses) and grid._peers == {1: "site-1", 2: "site-2"}
    fake.config[2] = fake.config[1]  # another site has got node 2's messages: its name is another one
    replies = ask(grid, [1, 2])
    assert not replies[1].has_error() and same(replies[2].content["arrays"], expected(2)) and by_us(fake) == (4, 3)


def test_connections_that_never_begin_tls_hold_up_nobody(pulled, tmp_path_factory):
    from authority import certificates

    folder = tmp_path_factory.mktemp("certificates")
    ssl = certificates(folder, "site-1")["server"]
    fake = FakeGrid({1: app()}, {1: {"tensorpull-ca-file": f"{folder}/ca.pem", "tensorpull-cert-file": f"{folder}/site-1.pem", "tensorpull-key-file": f"{folder}/site-1.key"}})
    grid = pulled(fake, ssl=ssl)
    port = int(grid._addresses[1].rpartition(":")[2])
    silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(20)]
    assert same(ask(grid, [1])[1].content["arrays"], expected(1)) and by_us(fake) == (1, 0)
    for one in silent:
        one.close()


@pytest.mark.parametrize("given", [{"listen": "0.0.0.0"}, {"listen": "0.0.0.0", "without_tls": True}, {"listen": "192.0.2.7"}])
def test_it_does_not_listen_for_other_machines_without_tls_or_a_name(given, tmp_path):
    with pytest.raises(ValueError, match="without certificates|host is the name"):
        tensorpull.flower.Grid(FakeGrid({}), folder=tmp_path, **given)
    assert os.listdir(tmp_path) == []


def test_a_port_that_is_taken_is_an_error_that_leaves_nothing(tmp_path):
    with tensorpull.Listener() as taken:
        with pytest.raises(tensorpull.Error):
            tensorpull.flower.Grid(FakeGrid({}), folder=tmp_path, ports=(0, taken.port))
    assert os.listdir(tmp_path) == [] and not [t.name for t in threading.enumerate() if t.name.startswith("tensorpull-")]


def test_an_error_reply_is_flowers(pulled):
    fake = FakeGrid({1: app()})
    fake.tamper = lambda reply: reply if reply.metadata.message_type != "train" else make_message(metadata=reply.metadata, error=Error(8, "it has crashed"))
    assert ask(pulled(fake), [1])[1].error.code == 8
