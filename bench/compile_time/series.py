"""What is swept: for each series its axis, its lines, the values, and the file that is compiled for each."""
import re
from dataclasses import dataclass

import compilers
import sources


@dataclass(frozen=True)
class Line:
    name: str
    values: tuple
    quick: tuple
    text: object  # value -> the file's text


@dataclass(frozen=True)
class Series:
    name: str
    title: str
    axis: str
    lines: tuple


def included(header):
    # Boost.Asio 1.74 forgets a header in C++20
    return ("#include <utility>\n" if header == "boost/asio.hpp" else "") + f"#include <{header}>\n"


def policy_headers():
    """Each header that declares a policy, and what stands in for one: drivers, consumers, other ways to name tensors."""
    root = compilers.ROOT / "include" / "tensorpull"
    declares = re.compile(r"using is_(?:tensor|chunking|transport|framing|integrity|limits)_policy\b|^struct \w+ : (?:stream|datagram)_transport<", re.MULTILINE)
    headers = {p for p in root.rglob("*.hpp") if declares.search(p.read_text()) and p.parent.name != "testing"}
    headers |= {p for p in (root / "consumers").rglob("*.hpp") if re.search(r"static_assert\((?:tensorpull::)?consumer<", p.read_text())}
    others = ("pipeline.hpp", "tensorpull.hpp", "tensors/make_model.hpp", "tensors/numpy/numpy.hpp", "tensors/members/renamed.hpp", "tensors/members/tied.hpp",
              "transports/host/host.hpp", "transports/host/owner.hpp", "messages/tensor_decomposer.hpp")
    headers |= {root / name for name in others}
    headers |= {p for p in (root / "satellites").rglob("*.hpp") if "detail" not in p.parts}
    scale = ("string_view", "vector", "boost/hana.hpp", "capnp/message.h", "boost/asio.hpp")
    return scale + tuple(sorted(f"tensorpull/{p.relative_to(root)}" for p in headers))


def all_series():
    ends, middle, distinct = (1, 1000), (100, 250, 500), (1, 100, 200, 300, 500, 1000)
    return (
        Series("programs", "A pipeline of 400 tensors", "program", (
            Line("", ("empty", "headers", *sources.PULLS, "tcp, without the umbrella", *sources.OWNERS, *sources.USES), ("empty", "loopback"), sources.roles),)),
        Series("tensors", "A file with one pipeline over a model of many tensors", "tensors", (
            Line("layers that are alike", (1, *middle, 1000), ends, lambda n: sources.with_pipeline(sources.repeated_model(n))),
            Line("every member distinct", (1, *middle, 1000), (1, 50), lambda n: sources.with_pipeline(sources.distinct_model(n))),
            Line("Hana's macro alone", (1, *middle, 1000), (1, 50),
                 lambda n: "#include <boost/hana/adapt_struct.hpp>\n#include <array>\n" + sources.distinct_model(n)))),
        Series("alternatives", "The image of a model of distinct tensors, made in other ways", "tensors", (
            Line("raw_tensors", distinct, (1, 50), sources.image_of_struct),
            Line("members_of, without Hana", distinct, (1, 50), sources.image_of_members),
            Line("hana::map", distinct, (1, 50), sources.image_of_hana_map),
            Line("std::tuple recursion", distinct, (1, 50), sources.image_of_tuple),
            Line("Boost.Mp11", distinct, (1, 50), sources.image_of_mp11),
            Line("parameter pack", distinct, (1, 50), sources.image_of_pack),
            Line("Boost.PFR, names beside it", distinct, (1, 50), sources.image_of_pfr),
            Line("run-time table", distinct, (1, 50), sources.image_of_run_time_table))),
        Series("nesting", "32 tensors in structs that hold each other", "structs", (
            Line("", (1, 2, 4, 8, 16, 32), (1, 32), lambda n: sources.with_pipeline(sources.nested_model(n))),)),
        Series("pipelines", "Pipelines in one file, each with a model of its own", "pipelines", (
            Line("", (1, 4, 16, 64), (1, 4), sources.many_pipelines),)),
        Series("includes", "A file that only includes one header", "header", (
            Line("", policy_headers(), ("tensorpull/pipeline.hpp", "tensorpull/tensorpull.hpp"), included),)),
    )
