// An upload to an object store, which has a file of its own (put_http.cpp) since it takes long to compile.
#pragma once

#include "link_choice.hpp"

#include <tensorpull/core/result.hpp>
#include <tensorpull/image/view.hpp>
#include <tensorpull/std/stop_token.hpp>

#include <chrono>
#include <cstdint>

namespace tools {

namespace tp = tensorpull;

/// Reads the image for its digest, then sends it to the URL of the choice. The digest of what was sent, which is that
/// one. Errors: as tensorpull::http_put; digest_mismatch: the image has changed meanwhile, and the store lacks its end.
tp::result<std::uint64_t> put_over_http(const link_choice& link, const tp::source_view& image,
                                        std::chrono::milliseconds timeout, const tp::stop_token& stop);

}  // namespace tools
