// The umbrella: pipelines, and the policies that need no library but Hana and xxHash. These are included on their own,
// where they are needed: transports/host/owner.hpp and transports/host/host.hpp (owners of many connections),
// consumers/any_schema/safetensors_file.hpp (files), framing/capnp/capnp_framing.hpp (Cap'n Proto).
#pragma once

#if defined TENSORPULL_EMBEDDED_HPP || defined TENSORPULL_HOST_HPP
#error "tensorpull: a single header has what the library's own headers have: leave one of them out"
#else
#define TENSORPULL_HPP

// The order matters: a compiler lists each header between its message and the user's line, so the headers that refuse
// wrong uses are included directly from here.
#include <tensorpull/core/limits.hpp>
#include <tensorpull/integrity/concept.hpp>

#include <tensorpull/chunking/concept.hpp>
#include <tensorpull/chunking/policies.hpp>
#include <tensorpull/consumers/concept.hpp>
#include <tensorpull/core/describe.hpp>
#include <tensorpull/framing/concept.hpp>
#include <tensorpull/integrity/xxhash/policies.hpp>
#include <tensorpull/std/functional.hpp>
#include <tensorpull/tensors/concept.hpp>
#include <tensorpull/tensors/make_model.hpp>
#include <tensorpull/tensors/structs/raw.hpp>
#include <tensorpull/tensors/structs/renamed.hpp>
#include <tensorpull/tensors/tensor_list.hpp>

#include <tensorpull/transports/adding_tensors.hpp>
#include <tensorpull/transports/concept.hpp>
#include <tensorpull/transports/over/stream_transport.hpp>
#include <tensorpull/transports/publisher.hpp>
#include <tensorpull/transports/session/session.hpp>
#include <tensorpull/transports/session/stream_session.hpp>

#include <tensorpull/transports/over/loopback/loopback.hpp>
#include <tensorpull/transports/over/tcp/tcp.hpp>

#include <tensorpull/pipeline.hpp>

#endif
