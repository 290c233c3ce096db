// What an owner that is wrong is used through: an end of a connection, without the umbrella.
#pragma once

#include <tensorpull/framing/word_framing.hpp>
#include <tensorpull/protocol/connection/endpoint.hpp>

using namespace tensorpull;

template <class Owner>
using end_of = endpoint<word_framing, default_limits, Owner, ignore_messages>;
