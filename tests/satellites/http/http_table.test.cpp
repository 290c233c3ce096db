#include <tensorpull/satellites/http/recipient/http_pull.hpp>

#include "transport_table.hpp"

TEST(TransportTable, Says_what_http_says) { test::table_says<tensorpull::http>("http", "satellites/http"); }
