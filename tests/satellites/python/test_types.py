"""What type checkers say of programs that use the package: mypy and pyright, both strict, of the pages' own programs and of users' mistakes."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import pathlib
import re
import sys
import textwrap

import processes
import pytest

import tensorpull

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
PACKAGE = pathlib.Path(tensorpull.__file__).parent
#: Seconds that a checker may take on a busy machine.
CHECKING = 600
for checker in ("mypy", "pyright"):
    pytest.importorskip(checker)
pytest.importorskip("torch")
sys.path.insert(0, str(ROOT / "tests"))
snippets = importlib.import_module("snippets")

#: Programs that are wrong: what a line ends with, a checker has to object to, and to no other.
MISTAKES = """
import threading

import tensorpull
from tensorpull import aio, messages

def mistakes(owner: tensorpull.Downloader, session: tensorpull.Session, average: tensorpull.WeightedAverage, received: messages.TensorSet) -> None:
    tensorpull.download_tensors("host:1", "ref", framwork="torch")  # wrong
    tensorpull.download_tensors("host:1", "ref", framework="jax")  # wrong
    tensorpull.download_tensors("host:1", "ref", progress=3)  # wrong
    tensorpull.download_tensors("host:1", "ref", progress=lambda: None)  # wrong
    tensorpull.download_tensors("host:1", "ref", abort="now")  # wrong
    tensorpull.download_file("host:1", "ref")  # wrong
    tensorpull.list_tensors("host:1", "ref", framework="torch")  # wrong
    tensorpull.view_tensors("shm:x", "ref", "jax")  # wrong
    tensorpull.weighted_average([("host:1", "ref", 1.0)], wieght=3)  # wrong
    tensorpull.weighted_average([("host:1", "ref")])  # wrong
    tensorpull.Downloader(listn="host:1")  # wrong
    tensorpull.Session("host:1", ssl=True)  # wrong
    session.download_tensors("ref", framwork="torch")  # wrong
    session.download_tensors("ref", ssl=None)  # wrong
    session.download_tensors("ref", "soon")  # wrong
    session.list_tensors("ref", framework="torch")  # wrong
    session.receive(timeout=1).kind  # wrong
    session.receive().kinds  # wrong
    received.download_tensors(session, framwork="torch")  # wrong
    owner.add_tensors({}, recipients=1.5)  # wrong
    owner.add_tensors({}, settled=lambda: None)  # wrong
    owner.serve(until=3)  # wrong
    owner.outcome(3)  # wrong
    average.pull("host:1", "ref", 1.0)  # wrong
    average.pull("host:1", "ref", 1.0, peer="a", round=1, partial="error")  # wrong
    average.result().receipt.bytes  # wrong
    tensorpull.narrowed({}, {}, bits="8")  # wrong

async def more(session: aio.Session, door: aio.Listener, average: aio.WeightedAverage) -> None:
    await aio.download_tensors("host:1", "ref", framwork="torch")  # wrong
    await aio.download_file("host:1", "ref")  # wrong
    await aio.list_tensors("host:1", "ref", framework="torch")  # wrong
    await aio.weighted_average([("host:1", "ref", 1.0)], wieght=3)  # wrong
    await session.download_tensors("ref", framwork="torch")  # wrong
    await session.list_tensors("ref", framework="torch")  # wrong
    await session.send("1")  # wrong
    await session.serve(untill="ref")  # wrong
    (await session.receive(timeout=1)).kind  # wrong
    (await door.accept(timeout=1)).receive()  # wrong
    await average.pull("host:1", "ref", 1.0)  # wrong
    await aio.Session("host:1", ssl=True)  # wrong
    async with aio.Listener(3):  # wrong
        pass

def right(owner: tensorpull.Downloader, session: tensorpull.Session) -> None:
    tensorpull.download_tensors("host:1", "ref", abort=threading.Event(), progress=lambda seen: print(seen.bytes_done)).receipt.bytes
    owner.serve(until=["ref", "other"])
    owner.serve(until=threading.Event())
    owner.serve(until=lambda: True)
    session.receive().kind
"""

#: What calls give, in types.
GIVES = """
from typing import Dict, List, Optional

import numpy as np
import torch
from typing_extensions import assert_type

import tensorpull
from tensorpull import aio, messages

def gives(owner: tensorpull.Downloader, session: tensorpull.Session, door: tensorpull.Listener, average: tensorpull.WeightedAverage, model: torch.nn.Module) -> Dict[str, torch.Tensor]:
    ref = owner.add_tensors(model.state_dict(), recipients=["a", "b"])
    assert_type(ref, tensorpull.Reference)
    assert_type(owner.add_transaction([model.state_dict(), {"x": np.zeros(2)}]), List[tensorpull.Reference])
    assert_type(owner.outcome(ref), tensorpull.Outcome)
    assert_type(owner.status(ref), tensorpull.Status)
    state = tensorpull.download_tensors("host:1", ref, framework="torch")
    assert_type(state.receipt, tensorpull.Receipt)
    assert_type(state.receipt.bytes, int)
    assert_type(tensorpull.download_tensors("host:1", ref, out=model.state_dict(), base=model.state_dict(), cursor=tensorpull.Cursor()).receipt, tensorpull.Receipt)
    assert_type(tensorpull.download_file("host:1", ref, "x"), tensorpull.Receipt)
    assert_type(tensorpull.list_tensors("host:1", ref).tensors["w"].shape, "tuple[int, ...]")
    assert_type(tensorpull.view_tensors("shm:x", ref).receipt, tensorpull.Receipt)
    assert_type(session.download_tensors(ref, framework="torch").receipt, tensorpull.Receipt)
    assert_type(session.receive(), tensorpull.Message)
    assert_type(session.receive(timeout=3), Optional[tensorpull.Message])
    assert_type(door.accept(), tensorpull.Session)
    assert_type(door.accept(timeout=3), Optional[tensorpull.Session])
    assert_type(average.pull("host:1", ref, 1.0, peer="a", round=1), tensorpull.Receipt)
    assert_type(average.result(), tensorpull.TensorDict)
    assert_type(tensorpull.weighted_average([("host:1", ref, 1.0)]), tensorpull.TensorDict)
    try:
        pass
    except tensorpull.Error as e:
        assert_type(e.code, str)
        assert_type(e.landed, int)
        if e.code == tensorpull.ErrorCode.timed_out:
            print(tensorpull.ErrorCode(e.code).remedy.upper())
    return state

async def awaited(owner: tensorpull.Downloader, average: aio.WeightedAverage) -> None:
    assert_type(await aio.download_tensors("host:1", "ref"), tensorpull.Downloaded)
    assert_type(await aio.download_file("host:1", "ref", "x"), tensorpull.Receipt)
    assert_type(await aio.list_tensors("host:1", "ref"), tensorpull.Listing)
    assert_type(await aio.weighted_average([("host:1", "ref", 1.0)]), tensorpull.TensorDict)
    assert_type(await aio.outcome(owner, "ref"), tensorpull.Outcome)
    assert_type(await aio.outcome(owner, ["ref"]), List[tensorpull.Outcome])
    assert_type(await average.pull("host:1", "ref", 1.0, peer="a", round=1), tensorpull.Receipt)
    async with aio.Listener("127.0.0.1:0") as door:
        assert_type(await door.accept(timeout=1), Optional[aio.Session])
        async with await door.accept() as session:
            assert_type(session, aio.Session)
            assert_type(await session.receive(), tensorpull.Message)
            assert_type(await session.receive(timeout=1), Optional[tensorpull.Message])
            assert_type(await session.download_tensors("ref"), tensorpull.Downloaded)
            assert_type(await session.list_tensors("ref"), tensorpull.Listing)
            assert_type(await session.serve(until="ref"), bool)
            assert_type(session.add_tensors({"w": np.zeros(3)}), tensorpull.Reference)
    async with aio.Session("host:1") as dialled:
        await dialled.send(1, b"")
    assert_type(await aio.Session("host:1"), aio.Session)
    assert_type(await aio.run(messages.receive, dialled.blocking, timeout=3), Optional[messages.Received])
"""


def pages():
    """The Python of all pages, by the name of the program around it."""
    return {block.claim.rpartition("/")[2]: "\n".join(block.lines) for block in snippets.blocks(ROOT) if block.language == "python" and block.claim != "excerpt"}


def said_by(checker, folder):
    """What a strict checker objects to in a folder: {(file, line): [sentence]}."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(PACKAGE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]), "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}
    if checker == "mypy":
        files = sorted(path.name for path in folder.iterdir() if path.suffix in (".py", ".pyi"))
        done = processes.run([sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--cache-dir", ".mypy_cache", *files], cwd=folder, env=env, capture_output=True, text=True, timeout=CHECKING)
        assert done.returncode in (0, 1), done.stdout + done.stderr
        objections = [re.fullmatch(r"(.+?):(\d+): error: (.*)", line) for line in done.stdout.splitlines() if ": error: " in line]
        assert (done.returncode == 0) == (not objections), done.stdout
        found = [(one[1], int(one[2]), one[3]) for one in objections if one]
    else:
        (folder / "pyrightconfig.json").write_text(json.dumps({"typeCheckingMode": "strict", "include": ["."], "extraPaths": [str(PACKAGE.parent)]}))
        done = processes.run([sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--outputjson", "-p", "."], cwd=folder, env=env, capture_output=True, text=True, timeout=CHECKING)
        assert done.returncode in (0, 1), done.stdout + done.stderr
        told = json.loads(done.stdout)
        assert told["summary"]["filesAnalyzed"] == len(list(folder.glob("*.py*")))
        found = [(pathlib.Path(one["file"]).name, one["range"]["start"]["line"] + 1, one["message"]) for one in told["generalDiagnostics"] if one["severity"] == "error"]
    objected: dict[tuple[str, int], list[str]] = {}
    for file, line, sentence in found:
        objected.setdefault((file, line), []).append(sentence)
    return objected


def test_the_package_itself():
    """Its sources, but those for NVIDIA FLARE, which has no types."""
    files = sorted(str(path) for path in PACKAGE.glob("*.py"))
    assert len(files) > 25 and (PACKAGE / "py.typed").is_file()
    done = processes.run([sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--cache-dir", os.devnull, "--follow-imports", "silent", *files], cwd=PACKAGE.parent, capture_output=True, text=True, timeout=CHECKING)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_public_name_has_a_type_that_each_checker_reads_alike(tmp_path):
    """But those that have a type of Flower's or of NVIDIA FLARE's: that one has none that a checker knows for sure, and Flower's are unknown in part."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(PACKAGE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]), "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}
    env["PATH"] = os.pathsep.join([str(pathlib.Path(sys.executable).parent), env.get("PATH", "")])  # for the interpreter whose packages are installed
    done = processes.run([sys.executable, "-m", "pyright", "--verifytypes", "tensorpull", "--outputjson"], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=CHECKING)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    public = [one for one in json.loads(done.stdout)["typeCompleteness"]["symbols"] if one["isExported"]]
    assert len(public) > 150
    doubtful = {one["name"] for one in public if one["isTypeAmbiguous"] or not one["isTypeKnown"]}
    assert not {name for name in doubtful if not name.startswith(("tensorpull.flower.", "tensorpull.nvflare."))}
    others = {one["name"] for one in public if one["isTypeAmbiguous"]}
    assert not others, "a type is inferred where it could be written"


def test_options_that_are_passed_on_are_those_of_the_calls():
    """A TypedDict repeats what a signature has, since type checkers cannot take an argument away from one."""
    types, session = tensorpull._types, inspect.signature(tensorpull.Session.download_tensors)
    pull, look = (inspect.signature(call).parameters for call in (tensorpull.download_tensors, tensorpull.list_tensors))
    average = inspect.signature(tensorpull.WeightedAverage.pull).parameters
    of_address = {"address", "ssl", "digest", "bearer", "connections"}
    given = {name: one.annotation for name, one in pull.items() if name not in of_address | {"ref_id", "per_request_timeout", "chunk_size", "progress", "abort"}}
    assert annotations_of(types.PullOptions) == given and set(session.parameters) == {"self", *(set(pull) - of_address)}
    assert annotations_of(types.LookOptions) == {name: look[name].annotation for name in ("version", "recipient", "retries")}
    assert annotations_of(types.AverageOptions) == {name: one.annotation for name, one in average.items() if one.kind is one.KEYWORD_ONLY and name not in ("peer", "round")}
    into_file = inspect.signature(tensorpull.download_file).parameters
    assert annotations_of(types.FileOptions) == {name: one.annotation for name, one in into_file.items() if name not in of_address | {"ref_id", "path"}}
    of_a_set = annotations_of(types.SetOptions)
    assert of_a_set == {name: pull[name].annotation for name in of_a_set}


def annotations_of(options):
    """Those of a TypedDict, its bases' among them, as they are written."""
    return {name: getattr(kind, "__forward_arg__", kind) for name, kind in options.__annotations__.items()}


@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_programs(checker, tmp_path):
    (tmp_path / "given.pyi").write_text((HERE / "given.pyi").read_text())
    for name, text in pages().items():
        (tmp_path / f"{name}.py").write_text("from given import *\n" + ("" if re.search("^(import|from) tensorpull", text, re.M) else "import tensorpull\n") + text + "\n")
    assert len(list(tmp_path.glob("python_*.py"))) >= 9
    (tmp_path / "fedavg.py").write_text((ROOT / "examples" / "python" / "examples" / "fedavg.py").read_text())
    (tmp_path / "gives.py").write_text(GIVES)
    (tmp_path / "mistakes.py").write_text(MISTAKES)
    wrong = {("mistakes.py", number) for number, line in enumerate(MISTAKES.splitlines(), 1) if line.endswith("# wrong")}
    objected = said_by(checker, tmp_path)
    unexpected = {at: sentences for at, sentences in objected.items() if at not in wrong}
    assert not unexpected, "\n".join(f"{file}:{line}: {sentence}" for (file, line), sentences in sorted(unexpected.items()) for sentence in sentences)
    missed = wrong - set(objected)
    assert not missed, "\n".join(f"nothing is said of: {MISTAKES.splitlines()[line - 1].strip()}" for _, line in sorted(missed))
