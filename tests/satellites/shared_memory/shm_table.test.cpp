#include <tensorpull/satellites/shared_memory/shared_memory.hpp>

#include "transport_table.hpp"

TEST(TransportTable, Says_what_shared_memory_says) {
  test::table_says<tensorpull::shared_memory>("shared_memory", "satellites/shared_memory");
}
