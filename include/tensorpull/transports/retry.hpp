// Whether a transport's driver tries again: protocol/retry.hpp, which drivers without an operating system use, too.
#pragma once

#include <tensorpull/protocol/retry.hpp>
