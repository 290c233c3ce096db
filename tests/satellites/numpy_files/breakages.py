"""What tests/awake.py breaks of this satellite, as in tests/breakages.py."""

BREAKAGES = [
    ("satellites/numpy_files/detail/npy_header.hpp", "if (version == 3 && !is_utf8(text))", "if (false)", "satellites/numpy_files/npy_header", "*"),
    ("satellites/numpy_files/detail/inflate.hpp", "|| zlib_.avail_in != 0 || next_ != end_", "", "satellites/numpy_files/inflate", "*"),
    ("satellites/numpy_files/detail/inflate.hpp", "if (unpacked != size || ", "if (", "satellites/numpy_files/inflate", "*"),
    ("satellites/numpy_files/numpy_file.hpp", "member.offset = file.add(std::move(*bytes));", "", "satellites/numpy_files/numpy_file", "*"),
]
