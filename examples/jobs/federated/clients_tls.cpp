// The clients of the federated example, over TLS. The server shows a certificate of the authorities in --ca, for the
// host of --connect; a server that wants to know its clients is shown that of --cert.
#include "clients.hpp"

#include <tensorpull/transports/over/tls/tls.hpp>

namespace federated {

int run_over_tls(const options& chosen) {
  const auto file = [](const std::string& name) {
    return name.empty() ? tensorpull::pem_source{} : tensorpull::pem_source{.file = name};
  };
  const auto context = tensorpull::tls_context::make(
      {.authorities = file(chosen.ca), .certificate = file(chosen.cert), .key = file(chosen.key)});
  if (!context) throw std::runtime_error(std::string("TLS: ") + describe(context.error()).c_str());
  const std::string server = to_text(chosen.connect);
  return run_clients<net_over<tensorpull::tls>>(chosen, tensorpull::tls_address{server, *context});
}

}  // namespace federated

int main(int count, char** arguments) { return federated::clients_main(count, arguments, federated::run_over_tls); }
