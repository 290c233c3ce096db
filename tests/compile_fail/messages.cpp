// Messages with members that cannot travel.
// WITHIN_LINES: 0
// MAX_ERRORS: 3
// MAX_LINES: 40
#include "message.hpp"

// CASE message_enumeration_without_a_type
// EXPECT: tensorpull: a member of the message struct cannot travel
enum colour {
  red,
  green
};
struct task {
  int round;
  colour paint;
};
BOOST_HANA_ADAPT_STRUCT(task, round, paint);

// CASE message_member_that_cannot_travel
// EXPECT: tensorpull: a member of the message struct cannot travel
struct task {
  int round;
  const char* name;
  tensors_of<mlp> weights;
};
BOOST_HANA_ADAPT_STRUCT(task, round, name, weights);

// CASE message_struct_within_itself
// EXPECT: tensorpull: a member of the message struct cannot travel
struct task {
  int round;
  std::vector<task> parts;
};
BOOST_HANA_ADAPT_STRUCT(task, round, parts);

// EACH ENDS WITH
bool send(net::downloader& owner, task& t) { return tensor_decomposer<net>::decompose(owner, t).has_value(); }
