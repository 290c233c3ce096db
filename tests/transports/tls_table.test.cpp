#include <tensorpull/transports/https/https_pull.hpp>
#include <tensorpull/transports/tls/tls.hpp>

#include "transport_table.hpp"

TEST(TransportTable, SaysWhatTlsSays) { test::table_says<tensorpull::tls>("tls"); }
TEST(TransportTable, SaysWhatHttpsSays) { test::table_says<tensorpull::https>("https"); }
