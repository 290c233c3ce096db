"""`python -m tensorpull send|recv|inspect`: files of tensors between machines. The commands are the programs of examples/tools, which are in this package."""

from __future__ import annotations

import os
import pathlib
import signal
import sys
from typing import List, Optional

from . import __version__, _native

TOOLS = ("send", "recv", "inspect")
HELP = """usage: python -m tensorpull COMMAND ...

  send FILE...                publishes safetensors, npy and npz files
  recv LINK REF -o FILE       pulls one of them into a safetensors file
  inspect FILE...             lists the tensors of files
  inspect LINK REF            lists what is published, without pulling it
  --version                   the version of this package

Each command has --help.
"""


def main(arguments: Optional[List[str]] = None) -> int:
    words = sys.argv[1:] if arguments is None else arguments
    try:
        if words and words[0] in TOOLS:
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and programs inherit that
            os.execv(pathlib.Path(_native.__file__).parent / "_tools" / words[0], [f"tensorpull {words[0]}", *words[1:]])
        if words and words[0] in ("-h", "--help"):
            print(HELP, end="", flush=True)
            return 0
        if words and words[0] == "--version":
            print(f"tensorpull {__version__}", flush=True)
            return 0
    except KeyboardInterrupt:
        return 130
    except OSError as e:
        print(f"tensorpull: {e}", file=sys.stderr)
        return 1
    print(f"tensorpull: send, recv or inspect is wanted{f', not {words[0]!a}' if words else ''}\n'python -m tensorpull --help' lists the commands.", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
