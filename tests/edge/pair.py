"""Runs two edge_peer programs against each other, and compares the safetensors file that comes out with the bytes that it must have.

    pair.py FOLDER OWNER... -- RECIPIENT...      each a program, perhaps behind the emulator that runs it; FOLDER is for the file

The bytes are computed here from the formulas of edge_model.hpp, with nothing of the library. Status 0: the owner says that both pulls have
completed, the recipient that its values are right, and the file is what it must be.
"""

import os
import json
import pathlib
import struct
import subprocess
import sys
import tempfile

sys.path.append(os.path.join(os.path.dirname(__file__), "..", "support"))
import processes  # noqa: E402


def image():
    """What safetensors.save would write for the model."""
    tensors = {}

    def add(name, dtype, shape, code, values):
        tensors[name] = (dtype, shape, struct.pack(f"<{len(values)}{code}", *values))

    for l in range(2):
        add(f"layers.{l}.w", "F32", [120, 301], "f", [((i * 301 + k + l * 7) % 2003 - 1000) / 8 for i in range(120) for k in range(301)])
        add(f"layers.{l}.b", "F32", [37], "f", [(i + 100 * l) / 16 for i in range(37)])
    add("scale", "F64", [3], "d", [1 / 1024 + i for i in range(3)])
    add("step", "I64", [], "q", [0x0123456789ABCDEF])
    add("count", "U32", [2], "I", [0x89ABCDEF + i for i in range(2)])
    add("small", "I16", [5], "h", [-300 + i for i in range(5)])
    add("half", "BF16", [7], "H", [0x3F80 + i for i in range(7)])
    add("waves", "C64", [4], "f", [part for i in range(4) for part in (i + 0.5, -i - 0.25)])
    add("mask", "BOOL", [9], "?", [i % 3 == 0 for i in range(9)])
    add("q", "I8", [101], "b", [i - 50 for i in range(101)])

    order = ["U64", "I64", "F64", "C64", "F32", "U32", "I32", "BF16", "F16", "U16", "I16", "I8", "U8", "BOOL"]
    header, data = {}, b""
    for name in sorted(tensors, key=lambda n: (order.index(tensors[n][0]), n)):
        dtype, shape, content = tensors[name]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def main():
    folder, programs = pathlib.Path(sys.argv[1]), sys.argv[2:]
    middle = programs.index("--")
    with tempfile.TemporaryDirectory(dir=folder) as own_folder:
        file = pathlib.Path(own_folder) / "pulled.safetensors"
        owner = processes.Program([*programs[:middle], "own"], stdout=subprocess.PIPE, text=True)
        try:
            said = owner.stdout.readline().split()
            if len(said) != 2:
                return "the owner has not started"
            recipient = subprocess.run([*programs[middle + 1 :], "pull", f"127.0.0.1:{said[0]}", said[1], str(file)], timeout=240)
            if recipient.returncode != 0:
                return f"the recipient ended with status {recipient.returncode}"
            if owner.wait(timeout=60) != 0:
                return f"the owner ended with status {owner.returncode}"
        finally:
            owner.kill()
            owner.wait()
        got, expected = file.read_bytes(), image()
        if got != expected:
            at = next((i for i, (a, b) in enumerate(zip(got, expected)) if a != b), min(len(got), len(expected)))
            return f"the file differs from byte {at} on: {got[at:at + 16].hex()} and not {expected[at:at + 16].hex()} ({len(got)} bytes of {len(expected)})"
    return 0


if __name__ == "__main__":
    processes.limit(560)
    sys.exit(main())
