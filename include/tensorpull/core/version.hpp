// Which version of the library a program was compiled with.
#pragma once

#include <string_view>

namespace tensorpull {

/// That of the project in CMakeLists.txt.
inline constexpr std::string_view library_version = "0.1.0";

}  // namespace tensorpull
