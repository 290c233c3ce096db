#include <tensorpull/transports/over/tls/tls.hpp>

#include "transport_table.hpp"

TEST(TransportTable, Says_what_tls_says) { test::table_says<tensorpull::tls>("tls"); }
