// std::chrono's durations and clocks. In C++20 libstdc++'s <chrono> also brings calendars and formatting, and with them
// streams and locales, which costs 0.28 s in each file that includes it. libstdc++'s own headers include only the part
// without these, and so does this one.
#pragma once

#include <cstddef>  // defines __GLIBCXX__ and costs nothing

#if defined(__GLIBCXX__) && __has_include(<bits/chrono.h>)
#include <bits/chrono.h>
#else
#include <chrono>
#endif
