#!/usr/bin/env python3
"""State dicts to and from real torch and safetensors: torch_tensors publishes them, and what arrives is compared.

Usage: round_trip.py DRIVER [--count N] [--seed S]
DRIVER is the program built from round_trip.cpp. Needs torch, numpy and safetensors (0.8). For each generated dict:
 - the image is, byte for byte, what safetensors.torch writes for it (save; save_model where tensors are tied);
 - the file that arrives is loaded by safetensors.torch with equal tensors;
 - the file that safetensors.torch saved becomes, published and pulled, the same new state dict;
 - a new state dict, and tensors that were landed in, are equal, tied as the original.
Exit status 0 when all hold. A failure prints the case and the seed.
"""
import argparse
import json
import os
import random
import struct
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file, save, save_file, save_model

sys.path.append(os.path.join(os.path.dirname(__file__), "..", "support"))
import processes  # noqa: E402

TYPES = {
    torch.bool: "Bool", torch.uint8: "Byte", torch.int8: "Char", torch.int16: "Short", torch.uint16: "UInt16", torch.int32: "Int",
    torch.uint32: "UInt32", torch.int64: "Long", torch.uint64: "UInt64", torch.float16: "Half", torch.bfloat16: "BFloat16",
    torch.float32: "Float", torch.float64: "Double", torch.complex64: "ComplexFloat", torch.float8_e5m2: "Float8_e5m2",
    torch.float8_e4m3fn: "Float8_e4m3fn", torch.float8_e5m2fnuz: "Float8_e5m2fnuz", torch.float8_e4m3fnuz: "Float8_e4m3fnuz",
}
NAMES = {name: dtype for dtype, name in TYPES.items()}
PIECES = ["layers", "weight", "bias", ".", "..", "0", "10", "9", " ", '"', "\\", "/", "\n", "\t", "\x01", "\x7f", "é", "中文", "😀", "\ufeff", "Z", "{", ","]


class Model:
    """What save_model asks of a module."""

    def __init__(self, tensors):
        self.tensors = tensors

    def state_dict(self):
        return dict(self.tensors)


def random_name(rng, used):
    while True:
        name = "".join(rng.choice(PIECES) for _ in range(rng.randint(0, 6)))
        if name not in used and name != "__metadata__":
            return name


def random_tensor(rng, rank=None):
    dtype = rng.choice(list(TYPES))
    shape = [rng.choice([0, 1, 1, 2, 3, 4, 5, 7]) for _ in range(rng.choice([0, 1, 1, 2, 2, 3, 4, 8]) if rank is None else rank)]
    if len(shape) == 8:
        shape = [min(n, 3) for n in shape]
    count = 1
    for n in shape:
        count *= n
    size = torch.empty(0, dtype=dtype).element_size()
    data = rng.randbytes(count * size)
    if dtype == torch.bool:
        data = bytes(b & 1 for b in data)
    return torch.frombuffer(bytearray(data), dtype=dtype).reshape(shape) if data else torch.empty(shape, dtype=dtype)


def view_of(rng, tensor):
    """Another layout of the tensor, or a part of it."""
    kind = rng.randrange(6)
    if kind == 0 and tensor.dim() > 1:
        return tensor.permute(rng.sample(range(tensor.dim()), tensor.dim()))
    if kind == 1 and tensor.dim() > 0 and tensor.size(0) > 1:
        return tensor[1::2]
    if kind == 2 and tensor.dim() > 0:
        return tensor[..., : tensor.size(-1) // 2 + 1]
    if kind == 3:
        return tensor.unsqueeze(0).expand(rng.randint(1, 4), *tensor.shape)
    if kind == 4 and tensor.dim() > 0 and tensor.size(0) > 0:
        return tensor[tensor.size(0) - 1]
    if kind == 5 and tensor.dtype == torch.complex64:
        return tensor.conj()
    return tensor


def case(rng, index):
    """(dict, metadata, whether save_model is the measure)."""
    tensors = {}
    for _ in range(2000 if index == 5 else rng.choice([0, 1, 1, 2, 3, 5, 9, 20])):
        tensors[random_name(rng, tensors) if index != 5 else f"layers.{len(tensors)}"] = random_tensor(rng)
    metadata = {"format": "pt"} if rng.random() < 0.3 else {}
    if index % 3 == 0:
        return {name: view_of(rng, tensor) for name, tensor in tensors.items()}, metadata, False
    if index % 3 == 1 and tensors:
        for name in rng.sample(sorted(tensors), min(len(tensors), rng.randint(1, 2))):
            if tensors[name].numel() > 0:
                tensors[random_name(rng, tensors)] = tensors[name]
        return tensors, metadata, True
    return tensors, metadata, False


def bytes_of(tensor):
    flat = torch.empty(tensor.numel(), dtype=tensor.dtype)  # not contiguous(): it leaves the strides of single elements
    return flat.copy_(tensor.reshape(-1)).view(torch.uint8).numpy().tobytes() if flat.numel() else b""


def text(s):
    s = s if isinstance(s, bytes) else s.encode()
    return struct.pack("<Q", len(s)) + s


def describe(path, tensors, metadata):
    storages, offsets = {}, []
    for tensor in tensors.values():
        storage = tensor.untyped_storage()
        storages.setdefault(storage.data_ptr(), (len(storages), bytes(storage)))
    out = [text(path), struct.pack("<Q", len(storages))]
    out += [text(data) for _, data in storages.values()]
    out += [struct.pack("<Q", len(metadata))] + [text(k) + text(v) for k, v in metadata.items()]
    out.append(struct.pack("<Q", len(tensors)))
    for name, t in tensors.items():
        out += [text(name), text(TYPES[t.dtype]),
                struct.pack("<QQQ", storages[t.untyped_storage().data_ptr()][0], t.storage_offset(), t.dim()),
                struct.pack(f"<{2 * t.dim()}q", *t.shape, *t.stride()), struct.pack("<Q", t.is_conj() + 2 * t.is_neg())]
    return b"".join(out)


class Reader:
    def __init__(self, stream):
        self.stream = stream

    def exactly(self, n):
        data = self.stream.read(n)
        if len(data) != n:
            raise SystemExit("the driver ended early")
        return data

    def number(self):
        return struct.unpack("<Q", self.exactly(8))[0]

    def text(self):
        return self.exactly(self.number())


def expect(condition, what):
    if not condition:
        raise AssertionError(what)


def parts(image):
    n = struct.unpack("<Q", image[:8])[0]
    return json.loads(image[8 : 8 + n]), image[8 + n :]


def save_expected(tensors, metadata, tied, path):
    plain = {name: t.resolve_conj().resolve_neg().contiguous().clone() for name, t in tensors.items()}
    if tied:
        save_model(Model(tensors), path + ".expected", dict(metadata) or None)
    else:
        save_file(plain, path + ".expected", metadata or None)
    return plain


def check(tensors, plain, tied, path, answer):
    if answer.number() != 0:
        raise AssertionError(f"refused: {answer.text().decode()}, {answer.text().decode()!r}")
    with open(path, "rb") as f:
        image = f.read()
    with open(path + ".expected", "rb") as f:
        expected = f.read()
    if len(parts(expected)[0].get("__metadata__", {})) < 2:
        expect(image == expected, "the image is not what safetensors.torch writes")
    else:  # the reference library's order of several keys changes from process to process
        expect(parts(image) == parts(expected), "the image is not what safetensors.torch writes")
    loaded = load_file(path)
    kept = [name for name in parts(image)[0] if name != "__metadata__"]
    expect(sorted(loaded) == sorted(kept), "the file has other names")
    for name, t in loaded.items():
        expect(t.dtype == plain[name].dtype and t.shape == plain[name].shape and bytes_of(t) == bytes_of(plain[name]), f"loaded {name!r} differs")

    rows = []
    for _ in range(answer.number()):
        name, dtype = answer.text().decode(), answer.text().decode()
        shape = [answer.number() for _ in range(answer.number())]
        rows.append((name, dtype, shape, answer.text(), answer.number()))
    expect(sorted(r[0] for r in rows) == sorted(tensors), "the new state dict has other names")
    for name, dtype, shape, data, first in rows:
        expect(NAMES[dtype] == plain[name].dtype and shape == list(plain[name].shape) and data == bytes_of(plain[name]), f"new {name!r} differs")
        here, there = tensors[name], tensors[rows[first][0]]
        expect(here.numel() == 0 or here.data_ptr() == there.data_ptr(), f"{name!r} is tied to another")
        if tied and here.numel():
            expect(first == min(i for i, r in enumerate(rows) if tensors[r[0]].data_ptr() == here.data_ptr()), f"{name!r} has lost its tie")
    if answer.number():
        for name, t in plain.items():
            expect(answer.text() == bytes_of(t), f"landed {name!r} differs")
        return True
    return False


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("driver")
    parser.add_argument("--count", type=int, default=600)
    parser.add_argument("--seed", type=int, default=20260)
    options = parser.parse_args()
    driver = processes.Program([options.driver], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    answer, landed = Reader(driver.stdout), 0
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "case.safetensors")
        for index in range(options.count):
            rng = random.Random(options.seed * 1000003 + index)
            tensors, metadata, tied = case(rng, index)
            try:
                plain = save_expected(tensors, metadata, tied, path)
                driver.stdin.write(describe(path, tensors, metadata))
                driver.stdin.flush()
                landed += check(tensors, plain, tied, path, answer)
            except (AssertionError, SystemExit, OSError) as e:
                print(f"case {index} of seed {options.seed}: {e}", file=sys.stderr)
                return 1
        driver.stdin.close()
        if driver.wait() != 0:
            return 1
    if landed < options.count // 2:
        print(f"only {landed} dicts were landed in place", file=sys.stderr)
        return 1
    print(f"{options.count} state dicts: images equal, files load, new state dicts and {landed} landings equal")
    return 0


if __name__ == "__main__":
    processes.limit(240)
    sys.exit(main())
