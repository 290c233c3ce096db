"""inspect FILE...: prints which tensors are in a file, for people or for programs, or why the file is rejected."""

from __future__ import annotations

import hashlib
import json
from typing import List

from . import command_line
from .command_line import Form, OptionError
from .tensor_files import Rejected, TensorFile
from .text import capped, count, out, printable, run, say, size

HELP = """usage: python -m tensorpull inspect [--json] FILE...

Lists the tensors of safetensors, npy and npz files, or says why a file is rejected. Files of safetensors may be larger than memory; the others
are read with NumPy.

  --json       a JSON object on a line for each file:
                 {"file", "verdict": "accept", "format", "bytes", "metadata", "tensors": [{"name", "dtype", "shape", "offsets", "sha256"}]}
                 {"file", "verdict": "reject", "code", "at", "tensor", "message"}
                 {"file", "verdict": "unreadable", "code", "at", "message"}
               `offsets` are those of a safetensors header: [first byte, first byte after it] in the file's data.
  -h, --help   this text

Example:
  python -m tensorpull inspect model.safetensors
  python -m tensorpull inspect --json model.safetensors | python3 -m json.tool

Status: 0 every file is accepted, 1 one is rejected, 2 a wrong option, 3 one cannot be read.
"""
TOOL = "tensorpull inspect"
ACCEPTED, REJECTED, UNREADABLE = 0, 1, 3
WIDEST = 60  # a longer name shifts the rest of its line


def main(arguments: List[str]) -> int:
    as_json = False
    paths: List[str] = []

    def set_option(_name: str, _value: str) -> None:
        nonlocal as_json
        as_json = True

    def check(words: List[str]) -> None:
        if not words:
            raise OptionError("which file? 'inspect model.safetensors' lists its tensors")
        paths.extend(words)

    ended = command_line.read(arguments, TOOL, HELP, [Form("json", False)], set_option, check)
    if ended is not None:
        return ended

    def all_of_them() -> int:
        status = ACCEPTED
        for i, path in enumerate(paths):
            if i and not as_json:
                out("\n")
            status = max(status, _inspect(path, as_json))
        return status

    return run(TOOL, all_of_them, unwritable=UNREADABLE)


def _inspect(path: str, as_json: bool) -> int:
    try:
        file = TensorFile(path)
    except Rejected as why:
        return _report(path, why, as_json)
    try:
        out(_json(path, file) if as_json else _table(path, file))
    finally:
        file.close()
    return ACCEPTED


def _report(path: str, why: Rejected, as_json: bool) -> int:
    unreadable = why.code == "io"
    if as_json:
        line = {"file": path, "verdict": "unreadable" if unreadable else "reject", "code": why.code, "at": why.at}
        if why.tensor:
            line["tensor"] = capped(why.tensor)
        line["message"] = why.why
        out(json_line(line))
    else:
        say(TOOL, why.sentence(path))
    return UNREADABLE if unreadable else REJECTED


def json_line(value: object) -> str:
    """JSON in ASCII for any value. What was no UTF-8 becomes U+FFFD."""
    return json.dumps(_clean(value)) + "\n"


def _clean(value: object) -> object:
    if isinstance(value, str):
        return value.encode(errors="surrogateescape").decode(errors="replace") if not value.isascii() else value
    if isinstance(value, dict):
        return {_clean(key): _clean(one) for key, one in value.items()}
    return [_clean(one) for one in value] if isinstance(value, (list, tuple)) else value


def _json(path: str, file: TensorFile) -> str:
    tensors = [
        {"name": e.name, "dtype": e.dtype, "shape": e.shape, "offsets": [e.begin, e.end], "sha256": hashlib.sha256(file.view(e)).hexdigest()} for e in file.entries
    ]
    return json_line({"file": path, "verdict": "accept", "format": file.format, "bytes": file.bytes, "metadata": file.metadata, "tensors": tensors})


def _shape(shape: object) -> str:
    return "[" + ", ".join(map(str, shape)) + "]"  # type: ignore[call-overload]


def _table(path: str, file: TensorFile) -> str:
    lines = [f"{printable(path)}: {file.format}, {count(len(file.entries), 'tensor')}, {size(file.bytes)}"]
    lines += [f"  {printable(key)} = {printable(value)}" for key, value in sorted(file.metadata.items())]
    if file.entries:
        rows = [(printable(e.name), e.dtype, _shape(e.shape), size(e.end - e.begin)) for e in file.entries]
        names = max(4, *(min(WIDEST, len(row[0])) for row in rows))
        shapes = max(5, *(min(WIDEST, len(row[2])) for row in rows))
        lines += ["", f"  {'name':{names}}  dtype        {'shape':{shapes}}       size"]
        lines += [f"  {name:{names}}  {dtype:11}  {shape:{shapes}}  {bytes_:>9}" for name, dtype, shape, bytes_ in rows]
        elements = count(sum(e.elements for e in file.entries), "element")
        lines.append(f"  {'total':{names}}  {elements:{shapes + 13}}  {size(sum(e.end - e.begin for e in file.entries)):>9}")
    return "\n".join(lines) + "\n"
