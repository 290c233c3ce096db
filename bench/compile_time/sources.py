"""The files that are compiled: each series is a way of writing a model or a program, over a growing number of something."""

import runpy
from pathlib import Path

FANOUT = 25  # members of a struct: BOOST_HANA_ADAPT_STRUCT takes at most 39
TENSOR = "std::array<float, 8>"

EMPTY = "int main() {}\n"
HEADERS = "#include <tensorpull/tensorpull.hpp>\n"  # as users include it
USE = "bool f{k}(net{k}::downloader& from, const tensorpull::reference& ref, {model}& to) {{ return net{k}::download_tensors(from, ref, to).has_value(); }}\n"


def struct(name, members):
    declared = "".join(f"  {kind} {member};\n" for kind, member in members)
    return f"struct {name} {{\n{declared}}};\n"


def adapted(name, members):
    """A struct of (type, name) members, and its adaption."""
    return struct(name, members) + f"BOOST_HANA_ADAPT_STRUCT({name}, {', '.join(member for _, member in members)});\n"


def listed(name, members):
    """The same without Hana, as on a device."""
    names = ", ".join(f'tensorpull::member{{"{member}", &{name}::{member}}}' for _, member in members)
    return struct(name, members) + f"template <>\ninline constexpr auto tensorpull::members_of<{name}> = tensorpull::members({names});\n"


def distinct_model(count, name="model", prefix="w", adapted=adapted):
    """Every tensor is a member with a name of its own; structs of FANOUT members hold them, as deep as it takes."""
    level = [(TENSOR, f"{prefix}{i}") for i in range(count)]
    text, depth = "", 0
    while len(level) > FANOUT:
        parts = []
        for i in range(0, len(level), FANOUT):
            part = f"{name}_{depth}_{i // FANOUT}"
            text += adapted(part, level[i:i + FANOUT])
            parts.append((part, f"part{i // FANOUT}"))
        level, depth = parts, depth + 1
    return text + adapted(name, level)


def repeated_model(count):
    """Layers that are alike: an array of structs of four tensors, as in most networks."""
    if count < 4:
        return distinct_model(count)
    row = adapted("row", [(TENSOR, "a"), (TENSOR, "b"), (TENSOR, "c"), ("std::array<std::int8_t, 4>", "d")])
    return row + adapted("model", [(f"std::array<row, {count // 4}>", "rows")])


def nested_model(depth, count=32):
    """`count` tensors in structs of which each holds the next, `depth` of them."""
    text, inner = "", None
    for level in range(depth):
        members = [(TENSOR, f"w{i}") for i in range(level * count // depth, (level + 1) * count // depth)]
        name = "model" if level == depth - 1 else f"level{level}"
        text += adapted(name, members + ([(inner, "inner")] if inner else []))
        inner = name
    return text


def pipeline(model="model", k=0, transport="loopback"):
    return (f"using net{k} = tensorpull::pipeline<tensorpull::raw_tensors<{model}>, tensorpull::fixed_bytes<{4096 * (k + 1)}>, tensorpull::{transport}>;\n")


def with_pipeline(model):
    return HEADERS + model + pipeline() + USE.format(k=0, model="model")


def many_pipelines(count):
    """Models of four tensors, each with a chunk size of its own, all in one file."""
    text = HEADERS
    for k in range(count):
        text += distinct_model(4, f"model{k}", f"m{k}_w") + pipeline(f"model{k}", k) + USE.format(k=k, model=f"model{k}")
    return text


# What a program adds around a pipeline of 400 tensors: header, transport, chunking, address of a pull.
PULLS = {
    "loopback": (None, "loopback", "fixed_bytes<4096>", None),
    "tcp": (None, "tcp", "fixed_bytes<4096>", '"server:8002"'),
    "unix_socket": ("transports/over/unix_socket/unix_socket.hpp", "unix_socket", "fixed_bytes<4096>", '"/run/model"'),
    "child_process": ("transports/over/pipe/pipe.hpp", "child_process", "fixed_bytes<4096>", '"ssh host send model --stdio"'),
    "tls": ("transports/over/tls/tls.hpp", "tls", "fixed_bytes<4096>", 'tensorpull::tls_address{"server:8002"}'),
    "udp": ("transports/over/udp/udp.hpp", "udp", "fit_datagram", '"server:8002"'),
    "serial": ("transports/over/serial/serial.hpp", "serial", "fixed_bytes<512>", '"/dev/ttyUSB0"'),
}
# The same for owners: header, transport, what opens one.
OWNERS = {
    "tcp, owner": ("transports/host/owner.hpp", "tcp", "net0::downloader::open()"),
}
# A pull over TCP with the headers that it needs instead of the umbrella, which has owners and sessions, too.
ALONE = ("chunking/policies.hpp", "consumers/land.hpp", "integrity/xxhash/policies.hpp", "pipeline.hpp", "tensors/structs/raw.hpp", "transports/over/tcp/tcp.hpp")
# What else the file does around the same pipeline, over TCP: headers, code.
USES = {
    "weighing": (("consumers/average/weighing.hpp",),
                 "bool f(tensorpull::weighing& updates) { return updates.finish(tensorpull::clip_norms{}).has_value(); }\n"),
}


# Satellites have their own, and bounds for what they instantiate: tests/satellites/NAME/compile_time.py, with any of PULLS, OWNERS, USES, CONSUMERS (for
# tests/compile_fail/combinations.py) and BOUNDS.
CONSUMERS, BOUNDS = {}, {}
for one in sorted((Path(__file__).resolve().parents[2] / "tests/satellites").glob("*/compile_time.py")):
    has = runpy.run_path(str(one))
    PULLS |= has.get("PULLS", {})
    OWNERS |= has.get("OWNERS", {})
    USES |= has.get("USES", {})
    CONSUMERS |= has.get("CONSUMERS", {})
    for compiler, counts in has.get("BOUNDS", {}).items():
        BOUNDS[one.parent.name] = BOUNDS.get(one.parent.name, {}) | {compiler: counts}


def roles(role):
    """The programs that people write around a pipeline of 400 tensors."""
    if role == "empty":
        return EMPTY
    model = repeated_model(400)
    if role == "headers":
        return HEADERS + model
    if role in USES:
        headers, does = USES[role]
        return "".join(f"#include <tensorpull/{header}>\n" for header in headers) + HEADERS + model + pipeline(transport="tcp") + does
    if role == "tcp, without the umbrella":
        return roles("tcp").replace(HEADERS, "".join(f"#include <tensorpull/{header}>\n" for header in ALONE))
    header, transport, *rest = (PULLS | OWNERS)[role]
    text = (f"#include <tensorpull/{header}>\n" if header else "") + HEADERS + model
    if role in OWNERS:
        added = rest[1] if len(rest) > 1 else "o->add_tensors(m)"
        return text + pipeline(transport=transport) + f"bool f(const model& m, tensorpull::ref_id id) {{ auto o = {rest[0]}; return o && {added}.has_value(); }}\n"
    chunking, address = rest
    text += pipeline(transport=transport).replace("fixed_bytes<4096>", chunking)
    if address is None:
        return text + USE.format(k=0, model="model")
    return text + f"bool f(const tensorpull::reference& ref, model& to) {{ return net0::download_tensors({address}, ref, to).has_value(); }}\n"


def image_of_struct(count, header="tensors/structs/raw.hpp", adapted=adapted):
    return (f"#include <array>\n#include <tensorpull/{header}>\n" + distinct_model(count, adapted=adapted) +
            "tensorpull::source_view image(const model& m) { return tensorpull::raw_tensors<model>::source(m); }\n")


def image_of_members(count):
    return image_of_struct(count, header="tensors/members/raw_tensors.hpp", adapted=listed)


def image_of_hana_map(count):
    pairs = ", ".join(f"boost::hana::make_pair(BOOST_HANA_STRING(\"w{i}\"), {TENSOR}{{}})" for i in range(count))
    return f'#include "hana_map.hpp"\nimage_table image() {{\n  static const auto model = boost::hana::make_map({pairs});\n  return table_of(model);\n}}\n'


def image_of_tuple(count):
    members = ", ".join(f'named_tensor<"w{i}", float, 8>' for i in range(count))
    return f'#include "std_tuple.hpp"\nusing model = std::tuple<{members}>;\nimage_table image(const model& m) {{ return table_of(m); }}\n'


def image_of_pack(count):
    tensors = "".join(f'struct w{i} {{\n  static constexpr const char* name = "w{i}";\n  {TENSOR} data;\n}};\n' for i in range(count))
    return f'#include "pack.hpp"\n{tensors}using model = pack<{", ".join(f"w{i}" for i in range(count))}>;\nimage_table image(const model& m) {{ return table_of(m); }}\n'


def image_of_mp11(count):
    model = struct("model", [(TENSOR, f"w{i}") for i in range(count)])
    members = "".join(f'struct of_w{i} {{\n  static constexpr const char* name = "w{i}";\n  static constexpr auto pointer = &model::w{i};\n}};\n' for i in range(count))
    listed = ", ".join(f"of_w{i}" for i in range(count))
    return (f'#include "mp11.hpp"\n{model}{members}'
            f"image_table image(const model& m) {{ return table_of<boost::mp11::mp_list<{listed}>>(m); }}\n")


def image_of_pfr(count):
    names = ", ".join(f'"w{i}"' for i in range(count))
    return (f'#include "pfr.hpp"\n{distinct_model(count, adapted=struct)}'
            f"image_table image(const model& m) {{\n  static constexpr const char* names[] = {{{names}}};\n  return table_of(m, names);\n}}\n")


def image_of_run_time_table(count):
    model = struct("model", [(TENSOR, f"w{i}") for i in range(count)])
    added = "".join(f'  table.add("w{i}", "F32", {{m.w{i}.size()}}, m.w{i}.data(), sizeof m.w{i});\n' for i in range(count))
    return (f'#include "image_table.hpp"\n#include <array>\n{model}'
            f"image_table image(const model& m) {{\n  image_table table;\n{added}  table.arrange();\n  return table;\n}}\n")
