"""Message structs between two Python ends, and bodies that no honest end makes. tests/satellites/python/test_cpp_messages.py has the C++ end."""

from __future__ import annotations

import pickle
import random
from fractions import Fraction

import numpy as np
import pytest
import processes

import tensorpull
from tensorpull import _decomposed as body
from tensorpull import messages


@pytest.fixture
def ends():
    with tensorpull.Listener("127.0.0.1:0") as door:
        left = tensorpull.Session(door.address)
        right = door.accept(10)
        with left, right:
            yield left, right


def model():
    return {"w": np.arange(12000, dtype="f4").reshape(100, 120).T, "b": np.arange(7.0), "none": np.zeros((0, 3), "i2")}


def serving(session, until):
    thread = processes.JoinedThread(target=lambda: session.serve(until=until, timeout=20))
    thread.start()
    return thread


def same(got, expected):
    assert sorted(got) == sorted(expected)
    for name, tensor in expected.items():
        assert got[name].dtype == tensor.dtype and np.array_equal(got[name], tensor), name


def test_a_set_is_split_and_put_together(ends):
    left, right = ends
    sent = messages.send(left, 1, {"model": messages.TensorsOf(model()), "n": 3})
    assert len(sent) == 1
    got = messages.receive(right, 10)
    assert got.kind == 1 and list(got.fields) == ["model", "n"] and got.fields["n"] == 3
    handle = got.fields["model"]
    assert handle.reference == sent[0] and handle.reference.version == sent[0].version and handle.addresses == ()
    with pytest.raises(tensorpull.Error, match="have to be pulled"):
        handle.download_tensors()
    thread = serving(left, sent)
    same(handle.download_tensors(right), model())
    thread.join()
    assert left.status(sent[0]).completed == 1


@pytest.mark.parametrize("limit, references", [(0, 1), (16384, 1), (2**64 - 1, 0)])
def test_the_threshold_decides_for_each_tensor(ends, limit, references):
    left, right = ends
    sent = messages.send(left, 1, {"model": messages.TensorsOf(model())}, inline_up_to=limit)
    assert len(sent) == references
    handle = messages.receive(right, 10).fields["model"]
    out = {"w": np.zeros((120, 100), "f4", order="F"), "b": np.zeros(14)[::2], "none": np.zeros((0, 3), "i2")}
    thread = serving(left, sent)
    got = handle.download_tensors(right if references else None, out=out)
    thread.join()
    same(out, model())
    assert got["b"] is out["b"] and (got.receipt is None) == (references == 0)


def test_a_set_lands_in_tensors_that_are_its_own_or_nothing_is_pulled(ends):
    left, right = ends
    sent = messages.send(left, 1, {"model": messages.TensorsOf(model())})
    handle = messages.receive(right, 10).fields["model"]
    other = {**model(), "b": np.zeros(7, "f4")}
    with pytest.raises(tensorpull.Error) as e:
        handle.download_tensors(right, out=other)
    assert e.value.code == "schema_mismatch" and left.status(sent[0]).completed == 0
    assert not other["b"].any()


def test_damage_in_the_message_is_found_before_anything_settles(ends):
    left, right = ends
    sent = messages.send(left, 1, {"model": messages.TensorsOf(model())})
    message = right.receive(10)
    damaged = message.body.replace(np.float64(3).tobytes(), np.float64(4).tobytes())
    assert damaged != message.body
    handle = messages.recompose(message._replace(body=damaged))["model"]
    with pytest.raises(tensorpull.Error) as e:
        handle.download_tensors(right)
    assert e.value.code == "digest_mismatch"
    assert left.status(sent[0]).completed == 0


def test_a_part_of_a_set_is_not_pulled_as_if_it_were_the_whole(ends):
    left, right = ends
    plain = left.add_tensors({"x": np.zeros(3)}, recipients=1)
    sent = messages.send(left, 1, {"nested": [{"model": messages.TensorsOf(model())}], "at": messages.Locator(plain)})
    message = right.receive(10)
    parts = [r for r in message.references if r == sent[0]]
    for ref in [parts[0], pickle.loads(pickle.dumps(parts[0]))]:
        for pull in (lambda r: right.download_tensors(r, 1, retries=0), lambda r: tensorpull.download_tensors("127.0.0.1:1", r), lambda r: tensorpull.weighted_average([("127.0.0.1:1", r, 1)], like=model())):
            with pytest.raises(tensorpull.Error, match="part of a message struct"):
                pull(ref)
    thread = serving(left, [plain])
    assert right.download_tensors(next(r for r in message.references if r == plain))["x"].shape == (3,), "a locator's reference is no part"
    thread.join()
    # bytes of the application's own are no struct, whatever their references are
    left.send(2, b"600 images", [sent[0]])
    assert type(right.receive(10).references[0]) is tensorpull.Reference


def test_a_set_is_sent_on_to_a_third_party(owner):
    source = model()
    with tensorpull.Listener("127.0.0.1:0") as door, tensorpull.Session(door.address) as left, door.accept(10) as right:
        ref = owner.add_tensors({"w": source["w"]}, recipients=1, keep_order=False)
        made = messages._Decomposing(messages.INLINE_UP_TO)
        fields = made.fields({"model": messages.TensorsOf(source)}, "")
        left.send(1, body.write(fields), [ref])
        middle = messages.receive(right, 10).fields["model"]
        with pytest.raises(tensorpull.Error, match="owner_at"):
            messages.send(right, 2, {"model": middle})
        with pytest.raises(tensorpull.Error):
            middle.owner_at("pipe:touch /tmp/x")
        middle.owner_at(owner.address)
        assert messages.send(right, 2, {"model": middle}) == ()
        last = messages.receive(left, 10).fields["model"]
        assert last.addresses == (owner.address,)
        same(last.download_tensors(last.addresses), source)
        assert owner.wait(ref, 20) and owner.outcome(ref).verdict == "completed"


def test_values_come_back_as_they_were(ends):
    left, right = ends
    fields = {
        "": "", "true": True, "least": -(2**63), "most": 2**64 - 1, "pi": 3.14, "inf": float("-inf"), "text": "hôpital \U0001f600", "none": None, "empty": [], "nothing": {},
        "deep": {"a": [{"b": [None, 1, "x", [2.5]]}], "": {}}, "numbers": np.array([[1, 2], [3, 4]], "i2"), "half": np.array([1.5], "f2"), "on": np.array([True, False]),
        "at": messages.Locator(None),
    }  # fmt: skip
    messages.send(left, 1, fields)
    got = messages.receive(right, 10).fields
    assert list(got) == list(fields)
    for name, value in fields.items():
        if isinstance(value, np.ndarray):
            assert got[name].dtype == value.dtype and np.array_equal(got[name], value.reshape(-1))
            got[name][0] = 0  # its own, and writable
        else:
            assert got[name] == value and type(got[name]) is type(value), name
    messages.send(left, 1, {"a": np.float32(0.5), "b": np.int8(-1), "c": np.bool_(True), "d": np.array(7), "e": (1, 2), "f": b"\x07", "g": np.arange(3, dtype=">i4")})
    got = messages.receive(right, 10).fields
    assert [got[name] for name in "abcde"] == [0.5, -1, True, 7, [1, 2]] and got["c"] is True
    assert got["f"].tolist() == [7] and got["g"].tolist() == [0, 1, 2]


def nested(depth, inside):
    value = inside
    for i in range(depth):
        value = [value] if i % 2 else {"a": value}
    return value


def test_what_is_sent_can_be_read_however_deep_it_is(ends):
    left, right = ends
    deepest = 0
    for depth in range(1, 70):
        try:
            messages.send(left, 1, {"x": nested(depth, 7)})
        except tensorpull.Error as e:
            assert e.code == "does_not_fit" and e.name.startswith("x.") and "deep" in e.message
            continue
        assert messages.receive(right, 10).fields == {"x": nested(depth, 7)} and deepest == depth - 1, depth
        deepest = depth
    assert 30 <= deepest < 69
    within = {}
    within["itself"] = [within]
    with pytest.raises(tensorpull.Error) as e:
        messages.send(left, 1, within)
    assert e.value.code == "does_not_fit" and e.value.name.startswith("itself.0.itself")


@pytest.mark.parametrize(
    "value, code, name",
    [
        (2**64, "value_out_of_range", "x"), ([1, -(2**63) - 1], "value_out_of_range", "x.1"), ("\ud800", "value_out_of_range", "x"), (object(), "wrong_kind", "x"),
        ({"a": {1, 2}}, "wrong_kind", "x.a"), (messages.Locator(None, ("h:1",)), "invalid_argument", "x"), ("a" * 70000, "does_not_fit", ""),
        (messages.Locator(tensorpull.Reference("1" * 32), ("serial:/dev/ttyS0",)), "bad_address", "x"),
        ([np.array(["a"])], "unsupported_dtype", "x.0"), (Fraction(10**400), "value_out_of_range", "x"),
        *((date, "wrong_kind", "x") for unit in ("us", "ns", "D") for date in (np.datetime64("2020-01-01", unit), np.timedelta64(5, unit), np.array(5, f"m8[{unit}]"))),
    ],
)  # fmt: skip
def test_what_cannot_travel_is_named_and_nothing_stays_published(ends, value, code, name):
    left, _ = ends
    for _ in range(40):  # more than a session publishes at a time
        with pytest.raises(tensorpull.Error) as e:
            messages.send(left, 1, {"model": messages.TensorsOf(model()), "x": value})
        assert (e.value.code, e.value.name) == (code, name)
        if code != "does_not_fit":
            break


def test_tied_tensors_are_refused_by_name(ends):
    tensors = {"a": np.zeros(3)}
    tensors["b"] = tensors["a"]
    with pytest.raises(tensorpull.Error) as e:
        messages.send(ends[0], 1, {"model": messages.TensorsOf(tensors)})
    assert (e.value.code, e.value.name) == ("unsupported_layout", "b")


def refused(content, references=()):
    with pytest.raises(tensorpull.Error) as e:
        messages.recompose(tensorpull.Message(1, content, references))
    return e.value


def written(fields):
    return body.write([body.Field(*field) for field in fields])


def test_fields_that_no_honest_end_writes():
    ref = (tensorpull.Reference("1" * 32, 2, 3),)
    locator = lambda i, *addresses: written([("at", body.LOCATOR, body.Locator(i, addresses))])  # noqa: E731
    assert messages.recompose(tensorpull.Message(1, locator(0, "h:1", "unix:@m"), ref))["at"].reference.version == 2
    for content, code in [
        (locator(1), "bad_frame"), (locator(0xFFFF, "h:1"), "bad_frame"), (locator(0, "pipe:touch x"), "bad_address"), (locator(0, "serial:/dev/watchdog"), "bad_address"),
        (locator(0, "h:1", "h:2", "h:3", "h:4", "h:5"), "table_full"), (locator(0, "nats://me:word@h"), "bad_address"),
    ]:  # fmt: skip
        e = refused(content, ref)
        assert (e.code, e.name) == (code, "at") and "word" not in str(e)
    e = refused(written([("a", body.ENTRIES, [body.Field("b", 11, None)])]))
    assert (e.code, e.name) == ("wrong_kind", "a.b") and "newer" in str(e)
    assert refused(written([("a", body.NOTHING, None)] * 2)).code == "duplicate_name"
    assert refused(written([("a", body.NUMBERS, body.Numbers("F32", b"12345"))])).code == "value_out_of_range"
    assert refused(written([("a", body.NUMBERS, body.Numbers("F4", b"1"))])).code == "unsupported_dtype"
    assert refused(written([("a", body.TENSORS, body.Tensors(1, 2, 3, 7, b"", ()))]), ref).code == "bad_frame"
    for content in [b"", b"600 images", bytes(8), bytes(16), bytes(4) + b"\1\0\0\0" + bytes(16), bytes(4) + b"\1\0\0\0" + b"\0\0\0\0\0\0\xff\xff"]:
        assert refused(content).code == "bad_frame"
        assert body.references_of_sets(content) == []


def test_a_list_within_itself_and_a_count_without_elements():
    deep = [body.Field("", body.ITEMS, [])]
    for _ in range(100):
        deep = [body.Field("", body.ITEMS, deep)]
    assert refused(body.write(deep)).code == "bad_frame"
    content = bytearray(written([("a", body.ITEMS, [])]))
    tag = len(content) - 8
    assert content[tag : tag + 8] == (2 << 32 | 2 << 48).to_bytes(8, "little")
    content[tag : tag + 8] = ((1 << 29) - 1 << 2).to_bytes(8, "little")  # elements of no words
    assert refused(bytes(content)).code == "bad_frame"
    pointer = 8 * 7  # of the items: back to the list of all fields, which they are in
    content[pointer : pointer + 8] = ((-5 & 0x3FFFFFFF) << 2 | 1 | 7 << 32 | 4 << 35).to_bytes(8, "little")
    assert refused(bytes(content)).code == "bad_frame"


def test_changed_bytes_are_values_or_an_error():
    honest = written([
        ("a", body.TENSORS, body.Tensors(1, 2, 3, 0, b"x" * 20, ("h:1",))), ("b", body.ITEMS, [body.Field("", body.TEXT, "x"), body.Field("", body.FLOATING, 2.5)]),
        ("c", body.NUMBERS, body.Numbers("F32", bytes(8))), ("d", body.ENTRIES, [body.Field("k", body.SIGNED, -1)]), ("e", body.LOCATOR, body.Locator(0, ())),
    ])  # fmt: skip
    ref = (tensorpull.Reference("1" * 32),)
    values = random.Random(3)
    accepted = 0
    for _ in range(5000):
        content = bytearray(honest)
        for _ in range(values.randint(1, 3)):
            content[values.randrange(len(content))] = values.randrange(256)
        try:
            messages.recompose(tensorpull.Message(1, bytes(content), ref))
            accepted += 1
        except tensorpull.Error as e:
            assert e.code in ("bad_frame", "bad_address", "wrong_kind", "duplicate_name", "value_out_of_range", "unsupported_dtype", "table_full"), e
        body.references_of_sets(bytes(content))
    assert accepted > 100
