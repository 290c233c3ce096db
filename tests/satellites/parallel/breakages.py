"""What tests/awake.py breaks of this satellite, as in tests/breakages.py."""

BREAKAGES = [
    ("satellites/parallel/parallel_recipient.hpp", "if (order_ == chunk_order::given) chunking_.measured", "if (true) chunking_.measured", "satellites/parallel/parallel_transfer", "*Adaptive*"),
    ("satellites/parallel/parallel_transfer.hpp", "damaged_ != before && others()", "false", "satellites/parallel/parallel_pull", "*damages_the_first_chunk_is*"),
    ("satellites/parallel/parallel_transfer.hpp", "if (is_known) repeated_ += base::answers() - before;", "(void)before, (void)is_known;", "satellites/parallel/parallel_pull", "*only_describe*"),
    ("satellites/parallel/parallel_transfer.hpp", "if (machine_.request().by_name()) return;  // another line's owner would have to be told the names first", "", "satellites/parallel/parallel_transfer", "*Named_tensors*"),
    ("satellites/parallel/parallel_transfer.hpp", "static_cast<std::uint32_t>(std::min(c->length(), m.longest_chunk()))", "static_cast<std::uint32_t>(c->length())", "satellites/parallel/parallel_pull", "*are_cut*"),
    ("satellites/parallel/chunk_ledger.hpp", "if (r.bytes() > 0 && (longest == nullptr", "if (r.bytes() >= 2 * least && (longest == nullptr", "satellites/parallel/parallel_pull", "*A_part_is_a_whole_file*"),
    ("satellites/parallel/parallel_pull.hpp", "if (i == t_.first_line()) hurry(now);", "", "satellites/parallel/parallel_pull", "*slow_owner_that_is_asked_first*"),
    ("satellites/parallel/parallel_transfer.hpp", "first_ != nobody && first_ != number && lines_[first_].works()", "first_ != nobody && lines_[first_].works()", "satellites/parallel/parallel_transfer", "*another_connection*"),
    ("satellites/parallel/parallel_transfer.hpp", "if (is_wrong() && check().begin()) return;", "", "satellites/parallel/parallel_pull", "*Whoever_gives_wrong*"),
    ("satellites/parallel/parallel_transfer.hpp", "if (error_) return check().refuse();", "if (error_) return abandon();", "satellites/parallel/liars", "*one_kind*"),
    ("satellites/parallel/detail/source_check.hpp", "if (s.hash.digest() == all_.machine_.wanted_version()) return prove(n);", "return prove(n);", "satellites/parallel/liars", "*one_kind*"),
    ("satellites/parallel/detail/source_check.hpp", "!landed_as(s.read, bytes)", "false", "satellites/parallel/liars", "*one_kind*"),
    ("satellites/parallel/parallel_pull.hpp", "Transfer::most_lines * limits::page_bytes", "limits::page_bytes", "satellites/parallel/parallel_pull", "*Whoever_begins*"),
    ("satellites/parallel/parallel_pull.hpp", "!has_passed(clock::now() - l.at, std::min(each_, options_.per_request_timeout))", "clock::now() - l.at < std::min(each_, options_.per_request_timeout)", "satellites/parallel/parallel_pull", "*Never_is*"),
    ("satellites/parallel/parallel_pull.hpp", ">= most_landed_ + least_progress", "> most_landed_", "satellites/parallel/parallel_pull", "*few_bytes*"),
    ("satellites/parallel/parallel_pull.hpp", "if (!rest) rest = std::chrono::milliseconds(0);", "", "satellites/parallel/parallel_pull", "*Addresses_that*"),
    ("satellites/parallel/detail/sources.hpp", "s.header_differs(header) ||", "", "satellites/parallel/liars", "*one_kind*"),
    ("satellites/parallel/parallel_transfer.hpp", "if (finished_) confirm_over_idle_line();", "", "satellites/parallel/parallel_transfer", "*An_idle_line*"),
    ("satellites/parallel/parallel_transfer.hpp", "return c.writer == n || (c.end == missing_.end() && n != first_);", "return c.end == missing_.end();", "satellites/parallel/parallel_pull", "*Several_connections*"),
    ("satellites/parallel/parallel_pull.hpp", "if (!has_passed(clock::now() - l.at, std::min(each_, options_.per_request_timeout))) return false;", "if (clock::now() - l.at < std::min(each_, options_.per_request_timeout)) return false;", "satellites/parallel/parallel_pull", "*means_never*"),
]
