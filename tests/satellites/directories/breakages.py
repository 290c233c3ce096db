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
    ("satellites/directories/receive_directory.hpp", "if (part.cursor().version == d.version)\n", "if (false)\n", FILE, "*at_the_byte_where_they*"),
    ("satellites/directories/receive_directory.hpp", "if (part.cursor().version == d.version)\n", "if (part.was_there())\n", FILE, "*beginning_of_another_version*"),
    ("satellites/directories/receive_directory.hpp", "if (const auto ok = to.empty(*missing); !ok) return failure(ok.error());", "", FILE, "*beginning_of_another_version*"),
    ("satellites/directories/receive_directory.hpp", "if (!*good) return {};\n", "", FILE, "*beginning_with_other_bytes*"),
]
