#!/usr/bin/env python3
"""Compares images of NumPy's arrays and files with what the safetensors package writes for them, and verdicts on broken files with NumPy's.

Usage: numpy_reference.py DRIVER [--count N] [--mutations M] [--seed S]
DRIVER is the program built from numpy_reference.cpp. Needs numpy and safetensors (0.8). Exit status 0 when all agree. What is refused here
and read by NumPy must have one of the reasons of `stricter`.
"""
import argparse
import collections
import ctypes
import io
import os
import random
import re
import struct
import subprocess
import sys
import tempfile
import warnings
import zipfile

import numpy as np
from numpy.lib import format as npy
from safetensors import deserialize
from safetensors.numpy import save

sys.path.append(os.path.join(os.path.dirname(__file__), "..", "..", "support"))
import processes  # noqa: E402

DTYPES = ["?", "u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8", "c8"]
UNSUPPORTED = ["c16", "g", "G", "S3", "U2", "M8[ns]", "m8[D]", "V4", "O", [("a", "<i4"), ("b", ">f8")]]
SUPPORTED_STR = re.compile(r"[<>=|]?([?bBhHiIqQefdF]|b1|[ui][1248]|f[248]|c8)")
PIECES = ["layer", "weight", ".", "..", "/", "../", "\\", "0", "10", " ", '"', "'", "\n", "\t", "\x01", "\x7f", "é", "ß", "中文", "😀", "\u2028", "A", ".npy", "{", ":"]
TYPE_TAGS = {"|b1": "BOOL", "|u1": "U8", "|i1": "I8", "<u2": "U16", "<i2": "I16", "<u4": "U32", "<i4": "I32", "<u8": "U64", "<i8": "I64",
             "<f2": "F16", "<f4": "F32", "<f8": "F64", "<c8": "C64"}


def blob(data):
    data = data.encode() if isinstance(data, str) else bytes(data)
    return struct.pack("<Q", len(data)) + data


class Driver:
    def __init__(self, program):
        self.process = processes.Program([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, question):
        """(code, image or name of the tensor, sentence)"""
        self.process.stdin.write(question)
        self.process.stdin.flush()
        code = self.number()
        return (code, self.text(), b"" if code == 0 else self.text())

    def number(self):
        data = self.process.stdout.read(8)
        if len(data) != 8:
            sys.exit(f"the driver ended with status {self.process.wait()}")
        return struct.unpack("<Q", data)[0]

    def text(self):
        n = self.number()
        return self.process.stdout.read(n)

    def file(self, path):
        return self.ask(struct.pack("<Q", 0) + blob(path))

    def arrays(self, arrays, kind=1):
        parts = [struct.pack("<QQ", kind, len(arrays))]
        for name, a in arrays.items():
            low, high = np.lib.array_utils.byte_bounds(a) if a.size else (a.ctypes.data, a.ctypes.data)
            memory = ctypes.string_at(low, high - low)
            parts += [blob(name), blob(a.dtype.str), blob(memory), struct.pack("<Q", a.ctypes.data - low)]
            parts.append(struct.pack(f"<{1 + a.ndim}Q{a.ndim}q", a.ndim, *a.shape, *a.strides))
        return self.ask(b"".join(parts))


def native(a):
    return np.array(a, dtype=a.dtype.newbyteorder("="), order="C", copy=True)


def random_name(rng):
    return "".join(rng.choice(PIECES) for _ in range(rng.randint(0, 5)))


def random_array(rng):
    rank = rng.choice([0, 0, 1, 1, 2, 2, 3, 4, 5, 6, 7, 8])
    shape = [rng.choice([0, 1, 2, 3, 5, 7, 40] if rank < 4 else [1, 1, 2, 3] + [0] * (rng.random() < 0.1)) for _ in range(rank)]
    dtype = np.dtype(rng.choice(DTYPES)).newbyteorder(rng.choice("<>"))
    data = rng.randbytes(int(np.prod(shape, dtype=np.int64)) * dtype.itemsize)
    a = np.frombuffer(bytes(b & 1 for b in data) if dtype.kind == "b" else data, dtype=dtype).reshape(shape)
    kind = rng.randrange(6)
    if kind == 1:
        a = np.asfortranarray(a) if rank else a
    elif kind == 2:
        a = a.transpose(rng.sample(range(rank), rank))
    elif kind == 3 and rank:
        a = a[tuple(slice(None, None, rng.choice([1, -1, 2, -2, 3])) for _ in range(rank))]
    elif kind == 4 and rank:
        a = np.broadcast_to(a, (rng.choice([1, 2, 3]), *a.shape)) if rank < 8 else a
    elif kind == 5 and rank:
        big = np.repeat(a[..., None], 3, axis=-1)
        a = big[..., 1]
    return a


def written(a, rng):
    """The array as an npy file, in one of the versions, with or without something behind it."""
    out = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        npy.write_array(out, a, version=rng.choice([None, (1, 0), (2, 0), (3, 0)]), allow_pickle=True)
    return out.getvalue()


def numpy_reads(data):
    """What NumPy reads from a file: a dictionary, or the exception."""
    try:
        if data[:4] not in (b"PK\x03\x04", b"PK\x05\x06"):
            return {"f": npy.read_array(io.BytesIO(data), allow_pickle=False)}
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            # by the names in the archive: `archive[".npy"]` of files called ".npy" and ".npy.npy" would be the first, in both cases
            names = archive.zip.namelist()
            read = {name.removesuffix(".npy"): archive[name] for name in names}
            read = {name: a for name, a in read.items() if not isinstance(a, bytes) or name + ".npy" in names}
            return read if len({name.removesuffix(".npy") for name in names}) == len(names) else {**read, "twice": b""}
    except MemoryError:
        raise
    except Exception as why:  # any of them is a refusal
        return why


def described(read):
    """As deserialize describes an image."""
    result = {}
    for name, a in read.items():
        n = native(a)
        result[name] = (TYPE_TAGS[n.dtype.str], list(n.shape), n.tobytes())
    return result


def stricter(data, read, why):
    """Why what NumPy reads is refused here, or None."""
    archive = data[:2] == b"PK"
    if b"dtype" in why:
        unknown = [a for a in read.values() if isinstance(a, np.ndarray) and native_tag(a) is None]
        if unknown:
            return "a type without dtype"
        descr = re.search(rb"descr'\s*:\s*\(*\s*[urUR]?['\"]([^'\"]*)", data)
        if descr and not SUPPORTED_STR.fullmatch(descr[1].decode("latin1")):
            return "a type by a name that NumPy writes nowhere"
    if archive and b"file is not valid" in why:
        if "twice" not in read and any(isinstance(a, bytes) for a in read.values()):
            return "a .npy in an archive that is no array"
        if records_too_long(data):
            return "a record of the directory that is longer than the directory"
        if any(m.compress_size != m.file_size for m in members(data) if m.compress_type == zipfile.ZIP_STORED):
            return "a stored file with two sizes"
        if not crc_right(data):
            return "a checksum that NumPy did not come to"
    if archive and b"same name" in why:
        return "one name twice"
    if archive and compressed(data):
        return "packed otherwise than NumPy does, or with bytes behind it"
    if archive and overlapping(data):
        return "files that overlap (newer Pythons refuse them)"
    if b"named __metadata__" in why:
        return "__metadata__"
    return None


def native_tag(a):
    return TYPE_TAGS.get(a.dtype.newbyteorder("<").str)


def members(data):
    return zipfile.ZipFile(io.BytesIO(data)).infolist()


def crc_right(data):
    with zipfile.ZipFile(io.BytesIO(data)) as z:
        try:
            return z.testzip() is None
        except Exception:
            return False


def compressed(data):
    return any(m.compress_type != zipfile.ZIP_STORED for m in members(data))


def records_too_long(data):
    z = zipfile.ZipFile(io.BytesIO(data))
    at = z.start_dir
    for _ in z.infolist():
        at += 46 + sum(struct.unpack_from("<3H", data, at + 28))
    end = data.rfind(b"PK\6\6") if data.rfind(b"PK\6\6") >= z.start_dir else data.rfind(b"PK\5\6")
    return at > end


def overlapping(data):
    found = sorted((m.header_offset, m.compress_size + 30 + len(m.filename)) for m in members(data))
    start = zipfile.ZipFile(io.BytesIO(data)).start_dir
    ends = [at for at, _ in found[1:]] + [start]
    return any(at + n > end for (at, n), end in zip(found, ends))


SCRAPS = ["'<f4'", "'>f8'", "'|b1'", "'f4'", "'i'", "'<c16'", "'|O'", "'<M8[ns]'", "'<U3'", "'|V2'", "[('a', '<i4')]", "('<f4', (2,))", "'<f4,<i2'", "'04f'",
          "(2, 3)", "(6,)", "(6)", "()", "(-1,)", "(2L, 3L)", "(0x6,)", "(1_0,)", "(06,)", "(+6, )", "((6),)", "(True,)", "(6.0,)", "(4294967296, 4294967296)",
          "(0, 9223372036854775807)", "(18446744073709551617,)", "[6]", "(1, 2, 3)", "(3, 2, 1, 1)", "True", "False", "0", "1", "None", "'x'", "u'descr'", "r'shape'",
          "'sha' 'pe'", "'\\x73hape'", '"descr"', "b'descr'", "'''shape'''", "# c\n", "\n", " ", "\t", "\\\n", ",", ":", "{", "}", "(", ")", "'", "L", "\r\n", "\xa0", "-",
          "'extra': 1, ", "'shape': (6,), ", "'descr': '<i2', "]
TOKENS = re.compile(r"'[^']*'|\([^)]*\)|True|False|\d+|[{}:,]|\s+")


def mutated_header(rng, data):
    """One npy file with a header that is near to a valid one."""
    length_at = 8
    wide = data[6] != 1
    n = int.from_bytes(data[8:12] if wide else data[8:10], "little")
    text_at = 12 if wide else 10
    text, body = data[text_at : text_at + n].decode("latin1"), data[text_at + n :]
    version = data[6:8]
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        spots = list(TOKENS.finditer(text)) or [re.search("", text)]
        spot, scrap, kind = rng.choice(spots), rng.choice(SCRAPS), rng.randrange(10)
        if kind < 4:
            text = text[: spot.start()] + scrap + text[spot.end() :]
        elif kind < 6:
            text = text[: spot.start()] + scrap + text[spot.start() :]
        elif kind == 6:
            text = text[: spot.start()] + text[spot.end() :]
        elif kind == 7:
            at = rng.randrange(len(text) + 1)
            text = text[:at] + chr(rng.choice([rng.randrange(1, 128), rng.randrange(256)])) + text[at + rng.randrange(2) :]
        elif kind == 8:
            text = rng.choice(["(" + text.rstrip() + ")", text.rstrip(), " " + text, "\n" + text, text + "\n  ", text + "# end", text + " " * rng.choice([9000, 9999, 10001])])
        else:
            version = rng.choice([b"\1\0", b"\2\0", b"\3\0", b"\4\0", b"\0\0", b"\1\1"])
    wide = version[0] != 1
    raw = text.encode(rng.choice(["latin1", "utf8"]), "replace")
    size = len(raw) + rng.choice([0] * 12 + [1, -1, 40])
    head = b"\x93NUMPY" + version + max(size, 0).to_bytes(4, "little")[: 4 if wide else 2]
    body = rng.choice([body, body, body, body[:-1], body + b"x", body + data, body * 4])
    return head + raw + body


def mutated_bytes(rng, data):
    data = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 4])):
        at = rng.randrange(len(data))
        kind = rng.randrange(5)
        if kind == 0:
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            data[at] = rng.choice([0, 1, 0xFF, rng.randrange(256)])
        elif kind == 2:
            del data[at : at + rng.choice([1, 2, 8])]
        elif kind == 3:
            data[at:at] = rng.randbytes(rng.choice([1, 4]))
        else:
            del data[at:]
        if not data:
            return b"\x93"
    return bytes(data)


RECORDS = re.compile(rb"PK(\x01\x02|\x03\x04|\x05\x06|\x06\x06|\x06\x07)")


def mutated_archive(rng, data):
    """One zip archive with a field of one of its records changed."""
    records = list(RECORDS.finditer(data))
    if not records or rng.random() < 0.25:
        return mutated_bytes(rng, data)
    data = bytearray(data)
    for _ in range(rng.choice([1, 1, 2])):
        record = rng.choice(records)
        width = rng.choice([1, 2, 2, 4, 4, 8])
        at = record.start() + 2 * rng.randrange(2, 27)
        old = int.from_bytes(data[at : at + width], "little")
        new = rng.choice([0, 1, old + 1, old - 1, old ^ 8, old ^ 0x800, 1 << (8 * width - 1), (1 << 8 * width) - 1, rng.randrange(1 << 8 * width), len(data)])
        data[at : at + width] = (new % (1 << 8 * width)).to_bytes(width, "little")
    if rng.random() < 0.1:
        data += rng.choice([b"x", bytes(10), b"PK\5\6", bytes(data)])
    if rng.random() < 0.1:
        data[0:0] = rng.choice([b"PK\3\4", b"PK\5\6 more", bytes(data)])
    return bytes(data)


def archive_of(arrays, rng):
    """As np.savez writes it; sometimes as other programs do."""
    out = io.BytesIO()
    kind = rng.randrange(8)
    if kind < 5:
        np.savez(out, **arrays)
        return out.getvalue()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED if kind == 5 and rng.random() < 0.2 else zipfile.ZIP_STORED) as z:
        if kind == 6:
            z.comment = rng.choice([b"comment", b"x" * 65535])
        for name, a in arrays.items():
            info = zipfile.ZipInfo(name + ".npy")  # without a date, so that a seed gives the same bytes
            info.compress_type = z.compression
            with z.open(info, "w", force_zip64=kind == 7) as f:
                npy.write_array(f, np.asanyarray(a))
        if kind == 6:
            z.writestr(zipfile.ZipInfo("notes.txt"), "no array")
    return out.getvalue()


class Check:
    def __init__(self):
        self.passed, self.failed, self.reasons = 0, 0, collections.Counter()

    def expect(self, holds, what):
        if holds:
            self.passed += 1
            return
        self.failed += 1
        if self.failed <= 10:
            print(what)


def round_trips(driver, rng, count, path, check):
    seen = set()
    for index in range(count):
        arrays = {}
        for _ in range(rng.choice([1, 1, 2, 3, 5, 8]) if index else 1000):
            arrays[random_name(rng) + (str(len(arrays)) if index == 0 else "")] = random_array(rng)
        arrays.pop("__metadata__", None)
        seen |= {a.dtype.str for a in arrays.values()}
        expected = save({name: native(a) for name, a in arrays.items()})
        code, image, why = driver.arrays(arrays)
        check.expect(code == 0 and image == expected, f"arrays {index}: {why} {image[:200]}\n  {expected[:200]}")

        name, a = rng.choice(list(arrays.items()))
        landing = driver.arrays({name: a}, kind=2)
        lands = (a.flags.c_contiguous or a.size == 0) and a.dtype.isnative
        check.expect(landing[0] == 0 if lands else b"layout" in landing[2] and landing[1] == name.encode()[:55], f"destination {index}: {a.flags} {landing}")

        whole = archive_of({n: x for n, x in arrays.items() if n != "file"}, rng)
        path.write(whole)
        answer = driver.file(path.name)
        left = {n: native(x) for n, x in arrays.items() if n != "file"}
        check.expect(answer[0] == 0 and answer[1] == save(left), f"archive {index}: {answer}")

        path.write(written(a, rng) + rng.choice([b"", b"", b"x", bytes(100)]))
        answer = driver.file(path.name)
        check.expect(answer[0] == 0 and answer[1] == save({"f": native(a)}), f"file {index}: {a.dtype} {a.shape} {answer}")
    for descr in UNSUPPORTED:
        for shape in [(), (2, 3)]:
            a = np.zeros(shape, dtype=object if descr == "O" else descr)
            path.write(written(a, rng))
            answer = driver.file(path.name)
            check.expect(b"dtype" in answer[2] and answer[1] == b"f", f"{descr}: {answer}")
    return seen


def verdicts(driver, rng, count, path, check):
    accepted = 0
    for index in range(count):
        if index % 2:
            a = np.array([1, 2, 3, 4, 5, 6], dtype=rng.choice(["<f4", ">f8", "<i2", "|b1", ">c8", "|u1"])).reshape(rng.choice([(6,), (2, 3), (3, 2, 1)]))
            data = mutated_header(rng, written(np.asfortranarray(a) if rng.random() < 0.3 else a, rng))
            if rng.random() < 0.2:
                data = mutated_bytes(rng, data)
        else:
            arrays = {random_name(rng): random_array(rng) for _ in range(rng.choice([1, 2, 3]))}
            arrays.pop("file", None)
            data = mutated_archive(rng, archive_of(arrays, rng))
        read = numpy_reads(data)
        path.write(data)
        code, answer, why = driver.file(path.name)
        if isinstance(read, Exception):
            check.expect(code != 0, f"case {index}: NumPy refuses it ({read!r}), we do not: {data[:300]}")
            continue
        accepted += 1
        if code != 0:
            reason = stricter(data, read, why)
            check.reasons[reason] += 1
            check.expect(reason, f"case {index}: NumPy reads it, we do not ({why} {answer}): {data[:400]} ... {data[-200:]}")
            continue
        ours = {name: (info["dtype"], list(info["shape"]), bytes(info["data"])) for name, info in deserialize(answer)}
        theirs = described(read)
        check.expect(ours == theirs, f"case {index}: other values: {data[:300]}\n  ours:   {str(ours)[:300]}\n  theirs: {str(theirs)[:300]}")
    return accepted


class Path:
    def __init__(self, folder):
        self.name = os.path.join(folder, "f.npy")

    def write(self, data):
        with open(self.name, "wb") as f:
            f.write(data)


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("driver")
    arguments.add_argument("--count", type=int, default=500)
    arguments.add_argument("--mutations", type=int, default=6000)
    arguments.add_argument("--seed", type=int, default=1)
    options = arguments.parse_args()
    warnings.simplefilter("ignore")

    driver, check = Driver(options.driver), Check()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        seen = round_trips(driver, random.Random(options.seed), options.count, path, check)
        accepted = verdicts(driver, random.Random(options.seed + 1), options.mutations, path, check)
    wanted = {np.dtype(d).newbyteorder(order).str for d in DTYPES for order in "<>"}
    check.expect(seen >= wanted, f"types that no case had: {wanted - seen}")
    check.expect(options.mutations < 1000 or 0.05 < accepted / options.mutations < 0.95, f"NumPy read {accepted} of {options.mutations}: the mutations say little")
    for reason, n in sorted((str(r), n) for r, n in check.reasons.items()):
        print(f"stricter than NumPy: {reason}: {n}")
    print(f"{check.passed} passed, {check.failed} failed; {options.count} dictionaries, {options.mutations} broken files of which NumPy reads {accepted}")
    return 1 if check.failed else 0


if __name__ == "__main__":
    processes.limit(540)
    sys.exit(main())
