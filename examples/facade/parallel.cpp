// Pulls from several places, in turn or at a time, and over several connections to one.
#include "engine.hpp"

#include <tensorpull/satellites/parallel/parallel_pull.hpp>

namespace tensorpull::facade {

result<receipt> pull_from_several(any_pull& how, const reference& ref, any_consumer& to, const pull_options& options) {
  std::vector<stream_place> all;
  for (const place& p : how.from) all.push_back({&p, options.stop, std::min(how.each, options.per_request_timeout)});
  const auto told = [&](const address_attempt& a) { how.tell({a.index, a.before, a.failed, a.system}); };
  callback<const address_attempt&> tell;
  if (how.tell) tell = told;
  if (how.connections && (to.takes_any_order() || to.group_bytes() != 0) && to.undoes()) {
    const parallel_addresses<any_streams, stream_place> where(all, *how.connections, how.each, tell);
    const auto done = pull_over<any_streams>(where, how, ref, to, options);
    how.wrong = where.wrong();
    return done;
  }
  const several_addresses<any_streams, stream_place> in_turn(all, how.each, tell);
  const dial next{
      [&](std::chrono::milliseconds timeout, const stop_token& stop) { return in_turn.connect(timeout, stop); }};
  return pull_by(next, how, ref, to, options);
}

}  // namespace tensorpull::facade
