"""`python -m tensorpull send|recv|inspect`: files of tensors between machines, as the C++ tools of the same names do it."""

from __future__ import annotations

import importlib
import os
import sys
from typing import List, Optional

HELP = """usage: python -m tensorpull COMMAND ...

  send FILE...                publishes safetensors, npy and npz files
  recv LINK REF -o FILE       pulls one of them into a safetensors file
  inspect FILE...             lists the tensors of files
  --version                   the version of this package

Each command has --help.
"""


def main(arguments: Optional[List[str]] = None) -> int:
    # A file that is opened would get the number of a stream that is closed, and what is printed would land in it.
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    words = sys.argv[1:] if arguments is None else arguments
    try:
        # here, since a Ctrl-C may come while modules are read
        from ._commands import text

        if words and words[0] in ("send", "recv", "inspect"):
            command = importlib.import_module(f"tensorpull._commands.{words[0]}")
            return text.run(f"tensorpull {words[0]}", lambda: command.main(words[1:]))
        if words and words[0] in ("-h", "--help"):
            return text.run("tensorpull", lambda: text.out(HELP) or 0)
        if words and words[0] == "--version":
            from . import __version__

            return text.run("tensorpull", lambda: text.out(f"tensorpull {__version__}\n") or 0)
        text.say("tensorpull", "send, recv or inspect is wanted" + (f", not '{text.printable(words[0])}'" if words else ""))
        text.say_plain("'python -m tensorpull --help' lists the commands.")
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
