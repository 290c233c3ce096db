"""A difference of BF16 weights beside other forms and programs: bytes, and for coding and applying the speed and the peak of memory.

beside.py CODED [--mib 256] [--shares 0.01 0.002 0.05] [--times 3]

CODED is bench_coded. Needs numpy, zstandard, and on the path zstd, xdelta3 and bsdiff (Debian's packages); what is missing is left out. Each step is a process of its own, and its result is
compared. Seconds are of one processor, so that a busy machine matters little. The forms work in memory, without the seconds of the files; the programs read and write files in /dev/shm.
"""

import argparse
import filecmp
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time

import numpy as np


def weights(mib, share, old_file, new_file):
    """Of a normal distribution, and the same after that share has moved by one in the last bit."""
    rng = np.random.default_rng(1)
    n = mib << 19
    old = (rng.standard_normal(n, dtype=np.float32).view(np.uint32) >> 16).astype(np.uint16)
    new = old.copy()
    at = rng.choice(n, int(n * share), replace=False, shuffle=False)
    new[at] += rng.integers(0, 2, at.size, dtype=np.uint16) * 2 - 1
    old.tofile(old_file)
    new.tofile(new_file)


def _zstd(level):
    import zstandard

    return zstandard.ZstdCompressor(level=level), zstandard.ZstdDecompressor()


def _sparse(old, new):
    at = np.flatnonzero(old != new).astype(np.int32)
    return at.tobytes() + new[at].tobytes()


def _put(old, coded):
    n = len(coded) // 6
    old[np.frombuffer(coded, np.int32, n)] = np.frombuffer(coded, np.uint16, n, 4 * n)


def _code_sparse(old, new, level):
    return _sparse(old, new) if not level else _zstd(level)[0].compress(_sparse(old, new))


def _apply_sparse(old, coded, level):
    _put(old, _zstd(level)[1].decompress(coded) if level else coded)


def _code_xor(old, new, level):
    return _zstd(level)[0].compress(old ^ new)


def _apply_xor(old, coded, level):
    old ^= np.frombuffer(_zstd(level)[1].decompress(coded), np.uint16)


FORMS = {"indices and values": (_code_sparse, _apply_sparse, 0), "the same, zstd -1": (_code_sparse, _apply_sparse, 1), "XOR, zstd -1": (_code_xor, _apply_xor, 1), "XOR, zstd -3": (_code_xor, _apply_xor, 3)}
PROGRAMS = {
    "zstd --patch-from": (["zstd", "-qf", "--long=31", "--single-thread", "--patch-from=OLD", "NEW", "-o", "PATCH"], ["zstd", "-dqf", "--long=31", "--memory=2048MB", "--patch-from=OLD", "PATCH", "-o", "MADE"]),
    "xdelta3 -1": (["xdelta3", "-e", "-f", "-1", "-B", "SIZE", "-s", "OLD", "NEW", "PATCH"], ["xdelta3", "-d", "-f", "-B", "SIZE", "-s", "OLD", "PATCH", "MADE"]),
    "bsdiff": (["bsdiff", "OLD", "NEW", "PATCH"], ["bspatch", "OLD", "MADE", "PATCH"]),
}


def form(name, step, old, other, made):
    """One step of one form, in this process."""
    coding, applying, level = FORMS[name]
    if level:
        _zstd(level)  # loading it is not measured
    base, given = np.fromfile(old, np.uint16), np.fromfile(other, np.uint16) if step == "code" else open(other, "rb").read()
    start = time.process_time()
    coded = coding(base, given, level) if step == "code" else applying(base, given, level)
    print(time.process_time() - start)
    with open(made, "wb") as file:
        file.write(coded if step == "code" else base)


def measured(command, inside):
    """Seconds and peak in MiB; None: it does not end well."""
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    said = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    return None if child.returncode else (float(said) if inside else usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def rows(coded, folder, mib, share, times):
    paths = {name: os.path.join(folder, name.lower()) for name in ("OLD", "NEW", "PATCH", "MADE")}
    # a process's peak is at least what it had when it was begun, so this one stays small
    subprocess.run([sys.executable, os.path.abspath(__file__), "--weights", str(mib), str(share), paths["OLD"], paths["NEW"]], check=True)
    ways = {"tensorpull": ([coded, "code", "OLD", "NEW", "PATCH"], [coded, "apply", "OLD", "PATCH", "MADE"], True)}
    for name, (_, _, level) in FORMS.items():
        if not level or importlib.util.find_spec("zstandard"):
            this = [sys.executable, os.path.abspath(__file__), "--form", name]
            ways[name] = ([*this, "code", "OLD", "NEW", "PATCH"], [*this, "apply", "OLD", "PATCH", "MADE"], True)
    for name, (coding, applying) in PROGRAMS.items():
        if shutil.which(coding[0]) and (name == "bsdiff") == (mib <= 16):
            ways[name] = (coding, applying, False)
    for name, (coding, applying, inside) in ways.items():
        took = []
        for _ in range(times):
            both = []
            for command in (coding, applying):
                both.append(measured([paths.get(word, str(max(mib, 1) << 20) if word == "SIZE" else word.replace("OLD", paths["OLD"])) for word in command], inside))
            if None in both:
                break
            assert filecmp.cmp(paths["MADE"], paths["NEW"], shallow=False), name
            took.append(both)
        if len(took) < times:
            print(f"| {share:.1%} | {name} | did not end well |", flush=True)
            continue
        speeds = [sorted(mib / 1024 / one[step][0] for one in took)[times // 2] for step in (0, 1)]
        peaks = [max(one[step][1] for one in took) for step in (0, 1)]
        print(f"| {share:.1%} of {mib} MiB | {name} | {os.path.getsize(paths['PATCH']) / (mib << 20):.3%} | {speeds[0]:.3g} | {speeds[1]:.3g} | {peaks[0]:.0f}, {peaks[1]:.0f} |", flush=True)


def main():
    if sys.argv[1:2] == ["--form"]:
        return form(*sys.argv[2:])
    if sys.argv[1:2] == ["--weights"]:
        return weights(int(sys.argv[2]), float(sys.argv[3]), *sys.argv[4:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("coded")
    parser.add_argument("--mib", type=int, nargs="+", default=[256, 16])
    parser.add_argument("--shares", type=float, nargs="+", default=[0.01, 0.002, 0.05])
    parser.add_argument("--times", type=int, default=3)
    said = parser.parse_args()
    print("load", *os.getloadavg())
    for mib in said.mib:
        for share in said.shares:
            with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
                rows(said.coded, folder, mib, share, said.times)
    print("load", *os.getloadavg())


if __name__ == "__main__":
    main()
