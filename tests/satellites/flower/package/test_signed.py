"""Models of Flower that the server's key vouches for: a node that has the federation's public keys takes no others."""

from __future__ import annotations

import copy
import itertools

import numpy as np
import pytest
from authority import resign, signing_keys
from fake_grid import FakeGrid
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from test_flower import ask, app, by_us, expected, model, pulled as pulled, quick as quick, same

import tensorpull
from tensorpull import _native
from tensorpull.flower import _client, _offer

if not _native.has_proofs:
    pytest.skip("optional: this build has no proofs", allow_module_level=True)


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    return signing_keys(tmp_path_factory.mktemp("keys"), "ours", "next", "other")


@pytest.fixture
def node(keys, tmp_path):
    """The configuration of a node with keys of its own."""
    (tmp_path / "trusted").write_text((keys / "ours.line").read_text())
    return {"tensorpull-keys": str(tmp_path / "trusted")}


def refusal(reply):
    assert reply.has_error()
    return reply.error.reason


def altered(grid, alter):
    """Lets `alter` change each offer on its way."""
    push = grid.of.push_messages

    def pushed(messages):
        messages = list(messages)
        for message in messages:
            said = message.content.get(_offer.KEY) if message.has_content() else None
            if isinstance(said, ConfigRecord) and said.get("is") == "offer":
                alter(said, message)
        return push(messages)

    grid.of.push_messages = pushed


def large(seed=0):
    """One that is proved by a tree that is published beside it."""
    return ArrayRecord({"w": Array(np.random.default_rng(seed).standard_normal(300_000).astype("f4"))})


def test_two_rounds_that_a_key_has_signed_are_proved(pulled, keys, node, monkeypatch):
    believed, download = [], tensorpull.download_tensors
    monkeypatch.setattr(tensorpull, "download_tensors", lambda address, ref, **how: believed.append(ref) or download(address, ref, **how))
    fake = FakeGrid({1: app(), 2: app(), 3: app()}, {1: node, 2: {**node, "tensorpull-federation": "hospitals"}, 3: {}})
    grid = pulled(fake, key=keys / "ours.pem", federation="hospitals", least_bytes=1 << 30)
    for record in (large(), model()):
        replies = ask(grid, [1, 2, 3], record)
        assert all(same(replies[n].content["arrays"], expected(n, record)) for n in (1, 2, 3))
    assert by_us(fake) == (6, 0)
    signed = [one for one in believed if isinstance(one, tensorpull.SignedReference)]
    assert sorted(one.round for one in signed) == [1, 1, 2, 2] and len(believed) == 6
    assert all(fake.states[n][_offer.KEY]["1"] == 2 for n in (1, 2)) and _offer.KEY not in fake.states[3]
    assert grid._models == {} and grid._may == {}


def test_a_message_without_arrays_needs_no_signature(pulled, keys, node):
    def answers(message, context):
        return Message(RecordDict({"arrays": model()}) if list(message.content) == ["config"] else message.content, reply_to=message)

    fake = FakeGrid({1: app(train=answers)}, {1: node})
    for more in ({"key": keys / "ours.pem", "federation": "hospitals"}, {}):
        grid = pulled(fake, **more)
        ask(grid, [1])  # it is asked whether it has this package
        reply = next(iter(grid.send_and_receive([Message(RecordDict({"config": ConfigRecord({"lr": 0.1})}), 1, "train")], timeout=60)))
        assert same(reply.content["arrays"], model())


def test_a_folder_keeps_a_model_that_is_proved(pulled, keys, node, tmp_path):
    folder = tmp_path / "node"
    folder.mkdir()
    grid = pulled(FakeGrid({1: app()}, {1: {**node, "tensorpull-folder": str(folder)}}), key=keys / "ours.pem", federation="hospitals")
    for record in (large(), large(), model()):
        assert same(ask(grid, [1], record)[1].content["arrays"], expected(1, record))


def test_a_node_with_keys_takes_nothing_that_is_unsigned(pulled, node, caplog):
    fake = FakeGrid({1: app(), 2: app(), 3: app()}, {1: node, 3: {**node, "tensorpull-hosts": "server.example.org"}})
    grid = pulled(fake)  # it has no key
    replies = ask(grid, [1, 2, 3])
    assert "no signed model can be had: it is not signed" in refusal(replies[1]) and same(replies[2].content["arrays"], expected(2))
    assert "'arrays' is a record of Flower's own" in refusal(replies[3])  # which it gets, as it connects to another server alone
    assert by_us(fake) == (2, 1), "it is not sent again"
    assert "no signed model can be had" in caplog.text
    assert "'arrays' is a record of Flower's own" in refusal(ask(pulled(fake, least_bytes=1 << 30), [1])[1])
    for content in (RecordDict({"config": ConfigRecord({"lr": 0.1})}), RecordDict({"arrays": ArrayRecord()})):  # nothing is believed

        def echo(message, context):
            return Message(message.content, reply_to=message)

        fake.apps[1] = app(train=echo)
        reply = next(iter(grid.send_and_receive([Message(content, 1, "train")], timeout=60)))
        assert list(reply.content) == list(content)


def test_a_replay_of_an_earlier_round_is_refused(pulled, keys, node):
    kept = []

    def replay(said, message):
        kept.append({name: copy.copy(said[name]) for name in ("references", "signed")})
        if len(kept) == 3:  # the offer of the first round, in a message of the third
            for name, value in kept[0].items():
                said[name] = value

    fake = FakeGrid({1: app()}, {1: node})
    grid = pulled(fake, key=keys / "ours.pem", federation="hospitals")
    altered(grid, replay)
    assert not ask(grid, [1], model(0))[1].has_error() and not ask(grid, [1], model(1))[1].has_error()
    assert "the signed reference is of an earlier round" in refusal(ask(grid, [1], model(2))[1])
    assert fake.states[1][_offer.KEY]["1"] == 2
    assert not ask(grid, [1], model(3))[1].has_error()
    # in another run it is for another use, whatever its round
    text = kept[-1]["signed"][0]
    with pytest.raises(_offer.Refused, match="for another use"):
        _client.vouched(text, kept[-1]["references"][0], node["tensorpull-keys"], None, _offer.uses(2, ["arrays"])[0], 0)


@pytest.mark.parametrize("claims, key, why", [
    ({"expires": 1}, "ours", "has expired"),
    ({"federation": "banks"}, "ours", "no trusted key has signed"),  # its keys are of hospitals alone
    ({}, "other", "no trusted key has signed"),
    ({"note": _offer.uses(1, ["other"])[0]}, "ours", "for another use"),
    ({"note": _offer.uses(7, ["arrays"])[0]}, "ours", "for another use"),
    ({"model": "0" * 47 + "1"}, "ours", "another reference is signed"),
    ({"root": "0" * 64}, "ours", "no address has the bytes that were signed"),
    ({"bytes": 99}, "ours", "no address has the bytes that were signed"),
])  # fmt: skip
def test_what_is_signed_otherwise_is_refused_by_name(claims, key, why, pulled, keys, node):
    fake = FakeGrid({1: app()}, {1: node})
    grid = pulled(fake, key=keys / "ours.pem", federation="hospitals")
    altered(grid, lambda said, message: said.__setitem__("signed", [resign(said["signed"][0], keys / f"{key}.pem", **claims)]))
    assert why in refusal(ask(grid, [1], large())[1]) and by_us(fake) == (1, 0)


def test_what_is_signed_for_another_federation_is_refused(pulled, keys, node, tmp_path):
    (tmp_path / "trusted").write_text((keys / "ours.line").read_text() + (keys / "other.line").read_text().replace("hospitals", "banks"))
    fake = FakeGrid({1: app(), 2: app()}, {1: node, 2: {**node, "tensorpull-federation": "hospitals"}})
    replies = ask(pulled(fake, key=keys / "other.pem", federation="banks"), [1, 2])
    assert not replies[1].has_error() and "is for another federation" in refusal(replies[2])


def test_a_second_grid_of_a_run_goes_on_counting(pulled, keys, node):
    fake = FakeGrid({1: app()}, {1: node})
    for first in (0, 2):
        grid = pulled(fake, key=keys / "ours.pem", federation="hospitals")
        assert not any(ask(grid, [1], model(first + i))[1].has_error() for i in range(2))
    assert fake.states[1][_offer.KEY]["1"] == 4


def test_a_node_with_keys_that_was_out_of_reach_is_asked_again(pulled, keys, node, monkeypatch):
    """Flower's own records are of no use to it."""
    fake, knock = FakeGrid({1: app()}, {1: node}), _client._knock

    def fails_once(*given):
        monkeypatch.setattr(_client, "_knock", knock)
        raise _offer.Refused("the network is away")

    monkeypatch.setattr(_client, "_knock", fails_once)
    grid = pulled(fake, key=keys / "ours.pem", federation="hospitals")
    assert "'arrays' is a record of Flower's own" in refusal(ask(grid, [1])[1])
    assert same(ask(grid, [1])[1].content["arrays"], expected(1))


@pytest.mark.parametrize("config", [{"tensorpull-keys": ""}, {"tensorpull-keys": False}, {"tensorpull-federation": ""}])
def test_keys_that_are_empty_are_not_none(config, pulled, node):
    given = {**node, **config}
    reply = ask(pulled(FakeGrid({1: app()}, {1: given})), [1])[1]
    assert f"{next(iter(config))} is empty" in refusal(reply)


def test_a_round_of_one_run_is_none_of_another(pulled, keys, node):
    fake = FakeGrid({1: app()}, {1: node})
    fake.states[1] = RecordDict({_offer.KEY: ConfigRecord({"2": 99})})  # a run of the same series
    grid = pulled(fake, key=keys / "ours.pem", federation="hospitals")
    assert not ask(grid, [1])[1].has_error() and fake.states[1][_offer.KEY] == ConfigRecord({"2": 99, "1": 1})
    grid._rounds = itertools.count()
    assert "of an earlier round" in refusal(ask(grid, [1])[1])


def test_records_have_names_of_any_length(pulled, keys, node):
    grid = pulled(FakeGrid({1: app(train=lambda message, context: Message(message.content, reply_to=message))}, {1: node}), key=keys / "ours.pem", federation="hospitals")
    content = RecordDict({f"{i} ä {'x' * 1000}": model(i) for i in range(20)})
    got = next(iter(grid.send_and_receive([Message(content, 1, "train")], timeout=60))).content
    assert list(got) == list(content) and all(same(got[key], content[key]) for key in got)


def test_a_key_that_is_lost_during_a_run_is_an_error_that_leaves_nothing(pulled, keys, node, tmp_path):
    (tmp_path / "key.pem").write_bytes((keys / "ours.pem").read_bytes())
    grid = pulled(FakeGrid({1: app(), 2: app()}, {1: node, 2: node}), key=tmp_path / "key.pem", federation="hospitals")
    assert not ask(grid, [1, 2])[1].has_error()
    (tmp_path / "key.pem").write_text("")
    with pytest.raises(tensorpull.Error) as refused:
        ask(grid, [1, 2])
    assert refused.value.code == "bad_file" and grid._models == grid._may == grid._sent == {}
    (tmp_path / "key.pem").write_bytes((keys / "ours.pem").read_bytes())
    assert not ask(grid, [1, 2])[2].has_error()


def test_a_key_takes_the_place_of_another_while_the_run_goes_on(pulled, keys, node, tmp_path):
    """Both are trusted for a while; then the old one is revoked, and what it signs is refused by that name."""
    key, trusted = tmp_path / "key.pem", tmp_path / "trusted"
    key.write_bytes((keys / "ours.pem").read_bytes())
    old, new = ((keys / f"{name}.line").read_text() for name in ("ours", "next"))
    grid = pulled(FakeGrid({1: app()}, {1: node}), key=key, federation="hospitals")
    trusted.write_text(old + new)
    assert not ask(grid, [1])[1].has_error()
    key.write_bytes((keys / "next.pem").read_bytes())
    assert not ask(grid, [1])[1].has_error()
    trusted.write_text(f"{old.rstrip()} revoked\n{new}")
    assert not ask(grid, [1])[1].has_error()
    key.write_bytes((keys / "ours.pem").read_bytes())
    assert "is revoked" in refusal(ask(grid, [1])[1])
    trusted.unlink()
    assert "no signed model can be had" in refusal(ask(grid, [1])[1])  # and not: then it believes everybody


def test_bytes_that_are_not_those_that_were_signed_reach_no_app(pulled, keys, node):
    """An owner that has other tensors under the same reference."""
    fake = FakeGrid({1: app(train=lambda message, context: pytest.fail("the app has it"))}, {1: node})
    grid = pulled(fake, key=keys / "ours.pem", federation="hospitals")
    record = large()

    def change(said, message):
        np.frombuffer(record["w"].data, np.uint8)  # the bytes that are published
        address = record["w"].data
        import ctypes

        ctypes.memset(id(address) + bytes.__basicsize__ - 1 + 500_000, 7, 1)

    altered(grid, change)
    assert "no address has the bytes that were signed" in refusal(ask(grid, [1], record)[1])


def test_records_of_several_rounds_are_not_mixed(pulled, keys, node):
    """Of two records in one message the second is that of the round before."""
    kept = []

    def mix(said, message):
        kept.append((said["references"][1], said["signed"][1]))
        if len(kept) == 2:
            said["references"], said["signed"] = ([said[name][0], kept[0][i]] for i, name in enumerate(("references", "signed")))

    fake = FakeGrid({1: app()}, {1: node})
    grid = pulled(fake, key=keys / "ours.pem", federation="hospitals")
    altered(grid, mix)
    replies = [next(iter(grid.send_and_receive([Message(RecordDict({"arrays": model(i), "controls": model(i + 10)}), 1, "train")], timeout=60))) for i in range(2)]
    assert not replies[0].has_error() and "its records are of several rounds" in refusal(replies[1])


def test_fewer_signatures_than_records_are_refused(pulled, keys, node):
    grid = pulled(FakeGrid({1: app()}, {1: node}), key=keys / "ours.pem", federation="hospitals")
    altered(grid, lambda said, message: said.__setitem__("signed", said["signed"][:1]))
    reply = next(iter(grid.send_and_receive([Message(RecordDict({"arrays": model(), "controls": model(1)}), 1, "train")], timeout=60)))
    assert "not as many as its references" in refusal(reply)


@pytest.mark.parametrize("alter", [
    lambda said: said.__setitem__("signed", []), lambda said: said.__setitem__("signed", ["a", "b"]), lambda said: said.__setitem__("signed", "a"),
    lambda said: said.__setitem__("signed", ["a" * 5000]), lambda said: said.__setitem__("signed", ["\x00"]), lambda said: said.__setitem__("signed", [1]), lambda said: said.pop("signed"),
])  # fmt: skip
def test_an_offer_whose_signatures_are_anything_is_refused(alter, pulled, keys, node):
    fake = FakeGrid({1: app()}, {1: node})
    grid = pulled(fake, key=keys / "ours.pem", federation="hospitals")
    altered(grid, lambda said, message: alter(said))
    assert "no signed model can be had" in refusal(ask(grid, [1])[1])


def test_arguments_that_make_no_sense(keys, tmp_path, pulled):
    for given in ({"key": keys / "ours.pem"}, {"federation": "hospitals"}, {"key": keys / "ours.pem", "federation": "two words"}):
        with pytest.raises(ValueError):
            tensorpull.flower.Grid(FakeGrid({}), folder=tmp_path, **given)
    for key in (keys / "ours.line", keys / "none.pem"):
        with pytest.raises(tensorpull.Error) as refused:
            tensorpull.flower.Grid(FakeGrid({}), folder=tmp_path, key=key, federation="hospitals")
        assert refused.value.code == "bad_file"
    fake = FakeGrid({1: app()}, {1: {"tensorpull-federation": "hospitals"}})
    assert "without tensorpull-keys" in refusal(ask(pulled(fake), [1])[1])
