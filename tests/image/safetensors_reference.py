#!/usr/bin/env python3
"""Compares images with what the safetensors package itself writes, byte for byte.

Usage: safetensors_reference.py DRIVER [--count N] [--seed S]
DRIVER is the program built from safetensors_reference.cpp. Needs numpy and safetensors (0.8). Exit status 0 when all are equal.
F6 cannot be written through the package's Python interface, so images with F6 are checked by reading them back with it.
"""
import argparse
import random
import struct
import subprocess
import sys
import tempfile

import numpy as np
from safetensors import TensorSpec, deserialize, serialize

# header name: (name for TensorSpec, or None; bits)
DTYPES = {
    "BOOL": ("bool", 8), "F4": ("float4_e2m1fn_x2", 4), "F6_E2M3": (None, 6), "F6_E3M2": (None, 6), "U8": ("uint8", 8), "I8": ("int8", 8),
    "F8_E5M2": ("float8_e5m2", 8), "F8_E4M3": ("float8_e4m3fn", 8), "F8_E8M0": ("float8_e8m0fnu", 8),
    "F8_E4M3FNUZ": ("float8_e4m3fnuz", 8), "F8_E5M2FNUZ": ("float8_e5m2fnuz", 8), "I16": ("int16", 16), "U16": ("uint16", 16),
    "F16": ("float16", 16), "BF16": ("bfloat16", 16), "I32": ("int32", 32), "U32": ("uint32", 32), "F32": ("float32", 32),
    "C64": ("complex64", 64), "F64": ("float64", 64), "I64": ("int64", 64), "U64": ("uint64", 64),
}
PIECES = ["layer", "weight", "bias", ".", "..", "0", "10", "9", "_", "-", " ", '"', "\\", "/", "\n", "\t", "\r", "\b", "\f", "\0", "\x01",
          "\x1f", "\x7f", "\x80", "é", "ß", "中文", "😀", "\u2028", "\ufeff", "\ufffd", "\U0010ffff", "A", "a", "Z", "{", "}", ":", ","]


def random_text(rng, longest=6):
    return "".join(rng.choice(PIECES) for _ in range(rng.randint(0, longest)))


def random_tensor(rng, dtypes):
    while True:
        dtype = rng.choice(dtypes)
        shape = [rng.choice([0, 1, 1, 2, 3, 4, 5, 7, 8, 16]) for _ in range(rng.choice([0, 1, 1, 2, 2, 3, 4, 6]))]
        if dtype == "F4" and not shape:
            continue  # one element of four bits fills no byte
        if dtype == "F4":
            shape[-1] *= 2
        bits = int(np.prod(shape, dtype=np.int64)) * DTYPES[dtype][1]
        if bits % 8 == 0 and bits < 1 << 19:
            return dtype, shape, rng.randbytes(bits // 8)


def dictionary(rng, index):
    """One case: (metadata, {name: (dtype, shape, bytes)})."""
    dtypes = [d for d in DTYPES if DTYPES[d][0]] if index % 10 else list(DTYPES)
    if rng.random() < 0.3:
        dtypes = rng.sample(dtypes, 1 + rng.randrange(3))
        if all(d in ("F6_E2M3", "F6_E3M2") for d in dtypes):
            dtypes.append("F32")
    count = 1000 if index in (7, 107) else 0 if index == 3 else rng.choice([1, 1, 2, 3, 5, 8, 13, 40])
    tensors = {}
    while len(tensors) < count:
        name = f"layers.{len(tensors)}.weight" if count == 1000 and rng.random() < 0.7 else random_text(rng)
        if index == 11 and not tensors:
            name = "long" * 5000
        if name not in tensors and name != "__metadata__":
            tensors[name] = random_tensor(rng, dtypes)
    metadata = {random_text(rng): random_text(rng, 30)} if rng.random() < 0.4 and tensors else None
    return metadata, tensors


def described(metadata, tensors):
    def blob(data):
        data = data.encode() if isinstance(data, str) else data
        return struct.pack("<Q", len(data)) + data

    out = [struct.pack("<Q", len(metadata or {}))]
    for key, value in (metadata or {}).items():
        out += [blob(key), blob(value)]
    out.append(struct.pack("<Q", len(tensors)))
    for name, (dtype, shape, data) in tensors.items():
        out += [blob(name), blob(dtype), struct.pack(f"<{len(shape) + 1}Q", len(shape), *shape), blob(data)]
    return b"".join(out)


def reference(metadata, tensors):
    """What safetensors writes, or None where its Python interface cannot."""
    specs, keep = {}, []
    for name, (dtype, shape, data) in tensors.items():
        spec_name = DTYPES[dtype][0]
        if spec_name is None:
            return None
        # The interface takes the storage shape of F4, two elements to the byte.
        storage = shape[:-1] + [shape[-1] // 2] if dtype == "F4" else shape
        keep.append(np.frombuffer(data + b"\0", dtype=np.uint8))
        specs[name] = TensorSpec(dtype=spec_name, shape=storage, data_ptr=keep[-1].ctypes.data, data_len=len(data))
    return bytes(serialize(specs, metadata))


def reads_back(image, tensors):
    read = {name: (info["dtype"], list(info["shape"]), bytes(info["data"])) for name, info in deserialize(image)}
    return read == {name: (dtype, shape, data) for name, (dtype, shape, data) in tensors.items()}


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("driver")
    arguments.add_argument("--count", type=int, default=500)
    arguments.add_argument("--seed", type=int, default=1)
    options = arguments.parse_args()

    rng = random.Random(options.seed)
    cases = [dictionary(rng, i) for i in range(options.count)]
    with tempfile.TemporaryFile() as described_cases:
        for case in cases:
            described_cases.write(described(*case))
        described_cases.seek(0)
        done = subprocess.run([options.driver], stdin=described_cases, stdout=subprocess.PIPE, timeout=500)
    if done.returncode != 0:
        print(f"the driver failed with status {done.returncode}")
        return 1

    at, passed, compared, dtypes = 0, 0, 0, set()
    for index, (metadata, tensors) in enumerate(cases):
        (length,) = struct.unpack_from("<Q", done.stdout, at)
        image = done.stdout[at + 8 : at + 8 + length]
        at += 8 + length
        expected = reference(metadata, tensors)
        compared += expected is not None
        dtypes |= {dtype for dtype, _, _ in tensors.values()}
        if image == expected or (expected is None and reads_back(image, tensors)):
            passed += 1
        else:
            print(f"case {index} of seed {options.seed} differs\n  ours:      {image[:300]}\n  reference: {(expected or b'')[:300]}")
    print(f"{passed} passed of {len(cases)}; {compared} byte for byte, the others read back; {len(dtypes)} dtypes")
    return 0 if passed == len(cases) and at == len(done.stdout) and len(dtypes) == len(DTYPES) else 1


if __name__ == "__main__":
    sys.exit(main())
