// The umbrella: pipelines, and the policies that need no third-party header but Hana, Cap'n Proto and xxHash.
// Opt-in, one header each: transports/host/owner.hpp and transports/host/host.hpp (Boost.Asio), consumers/any_schema/safetensors_file.hpp (files).
#pragma once

#include <tensorpull/chunking/policies.hpp>
#include <tensorpull/core/describe.hpp>
#include <tensorpull/integrity/xxhash/policies.hpp>
#include <tensorpull/pipeline.hpp>
#include <tensorpull/tensors/make_model.hpp>
#include <tensorpull/tensors/structs/raw.hpp>
#include <tensorpull/tensors/structs/renamed.hpp>
#include <tensorpull/tensors/tensor_list.hpp>
#include <tensorpull/transports/loopback/loopback.hpp>
#include <tensorpull/transports/tcp/tcp.hpp>
