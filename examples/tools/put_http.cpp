#include "puts.hpp"

#if TENSORPULL_TOOLS_TLS
#include "tls_context_of.hpp"

#include <tensorpull/transports/https/https_put.hpp>
#endif
#include <tensorpull/transports/http/recipient/http_put.hpp>

namespace tools {

tp::result<void> put_over_http(const link_choice& link, const tp::source_view& image, std::chrono::milliseconds timeout,
                               const tp::stop_token& stop) {
  const tp::http_address at{.url = link.address};
  const tp::http_put_options options{.timeout = timeout, .stop = stop};
#if TENSORPULL_TOOLS_TLS
  const auto context = tls_context_of(link.tls);
  if (!context) return tp::failure(context.error());
  const auto done = tp::https_put(tp::https_address{at, *context}, image, options);
#else
  const auto done = tp::http_put(at, image, options);
#endif
  return done ? tp::result<void>{} : tp::result<void>(tp::failure(done.error()));
}

}  // namespace tools
