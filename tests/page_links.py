#!/usr/bin/env python3
"""Every relative link of every page leads to something that is there: a file or a folder, and the heading if it names one. usage: page_links.py ROOT

A link into a satellite that was taken out of this tree (SATELLITES without a line in include/tensorpull/folders.txt) is passed over. Prints the links that
lead nowhere. Status: 0 none, 1 some.
"""

import fnmatch
import os
import pathlib
import re
import sys

from page_length import files, read
from without import PLACES

SATELLITES = "asio differences directories http nats numpy_files parallel proofs relay replica shared_memory simulation tools python nvflare flower".split()
LINK = re.compile(r"\]\(<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\)|^\[[^\]]+\]:\s*(\S+)|<a\s[^>]*href=\"([^\"]+)\"", re.M)


def headings(text):
    """The anchors of a page, as GitHub makes them."""
    seen = {}
    for heading in re.findall(r"^#{1,6}\s+(.*?)\s*#*$", read(text), re.M):
        shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        anchor = re.sub(r"[^\w\- ]", "", shown.lower()).replace(" ", "-")
        seen[anchor] = seen.get(anchor, -1) + 1
        yield f"{anchor}-{seen[anchor]}" if seen[anchor] else anchor


def taken_out(root):
    """{satellite that is not in this tree: patterns of its paths}"""
    table = root / "include/tensorpull/folders.txt"
    there = set(re.findall(r"^satellites/(\S+)", table.read_text(encoding="utf-8"), re.M)) if table.is_file() else set(SATELLITES)
    return {name: [pattern for place in PLACES for pattern in (place.format(name), place.format(name) + "/*")] for name in SATELLITES if name not in there}


def is_of(path, satellites):
    return any(fnmatch.fnmatch(path, pattern) for patterns in satellites.values() for pattern in patterns)


def main(root):
    wrong, count, gone = [], 0, taken_out(root)
    for name in files(root, "*.md"):
        page = root / name
        text = read(page.read_text(encoding="utf-8"))
        text = re.sub(r"`[^`\n]*`(?!\])", lambda m: " " * len(m[0]), text)  # code is no link, but it may be the text of one
        for found in LINK.finditer(text):
            link = next(group for group in found.groups() if group)
            if re.match(r"[a-z][a-z0-9+.-]*:", link):
                continue
            count += 1
            path, _, anchor = link.partition("#")
            target = os.path.normpath(os.path.join(os.path.dirname(name), path)) if path else name
            at = f"{name}:{text.count(chr(10), 0, found.start()) + 1}: {link}"
            if is_of(target, gone):
                continue
            if path.startswith("/") or target.startswith("..") or not (root / target).exists():
                wrong.append(f"{at} leads nowhere")
            elif anchor and (not target.endswith(".md") or anchor not in headings((root / target).read_text(encoding="utf-8"))):
                wrong.append(f"{at}: {target} has no such heading")
    if not count:
        wrong.append("there are no links at all")
    print("\n".join(wrong) if wrong else f"{count} links lead somewhere")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()))
