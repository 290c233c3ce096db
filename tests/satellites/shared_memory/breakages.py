"""What tests/awake.py breaks of this satellite, as in tests/breakages.py."""

BREAKAGES = [
    ("transports/session/session.hpp", "if (left.count() <= 0) {", "if (left.count() <= 0 && !s_->end.mid_frame()) {", "satellites/shared_memory/laws_shared_memory", "*Sessions/ThirdParties*"),
    ("satellites/shared_memory/detail/sharing_owner.hpp", "if (!fd) return nullptr;", "if (!fd) { *s = {out.slot, out.generation, {-1, -1}, 0, 0, 0, 0, 0, false, true}; return s; }", "satellites/shared_memory/shm_download", "*no_descriptor_once*"),
    ("satellites/shared_memory/detail/sharing_owner.hpp", "s.generation == r.generation && s.slot == r.slot", "s.slot == r.slot", "satellites/shared_memory/shm_download", "*memory_of_its_own*"),
    ("satellites/shared_memory/shared_stream.hpp", "if (passed_ == most_unread) return write_some(spans);", "", "satellites/shared_memory/shm_strangers", "*Two_recipients*"),
    ("satellites/shared_memory/shared_view.hpp", "    made_ = nullptr;\n", "", "satellites/shared_memory/shm_view", "*second_view*"),
    ("satellites/shared_memory/shared_stream.hpp", "if (io.status == io_status::failed && io.system == ETOOMANYREFS) return write_some(spans);", "", "satellites/shared_memory/shm_strangers", "*As_many*"),
]
