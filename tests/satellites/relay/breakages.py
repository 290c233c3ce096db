"""What tests/awake.py breaks of this satellite, as in tests/breakages.py."""

BREAKAGES = [
    ("satellites/relay/relay.hpp", "const detail::awaited_link line(upstream.stream());", "", "satellites/relay/relay_silent_line", "*"),
    ("satellites/relay/relay.hpp", "machine.asked() ? options.idle_timeout", "true ? options.idle_timeout", "satellites/relay/relay", "*keep_the_owners*"),
    ("satellites/relay/relay.hpp", "(worked || held", "(moved || worked || held", "satellites/relay/relay", "*keep_the_owners*"),
    ("satellites/relay/relay_machine.hpp", "own != 0 && (m.request_words == 0 || m.request_words > own)", "own != 0 && m.request_words > own", "satellites/relay/relay", "*No_longer*"),
    ("satellites/relay/relay_machine.hpp", "m.kind == frame_kind::refused && ends_a_serve(m.status)", "false", "satellites/relay/relay", "*Ends_well*"),
    ("satellites/relay/relay_machine.hpp", "if (is_newer(m.kind)) return true;", "", "satellites/relay/relay", "*F17*"),
    ("satellites/relay/relay_machine.hpp", "is_newer(m.kind) ? status::unsupported :", "", "satellites/relay/relay", "*F17*"),
    ("satellites/relay/relay_machine.hpp", "if (!is_request(m.kind)) return", "if (false) return", "satellites/relay/relay", "*"),
    ("satellites/relay/relay_machine.hpp", "if (nonce_ != 0 || asked_count_ != 0 || report_.completed + report_.completed_unverified == 0) return fail(why);", "return fail(why);", "satellites/relay/relay", "*leaves_once_it_has_the_confirmation*"),
    ("satellites/relay/relay_machine.hpp", "nonce_ != 0 || asked_count_ != 0 || report_.completed + report_.completed_unverified == 0", "false", "satellites/relay/relay", "*leaves_before*"),
    ("satellites/relay/detail/two_streams.hpp", "limiter_({0, bytes_per_second})", "limiter_({0, 100 * bytes_per_second})", "satellites/relay/relay", "*no_more_in_a_second*"),
    ("transports/session/session.hpp", "if (queued) {  // if it leaves at once", "if (false) {  // if it leaves at once", "satellites/relay/relay", "*while_it_is_told_to_go*"),
    ("transports/session/session.hpp", "!s_->box.unread() && !s_->end.stalled()", "!s_->end.stalled()", "satellites/relay/relay", "*not_between_frames*"),
    ("satellites/relay/tunnel.hpp", "back.write(first, at_once) || moved", "moved", "satellites/relay/tunnel", "*both_directions*"),
    ("satellites/relay/tunnel.hpp", "return ended_ && !has_bytes();", "return ended_;", "satellites/relay/tunnel", "*before_it_hangs_up*"),
    ("satellites/relay/tunnel.hpp", "if (left.count() <= 0) return ended(errc::timed_out);", "", "satellites/relay/tunnel", "*by_time*"),
    ("satellites/relay/tunnel.hpp", "moved = forth.write(second, pace) || moved;", "moved = forth.write(second, at_once) || moved;", "satellites/relay/tunnel", "*rate_says*"),
]
