#!/usr/bin/env python3
"""A folder's README is read in five minutes: at most 600 words outside of code and tables, and at most 150 lines. usage: page_length.py ROOT

What is more stands at the declarations that it describes, or on the page reference.md beside it. Also looks, on pages and in sources, for sentences that begin
with a bare "Who", and for things that are called "who". Prints what is wrong. Status: 0 nothing, 1 something.
"""

import pathlib
import re
import subprocess
import sys

WORDS, LINES = 600, 150
BARE = re.compile(r"(?:^|[.;:] |^- |/// |// |# )(?:Who|Whoever) (?:is|was|has|had|asks|gets|wants|needs|pulls|makes|gives|says|comes|goes|vanishes|reconnects|confirms|waits|cancels|half-closes|can|may)\b")
THINGS = re.compile(r"\b(?:recipient|owner|peer|server|client|proxy|connection|site|transport|program) who\b")


def prose(text):
    """The page without blocks of code, tables and comments."""
    text = re.sub(r"^\s*```.*?^\s*```", "", text, flags=re.S | re.M)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.S)
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("|"))


def files(root, *patterns):
    listed = subprocess.run(["git", "-C", str(root), "ls-files", "-co", "--exclude-standard", *patterns], capture_output=True, text=True, timeout=60)
    return listed.stdout.split()


def odd(name, text):
    return [f"{name}:{number}: say of what it is, and \"that\" of things: {line.strip()[:100]}" for number, line in enumerate(text.splitlines(), 1)
            if BARE.search(line) or THINGS.search(line)]


def main(root):
    wrong, count = [], 0
    for name in sorted(set(files(root, "*.md"))):
        page = root / name
        if not page.is_file() or page.name == "CHANGELOG.md":
            continue
        text = page.read_text(encoding="utf-8")
        count += 1
        if page.name == "README.md":
            words, lines = len(prose(text).split()), text.count("\n")
            if words > WORDS:
                wrong.append(f"{name}: {words} words outside of code and tables, and {WORDS} are what is read in five minutes")
            if lines > LINES:
                wrong.append(f"{name}: {lines} lines, and {LINES} are what is read in five minutes")
        wrong += odd(name, text)
    for name in sorted(set(files(root, "*.hpp", "*.cpp", "*.py", "*.pyi", "*.sh", "*.cmake"))):
        if (root / name).is_file() and root / name != pathlib.Path(__file__).resolve():
            wrong += odd(name, (root / name).read_text(encoding="utf-8"))
    print("\n".join(wrong) if wrong else f"{count} pages")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()))
