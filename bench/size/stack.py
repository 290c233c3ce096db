"""The deepest stack below a function, along the calls of a linked firmware.

Frames are those that g++ tells (-fcallgraph-info=su); of what it has not compiled, such as memcpy, the disassembly tells them. Calls are those of the
disassembly, which knows clones and jumps at a function's end. A call through a pointer may go to every function whose address the program has
anywhere. What is not bounded is named: recursion, a frame whose size is computed at run time, a jump through a register.
"""

import re
from dataclasses import dataclass, field

from elf import PREFIX, run

CALL = re.compile(r"^(blx?|b[a-z]{0,2}|cbn?z)(?:\.[nw])?$")
TARGET = re.compile(r"([0-9a-f]+) <([^>+]+)(\+0x[0-9a-f]+)?>")


@dataclass
class Function:
    name: str
    frame: int = 0  # as the disassembly tells: every push and every step of sp
    told: int | None = None  # as the compiler tells
    untold: int = 0  # of it the compiler does not tell: below the registers that are saved, arguments that came in registers and go on in memory
    dynamic: bool = False
    calls: set = field(default_factory=set)
    jumps: set = field(default_factory=set)  # at its end, when its frame is gone
    falls: str | None = None  # what lies behind it, if its last instruction goes on there
    pointers: int = 0  # calls through a register
    pointer_jumps: int = 0


def registers(text):
    count = 0
    for item in re.search(r"\{(.*)\}", text)[1].split(","):
        first, _, last = item.strip().partition("-")
        number = lambda r: {"sl": 10, "fp": 11, "ip": 12, "sp": 13, "lr": 14, "pc": 15}.get(r) or int(r[1:])
        count += number(last) - number(first) + 1 if last else 1
    return count


def ends(base, rest):
    """Whether an instruction is the last of a function."""
    return base in ("", "b", "bx", "udf") or "pc" in rest and base.startswith(("pop", "ldm", "ldr", "mov"))


def disassembled(elf):
    """name -> Function. A function with several names has the one that the disassembly gives it."""
    functions, here, names, last = {}, None, {}, ("", "")
    for line in run(PREFIX + "objdump", "-d", "--no-show-raw-insn", elf.path).splitlines():
        head = re.match(r"([0-9a-f]+) <(.+)>:$", line)
        if head:
            if here is not None and not ends(*last):
                here.falls = head[2]
            here = functions.setdefault(head[2], Function(head[2]))
            names[int(head[1], 16)] = head[2]
            continue
        found = re.match(r"\s+[0-9a-f]+:\s+(\S+)\s*(.*)", line)
        if not found or here is None:
            continue
        operation, rest = found[1], found[2].split("@")[0].split(";")[0].strip()
        base = operation.split(".")[0]
        before = last
        if base != "nop":
            last = base, rest
        if base == "push" or (base.startswith("stmd") and rest.startswith("sp!")):
            if before[0] == "sub" and before[1] in (f"sp, #{here.frame}", f"sp, sp, #{here.frame}"):
                here.untold = here.frame
            here.frame += 4 * registers(rest)
        elif base == "vpush":
            here.frame += 8 * registers(rest.replace("d", "r"))
        elif base in ("sub", "subw") and re.match(r"sp, (sp, )?#", rest):
            here.frame += int(re.search(r"#(\d+)", rest)[1])
        elif base.startswith("str") and re.search(r"\[sp, #-\d+\]!", rest):
            here.frame += int(re.search(r"#-(\d+)\]!", rest)[1])
        elif (base in ("sub", "mov", "msr") and re.match(r"sp, ", rest)) or (base == "msr" and re.match(r"[mp]sp", rest, re.I)):
            # sp back from a frame pointer is no new memory; anything else is
            here.dynamic |= base != "mov" or not re.match(r"sp, r7$", rest)
        elif base == "blx" and re.match(r"r\d+|ip|lr|sl|fp", rest):
            here.pointers += 1
        elif base == "bx" and rest != "lr" or base == "mov" and rest.startswith("pc,") and rest != "pc, lr" or base.startswith("ldr") and re.match(r"pc, \[(?!sp\], #4$)", rest):
            here.pointer_jumps += 1
        elif CALL.match(operation):
            target = TARGET.search(rest)
            if target and (base in ("bl", "blx") or not target[3]):
                (here.calls if base in ("bl", "blx") else here.jumps).add(int(target[1], 16))
    for f in functions.values():
        f.calls = {names.get(a, hex(a)) for a in f.calls}
        f.jumps = {names.get(a, hex(a)) for a in f.jumps} - {f.name}
    return functions, names


def told(ci_files):
    """name -> (bytes, whether the size is fixed), by the compiler."""
    found = {}
    for file in ci_files:
        for title, size, how in re.findall(r'node: \{ title: "([^"]+)" label: "[^"]*\\n(\d+) bytes \((\w+(?:,\w+)?)\)"', file.read_text()):
            found[title.rpartition(":")[2]] = (int(size), how == "static")
    return found


@dataclass
class Deepest:
    bytes: int
    path: list  # [(function, its frame)], from the root on
    notes: list  # what may make it deeper


class Graph:
    """`leaf`: functions whose names begin so are not looked into: what they call by pointers has another stack (firmware/rings.cpp)."""

    def __init__(self, elf, ci_files, leaf="_ZN5board"):
        self.leaf = leaf
        self.functions, names = disassembled(elf)
        sizes = told(ci_files)
        self.differing = []
        for f in self.functions.values():
            if f.name in sizes:
                f.told, fixed = sizes[f.name]
                f.dynamic |= not fixed
                if f.told > f.frame:
                    self.differing.append((f.name, f.told, f.frame))
        addresses = {a | 1: name for a, name in names.items()}
        self.taken = sorted({addresses[w] for w in elf.words() if w in addresses} - {"_Z9other_endv"})
        self.notes, self.known, self.open = set(), {}, []

    def frame(self, f):
        return f.frame if f.told is None else f.told + f.untold

    def below(self, name):
        """(bytes, path) of the deepest stack from this function on, its frame included."""
        if name in self.known:
            return self.known[name]
        f = self.functions.get(name)
        if f is None:
            self.notes.add(f"{name} is called and is not in the firmware")
            return 0, []
        if name in self.open:
            self.notes.add("recursion: " + " calls ".join([*self.open[self.open.index(name):], name]))
            return 0, []
        if f.dynamic and not name.startswith(self.leaf):
            self.notes.add(f"the frame of {name} is computed at run time")
        self.open.append(name)
        pointed = set()
        if name.startswith(self.leaf):
            pass
        elif f.pointers or f.pointer_jumps:
            pointed = set(self.taken) - {name}
            self.notes.add(f"{name} calls through a pointer: any of " + (", ".join(sorted(pointed)) or "none"))
        frame = self.frame(f)
        best = (frame, [(name, frame)])
        # a part that was moved away (.cold) is entered by a jump, and the frame stays
        stays = {j for j in f.jumps if j.startswith(name + ".")}
        for callee in sorted(f.calls | stays | pointed):
            deep, path = self.below(callee)
            best = max(best, (frame + deep, [(name, frame), *path]), key=lambda b: b[0])
        # Of what g++ compiles the last instruction may be a call that does not return.
        behind = {f.falls} if f.falls and f.told is None else set()
        for callee in sorted(f.jumps - stays | behind):
            deep, path = self.below(callee)
            best = max(best, (deep, [(name, 0), *path]), key=lambda b: b[0])
        self.open.pop()
        self.known[name] = best
        return best

    def deepest(self, root):
        self.notes, self.known, self.open = set(), {}, []
        size, path = self.below(root)
        return Deepest(size, path, sorted(self.notes))
