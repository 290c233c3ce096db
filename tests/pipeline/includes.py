#!/usr/bin/env python3
"""Which headers the compiler reads for a program: includes.py COMPILER CASE [INCLUDE FOLDER...]

Cases: umbrella: tensorpull.hpp has no Cap'n Proto in it, and nothing of the standard library that include/tensorpull/std stands in for. owner: neither
has an owner of TCP connections, nor Boost.Asio. pull: a program that only pulls, over TCP, reads no header of an owner. The check fails too if what must be there is not, so a wrong command is no success."""
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PULL = """#include <tensorpull/consumers/land.hpp>
#include <tensorpull/pipeline.hpp>
#include <tensorpull/tensors/structs/raw.hpp>
#include <tensorpull/transports/over/tcp/tcp.hpp>
"""
OWNER = "#include <tensorpull/tensorpull.hpp>\n#include <tensorpull/transports/host/owner.hpp>\n"
HEAVY = r"/c\+\+/[0-9.]+/(algorithm|chrono|functional|memory|mutex|optional|sstream|stop_token)$"
# case: the program, what must not be read, what must be read
CASES = {
    "umbrella": ("#include <tensorpull/tensorpull.hpp>\n", r"/(capnp|kj|asio)/|\.capnp\.h$|tensorpull/(satellites|framing/capnp|messages|testing|transports/host)/|" + HEAVY,
                 ("tensorpull/pipeline.hpp", "tensorpull/transports/over/tcp/tcp.hpp")),
    "owner": (OWNER, r"/boost/(asio|system)/|tensorpull/satellites/|" + HEAVY, ("tensorpull/transports/host/event_loop.hpp", "tensorpull/transports/session/session.hpp")),
    "pull": (PULL, r"tensorpull/(satellites|protocol/owner|transports/host|testing|messages)/|tensorpull/transports/(publisher|session/[a-z_]+)\.hpp$|/(capnp|kj|asio)/",
             ("tensorpull/pipeline.hpp", "tensorpull/protocol/recipient/transfer.hpp")),
}


def main():
    compiler, case, *folders = sys.argv[1:]
    program, forbidden, wanted = CASES[case]
    command = [compiler, "-std=c++20", "-M", f"-I{ROOT / 'include'}", *(f"-I{f}" for f in folders if f), "-x", "c++", "-"]
    said = subprocess.run(command, input=program, capture_output=True, text=True, check=True, timeout=60).stdout
    read = said.replace("\\\n", " ").split()
    wrong = [f"reads {name}" for name in read if re.search(forbidden, name)]
    wrong += [f"does not read {name}" for name in wanted if not any(r.endswith(name) for r in read)]
    for line in wrong:
        print(line)
    print(f"{sum('/tensorpull/' in r for r in read)} headers of the library, {len(read)} in all")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
