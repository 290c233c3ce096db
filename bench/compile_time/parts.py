"""Charges a compilation to the parts of a program: each policy, library, header and template.

clang's trace tells what it is at: each moment belongs to the innermost header or template of the trace, and a template to the header that defines it. g++ tells
of no moment; its dump names the classes. The object's symbols name the functions of both. A template is what stands before its arguments: its members are part
of it. Policies are the arguments of one template, and what they instantiate."""
import collections
import dataclasses
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import compilers

KINDS = ("policy", "library", "header", "template")
FRAMES = ("ExecuteCompiler", "Source", "InstantiateClass", "InstantiateFunction", "CodeGen Function", "Backend")
DEFINES = ("ParseClass", "ParseTemplate")
PROGRAM, NO_POLICY, NO_TEMPLATE, REST = "the program", "no policy", "no template", "the rest"
SYSTEM = ("arpa", "asm", "asm-generic", "bits", "gnu", "linux", "net", "netinet", "rpc", "sys")
LIBRARIES = {"__gnu_cxx": "std", "__cxxabiv1": "std", "_hana": "boost::hana", "main": PROGRAM}  # whose scopes have other names
HIDDEN = re.compile(r"^[\w -]+ (?:for|to) |\(anonymous namespace\)::|\{anonymous\}::|\b(?:__cxx11|_V2)::")


def include_folders(compiler):
    """Where it looks for headers, those of its flags included; long paths first."""
    told = subprocess.run([compiler.command, *compiler.flags, "-E", "-v", "-x", "c++", os.devnull], capture_output=True, text=True, errors="replace").stderr
    listed = told.partition('#include "..."')[2].partition("End of search list")[0]
    return sorted({os.path.abspath(line.strip()) for line in listed.splitlines() if line.startswith(" ")}, key=len, reverse=True)


def name_and_library(path, folders):
    """Of a header, as a program includes it."""
    path = os.path.abspath(path)
    folder = next((folder for folder in folders if path.startswith(f"{folder}/")), os.path.dirname(path))
    name = os.path.relpath(path, folder)
    below = name.split("/")
    if re.search(r"/(c\+\+|gcc|clang)(/|$)", folder):
        return name, "std"
    if folder.startswith(("/usr/include", "/usr/local/include")) and (len(below) == 1 or below[0] in SYSTEM):
        return name, "the system"
    return name, library_of("::".join(below[:-1] + [below[-1].removesuffix(".hpp")] + [""] * (len(below) > 1)))


def library_of(name, classes=()):
    """Of a template's name: its first namespace, or two in Boost."""
    space = name.split("::")[:-1]
    if not space or space[0] in classes:
        return PROGRAM
    return LIBRARIES.get(space[0], "::".join(space[:2 if space[0] == "boost" else 1]))


def template_in(name):
    """(the template, whether it has arguments here) of a name in a compiler's words"""
    name = HIDDEN.sub("", name)
    end = re.search(r"[<(]|\boperator\b", name)
    if end is None or name[:end.start()].endswith("::") and end[0] != "operator":  # a class without a name is none
        return name, False
    return name[:end.end() if end[0] == "operator" else end.start()], end[0] == "<"


def arguments(name):
    """The templates and classes that are the arguments in a name."""
    rest = HIDDEN.sub("", name.partition("<")[2])
    while rest != (rest := re.sub("<[^<>]*>", "", rest)):
        pass
    return [argument.strip() for argument in rest.partition(">")[0].split(",")]


def policy_of(template, policies):
    return next((policy for policy in policies if f"{template}::".startswith(f"{policy}::")), None)


@dataclasses.dataclass
class Frame:
    end: int
    parts: dict  # kind -> name
    outermost: list  # the parts that no frame around this one has
    time: int
    own: int
    counts: bool


def spans(events):
    """(begin, end, kind, detail) of each, outer ones first. Newer clangs tell the begin and the end of a header apart."""
    begun, found = [], []
    for i, event in enumerate(events):
        if event["ph"] == "b":
            begun.append(event)
            continue
        first = begun.pop() if event["ph"] == "e" else event
        found.append((first["ts"], -event["ts"] - event.get("dur", 0), -i, event["name"], first.get("args", {}).get("detail", "")))
    return ((begin, -end, kind, detail) for begin, end, _, kind, detail in sorted(found))


def charged(events, folders, of):
    """({(kind, name): [own time, time with what is below it, templates]}, the time of all, the policies, the classes), in the trace's units."""
    classes, others, stack, frames, active = {}, {}, [], [], collections.Counter()
    found = list(spans(events))
    policies = {policy for *_, name in found if name.startswith(f"{of}<") for policy in arguments(name)}
    for begin, end, event, detail in found:
        while stack and stack[-1].end <= begin:
            active.subtract(stack.pop().parts.items())
        parts = dict(stack[-1].parts) if stack else dict(zip(KINDS, (NO_POLICY, PROGRAM, PROGRAM, NO_TEMPLATE)))
        template, has_arguments = template_in(detail)
        counts = event.startswith("Instantiate")
        if event in DEFINES:
            (classes if event == "ParseClass" else others).setdefault(template, parts.get("header"))
            continue
        if event == "Backend":  # the trace is of a compilation without machine code
            parts = {}
        elif event == "Source":
            parts["header"], parts["library"] = name_and_library(detail, folders)
        elif counts or has_arguments:
            header = classes.get(template) or others.get(template.rpartition("::")[2]) or parts["header"]
            parts |= {"policy": policy_of(template, policies) or parts["policy"], "library": library_of(template, classes), "header": header, "template": template}
        if stack:
            stack[-1].own -= end - begin
        stack.append(Frame(end, parts, [part for part in parts.items() if not active[part]], end - begin, end - begin, counts))
        active.update(parts.items())
        frames.append(stack[-1])
    sums = collections.defaultdict(lambda: [0, 0, 0])
    for frame in frames:
        for part in frame.parts.items():
            for i, figure in enumerate((frame.own, frame.time if part in frame.outermost else 0, frame.counts)):
                sums[part][i] += figure
    return sums, sum(frame.own for frame in frames), policies, classes


def symbols(object_file):
    """(name without the types of parameters, bytes in the file) of each; nothing without binutils."""
    if not shutil.which("nm") or not shutil.which("c++filt"):
        return []
    told = subprocess.run(["nm", "-P", "-S", "--defined-only", object_file], capture_output=True, text=True).stdout
    rows = [words for words in map(str.split, told.splitlines()) if len(words) == 4]
    names = subprocess.run(["c++filt", "-p"], input="\n".join(name for name, *_ in rows), capture_output=True, text=True).stdout.splitlines()
    return [(name, int(size, 16) if kind not in "bB" else 0) for name, (_, kind, _, size) in zip(names, rows)]


def of(compiler, text, whole, rounds, policies_of):
    """Rows of the parts of a program of which `whole` is known: {kind, name, seconds, below, instantiations, object}. Seconds are of the trace that others' programs lengthened least."""
    rows = collections.defaultdict(lambda: dict.fromkeys(("seconds", "below", "instantiations", "object")))
    folders, policies, classes, dumped = include_folders(compiler), set(), {}, []

    def add(part, column, figure):
        rows[part][column] = (rows[part][column] or 0) + figure

    def add_named(name, **figures):
        template, has_arguments = template_in(name)
        for column, figure in figures.items():
            add(("policy", policy_of(template, policies) or NO_POLICY), column, figure)
            add(("library", library_of(template, classes)), column, figure)
            add(("template", template if has_arguments else NO_TEMPLATE), column, figure)

    traced = []
    for _ in range(rounds if compiler.is_clang else 0):
        with tempfile.TemporaryDirectory() as folder:
            used = compiler.run(text, folder, *compilers.TRACE)[1]
            traced.append((*charged(compilers.events(f"{folder}/file.json", FRAMES + DEFINES), folders, policies_of), used.ru_utime))
    if traced:
        sums, total, policies, classes, seconds = min(traced, key=lambda one: one[1])
        # of the clock's time, which other programs lengthen, the share of the processor's; the trace itself costs some
        second = min(seconds, whole["seconds"]) / total
        for part, (own, below, count) in sums.items():
            rows[part] |= {"seconds": own * second, "below": below * second, "instantiations": count}
    with tempfile.TemporaryDirectory() as folder:
        dump = Path(folder, "classes")
        compiler.run(text, folder, *([] if compiler.is_clang else [f"-fdump-lang-class={dump}"]))
        made = symbols(f"{folder}/file.o")
        if dump.exists():
            with open(dump, errors="replace") as file:
                dumped = [line[6:-1] for line in file if line.startswith("Class ")]
            policies = {policy for name in dumped if name.startswith(f"{policies_of}<") for policy in arguments(name)}
            classes = {template_in(name)[0] for name in dumped}
    for name, size in made:
        add_named(name, object=size, **({} if compiler.is_clang else {"instantiations": template_in(name)[1]}))
    for name in dumped:
        add_named(name, instantiations=template_in(name)[1])
    for kind in KINDS:
        for column in ("seconds", "instantiations", "object"):
            told = sum(r[column] or 0 for (k, _), r in rows.items() if k == kind)
            if told and whole[column] and whole[column] > told:
                add((kind, REST), column, whole[column] - told)
    return [{"kind": kind, "name": name, **r} for (kind, name), r in rows.items() if policies or kind != "policy"]
