// Messages that cannot be received.
// WITHIN_LINES: 0
// MAX_ERRORS: 3
// MAX_LINES: 40
#include "message.hpp"

// CASE message_list_of_pointers
// EXPECT: tensorpull: a member of the message struct cannot travel
struct row {
  std::optional<const int*> where;
};
BOOST_HANA_ADAPT_STRUCT(row, where);
struct task {
  std::vector<row> rows;
};
BOOST_HANA_ADAPT_STRUCT(task, rows);

// CASE message_not_adapted
// EXPECT: tensorpull: a message is a struct adapted with BOOST_HANA_ADAPT_STRUCT
struct task {
  int round;
};

// EACH ENDS WITH
bool receive(task& t) { return tensor_decomposer<net>::recompose({}, {}, t).has_value(); }
