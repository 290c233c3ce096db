// std::chrono's durations and clocks. In C++20 libstdc++'s <chrono> also brings formatting, and with it streams and locales: 0.2 s a file,
// a fifth of what a pipeline may cost. Its own headers include the part without, and so do we.
#pragma once

#include <cstddef>  // defines __GLIBCXX__ and costs nothing

#if defined(__GLIBCXX__) && __has_include(<bits/chrono.h>)
#include <bits/chrono.h>
#else
#include <chrono>
#endif
