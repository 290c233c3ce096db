"""Programs whose compile time is measured and bounded, as in bench/compile_time/sources.py."""

USES = {
    "download_changes": (("satellites/differences/download_changes.hpp", "satellites/differences/deflate/deflate.hpp"),
                         "bool f(const tensorpull::reference& ref, model& to, tensorpull::deflate_coder& coder) { return tensorpull::download_changes<net0>(\"server:8002\", ref, to, coder).has_value(); }\n"),
    "widened<land>": (("satellites/differences/widened.hpp", "consumers/land.hpp"),
                      "bool f(const tensorpull::reference& ref, model& to) {\n  tensorpull::land in_place(net0::parts::tensors::destination(to));\n"
                      "  auto moves = tensorpull::widened<tensorpull::land>::make(in_place, net0::parts::tensors::source(to), 4096);\n"
                      "  return moves && net0::pull(\"server:8002\", ref, *moves).has_value();\n}\n"),
    "model_difference, owner": (("transports/host/owner.hpp", "satellites/differences/difference.hpp", "satellites/differences/deflate/deflate.hpp"),
                                "bool f(const model& from, const model& to, tensorpull::deflate_coder& coder) {\n  const auto made = tensorpull::model_difference::make(tensorpull::raw_tensors<model>::source(from), tensorpull::raw_tensors<model>::source(to), coder);\n"
                                "  auto o = net0::downloader::open();\n  return o && made && o->add_image(made->image()).has_value();\n}\n"),
    "narrowed_difference, owner": (("transports/host/owner.hpp", "satellites/differences/narrowed_difference.hpp"),
                                   "bool f(std::span<const tensorpull::tensor_view> now, std::span<const tensorpull::tensor_view> base) {\n  const auto made = tensorpull::narrowed_difference<>::make(now, base);\n"
                                   "  auto o = net0::downloader::open();\n  return o && made && o->add_image(made->model().source()).has_value();\n}\n"),
}
CONSUMERS = {
    "widened<land>": "satellites/differences/widened.hpp",
}
