// The clients of the federated example, over TCP.
#include "clients.hpp"

int main(int count, char** arguments) {
  using namespace federated;
  return clients_main(count, arguments,
                      [](const options& chosen) { return run_clients<net>(chosen, to_text(chosen.connect)); });
}
