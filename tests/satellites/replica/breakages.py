"""What tests/awake.py breaks of this satellite, as in tests/breakages.py."""

BREAKAGES = [
    ("satellites/replica/detail/described_references.hpp", "runs_of(m).distance(length - 1) + 1 < last", "length < last", "satellites/replica/replica", "*later_dimension*"),
    ("links/posix/wait.hpp", "return std::chrono::duration_cast<std::chrono::milliseconds>(spent) >= time;", "return spent >= time;", "satellites/replica/replica", "*without_end*"),
    ("satellites/replica/replica_line.hpp", "if (!is_newer(m.kind) && (", "if ((", "satellites/replica/replica_line", "*F17*"),
    ("satellites/replica/replica_owner.hpp", "if (const auto ok = noted(images[i].as); !ok) all = failure(ok.error());", ";", "satellites/replica/replica", "*whatever_it_has_published*"),
    ("satellites/replica/replica_owner.hpp", "return base::open_transaction(detail::expecting_nobody(options));", "return base::open_transaction(options);", "satellites/replica/replica", "*whatever_it_has_published*"),
    ("satellites/replica/replica_owner.hpp", "if (began >= turned) ++turn, turned = now;", "", "satellites/replica/replica_names", "*is_silent*"),
    ("satellites/replica/replica_owner.hpp", "turn = s ? ~std::size_t{0} : 0;", "turn = at + 1;", "satellites/replica/replica_names", "*comes_back*"),
    ("satellites/replica/replica_owner.hpp", "&& kept.keep();", ";", "satellites/replica/replica_strangers", "*more_recipients*"),
    ("satellites/replica/replica_owner.hpp", "if (tick && std::exchange(s.crowded, false)) make_room(s, now);", "", "satellites/replica/replica_strangers", "*Silent_ones*"),
    ("satellites/replica/replica_owner.hpp", "if (s.lines.size() < before && !s.lacks) s.accepts = true;", "", "satellites/replica/laws_replica", "Replica/ThirdParties*"),
    ("satellites/replica/replica_owner.hpp", "(void)kept.keep();", "", "satellites/replica/replica_strangers", "*is_missed*"),
    ("satellites/replica/replica_line.hpp", "unanswered_ > 0 && !refused_", "unanswered_ > 0", "satellites/replica/replica_line", "*refusal*"),
    ("satellites/replica/replica_line.hpp", "if (heard_ == 0 && asked_++ >= most_unproven) return;", "", "satellites/replica/replica_line", "*a_little*"),
    ("satellites/replica/replica_line.hpp", "asked_ = 0;\n    if (waits", "if (waits", "satellites/replica/replica_line", "*a_little*"),
    ("satellites/replica/replica_owner.hpp", "(!s.accepts && detail::others_wait(s.listener.native_handle()))", "!s.accepts", "satellites/replica/replica_strangers", "*nobody_waits*"),
]
