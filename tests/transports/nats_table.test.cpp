#include <tensorpull/transports/nats/nats.hpp>

#include "transport_table.hpp"

TEST(TransportTable, SaysWhatNatsSays) { test::table_says<tensorpull::nats>("nats"); }
