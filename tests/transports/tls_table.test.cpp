#include <tensorpull/transports/tls/tls.hpp>

#include "transport_table.hpp"

TEST(TransportTable, SaysWhatTlsSays) { test::table_says<tensorpull::tls>("tls"); }
