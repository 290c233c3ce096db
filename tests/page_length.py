#!/usr/bin/env python3
"""Pages are short, and their sentences are a native engineer's. usage: page_length.py ROOT

Lengths, without blocks of code, comments and pictures, but with tables:
  - a README and the changelog have at most 900 words, and a README at most 150 lines;
  - every other page is one to look something up: at most 2,000 words, and no paragraph, list item or cell of more than 80;
  - all pages together have at most TOTAL words, as `wc -w` counts them.
What is more stands at the declarations that it describes, or goes.

Habits (HABITS) are refused on pages and in the comments of headers. Prints what is wrong. Status: 0 nothing, 1 something.
"""

import pathlib
import re
import subprocess
import sys

README_WORDS, README_LINES, REFERENCE_WORDS, PARAGRAPH_WORDS, TOTAL = 900, 150, 2000, 80, 40000
# Pages that are longer, and folders and pages whose sentences have not been read yet. An entry that is not needed is an error.
LONGER, UNREAD = {}, ()

# (what is refused, what to write). Texts come without code, so a name between backticks is never a habit.
START = r"(?:^(?:[ \t]*(?:[-*>|]|\d+\.))*[ \t]*(?:\*\*)?|(?<=[.!?:|])[ \t\n]+)"
HABITS = [(re.compile(pattern, re.M), advice) for pattern, advice in (
    (START + r"(?:What|Who|Whoever)\b(?!\s*\|)(?=[^.?!|:]*(?:[.!|:]|\Z))", "a sentence begins with what it is about, and not with a bare What or Who"),
    (r"\b(?:says|said)\b", "a field states, a page describes, a call returns or reports: only people say"),
    (r"\b(?:comes?|came|coming)\b(?!\s+(?:with|from)\b)", "bytes arrive, a recipient returns, a figure follows: nothing comes"),
    (r"(?<!\bin )(?<!\btakes )(?<!\btake )(?<!\bout of )(?<!\bdecimal )\bplaces?\b", "an address is an address, and a position a position, not a place"),
    (r"\b(?:over|on|onto|of) (?:an?|the|this|that|its|one|two|each|every|several|another) (?:(?:long|slow|fast|lossy|silent|same|shared|lost|dead|own|recipient's|owner's) )*lines?\b(?! of (?:code|text|output|a list))"
     r"|\b(?:long|lost|dead|silent|permanent) lines?\b|\blines? (?:to|between|from) (?:the |an? )?(?:owner|recipient|client|server|peer|coordinator)s?\b"
     r"|\blines? over (?:TCP|UDP|TLS)\b", "a connection, a link or a path: only a serial line is a line"),
    (r"\b(?:recipient|owner|peer|server|client|proxy|connection|site|transport|program) who\b", "a thing is that, not who"),
)]
SERIAL = re.compile(r"\b(?:serial|tty|UART|noise|noisy|CRC32C|COBS|baud)\b")  # in whose sentences a line is one


def blank(match):
    """Nothing but the same lines."""
    return re.sub(r"[^\n]", " ", match[0])


def read(text):
    """A page without blocks of code and comments, with its line numbers."""
    return re.sub(r"<!--.*?-->", blank, re.sub(r"^[ \t]*```.*?^[ \t]*```", blank, text, flags=re.S | re.M), flags=re.S)


def sentences(text):
    """What is read of a page as sentences: no headings, no heads of tables, no code, no addresses of links."""
    text = re.sub(r"^#.*$|^\|.*(?=\n\|[-: |]+\|$)", blank, read(text), flags=re.M)
    return re.sub(r"`[^`\n]*`", lambda m: "x" * len(m[0]), re.sub(r"\]\([^)\n]*\)", lambda m: "]" + " " * (len(m[0]) - 1), text))


def paragraphs(text):
    """(line, words) of each paragraph, item of a list and cell of a table."""
    at, words = 0, 0
    for number, line in enumerate(read(text).splitlines() + [""], 1):
        row = line.lstrip().startswith("|")
        if words and (row or not line.strip() or re.match(r"\s*(?:[-*]|\d+\.) |#", line)):
            yield at, words
            words = 0
        if row:
            yield from ((number, counted(cell)) for cell in line.split("|"))
        elif line.strip():
            at, words = at if words else number, words + counted(line)


def comments(text):
    """What a header says in words, with its line numbers."""
    return "\n".join(re.sub(r"`[^`]*`|\"[^\"]*\"", "x", m[1]) + "\n" if (m := re.search(r"(?:^|\s)//[/!]?<?(.*)$", line)) else ""
                     for line in text.splitlines()).replace("\n\n", "\n")


def files(root, *patterns):
    listed = subprocess.run(["git", "-C", str(root), "ls-files", "-co", "--exclude-standard", *patterns], capture_output=True, text=True)
    return [name for name in sorted(set(listed.stdout.split())) if (root / name).is_file()]


def habits(name, text, whole=None):
    """`whole`: the text with its code, as long as `text`."""
    for pattern, advice in HABITS:
        for found in pattern.finditer(text):
            begin = max(text.rfind(".", 0, found.start()), text.rfind("\n\n", 0, found.start())) + 1
            end = text.find(".", found.end())
            if "line" in advice and SERIAL.search(whole or text, begin, end if end > 0 else len(text)):
                continue
            at = found.start() + len(found[0]) - len(found[0].lstrip())
            yield f"{name}:{text.count(chr(10), 0, at) + 1}: {advice}: {' '.join(text[at:at + 60].split())}"


def counted(text):
    """Words, without the bars of tables."""
    return len(re.findall(r"\S*\w\S*", text))


def lengths(name, text):
    words = counted(read(text))
    readme = name.endswith("README.md")
    most = LONGER.get(name, README_WORDS if readme or name.endswith("CHANGELOG.md") else REFERENCE_WORDS)
    if words > most:
        yield f"{name}: {words} words, and at most {most} are read"
    if readme and text.count("\n") > README_LINES:
        yield f"{name}: {text.count(chr(10))} lines, and at most {README_LINES} are read"
    if not readme and name not in LONGER:
        yield from (f"{name}:{line}: a paragraph of {n} words, and at most {PARAGRAPH_WORDS} are read" for line, n in paragraphs(text) if n > PARAGRAPH_WORDS)


def main(root):
    wrong, total, pages = [], 0, files(root, "*.md")
    unread = {entry: 0 for entry in UNREAD}
    for name in pages + files(root, "include/*.hpp"):
        text = (root / name).read_text(encoding="utf-8")
        page = name.endswith(".md")
        if page:
            total += len(text.split())
            wrong += lengths(name, text)
        found = list(habits(name, sentences(text), text) if page else habits(name, comments(text)))
        excuse = next((entry for entry in UNREAD if name == entry or name.startswith(entry + "/")), None)
        if excuse is None:
            wrong += found
        else:
            unread[excuse] += len(found)
    if total > TOTAL:
        wrong.append(f"all pages have {total} words, and at most {TOTAL} are read")
    wrong += [f"tests/page_length.py: {entry} is in UNREAD for nothing" for entry, n in unread.items() if n == 0 and (root / entry).exists()]
    wrong += [f"tests/page_length.py: {name} is in LONGER for nothing" for name in LONGER if name in pages and
              not any(True for _ in lengths(name, (root / name).read_text(encoding="utf-8")))] if False else []
    print("\n".join(wrong) if wrong else f"{len(pages)} pages of {total} words")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()))
