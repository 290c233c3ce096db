"""Message structs between C++ (tests/satellites/python/cpp_messages.cpp) and Python, over TCP, in both directions."""

from __future__ import annotations

import os
import subprocess

import numpy as np
import pytest
import processes

import tensorpull
from tensorpull import messages

PROGRAM = os.environ.get("TENSORPULL_CPP_MESSAGES", "")
pytestmark = pytest.mark.skipif(not PROGRAM, reason="TENSORPULL_CPP_MESSAGES does not name the program of tests/satellites/python/cpp_messages.cpp")


def layer(seed):
    return {
        "weight": (seed * 10000 + np.arange(128 * 64, dtype="f4")).reshape(128, 64),
        "bias": (seed + np.arange(64, dtype="f4")) / 4,
        "scale": np.array([0x3F80, 0x3F81, 0x3F82], "u2"),  # the bits of bfloat16
        "step": np.array(-seed, "i8"),
    }


#: What the C++ program sends, but for its sets of tensors, whose members and types test_from_cpp has.
FIELDS = {
    "last": True, "round": 4_000_000_000, "seed": -7, "large": 2**64 - 1, "now": 2, "momentum": 0.5, "loss": 0.1, "site": "hôpital 3", "tag": "12345678",
    "plan.rate": 0.25, "plan.offset": -300, "shape": np.array([1, -2, 3], "i4"), "grid": np.array([0, 1.5, 0, 0, 0, -2], "f4"), "history": np.array([0.5, -1e300]),
    "raw": np.array([0, 255], "u1"), "sites": ["a", "", "c"], "metrics": {"accuracy": 0.9, "loss": 0.25}, "best": -1.0, "none": None,
    "rows": [{"name": "a", "value": 1.0, "step": 7}, {"name": "b", "value": 2.0, "step": None}], "row": {"name": "c", "value": 3.0, "step": -4},
    "by_site": {"x": [{"name": "d", "value": 4.0, "step": None}], "y": []}, "groups": [["one", "two"], []],
    "elsewhere": messages.Locator(tensorpull.Reference("00000000000000030000000000000004", 5, 6), ("tls://owner:8002",)),
}  # fmt: skip
SETS = ["model", "small", "updates"]


def assert_fields(got, expected):
    assert list(got) == [*expected, *SETS]
    for name, value in expected.items():
        if isinstance(value, np.ndarray):
            assert got[name].dtype == value.dtype and np.array_equal(got[name], value.reshape(-1)), name
        else:
            assert got[name] == value and type(got[name]) is type(value), name


def assert_layer(got, seed):
    expected = layer(seed)
    assert sorted(got) == sorted(expected)
    for name, value in expected.items():
        assert np.array_equal(got[name].view("u2") if name == "scale" else got[name], value), name
    assert got["scale"].dtype.name == "bfloat16"


@pytest.fixture
def cpp():
    """Starts the C++ end, and gives it with the session that it opened."""
    with tensorpull.Listener("127.0.0.1:0") as door:
        started = []

        def start(what):
            started.append(processes.Program([PROGRAM, what, door.address], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
            return started[-1], door.accept(20)

        yield start
        for program in started:
            program.kill()
            program.communicate()


def ended(program):
    said, errors = program.communicate(timeout=30)
    assert program.returncode == 0, errors
    return said


def test_from_cpp(cpp):
    program, session = cpp("send")
    with session:
        kind, got = messages.receive(session, 20)
        assert kind == 9
        assert_fields(got, FIELDS)
        assert got["elsewhere"].reference.version == 5 and got["elsewhere"].reference.fingerprint == 6
        model = got["model"].download_tensors(session)
        assert model.receipt.outcome == "completed"
        assert_layer(model, 1)
        small = got["small"].download_tensors()
        assert small.receipt is None and small["b"].tolist() == [0.0] * 9 + [9.5] and small["on"].tolist() == [False, False, True, False]
        out = {name: np.zeros_like(tensor) for name, tensor in model.items()}
        assert got["updates"][0].download_tensors(session, out=out)["weight"] is out["weight"]
        assert_layer(out, 2)
        assert_layer(got["updates"][1].download_tensors(session), 3)
    assert ended(program) == "settled 1 of 4\n"


def test_from_cpp_into_torch(cpp):
    torch = pytest.importorskip("torch", reason="optional: torch is not installed")
    program, session = cpp("send")
    with session:
        got = messages.receive(session, 20).fields
        made = got["model"].download_tensors(session, framework="torch")
        assert made["scale"].dtype == torch.bfloat16 and torch.equal(made["weight"], torch.from_numpy(layer(1)["weight"]))
        out = {name: torch.zeros_like(tensor) for name, tensor in made.items()}
        out["weight"] = torch.zeros(64, 128).T
        for update in got["updates"]:
            update.download_tensors(session, out=out)
        assert torch.equal(out["weight"], torch.from_numpy(layer(3)["weight"])) and out["step"].item() == -3
    assert ended(program) == "settled 1 of 4\n"


def sets(seed=1):
    import ml_dtypes

    def of(seed):
        made = layer(seed)
        return {**made, "scale": made["scale"].view(ml_dtypes.bfloat16)}

    small = {"b": np.arange(10.0), "on": np.array([True, False, False, True])}
    return {"model": messages.TensorsOf(of(seed)), "small": messages.TensorsOf(small), "updates": [messages.TensorsOf(of(seed + 1)), messages.TensorsOf(of(seed + 2))]}


def test_from_python_and_back(cpp):
    program, session = cpp("echo")
    fields = {**FIELDS, "round": 1, "seed": -(2**63), "site": "", "tag": "ab", "sites": [], "metrics": {"": -0.0}, "row": None, "none": 2.5, "raw": b"\x01\x02"}
    fields["plan.rate"] = np.float64(0.75)
    with session:
        sent = messages.send(session, 4, {**fields, **sets()})
        assert len(sent) == 3 and session.serve(until=sent, timeout=20)
        assert [session.status(ref).completed for ref in sent] == [1, 1, 1]
        kind, got = messages.receive(session, 20)
        assert kind == 5
        assert_fields(got, {**fields, "raw": np.array([1, 2], "u1"), "plan.rate": 0.75})
        assert_layer(got["model"].download_tensors(session), 1)
        assert got["small"].download_tensors()["b"].tolist() == list(range(10))
        for i, update in enumerate(got["updates"]):
            assert_layer(update.download_tensors(session), 2 + i)
    assert ended(program) == "settled 1 of 4\n"


@pytest.mark.parametrize(
    "change, says",
    [
        ({"round": -1}, "(round)"), ({"round": 1.0}, "(round)"), ({"plan.offset": 40000}, "(plan.offset)"), ({"rows": [{"name": "a", "value": 1.0}]}, "(rows.0.step)"),
        ({"rows": [{"name": "a", "value": "x", "step": 1}]}, "(rows.0.value)"), ({"metrics": {"a": 1.0, "b": None}}, "(metrics.b)"), ({"sites": ["a", 1]}, "(sites.1)"),
        ({"history": np.zeros(2, "f4")}, "(history)"), ({"updates": [1]}, "(updates.0)"), ({"more": 1}, "(more)"), ({"tag": "123456789"}, "(tag)"),
    ],
)  # fmt: skip
def test_what_a_struct_does_not_have_is_an_error_that_names_the_field(cpp, change, says):
    program, session = cpp("echo")
    with session:
        messages.send(session, 4, {**FIELDS, **sets(), **change})
    said, errors = program.communicate(timeout=30)
    assert program.returncode == 1 and says in errors, errors


def test_what_was_not_understood_does_not_settle(cpp):
    program, session = cpp("send")
    with session:
        message = session.receive(20)
        assert message.kind == 9 and len(message.references) == 4
        for ref in message.references[1:]:  # the first one is the locator's
            with pytest.raises(tensorpull.Error, match="part of a message struct") as e:
                session.download_tensors(ref)
            assert e.value.code == "invalid_argument"
        session.serve(timeout=0.2)
    said, _ = program.communicate(timeout=30)
    assert said == "settled 0 of 4\n"
