#!/usr/bin/env python3
"""The code blocks of every README.md are compiled and run. usage: snippets.py check ROOT | snippets.py generate ROOT FOLDER

Above each block stands a comment that says how it is tested:
  <!-- snippet: NAME -->          tests/snippets/NAME.cpp, .py or .cmake, as the block's language says, is the program around it;
                                 a satellite's lies in tests/satellites/SATELLITE/snippets, and a page of
                                 the ground floor names it as SATELLITE/NAME: it is passed over where there is no such satellite
  <!-- snippet: excerpt FILE -->  each of its lines is in FILE, in this order (a program that is built and run by another test)
  <!-- snippet: output FILE -->   it is what stands below "// Output:" in FILE, or a part of it
  <!-- snippet: commands -->      commands: they are not run, but each script and folder that they name is there, and each option is in its --help
  <!-- snippet: picture -->       what a terminal shows, or a table: nothing to run
A block of Mermaid is a picture and needs no comment.
In the program around a block, a line `// SNIPPET` (`# SNIPPET`) is replaced by the block, `// SNIPPET 1` and `// SNIPPET 2-3` by paragraphs of it: paragraphs
end at empty lines, and each must be used once. `// NEEDS tensorpull::torch` (also `# NEEDS`) leaves it out if there is no such target.

check: every block is claimed, every program is used, excerpts, outputs and commands are right. Prints what is wrong. Status: 0 nothing, 1 something.
generate: writes the programs to FOLDER, and prints a line NAME|LANGUAGE|TARGETS for each. The language of C++ that may be compiled together with others
is `part`: its includes come first, and the rest is in a namespace of its own, with `int snippet_NAME::main()` as what is run.
"""

import json
import pathlib
import re
import shlex
import subprocess
import sys

SUFFIX = {"cpp": ".cpp", "python": ".py", "cmake": ".cmake"}
CLAIM = re.compile(r"<!--\s*snippet:\s*(\S+)(?:\s+(\S+))?\s*-->")

SPLICE = re.compile(r"^(\s*)(?://|#) SNIPPET(?: (\d+)(?:-(\d+))?)?\s*$")
PICTURE = re.compile(r"(flowchart (LR|TD|TB)|sequenceDiagram|stateDiagram-v2|classDiagram)\n")
NEEDS = re.compile(r"^(?://|#) NEEDS (.*)$", re.M)


class Block:
    def __init__(self, page, line, language, claim, argument, lines):
        self.page, self.line, self.language, self.claim, self.argument, self.lines = page, line, language, claim, argument, lines

    def paragraphs(self):
        """[(line in the page, lines)]"""
        found, current, at = [], [], self.line + 1
        for i, text in enumerate([*self.lines, ""]):
            if text.strip():
                current = current or []
                if not current:
                    at = self.line + 1 + i
                current.append(text)
            elif current:
                found.append((at, current))
                current = []
        return found


def pages(root):
    listed = subprocess.run(["git", "-C", str(root), "ls-files", "-co", "--exclude-standard", "*.md"], capture_output=True, text=True, timeout=60)
    names = listed.stdout.split() if listed.returncode == 0 else [str(p.relative_to(root)) for p in root.rglob("*.md") if "build" not in p.relative_to(root).parts]
    return [root / n for n in sorted(names) if (root / n).is_file()]


def blocks(root):
    """All blocks but those of satellites that are not here."""
    for block in all_blocks(root):
        satellite = (block.claim or "").rpartition("/")[0]
        if not satellite or (root / "tests" / "satellites" / satellite).is_dir():
            yield block


def all_blocks(root):
    for page in pages(root):
        lines = page.read_text(encoding="utf-8").splitlines()
        start = None
        for i, line in enumerate(lines):
            fence = re.match(r"^(\s*)```(\w*)\s*$", line)
            if not fence:
                continue
            if start is None:
                start = i
                language = fence[2]
                indent = len(fence[1])
                above = i - 1
                while above >= 0 and not lines[above].strip():
                    above -= 1
                claim = CLAIM.search(lines[above]) if above >= 0 else None
            else:
                body = [text[indent:] if text[:indent].isspace() else text for text in lines[start + 1:i]]
                yield Block(page.relative_to(root), start + 1, language, claim and claim[1], claim and claim[2], body)
                start = None


def programs(root):
    """All files around blocks, and what they share."""
    return sorted([*(root / "tests" / "snippets").glob("*.*"), *(root / "tests" / "satellites").glob("*/snippets/*.*")])


def program(root, block):
    """The program's path and text, or raises ValueError."""
    satellite, _, name = block.claim.rpartition("/")
    name += SUFFIX.get(block.language, "?")
    path = next((p for p in programs(root) if p.name == name and (not satellite or p.parts[-3] == satellite)), None)
    if path is None:
        raise ValueError(f"there is no tests/snippets/{name} around this block, and none in tests/satellites/*/snippets")
    paragraphs = block.paragraphs()
    unused = set(range(1, len(paragraphs) + 1))
    out = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        splice = SPLICE.match(line)
        if not splice:
            out.append(line)
            continue
        first = int(splice[2] or 1)
        last = int(splice[3] or splice[2] or len(paragraphs))
        for i in range(first, last + 1):
            if i not in unused:
                raise ValueError(f"{path.relative_to(root)}:{number}: the block has no paragraph {i}, or it is used twice")
            unused.remove(i)
            at, lines = paragraphs[i - 1]
            if block.language == "cpp":
                out.append(f'#line {at} "{root / block.page}"')
            out += [splice[1] + text if block.language == "python" else text for text in lines]
        if block.language == "cpp":
            out.append(f'#line {number + 1} "{path}"')
    if unused:
        raise ValueError(f"{path.relative_to(root)} does not use the paragraphs {sorted(unused)} of this block")
    return path, "\n".join(out) + "\n"


def is_excerpt(lines, file):
    there = iter(text.strip() for text in file.read_text(encoding="utf-8").splitlines())
    for line in lines:
        if line.strip() and not any(line.strip() == text for text in there):
            return line
    return None


def printed_by(file):
    text = file.read_text(encoding="utf-8")
    _, found, comment = text.partition("// Output:\n")
    if not found:
        raise ValueError(f"{file} has no comment `// Output:`")
    return [line[3:] for line in comment.splitlines() if line.startswith("// ")]


def check_commands(root, block):
    for line in block.lines:
        line = re.sub(r"\s#.*$", "", line).strip()
        if not line:
            continue
        if subprocess.run(["bash", "-n", "-c", line], capture_output=True, timeout=60).returncode != 0:
            raise ValueError(f"bash cannot read: {line}")
        words = shlex.split(line, comments=True)
        script = None
        for i, word in enumerate(words):
            value = words[i + 1] if i + 1 < len(words) else ""
            if word == "--preset" or word.startswith("--preset="):
                preset = word.partition("=")[2] or value
                kinds = json.loads((root / "CMakePresets.json").read_text(encoding="utf-8"))
                kind = "buildPresets" if "--build" in words else "testPresets" if words[0] == "ctest" else "configurePresets"
                if preset not in [p["name"] for p in kinds.get(kind, []) if not p.get("hidden")]:
                    raise ValueError(f"CMakePresets.json has no preset {preset} in {kind}")
            target = re.fullmatch(r"tensorpull_(\w+)_tests", value) if word in ("--target", "-t") else None
            if target and not any((root / "tests" / folder / target[1]).is_dir() for folder in (".", "satellites")):
                raise ValueError(f"there is no tests/{target[1]}, so no target {value}")
            folder = re.match(r"\^?(\w+)\\?\.", value) if word == "-R" and words[0] == "ctest" else None
            if folder and not (root / "tests" / folder[1]).exists() and folder[1] not in (root / "tests" / "CMakeLists.txt").read_text(encoding="utf-8"):
                raise ValueError(f"no test's name begins with {folder[1]}")
            named = word.split("=")[0].rstrip("/")
            if re.match(r"^(\./)?(examples|tests|bench|cmake|include|\.github)/", named) and "*" not in named:
                if not (root / named).exists():
                    raise ValueError(f"there is no {named}")
                if named.endswith((".sh", ".py")):
                    script = root / named
            elif word.startswith("--") and script is not None and not re.search(
                    rf"(?<![\w-]){re.escape(word.split('=')[0])}(?![\w-])", script.read_text(encoding="utf-8")):
                raise ValueError(f"{script.relative_to(root)} has no option {word}")


CODE = re.compile(r"[;{}]\s*$|^\s*(?:#include|import |from \w+ import|def |find_package\(|add_\w+\(|target_\w+\(|cmake |ctest |bash |python3? |git )")


def hidden_code(root):
    """Yields what is wrong with code that stands outside of ``` blocks: blocks of ~~~, and indented lines that look like code."""
    for page in pages(root):
        inside, listed, before = False, False, ""
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
            if re.match(r"^\s*```", line):
                inside = not inside
            elif not inside:
                if re.match(r"^\s*~~~", line):
                    yield f"{page.relative_to(root)}:{number}: blocks stand between ```, not between ~~~"
                if re.match(r"^\s*(?:[-*+]|\d+\.)\s", line):
                    listed = True
                elif line.strip() and not line[0].isspace():
                    listed = False
                elif re.match(r"^(?: {4}|\t)", line) and not before.strip() and not listed and CODE.search(line):
                    yield f"{page.relative_to(root)}:{number}: an indented block of code has no claim: put it between ```"
            before = line


def check(root):
    wrong, used = list(hidden_code(root)), set()
    count = 0
    for block in blocks(root):
        count += 1
        try:
            if block.language == "mermaid":
                if not PICTURE.match("\n".join(block.lines)):
                    raise ValueError("a picture in Mermaid begins with flowchart, sequenceDiagram, stateDiagram-v2 or classDiagram")
                continue
            if block.claim is None:
                raise ValueError("no comment <!-- snippet: ... --> stands above this block (tests/snippets.py says what it may be)")
            if block.claim == "excerpt":
                missing = is_excerpt(block.lines, root / block.argument)
                if missing is not None:
                    raise ValueError(f"{block.argument} does not have, in this order, the line: {missing}")
            elif block.claim == "output":
                missing = [line for line in block.lines if line not in printed_by(root / block.argument)]
                if missing:
                    raise ValueError(f"{block.argument} does not print: {missing[0]}")
            elif block.claim == "commands":
                check_commands(root, block)
            elif block.claim == "picture":
                if block.language:
                    raise ValueError(f"a picture is no {block.language}")
            else:
                used.add(program(root, block)[0])
        except (ValueError, OSError) as why:
            wrong.append(f"{block.page}:{block.line}: {why}")
    for path in programs(root):
        if path.suffix in SUFFIX.values() and path not in used and path.stem != "context":
            wrong.append(f"{path.relative_to(root)}: no block of a README names it")
    if not count:
        wrong.append("there are no blocks at all")
    print("\n".join(wrong) if wrong else f"{count} blocks are claimed")
    return 1 if wrong else 0


def as_part(name, path, text):
    """C++ that others may be compiled with, or None: a program with the common model that specialises nothing. Its includes come first."""
    includes = re.findall(r"^#include .*\n", text, re.M)
    rest = re.sub(r"^#include .*$", "", text, flags=re.M)
    if ('#include "context.hpp"\n' not in includes or "::torch" in text or re.search(r"^(?:template <>|BOOST_|#(?!line))", rest, re.M)
            or "\nint main() {\n" not in rest or not rest.endswith("\n}\n")):
        return None
    # only the main of a program returns 0 without a word
    return f'{"".join(includes)}namespace snippet_{name} {{\n#line 1 "{path}"\n{rest[:-2]}  return 0;\n}}\n}}  // namespace snippet_{name}\n'


def generate(root, folder):
    folder.mkdir(parents=True, exist_ok=True)
    for block in blocks(root):
        if block.claim is None or block.language == "mermaid" or block.claim in ("excerpt", "output", "commands", "picture"):
            continue
        try:
            path, text = program(root, block)
        except ValueError as why:
            print(f"{block.page}:{block.line}: {why}", file=sys.stderr)  # the test snippets.are_claimed fails
            continue
        to, language, needs = folder / path.name, block.language, ",".join(" ".join(NEEDS.findall(text)).split())
        part = as_part(path.stem, path, text) if language == "cpp" else None
        if part:
            language, text = "part", part
        if not to.is_file() or to.read_text(encoding="utf-8") != text:
            to.write_text(text, encoding="utf-8")
        print(f"{path.stem}|{language}|{needs}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["check"] and len(sys.argv) == 3:
        sys.exit(check(pathlib.Path(sys.argv[2]).resolve()))
    if sys.argv[1:2] == ["generate"] and len(sys.argv) == 4:
        generate(pathlib.Path(sys.argv[2]).resolve(), pathlib.Path(sys.argv[3]))
        sys.exit(0)
    print(__doc__, file=sys.stderr)
    sys.exit(2)
