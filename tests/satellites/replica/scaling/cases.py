"""What the programs of this folder share: a model, and how cases run."""
import json
import os
import random
import shutil
import struct
import sys
import tempfile
import time
from pathlib import Path

sys.path.append(os.path.join(os.path.dirname(__file__), "..", "..", "..", "support"))
import processes  # noqa: E402

SKIPPED = 77


def write_model(path, data_bytes, seed=1):
    header = json.dumps({"w": {"dtype": "F32", "shape": [data_bytes // 4], "data_offsets": [0, data_bytes]}}, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    path.write_bytes(struct.pack("<Q", len(header)) + header + random.Random(seed).randbytes(data_bytes))


def has(program):
    """Whether it can be started by its name, also from Debian's folder of servers; says so if not."""
    os.environ["PATH"] += ":/usr/sbin"
    if shutil.which(program) is None:
        print(f"skipped: {program} is not installed")
        return False
    return True


def run_cases(run, cases, programs, wanted):
    """Each of the cases whose names are wanted, or all, with a run and a folder of its own."""
    for case in cases:
        if wanted and case.__name__ not in wanted:
            continue
        began = time.monotonic()
        processes.limit(240)
        with tempfile.TemporaryDirectory() as folder, run(programs, Path(folder)) as made:
            case(made)
        print(f"{case.__name__}: well, {time.monotonic() - began:.1f} s")
