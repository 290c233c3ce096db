"""Where the bytes of a linked firmware are from: sections, symbols, the linker's map, and the header that each instruction was written in."""

import collections
import pathlib
import re
import struct
import subprocess
from dataclasses import dataclass

PREFIX = "arm-none-eabi-"
ROOT = pathlib.Path(__file__).resolve().parents[2]
LIBRARY = ROOT / "include" / "tensorpull"
IN_FLASH = (".vectors", ".text", ".rodata", ".ARM.extab", ".ARM.exidx", ".init_array")

# Which part a header belongs to: the first pattern that its path matches, from include/tensorpull on.
PARTS = (
    ("digest", r"core/xxh3|integrity/|embedded/(detail/)?\w*(hash|digest)"),
    ("framing", r"framing/"),
    ("flash", r"embedded/(detail/)?(flash|cursor)"),
    ("difference", r"embedded/difference|satellites/differences/"),
    ("proof", r"satellites/proofs/"),
    ("owner", r"embedded/(detail/)?owner|protocol/owner/"),
    ("line", r"embedded/(detail/)?line|links/"),
    ("landing", r"embedded/(detail/)?(landing|image)|image/|consumers/|tensors/"),
    ("recipient", r"embedded/|device|protocol/recipient/|protocol/datagrams/selective|chunking/"),
    ("endpoint", r"protocol/|pull/|transports/"),
    ("core", r"core/|std/"),
)
# Code of these is charged to the header that it was inlined into; alone it is a part of its own.
SHARED = "core"


def run(*command, **more):
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, check=True, **more).stdout


def part_of(header):
    """The part of a header of the library, given relative to include/tensorpull."""
    return next(name for name, pattern in PARTS if re.match(pattern, header))


def header_of(path):
    """The path from include/tensorpull on, or None for what is not the library's. A single header names its parts by #line."""
    at = path.rfind("include/tensorpull/")
    return path[at + len("include/tensorpull/"):] if at >= 0 else None


@dataclass(frozen=True)
class Symbol:
    name: str
    address: int
    size: int
    function: bool


class Elf:
    """A little-endian ELF32 file: sections with their bytes, and symbols."""

    def __init__(self, path):
        self.path = pathlib.Path(path)
        data = self.path.read_bytes()
        if data[:6] != b"\x7fELF\x01\x01":
            raise ValueError(f"{path} is no little-endian ELF32 file")
        at, = struct.unpack_from("<I", data, 32)
        size, count, names = struct.unpack_from("<HHH", data, 46)
        headers = [struct.unpack_from("<10I", data, at + i * size) for i in range(count)]
        text = lambda table, offset: data[headers[table][4] + offset:data.index(b"\0", headers[table][4] + offset)].decode()
        self.sections = {}  # name -> (address, bytes or None, size)
        self.symbols = []
        for header in headers:
            name = text(names, header[0])
            self.sections[name] = (header[3], None if header[1] == 8 else data[header[4]:header[4] + header[5]], header[5])
            if header[1] == 2:
                for entry in range(header[4], header[4] + header[5], 16):
                    word, value, length, info, _, where = struct.unpack_from("<IIIBBH", data, entry)
                    if where and info & 15 in (1, 2) and text(header[6], word):
                        self.symbols.append(Symbol(text(header[6], word), value & ~1 if info & 15 == 2 else value, length, info & 15 == 2))

    def size(self, *names):
        return sum(self.sections[n][2] for n in names if n in self.sections)

    def words(self):
        """Every aligned word of what lies in flash or is copied to RAM."""
        for name in (*IN_FLASH, ".data"):
            if name != ".vectors" and name in self.sections:
                content = self.sections[name][1]
                yield from (w for w, in struct.iter_unpack("<I", content[:len(content) // 4 * 4]))


@dataclass(frozen=True)
class Piece:
    """What one object file has in one section of the firmware."""

    output: str
    section: str
    address: int
    size: int
    object: str


def pieces(map_file):
    """The linker's map: every piece that takes room."""
    found, output = [], ""
    lines = pathlib.Path(map_file).read_text().partition("Linker script and memory map")[2]
    lines = re.sub(r"^( \.?\S+)\n +(?=0x)", r"\1 ", lines, flags=re.M)
    for line in lines.splitlines():
        top = re.match(r"(\.\S+)", line)
        if top:
            output = top[1]
        piece = re.match(r" (\.?\S+)\s+0x([0-9a-f]+)\s+0x([0-9a-f]+)(?: (\S.*))?$", line)
        if piece and int(piece[3], 16):
            found.append(Piece(output, piece[1], int(piece[2], 16), int(piece[3], 16), piece[4] or ""))
    return found


def helper_of(piece):
    """The name of what comes from the compiler's libraries, or None."""
    member = re.search(r"(libgcc|libc_nano|libc|libm|libnosys|libstdc\+\+(?:_nano)?|libsupc\+\+(?:_nano)?)\.a\((?:lib_a-)?(.+)\.o\)$", piece.object)
    return member and member[2]


def chains(elf, addresses):
    """For each address the files that it was inlined from, the innermost first."""
    said = run(PREFIX + "addr2line", "-i", "-a", "-e", elf.path, input="\n".join(map(hex, addresses)))
    found, here = {}, None
    for line in said.splitlines():
        if line.startswith("0x") and ":" not in line:
            here = found.setdefault(int(line, 16), [])
        else:
            here.append(re.sub(r" \(discriminator \d+\)$", "", line).rpartition(":")[0])
    return found


def charged(files):
    """The header that a chain of inlined files is charged to, or None: the program."""
    headers = [h for h in map(header_of, files) if h]
    return next((h for h in headers if part_of(h) != SHARED), headers[0] if headers else None)


def defining(symbol):
    """The header that defines a constant of the library, found by its name: the debugger's information has no line for constants of templates. Not one that specialises it."""
    words = [w for w in re.findall(r"[A-Za-z_]\w*", re.sub(r"<.*?>", "", run(PREFIX + "c++filt", symbol).strip())) if w not in ("tensorpull", "detail")]
    for word in words:
        pattern = re.compile(rf"\b(?:class|struct) {word}\b(?!\s*<|[^{{]*;)|\bconstexpr\b[^;()]*\b{word}(?:\[\w*\])?\s*[={{]")
        for header in sorted(LIBRARY.rglob("*.hpp")):
            if word in (text := header.read_text()) and pattern.search(text):
                return header.relative_to(LIBRARY).as_posix()
    return "core/"


class Bytes:
    """Bytes of the library's text by header and by helper, and all others by owner."""

    def __init__(self):
        self.headers = collections.Counter()
        self.helpers = collections.Counter()
        self.symbols = collections.Counter()  # (header or helper, symbol)
        self.program = 0
        self.board = 0

    def parts(self):
        found = collections.Counter()
        for header, size in self.headers.items():
            found[part_of(header)] += size
        if self.helpers:
            found["helpers"] = sum(self.helpers.values())
        return dict(found)

    def library(self):
        return sum(self.headers.values()) + sum(self.helpers.values())


def attribute(elf, map_file, pipeline_object):
    """Charges each byte of the text to a header of the library, a helper of the compiler's libraries, the program, or the board."""
    found = Bytes()
    functions = sorted((s for s in elf.symbols if s.function), key=lambda s: s.address)
    data = {s.address: s for s in elf.symbols if not s.function}
    where = {}
    for line in run(PREFIX + "nm", "-l", elf.path).splitlines():
        fields = line.split(None, 2)
        if len(fields) == 3 and "\t" in fields[2]:
            name, _, place = fields[2].partition("\t")
            where[name] = place.rpartition(":")[0]
    mine = [p for p in pieces(map_file) if p.output in IN_FLASH]
    code = [p for p in mine if p.object.endswith(pipeline_object) and p.output == ".text"]
    lines = chains(elf, [a for p in code for a in range(p.address, p.address + p.size, 2)])
    covered = 0
    for piece in mine:
        covered += piece.size
        helper = helper_of(piece)
        if helper:
            found.helpers[helper] += piece.size
            found.symbols[helper, helper] += piece.size
        elif not piece.object.endswith(pipeline_object):
            found.board += piece.size
        elif piece.output == ".text":
            inside = [s.name for s in functions if piece.address <= s.address < piece.address + piece.size]
            for address in range(piece.address, piece.address + piece.size, 2):
                header = charged(lines.get(address, []))
                if header:
                    found.headers[header] += 2
                    found.symbols[header, inside[0] if inside else piece.section] += 2
                else:
                    found.program += 2
        else:
            symbol = data.get(piece.address)
            name = symbol.name if symbol else re.sub(r"^\.rodata\.|\.str\d+\.\d+$|\.cst\d+$", "", piece.section)
            header = header_of(where.get(name, ""))
            if header:
                found.headers[header] += piece.size
                found.symbols[header, name] += piece.size
            elif name.startswith(("_ZN10tensorpull", "_ZNK10tensorpull", "_ZTIN10tensorpull")):
                header = defining(name)
                found.headers[header] += piece.size
                found.symbols[header, name] += piece.size
            else:
                found.program += piece.size
    found.board += elf.size(*IN_FLASH) - covered  # what the linker fills in
    return found
