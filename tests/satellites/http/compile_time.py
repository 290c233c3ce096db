"""Programs whose compile time is measured and bounded, as in bench/compile_time/sources.py."""

PULLS = {
    "http": ("satellites/http/recipient/http_pull.hpp", "http", "fixed_bytes<4096>", '"http://server/model"'),
}
OWNERS = {
    "http_only<tcp>, owner": ("satellites/http/owner/http_owner.hpp", "http_only<tensorpull::tcp>", "net0::downloader::open()"),
}
USES = {
    "http_put": (("satellites/http/recipient/http_put.hpp",),
                 "bool f(const model& m) { return tensorpull::http_put({.url = \"http://server/model\"}, tensorpull::raw_tensors<model>::source(m)).has_value(); }\n"),
}
BOUNDS = {
    "g++ 12": {"http": 53_380, "http_only<tcp>, owner": 47_090},
    "clang 14": {"http": 14_880, "http_only<tcp>, owner": 13_040},
}
