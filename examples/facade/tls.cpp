#include "tls.hpp"

#include "table.hpp"

namespace tensorpull::facade {
namespace {

class tls_configuration final : public any_tls {
 public:
  tls_configuration(const tls_arguments& arguments, tls_context made) : any_tls(arguments), context(std::move(made)) {}
  result<void> reload() noexcept override { return context.reload(options_of(given)); }
  tls_context context;
};

}  // namespace

tls_context context_of(const any_tls& configuration) noexcept {
  return static_cast<const tls_configuration&>(configuration).context;
}
tls_context context_of(const place& p) noexcept { return p.tls ? context_of(*p.tls) : tls_context{}; }
result<std::shared_ptr<any_tls>> make_tls(const tls_arguments& given) {
  auto context = tls_context::make(options_of(given));
  if (!context) return failure(context.error());
  return std::shared_ptr<any_tls>(std::make_shared<tls_configuration>(given, std::move(*context)));
}

}  // namespace tensorpull::facade
