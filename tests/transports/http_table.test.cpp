#include <tensorpull/transports/http/http_pull.hpp>

#include "transport_table.hpp"

TEST(TransportTable, SaysWhatHttpSays) { test::table_says<tensorpull::http>("http"); }
