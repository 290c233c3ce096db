#!/usr/bin/env python3
"""Makes the documentation of the public API with doxygen: build/doc/html/index.html, or below the folder that --output names.

Every public name must have a comment (cmake/Doxyfile says what is public). Two kinds of names need none of their own:
  - what a concept requires of its models has one comment, at the concept (REQUIRED below);
  - constructors that copy and move, and operators, mean what they always mean.
Prints the names that have no comment, and how many each folder has. Status: 0 none, 1 some, 2 there is no doxygen.
With --filter FILE it is doxygen's input filter: it prints FILE with the sentence at its head as the page's, and with those comments.
"""

import argparse
import collections
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIBRARY = ROOT / "include" / "tensorpull"
# Folders in which models of a concept are, and the names that it requires or allows them.
REQUIRED = (
    ("chunking", r"chunking/", "is_chunking_policy max_chunk_bytes needs_layout next measured"),
    ("integrity_policy", r"integrity/", "is_integrity_policy hash_type chunk_hash_type whole per_chunk"),
    ("hash", r"integrity/|core/(xxh3|sha256)", "kind reset update digest value"),
    ("framing", r"framing/", "is_framing_policy decode_storage encode decode"),
    ("consumer", r"consumers/|satellites/|testing/|pipeline.hpp|device.hpp", "irrevocable fingerprint schema begin prepare commit chunk rewind finish abandon any_order"),
    ("difference_coder", r"satellites/", "id pack unpack"),
    ("tensor_policy", r"tensors/|satellites/|testing/", "is_tensor_policy is_static model_type source destination landed"),
    ("byte_stream", r"links/|transports/|satellites/|testing/", "read_some write_some wait read_or_wait"),
    ("byte_device", r"transports/over/serial/", "read write"),
    ("datagram_link", r"links/|transports/|satellites/|testing/", "address max_datagram_bytes datagram_bytes receive send wait checked addresses_are_proved"),
    ("session_wire", r"transports/session", "end pull of scratch_bytes buffer_bytes stream_wire datagram_wire link make_end step goes_on wait leave resume prepare drive"),
    ("transport", r"transports/|satellites/|testing/", "is_transport_policy max_payload_bytes connection_bytes downloader session reliable ordered shares_memory encrypted anyone_answers identifies"),
)
WARNING = re.compile(r"^(.+?):(\d+): (?:error|warning): (.*)$")
MEMBER = re.compile(r"Member (.*?)(?:\(.*)? \((\w+)\) of .* is not documented")


def known(folder, text):
    """The comment that an undocumented name gets, or None."""
    member = MEMBER.match(text)
    if not member:
        return None
    name = member[1].split("::")[-1].strip()
    if name.startswith("operator"):
        return "Has the usual meaning."
    for concept, where, names in REQUIRED:
        if re.match(where, folder) and name in names.split():
            return f"Required or allowed by the concept `{concept}`, which says what it does."
    copies = re.match(r"Member (\w+)\((?:const )?(\w+) ?(?:<[^()]*>)? ?&&? ?\w*\)", text)
    if copies and copies[1] == copies[2]:
        return "Copies or moves."
    return None


def begins(lines, number):
    """The line, from 0, where the declaration begins whose name is in line `number`, from 1."""
    at = number - 1
    while at > 0 and re.match(r"\s*(template\b|requires\b|\[\[)", lines[at - 1]) and not re.search(r"[;}]\s*(//.*)?$", lines[at - 1]):
        at -= 1
    return at


def filtered(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    if lines and lines[0].startswith("// "):
        lines[0] = "/// @file\n/// " + lines[0][3:]
        for i in range(1, len(lines)):
            if not lines[i].startswith("//"):
                break
            lines[i] = "/// " + lines[i][3:]
    for i, line in enumerate(lines):
        if line.strip().startswith("protected:"):  # the library derives, users do not
            lines[i] = line = line.replace("protected:", "private:", 1)
        before, slashes, after = line.partition("//")
        if slashes and after.startswith("/"):
            lines[i] = before + slashes + re.sub(r"<(?=[A-Za-z])", r"\\<", after)  # no markup of HTML in here
            if before.strip() and after.startswith("/<") and i + 1 < len(lines) and re.match(r"\s*///(?!<)", lines[i + 1]):
                # the comment of the next line is the next member's, and doxygen would take it for the rest of this one
                lines[i] = f"{before}/**< {after[2:].strip()} */"
    comments = os.environ.get("TENSORPULL_DOC_COMMENTS")
    if comments:
        for number, comment in json.loads(pathlib.Path(comments).read_text()).get(str(path.resolve()), {}).items():
            at = begins(lines, int(number))
            indent = len(lines[at]) - len(lines[at].lstrip())
            lines[at] = f"{lines[at][:indent]}/** {comment} */ {lines[at][indent:]}"
    print("\n".join(lines))


def doxygen(folder, html, comments):
    settings = (ROOT / "cmake" / "Doxyfile").read_text() + f"""
OUTPUT_DIRECTORY = "{folder}"
GENERATE_HTML = {"YES" if html else "NO"}
GENERATE_XML = {"NO" if html else "YES"}
INPUT_FILTER = "{sys.executable} \\"{pathlib.Path(__file__).resolve()}\\" --filter"
"""
    environment = dict(os.environ)
    environment.pop("TENSORPULL_DOC_COMMENTS", None)
    if comments:
        environment["TENSORPULL_DOC_COMMENTS"] = str(comments)
    run = subprocess.run(["doxygen", "-"], input=settings, cwd=ROOT, env=environment, capture_output=True, text=True)
    found = []
    for line in (run.stdout + run.stderr).splitlines():
        warning = WARNING.match(line)
        if warning:
            # the first line of a page became two
            found.append((pathlib.Path(warning[1]), int(warning[2]) - 1, warning[3]))
        elif found and line.startswith("  "):
            found[-1] = (*found[-1][:2], found[-1][2] + " " + line.strip())
        elif line.strip() and "warnings found" not in line:
            found.append((ROOT, 0, line.strip()))
    return sorted(set(found))


def relative(path):
    return path.relative_to(LIBRARY).as_posix() if path.is_relative_to(LIBRARY) else str(path)


def main(folder):
    if shutil.which("doxygen") is None:
        print("doc.py: there is no doxygen here (Debian's package doxygen)", file=sys.stderr)
        return 2
    folder.mkdir(parents=True, exist_ok=True)
    comments = collections.defaultdict(dict)
    for path, line, text in doxygen(folder, html=False, comments=None):
        comment = known(relative(path), text)
        if comment:
            comments[str(path)][line] = comment
    (folder / "comments.json").write_text(json.dumps(comments))
    shutil.rmtree(folder / "html", ignore_errors=True)
    left = doxygen(folder, html=True, comments=folder / "comments.json")
    for path, line, text in left:
        print(f"{relative(path)}:{line}: {text}")
    for where, count in sorted(collections.Counter(os.path.dirname(relative(p)) or "." for p, _, _ in left).items()):
        print(f"{count:5} {where}")
    if not left:
        print(f"{folder / 'html' / 'index.html'}")
    return 1 if left else 0


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--output", metavar="FOLDER", type=pathlib.Path, default=ROOT / "build" / "doc")
    arguments.add_argument("--filter", metavar="FILE", type=pathlib.Path, help=argparse.SUPPRESS)
    chosen = arguments.parse_args()
    if chosen.filter:
        filtered(chosen.filter)
        sys.exit(0)
    sys.exit(main(chosen.output.resolve()))
