"""What tests/awake.py breaks of this satellite, as in tests/breakages.py."""

FILE = "satellites/directories/directories"
BREAKAGES = [
    ("satellites/directories/detail/file_names.hpp", 'part == ".." || ', "", FILE, "*lead_elsewhere*"),
    ("satellites/directories/detail/file_names.hpp", "if (part.empty() || ", "if (", FILE, "*lead_elsewhere*"),
    ("satellites/directories/detail/file_names.hpp", "if (i > 0 && rows[i - 1].name == name) return refuse();", "", FILE, "*are_one*"),
    ("satellites/directories/detail/file_names.hpp", "there->name == above) return refuse();", "false) return refuse();", FILE, "*are_one*"),
    ("satellites/directories/directory_image.hpp", "&& from.is(now)) return {};", ") return {};", FILE, "*changes_while*"),
    ("satellites/directories/directory_image.hpp", "if (link && !options.follow_links)", "if (false)", FILE, "*link_is_refused*"),
    ("satellites/directories/detail/directory_part.hpp", "return i < schema_.tensor_count;", "return true;", FILE, "*another_version*"),
    ("satellites/directories/detail/directory_part.hpp", "if (!locked_ && errno == EWOULDBLOCK) return EAGAIN;", "", FILE, "*Two_processes*"),
    ("satellites/directories/detail/directory_part.hpp", "return overwrite_ ? 0 : EEXIST;", "return 0;", FILE, "*only_a_directory*:*beside_a_base*"),
    ("satellites/directories/detail/directory_part.hpp", "if (!ours_ || (", "if (!state_ || (", FILE, "*Two_processes*"),
    ("satellites/directories/detail/directory_part.hpp", "about.st_nlink > 1 : errno", "false : errno", FILE, "*process_that_died*"),
    ("satellites/directories/detail/directory_part.hpp", "if (::fchmod(files_.get(), (there.st_mode & 07777) | S_IRWXU) != 0) return errno;", "", FILE, "*as_private*"),
    ("satellites/directories/receive_directory.hpp", "if (!*good) return failure(errc::digest_mismatch, 0, image_->schema().tensors[i].name);", "", FILE, "*not_those_that_were_stated*"),
    ("satellites/directories/receive_directory.hpp", "if (cursor) part.save(cursor);", "", FILE, "*at_the_byte*"),
    ("satellites/directories/receive_directory.hpp", "bool looked() const noexcept { return forgets_; }", "bool looked() const noexcept { return false; }", FILE, "*beside_a_base*"),
    ("satellites/directories/receive_directory.hpp", "if (bytes() > options_.max_bytes) return failure(errc::too_large, bytes(), path);", "", FILE, "*More_than_is_allowed*"),
    ("satellites/directories/detail/open_files.hpp", "while (!made && (errno == EMFILE || errno == ENFILE))", "while (false)", FILE, "*all_descriptors*"),
    ("satellites/directories/directory_image.hpp", "std::string_view(changed->path), reason)", "std::string_view(changed->path), 0)", FILE, "*may_not_be_read*"),
    ("satellites/directories/receive_files.hpp", "good = digest.agrees();", "good = true;", "satellites/directories/receive_files", "*Other_bytes*"),
    ("satellites/directories/receive_files.hpp", "there < entries[k].size_bytes() ? there : 0;", "0;", "satellites/directories/receive_files", "*byte_of_a_file*"),
    ("satellites/directories/receive_files.hpp", "part.size(k) == size ? agrees(fd) : result<bool>(false)", "result<bool>(part.size(k) == size)", "satellites/directories/receive_files", "*another_version*"),
    ("satellites/directories/receive_files.hpp", "if (bytes.size() > size - at) return", "if (false) return", "satellites/directories/receive_files", "*More_bytes*"),
    ("satellites/directories/receive_files.hpp", "if (list.size() > how.max_files)", "if (false)", "satellites/directories/receive_files", "*lead_elsewhere*"),
    ("satellites/directories/receive_files.hpp", "good = agrees(part.descriptor(k));", "", "satellites/directories/receive_files", "*A_base_that_changes*"),
]
