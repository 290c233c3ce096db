"""The files that are compiled: each series is a way of writing a model or a program, over a growing number of something."""

FANOUT = 25  # members of a struct: BOOST_HANA_ADAPT_STRUCT takes at most 39
TENSOR = "std::array<float, 8>"

EMPTY = "int main() {}\n"
HEADERS = "#include <tensorpull/tensorpull.hpp>\n"  # as users include it
USE = "bool f{k}(net{k}::downloader& from, const tensorpull::reference& ref, {model}& to) {{ return net{k}::download_tensors(from, ref, to).has_value(); }}\n"


def adapted(name, members):
    """A struct of (type, name) members, and its adaption."""
    declared = "".join(f"  {kind} {member};\n" for kind, member in members)
    return f"struct {name} {{\n{declared}}};\nBOOST_HANA_ADAPT_STRUCT({name}, {', '.join(member for _, member in members)});\n"


def distinct_model(count, name="model", prefix="w"):
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


def roles(role):
    """The programs that people write around a pipeline of 400 tensors."""
    if role == "empty":
        return EMPTY
    owner = {"tcp, owner": "#include <tensorpull/transports/host/owner.hpp>\n", "http, owner": "#include <tensorpull/transports/http/http_owner.hpp>\n"}.get(role, "")
    text = HEADERS + owner + repeated_model(400)
    if role == "loopback":
        return text + pipeline() + USE.format(k=0, model="model")
    if role == "tcp":
        return text + pipeline(transport="tcp") + ("bool f(const tensorpull::reference& ref, model& to) "
                                                   "{ return net0::download_tensors(\"server:8002\", ref, to).has_value(); }\n")
    if role == "tls":
        return ("#include <tensorpull/transports/tls/tls.hpp>\n" + text + pipeline(transport="tls") + "bool f(const tensorpull::reference& ref, model& to) "
                "{ return net0::download_tensors(tensorpull::tls_address{\"server:8002\"}, ref, to).has_value(); }\n")
    if role == "udp":
        return ("#include <tensorpull/transports/udp/udp.hpp>\n" + text + pipeline(transport="udp").replace("fixed_bytes<4096>", "fit_datagram") + "bool f(const tensorpull::reference& ref, model& to) "
                "{ return net0::download_tensors(\"server:8002\", ref, to).has_value(); }\n")
    if role == "nats":
        return ("#include <tensorpull/transports/nats/nats.hpp>\n" + text + pipeline(transport="nats") + "bool f(const tensorpull::reference& ref, model& to) "
                "{ return net0::download_tensors(\"nats://server:4222\", ref, to).has_value(); }\n")
    if role == "serial":
        return ("#include <tensorpull/transports/serial/serial.hpp>\n" + HEADERS + repeated_model(400) +
                "using net0 = tensorpull::pipeline<tensorpull::raw_tensors<model>, tensorpull::fixed_bytes<512>, tensorpull::serial>;\n"
                "bool f(const tensorpull::reference& ref, model& to) { return net0::download_tensors(\"/dev/ttyUSB0\", ref, to).has_value(); }\n")
    if role == "http, owner":
        return text + pipeline(transport="with_http<tensorpull::tcp>") + "bool f(const model& m) { auto o = net0::downloader::open(); return o && o->add_tensors(m).has_value(); }\n"
    if role == "tcp, owner":
        return text + pipeline(transport="tcp") + "bool f(const model& m) { auto o = net0::downloader::open(); return o && o->add_tensors(m).has_value(); }\n"
    return text


def image_of_struct(count):
    return ("#include <tensorpull/tensors/structs/raw.hpp>\n" + distinct_model(count) +
            "tensorpull::source_view image(const model& m) { return tensorpull::raw_tensors<model>::source(m); }\n")


def image_of_hana_map(count):
    pairs = ", ".join(f"boost::hana::make_pair(BOOST_HANA_STRING(\"w{i}\"), {TENSOR}{{}})" for i in range(count))
    return f'#include "hana_map.hpp"\nimage_table image() {{\n  static const auto model = boost::hana::make_map({pairs});\n  return table_of(model);\n}}\n'


def image_of_tuple(count):
    members = ", ".join(f'named_tensor<"w{i}", float, 8>' for i in range(count))
    return f'#include "std_tuple.hpp"\nusing model = std::tuple<{members}>;\nimage_table image(const model& m) {{ return table_of(m); }}\n'


def image_of_run_time_table(count):
    declared = "".join(f"  {TENSOR} w{i};\n" for i in range(count))
    added = "".join(f'  table.add("w{i}", "F32", {{m.w{i}.size()}}, m.w{i}.data(), sizeof m.w{i});\n' for i in range(count))
    return (f'#include "image_table.hpp"\n#include <array>\nstruct model {{\n{declared}}};\n'
            f"image_table image(const model& m) {{\n  image_table table;\n{added}  table.arrange();\n  return table;\n}}\n")
