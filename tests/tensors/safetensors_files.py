#!/usr/bin/env python3
"""Safetensors files and what are nearly such, published and pulled, beside the verdicts and tensors of the package safetensors.

Usage: safetensors_files.py DRIVER [--count N] [--mutations N] [--seed S]
DRIVER is the program built from safetensors_files.cpp. Needs numpy and safetensors (0.8). Exit status 0 when all agree:
what the package writes is accepted, and the file that a recipient then has is that file, byte for byte;
of mutated files, those that the package reads are accepted with equal tensors and metadata, unless its specification excludes them (excluded());
those that it refuses, or that its specification excludes, are refused."""
import argparse
import collections
import json
import pathlib
import random
import re
import struct
import subprocess
import sys
import tempfile

import numpy as np
from safetensors import deserialize

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "image"))
from safetensors_reference import DTYPES, dictionary, reference


def written_by_the_package(rng, index):
    """A file with any names, dtypes and shapes (rank 0 to 8), its first metadata pair only: with more, the package's order is random."""
    while True:
        metadata, tensors = dictionary(rng, index)
        if index == 5:
            tensors = {f"layers.{i}.{'weight' if i % 2 else 'bias'}": ("F32", [1 + i % 3], rng.randbytes(4 * (1 + i % 3))) for i in range(5000)}
        rank = 7 + index % 2
        shape = [rng.choice([1, 1, 2, 0] if rng.random() < 0.2 else [1, 1, 2]) for _ in range(rank)]
        tensors[f"rank{rank}"] = ("F16", shape, rng.randbytes(2 * int(np.prod(shape))))
        if rng.random() < 0.3:
            metadata = {"format": "pt"}
        file = reference(metadata, tensors)
        if file is not None:
            return file


def parts(file):
    (n,) = struct.unpack_from("<Q", file)
    return file[8 : 8 + n], file[8 + n :]


def joined(text, data):
    return struct.pack("<Q", len(text)) + text + data


NUMBERS = [b"0", b"1", b"2", b"8", b"-1", b"-0", b"1.0", b"1e0", b"1E2", b"01", b"+1", b"18446744073709551615", b"18446744073709551616",
           b"4294967296", b"9223372036854775808", b"1e999", b"null", b"\"1\"", b"[1]", b"{}", b"1.7976931348623157e308", b"1e-999"]
VALUES = NUMBERS + [b"true", b"[]", b"{}", b'{"y":[{"z":null}]}', b'"\\ud83d\\ude00"', b'"\\ud800"', b'"\xff"', b"[" * 125 + b"]" * 125, b"[" * 126 + b"]" * 126,
                    b"[" * 20000 + b"]" * 20000, b"NaN", b"'a'", b"tru", b"9" * 400, b""]
WHITE = [b" ", b"\n", b"\t", b"\r", b"\x0b", b"\x0c", b"\0", b"\xc2\xa0", b"\xef\xbb\xbf", b"//", b"/**/"]
STRUCTURE = [b"{", b"}", b"[", b"]", b",", b":", b'"', b"\\", b"\\u0041", b"\\u00", b"\xc3\xa9", b"\xed\xa0\x80", b"\x01", b"\x7f"]


def mutated(rng, file):
    text, data = parts(file)
    kind = rng.randrange(18)
    if kind == 0:  # a bit anywhere
        at = rng.randrange(len(file))
        return file[:at] + bytes([file[at] ^ 1 << rng.randrange(8)]) + file[at + 1 :]
    if kind == 1:
        return file[: rng.randrange(len(file) + 1)]
    if kind == 2:
        return file + rng.randbytes(rng.choice([1, 8, 22]))
    if kind == 3:
        length = rng.choice([0, 1, len(text) - 1, len(text) + 1, len(text) + 8, 100_000_000, 100_000_001, 2**63, 2**64 - 8, 2**64 - 4, 2**64 - 1])
        return struct.pack("<Q", max(0, length)) + text + data
    if kind == 4:
        return joined(rng.choice(WHITE) * rng.choice([1, 8]) + text, data)
    if kind == 5:
        return joined(text + rng.choice(WHITE) * rng.choice([1, 8]), data)
    if kind in (6, 7):  # a number becomes another
        found = list(re.finditer(rb"\d+", text))
        if found:
            one = rng.choice(found)
            new = rng.choice(NUMBERS) if kind == 6 else str(max(0, int(one[0]) + rng.choice([-8, -1, 1, 4, 8]))).encode()
            text = text[: one.start()] + new + text[one.end() :]
    elif kind == 8:
        name = rng.choice(list(DTYPES) + ["f32", "F31", "", "float32"]).encode()
        found = list(re.finditer(rb'"dtype":"(\w+)"', text))
        if found:
            one = rng.choice(found)
            text = text[: one.start(1)] + name + text[one.end(1) :]
    elif kind == 9:  # a field that the format does not know, or one twice
        found = list(re.finditer(rb'"dtype"', text))
        if found:
            at = rng.choice(found).start()
            text = text[:at] + rng.choice([b'"x"', b'"x"', b'"x"', b'"dtype"', b'"shape"', b'"\\u0064type"', b'""']) + b":" + rng.choice(VALUES) + b"," + text[at:]
    elif kind == 10:  # an entry twice, in another order, or left out
        entries = re.findall(rb'"(?:[^"\\]|\\.)*":\{"dtype"[^}]*\}', text)
        if entries:
            if rng.random() < 0.5:
                rng.shuffle(entries)
            else:
                one = rng.choice(entries)
                entries.insert(rng.randrange(len(entries) + 1), one) if rng.random() < 0.5 else entries.remove(one)
            text = b"{" + b",".join(entries) + b"}"
    elif kind == 11:
        value = rng.choice([b"{}", b"null", b'{"k":"v"}', b'{"k":"1","k":"2"}', b'{"k":1}', b'{"k":null}', b"[]", b'"x"', b'{"k":{}}', b'{"a":"\\u0000","b":"\xc3\xa9"}'])
        text = b'{"__metadata__":' + value + (b"," if text.lstrip()[1:2] == b'"' else b"") + text.lstrip()[1:]
    elif kind == 12:  # the data moves
        data = rng.choice([data[1:], data + b"\0", data[:-1], b"\0" + data, b"PK\x03\x04" + data])
    elif kind in (13, 14):
        at = rng.randrange(len(text) + 1)
        text = text[:at] + rng.choice(STRUCTURE + WHITE) + text[at + rng.randrange(2) :]
    elif kind == 15:  # a piece is lost or comes twice
        a, b = sorted(rng.randrange(len(text) + 1) for _ in range(2))
        text = text[:a] + text[b:] if rng.random() < 0.5 else text[:b] + text[a:]
    elif kind == 16:  # the same in other words
        at = rng.choice([m.start() for m in re.finditer(rb"[,:\[\]{}]", text)] or [0])
        text = text[:at] + rng.choice([b" ", b"\n", b"\t \r"]) + text[at : at + 1] + rng.choice([b"", b"  "]) + text[at + 1 :]
    elif kind == 17:  # forms that only a part of the readers take
        text = rng.choice([text.replace(b'"dtype":"F32"', b'"dtype":{"F32":null}'), re.sub(rb'\{"dtype":("\w+"),"shape":(\[[^]]*\]),"data_offsets":(\[[^]]*\])\}', rb"[\1,\2,\3]", text),
                           text.replace(b'"shape"', b'"\\u0073hape"'), text.replace(b"[]", b"[1]"), text.replace(b"[]", b"null"), text.replace(b'"data_offsets"', b'"offsets"')])
    return joined(text, data)


def tensors_of(file):
    """What the package reads, or None where it refuses."""
    try:
        return {name: (info["dtype"], list(info["shape"]), bytes(info["data"])) for name, info in deserialize(file)}
    except Exception:
        return None


def metadata_of(file):
    return json.loads(parts(file)[0]).get("__metadata__") or {}


class Pairs(list):
    pass


def excluded(file):
    """Why the specification excludes what the package reads, or None."""
    text = parts(file)[0].decode()
    if not text.startswith("{"):
        return "it does not begin with {"
    if text.rstrip(" ")[-1:] != "}":
        return "padding that is not 0x20"
    header = json.loads(text, object_pairs_hook=Pairs)
    for name, value in header:
        if name != "__metadata__":
            if not isinstance(value, Pairs):
                return "a tensor that is no object"
            if not isinstance(dict(value)["dtype"], str):
                return "a dtype that is no string"
        elif value is None:
            return "__metadata__ is null"
        elif len(dict(value)) != len(value):
            return "a metadata key twice"
    return "a name twice" if len(dict(header)) != len(header) else None


def verdicts(driver, files):
    """What the driver says of each: the file that a recipient then has, or the error's text."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as given:
        for file in files:
            given.write(struct.pack("<Q", len(file)) + file)
        given.seek(0)
        done = subprocess.run([driver, folder], stdin=given, stdout=subprocess.PIPE, timeout=500)
        left = list(pathlib.Path(folder).iterdir())
    if done.returncode != 0:
        sys.exit(f"the driver failed with status {done.returncode}")
    if [p.name for p in left] != ["pulled.safetensors"]:
        sys.exit(f"the driver left {left}")
    answers, at = [], 0
    while at < len(done.stdout):
        accepted, length = struct.unpack_from("<?Q", done.stdout, at)
        content = done.stdout[at + 9 : at + 9 + length]
        answers.append(content if accepted else content.decode())
        at += 9 + length
    if len(answers) != len(files):
        sys.exit(f"the driver answered {len(answers)} of {len(files)} files")
    return answers


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("driver")
    arguments.add_argument("--count", type=int, default=1000)
    arguments.add_argument("--mutations", type=int, default=20000)
    arguments.add_argument("--seed", type=int, default=1)
    options = arguments.parse_args()

    rng = random.Random(options.seed)
    valid = [written_by_the_package(rng, i) for i in range(options.count)]
    small = [file for file in valid if len(file) < 4000]
    invalid = []
    while len(invalid) < options.mutations:
        file = rng.choice(small)
        for _ in range(rng.choice([1, 1, 1, 2])):
            if len(file) >= 8 and struct.unpack_from("<Q", file)[0] <= len(file) - 8:
                file = mutated(rng, file)
        invalid.append(file)
    answers = verdicts(options.driver, valid + invalid)

    bad = sum(answer != file for file, answer in zip(valid, answers))
    for file, answer in zip(valid, answers):
        if answer != file:
            print(f"not as the package wrote it: {file[:300]}: {answer[:300]}")
    print(f"{len(valid) - bad} of {len(valid)} files of the package are the same after a transfer")
    told = collections.Counter()
    for file, answer in zip(invalid, answers[len(valid) :]):
        read = tensors_of(file)
        why = excluded(file) if read is not None else None
        if isinstance(answer, str):
            right, kind = read is None or why is not None, f"both refuse: {answer}" if read is None else f"excluded: {why}"
        else:
            right, kind = why is None and read is not None and tensors_of(answer) == read and metadata_of(answer) == metadata_of(file), "both accept"
        told[kind] += right
        if not right:
            bad += 1
            print(f"{'refused' if isinstance(answer, str) else 'accepted'} unlike the package ({'refused' if read is None else why or 'accepted'}): {file[:400]}: {answer[:100]}")
    for kind, n in sorted(told.items()):
        print(f"{n:6} {kind}")
    print(f"seed {options.seed}: {len(answers) - bad} passed of {len(answers)}")
    return 0 if bad == 0 and told["both accept"] > options.mutations // 20 and len(told) > 5 else 1


if __name__ == "__main__":
    sys.exit(main())
