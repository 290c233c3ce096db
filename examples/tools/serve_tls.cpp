#include "serve_http.hpp"

#include "tls_context_of.hpp"

#include <tensorpull/transports/host/owner.hpp>

namespace tools {

serving serve_over_tls(const link_choice& link) {
  const auto context = tls_context_of(link.tls);
  if (!context) return tp::failure(context.error());
  return serve_owner_and_http<tp::tls>(sending<tp::tls>::downloader::open(tp::tls_address{link.address, *context}),
                                       link.door,
                                       [&](std::string_view address) { return tp::tls_address{address, *context}; });
}

}  // namespace tools
