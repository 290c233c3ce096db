"""What tests/awake.py breaks of this satellite, as in tests/breakages.py."""

BREAKAGES = [
    ("satellites/nats/detail/nats_socket.hpp", "std::min(std::max<std::int64_t>(timeout.count(), 1), std::int64_t{1} << 30)", "std::max<std::int64_t>(timeout.count(), 1)", "satellites/nats/nats_link", "*without_end*"),
    ("satellites/nats/detail/nats_door.hpp", "has_passed(now - began_, timeout_)", "now - began_ >= timeout_", "satellites/nats/nats_link", "*without_end*"),
    ("protocol/recipient/pull_request.hpp", "return version == 0 || by_name();", "return version == 0;", "satellites/nats/laws_nats:transports/laws_tcp", "*by_name*"),
    ("pull/running_pull.hpp", "if (request.believes() && !options.believe)", "if (false)", "satellites/nats/nats_strangers", "*C1_*"),
    ("satellites/nats/nats.hpp", "anyone_answers = true;", "anyone_answers = false;", "satellites/nats/nats_strangers:satellites/nats/nats_table", "*"),
    ("transports/session/datagram_session.hpp", "p.transfer().fits(detail::longest_arriving(link_));", "", "satellites/nats/nats_session", "*Shorter_chunks_go_through_a_server_that_allows_less"),
    ("satellites/nats/nats_peer.hpp", "if (!met_ || last_ == to_) return io;", "return io;", "satellites/nats/nats_session", "*third*"),
    ("satellites/nats/nats_peer.hpp", "met_ = met_ || for_good;", "met_ = true;", "satellites/nats/nats_session", "*takes_no_seat*"),
    ("satellites/nats/nats_peer.hpp", "if (io.status == io_status::would_block && link_.datagram_bytes() < bytes_) return {io_status::closed, 0, 0};", "", "satellites/nats/nats_session", "*allows_less*"),
    ("satellites/nats/nats_subject.hpp", "|| c == '>' ||", "||", "satellites/nats/nats_subject", "*"),
    ("satellites/nats/nats_subject.hpp", "if (!reply.starts_with(inbox_begin) ||", "if (", "satellites/nats/nats_subject", "*"),
    ("satellites/nats/detail/nats_socket.hpp", "if (asks_for_tls(url)) also(natsOptions_SetSecure, true);", "", "satellites/nats/nats_tls", "*without_it*"),
    ("satellites/nats/detail/nats_door.hpp", "if (with_tls != 0 && with_tls != count_) count_ = 0;", "", "satellites/nats/nats_tls", "*only_some*"),
    ("satellites/nats/nats_owner.hpp", "return base::open_transaction(published_as(options));", "return base::open_transaction(options);", "satellites/nats/nats_replicas", "*Wait_for_nobody*"),
    ("satellites/nats/nats_link.hpp", "without_secrets(where.url)", "where.url", "satellites/nats/nats_link", "*Refusals*"),
    ("satellites/nats/nats_link.hpp", " || may_not_publish(rounds.back().echo.subject))", ")", "satellites/nats/nats_link", "*publish_to_no_inbox*"),
    ("satellites/nats/nats_link.hpp", "std::array<round, 3> rounds", "std::array<round, 1> rounds", "satellites/nats/nats_link", "*wherever_the_answers*"),
    ("satellites/nats/nats_guest.hpp", "link_.may_not_publish(coordinator_) ||", "", "satellites/nats/nats_download", "*may_not_ask*"),
    ("core/digits.hpp", "text.size() - at > 2 ? hex_number(", "true ? hex_number(", "satellites/nats/nats_link", "*as_URLs*"),
]
