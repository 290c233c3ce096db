#!/usr/bin/env python3
"""Pages are short, and their sentences are a native engineer's. usage: page_length.py ROOT

Lengths are of words outside of code, comments and pictures, tables included:
  - a README and the changelog have at most 900, and a README at most 150 lines;
  - every other page is one to look something up: at most 2,000, and at most 80 in a paragraph, an item of a list or a cell of a table;
  - all pages together have at most TOTAL words, as `wc -w` counts them.
Whatever exceeds that stands at the declarations that it describes, or goes.

HABITS are refused on pages and in the comments of headers, and the last two in all other sources. Prints each fault. Status: 0 none, 1 some.
"""

import pathlib
import re
import subprocess
import sys

README_WORDS, README_LINES, REFERENCE_WORDS, PARAGRAPH_WORDS, TOTAL = 900, 150, 2000, 80, 39900
# Pages that may be longer, and have longer paragraphs; pages whose sentences may have habits, and folders whose headers' may. An entry for nothing is a fault.
LONGER = ("include/tensorpull/satellites/http/reference.md",)
UNREAD = ("include/tensorpull/satellites/http/reference.md",)
UNREAD_HEADERS = ("include/tensorpull/satellites/http",)

# Where a sentence begins: a line with its bullets, or behind the end of another sentence or of a cell.
BEGIN = r"(?:^(?:[ \t]*(?:[-*>|]|\d+\.))*[ \t]*(?:\*\*)?|(?<=[.!?:|])[ \t\n]+)"
CONNECTION = (r"\b(?:over|on|onto|of) (?:an?|the|this|that|its|one|two|each|every|several|another)(?: long| slow| fast| lossy| silent| same| shared| lost| dead| own| recipient's| owner's)* lines?\b(?! of)"
              r"|\b(?:long|lost|dead|silent|permanent) lines?\b|\blines? (?:to|between|from) (?:the |an? )?(?:owner|recipient|client|server|peer|coordinator)s?\b|\blines? over (?:TCP|UDP|TLS)\b")
# Names between backticks are not read, so they have no habits.
HABITS = [(re.compile(pattern, re.M), advice) for pattern, advice in (
    (BEGIN + r"What\b(?!\s*\|)(?=[^.?!|:]*(?:[.!|:]|\Z))", "a sentence begins with its subject, and not with a bare What"),
    (r"\b(?:says|said)\b", "a field states, a page describes, a call returns: only people say"),
    (r"\b(?:comes?|came|coming)\b(?!\s+(?:with|from)\b)", "bytes arrive, a recipient returns, a figure follows: nothing comes"),
    (r"(?<![Ii]n[\s-])(?<!\btakes\s)(?<!\btake\s)(?<!\bout of\s)(?<!\bdecimal\s)\bplaces?\b", "an address or a position, not a place"),
    (CONNECTION, "a connection, a link or a path: only a serial line is a line"),
    (BEGIN + r"(?:Who|Whoever)\b(?!\s*\|)(?=[^.?!|:]*(?:[.!|:]|\Z))", "a sentence begins with its subject, and not with a bare Who"),
    (r"\b(?:recipient|owner|peer|server|client|proxy|connection|site|transport|program) who\b", "things are that, not who"),
)]
A_LINE = re.compile(r"\b(?:serial|tty|UART|noise|noisy|CRC32C|COBS|baud)\b")  # in whose sentences a line is one
HAVE_HABITS = ("tests/page_length.py", "tests/pages_test.py")


def blanked(match):
    return re.sub(r"[^\n]", " ", match[0])


def read(text):
    """A page without blocks of code and comments; its characters stand where they were."""
    return re.sub(r"<!--.*?-->", blanked, re.sub(r"^[ \t]*```.*?^[ \t]*```", blanked, text, flags=re.S | re.M), flags=re.S)


def sentences(text):
    """The same without headings, heads of tables, names of code and addresses of links."""
    text = re.sub(r"^#.*$|^\|.*(?=\n\|[-: |]+\|$)", blanked, read(text), flags=re.M)
    return re.sub(r"`[^`\n]*`", lambda m: "x" * len(m[0]), re.sub(r"(?<=\])\([^)\n]*\)", blanked, text))


def comments(text):
    """The comments of a header, line by line, without names of code and quoted text."""
    found = (re.search(r"(?:^|\s)//[/!]?<?\s?(.*)$", line) for line in text.splitlines())
    return "\n".join(re.sub(r"`[^`]*`|\"[^\"]*\"", "x", m[1]) if m else "" for m in found)


def words(text):
    return len(re.findall(r"\S*\w\S*", text))


def paragraphs(text):
    """(line, words) of each paragraph, item of a list and cell of a table."""
    begin, count = 0, 0
    for number, line in enumerate([*read(text).splitlines(), ""], 1):
        row = line.lstrip().startswith("|")
        if count and (row or not line.strip() or re.match(r"\s*(?:[-*]|\d+\.) |#", line)):
            yield begin, count
            count = 0
        if row:
            yield from ((number, words(cell)) for cell in line.split("|"))
        elif line.strip():
            begin, count = begin if count else number, count + words(line)


def lengths(name, text):
    readme = name.endswith("README.md")
    most = README_WORDS if readme or name.endswith("CHANGELOG.md") else REFERENCE_WORDS
    if (count := words(read(text))) > most:
        yield f"{name}: {count} words, and at most {most} are read"
    if readme and (count := text.count("\n")) > README_LINES:
        yield f"{name}: {count} lines, and at most {README_LINES} are read"
    if not readme:
        yield from (f"{name}:{line}: a paragraph of {count} words, and at most {PARAGRAPH_WORDS} are read" for line, count in paragraphs(text) if count > PARAGRAPH_WORDS)


def habits(name, text, whole, refused=HABITS):
    """`whole`: the text with its code."""
    for pattern, advice in refused:
        for found in pattern.finditer(text):
            begin = max(text.rfind(".", 0, found.start()), text.rfind("\n\n", 0, found.start())) + 1
            end = text.find(".", found.end())
            if pattern.pattern == CONNECTION and A_LINE.search(whole, begin, end if end > 0 else len(text)):
                continue
            at = found.end() - len(found[0].lstrip())
            yield f"{name}:{text.count(chr(10), 0, at) + 1}: {advice}: {' '.join(text[at:at + 60].split())}"


def files(root, *patterns):
    listed = subprocess.run(["git", "-C", str(root), "ls-files", "-co", "--exclude-standard", *patterns], capture_output=True, text=True, timeout=60)
    return [name for name in sorted(set(listed.stdout.split())) if (root / name).is_file()]


def main(root):
    wrong, total, excused = [], 0, {entry: 0 for entry in (*LONGER, *UNREAD, *UNREAD_HEADERS)}
    pages, headers = files(root, "*.md"), files(root, "include/*.hpp")
    for name in pages + headers + files(root, *(f"*.{kind}" for kind in ("cpp", "h", "py", "pyi", "sh", "cmake")), "bench/*.hpp", "examples/*.hpp", "tests/*.hpp"):
        text = (root / name).read_text(encoding="utf-8")
        if name in pages:
            total += len(text.split())
            found = [(LONGER, lengths(name, text)), (UNREAD, habits(name, sentences(text), text))]
        elif name in headers:
            found = [(UNREAD_HEADERS, habits(name, comments(text), comments(text)))]
        else:
            found = [((), () if name in HAVE_HABITS else habits(name, text, text, HABITS[-2:]))]
        for excuses, faults in found:
            excuse = next((entry for entry in excuses if name == entry or name.startswith(entry + "/")), None)
            if excuse is None:
                wrong += faults
            else:
                excused[excuse] += len(list(faults))
    if total > TOTAL:
        wrong.append(f"all pages have {total} words, and at most {TOTAL} are read")
    wrong += [f"tests/page_length.py: {entry} needs no excuse any more" for entry, faults in excused.items() if faults == 0 and (root / entry).exists()]
    print("\n".join(wrong) if wrong else f"{len(pages)} pages of {total} words")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()))
