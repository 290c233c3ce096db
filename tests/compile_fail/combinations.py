#!/usr/bin/env python3
"""Policies in all combinations: combinations.py G++ FOLDER_OF_GENERATED_HEADERS COMPONENT...

Each chunking with each integrity, framing, consumer and transport compiles, for a pull and for a session's, or is refused with a sentence. In the ordinary run
every two policies meet at least once; with TENSORPULL_WHOLE_SCHEDULE=1 all of them do. Tensors and limits change from one combination to the next."""
import argparse
import itertools
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench" / "compile_time"))
sys.dont_write_bytecode = True
import sources

CHUNKINGS = ("fixed_bytes<512>", "bytes_up_to<512>", "per_tensor<512>", "adaptive_bytes<256, 512>", "fit_datagram", "whole")
INTEGRITIES = ("unverified", "image_digest", "chunk_digest", "chunk_and_image_digest", "chunk_crc32c_and_image_digest")
FRAMINGS = {"word_framing": "framing/word_framing.hpp", "capnp_framing": "framing/capnp/capnp_framing.hpp"}
TENSORS = ("raw_tensors<model>", "tensor_list")
LIMITS = ("default_limits", "few")
# Each consumer and its header.
CONSUMERS = {
    "land": "consumers/land.hpp",
    "double_buffered": "consumers/double_buffered.hpp",
    "digest": "consumers/any_schema/digest.hpp",
    "new_model<no_memory>": "consumers/any_schema/new_model.hpp",
    "published_schema": "consumers/any_schema/published_schema.hpp",
    "safetensors_file": "consumers/any_schema/safetensors_file.hpp",
    "weighted_average<>::update": "consumers/average/weighted_average.hpp",
    "weighted_average<partial_updates::staged>::update": "consumers/average/weighted_average.hpp",
    "tensorpull::tee<land, digest>": "consumers/tee.hpp",
} | sources.CONSUMERS
# These add what they get, so that each chunk has to be checked.
IRREVOCABLE = ("weighted_average<>::update",)
UNCHECKED = ("unverified", "image_digest")
# Folders of the ground floor that a build may lack.
NEEDS = {"framing/capnp": "capnp", "transports/over/tls": "tls"}
NAME, SENTENCE, CONTROL = "combinations.cpp", "tensorpull: ", "the control, a mistake without a sentence"
HEAD = """
using namespace tensorpull;
struct model { float w[300]; bool b; };
BOOST_HANA_ADAPT_STRUCT(model, w, b);
struct few : default_limits {
  static constexpr std::size_t control_frame_bytes = 512, page_bytes = 256, references = 1, recipients = 1, transfers_per_connection = 1, window = 1;
};
struct no_memory {
  result<std::byte*> allocate(const tensor_entry&) noexcept { return nullptr; }
  void clear() noexcept {}
};
template <class T> T& any();
template <class Net> constexpr bool usable = sizeof(char[Net::memory.recipient]) > 0;
template <class Session> constexpr bool exists = requires { Session::buffer_bytes; };
template <class Session, class Consumer> result<receipt> pull_in(Session& with, Consumer& to) {
  if constexpr (exists<Session>) return with.pull(reference{}, to);
  else return failure(errc::invalid_argument);
}
"""


def built(header, components):
    """Whether this build has the component of a header."""
    folder = header.rsplit("/", 1)[0]
    needs = NEEDS.get(folder, folder.split("/")[1] if folder.startswith("satellites/") else None)
    return needs is None or needs in components


def program(header, transport, where, sample, components):
    """The text, and for each line that tries something: what, the line of its pipeline, and whether its consumer has to be refused."""
    consumers = {consumer: of for consumer, of in CONSUMERS.items() if built(of, components)}
    framings = {framing: of for framing, of in FRAMINGS.items() if built(of, components)}
    lines = [f"#include <tensorpull/{h}>" for h in dict.fromkeys((
        "tensorpull.hpp", "integrity/xxhash/chunk_crc32c.hpp", "transports/session/datagram_session.hpp", *framings.values(), *consumers.values(), header))] + HEAD.splitlines()
    tried = {}
    for (c, chunking), (i, integrity), (f, framing) in itertools.product(enumerate(CHUNKINGS), enumerate(INTEGRITIES), enumerate(framings)):
        few = [(k, consumer) for k, consumer in enumerate(consumers) if not sample or (c + i + f + k) % 5 == 0]
        if not few:
            continue
        policies = ", ".join((TENSORS[(c + i) % 2], chunking, integrity, framing, LIMITS[(c + i + f) % 2], transport))
        net = f"net{c}{i}{f}"
        lines.append(f"using {net} = pipeline<{policies}>;  static_assert(usable<{net}>);")
        of_net = len(lines)
        tried[of_net] = (policies, of_net, False)
        for k, consumer in few:
            for role, code in (("pull", f"{net}::pull({where or f'any<{net}::downloader>()'}, reference{{}}, any<{consumer}>())"),
                               ("session", f"pull_in(any<{net}::session>(), any<{consumer}>())")):
                lines.append(f"auto {role}_{net}_{k}() {{ return {code}; }}")
                tried[len(lines)] = (f"{policies}: a {role} into {consumer}", of_net, role == "pull" and consumer in IRREVOCABLE and integrity in UNCHECKED)
    lines.append("static_assert(sizeof(model) == 0);")
    tried[len(lines)] = (CONTROL, 0, False)
    return "\n".join(lines) + "\n", tried


def errors_by_line(said):
    """The errors of each line of the program, in order. g++ tells beforehand which line led to an error."""
    found, line = {}, None
    for text in said.splitlines():
        here = re.search(rf"{re.escape(NAME)}:(\d+):", text)
        line = int(here[1]) if here else line
        if error := re.search(r"\berror: (.*)", text):
            found.setdefault(line, []).append(error[1])
    return found


def judge(tried, errors):
    """What is wrong: (what was tried, why)."""
    refused = {line for line, (_, net, _) in tried.items() if net == line and line in errors}
    for line, (what, net, irrevocable) in tried.items():
        first = errors.get(line, [""])[0]
        if what == CONTROL:
            if not first or SENTENCE in first:
                yield what, "it was not refused, or with a sentence: nothing was tried"
        elif first and SENTENCE not in first and net not in refused:
            yield what, first
        elif irrevocable and not first and net not in refused:
            yield what, "it compiles, and what this consumer takes is checked too late"
    for line in errors.keys() - tried.keys():
        yield f"line {line}", errors[line][0]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("compiler", help="g++")
    parser.add_argument("generated")
    parser.add_argument("components", nargs="*", help="of this build: satellites that it lacks are left out")
    args = parser.parse_args()
    sample = os.environ.get("TENSORPULL_WHOLE_SCHEDULE") != "1"
    command = [args.compiler, "-std=c++20", "-fsyntax-only", "-fno-diagnostics-color", f"-I{ROOT / 'include'}", f"-isystem{args.generated}", NAME]
    wrong = 0
    for name, (header, transport, _, where) in sources.PULLS.items():
        header = header or "tensorpull.hpp"
        if not built(header, args.components):
            continue
        text, tried = program(header, transport, where, sample, args.components)
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / NAME).write_text(text)
            said = subprocess.run(command, cwd=folder, capture_output=True, text=True).stderr
        errors = errors_by_line(said)
        print(f"{name}: {len(tried)} tried, {len(errors)} of them refused")
        for what, why in judge(tried, errors):
            wrong += 1
            print(f"  {what}: {why}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
