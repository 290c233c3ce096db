// std::min and std::max of two values. In C++20 libstdc++'s <algorithm> also brings every algorithm over ranges: 0.06 s a file, where a
// whole pipeline may cost 1 s. Its own headers include the part with these two, and so do we.
#pragma once

#include <cstddef>  // defines __GLIBCXX__ and costs nothing

#if defined(__GLIBCXX__) && __has_include(<bits/stl_algobase.h>)
#include <bits/stl_algobase.h>
#else
#include <algorithm>
#endif
