// An upload to an object store, which has a file of its own (put_http.cpp) since it takes long to compile.
#pragma once

#include "link_choice.hpp"

#include <tensorpull/core/result.hpp>
#include <tensorpull/image/view.hpp>
#include <tensorpull/std/stop_token.hpp>

#include <chrono>

namespace tools {

namespace tp = tensorpull;

/// Sends the image to the URL of the choice. Errors: as tensorpull::http_put.
tp::result<void> put_over_http(const link_choice& link, const tp::source_view& image, std::chrono::milliseconds timeout,
                               const tp::stop_token& stop);

}  // namespace tools
