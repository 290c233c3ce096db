// What nearly every file of tests includes, so that it is read once for all of them (TensorpullTests.cmake). A file
// includes what it uses all the same: tests/awake.py and -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON compile it without this
// one.
#pragma once

#include <tensorpull/tensorpull.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>
