#include <tensorpull/satellites/nats/nats.hpp>

#include "transport_table.hpp"

TEST(TransportTable, Says_what_nats_says) { test::table_says<tensorpull::nats>("nats", "satellites/nats"); }
