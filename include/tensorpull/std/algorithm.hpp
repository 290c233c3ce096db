// std::min and std::max of two values. In C++20 libstdc++'s <algorithm> also brings every algorithm over ranges, which
// costs 0.06 s in each file that includes it. libstdc++'s own headers include only the part with these two functions,
// and so does this one.
#pragma once

#include <cstddef>  // defines __GLIBCXX__ and costs nothing

#if defined(__GLIBCXX__) && __has_include(<bits/stl_algobase.h>)
#include <bits/stl_algobase.h>
#else
#include <algorithm>
#endif
