// pipeline<policies...> of hosts, with the policies that slots have by default. All else is in
// composed_pipeline.hpp.
#pragma once

#include <tensorpull/composed_pipeline.hpp>
#include <tensorpull/integrity/xxhash/policies.hpp>
#include <tensorpull/system/host_platform.hpp>

namespace tensorpull::detail {

template <>
struct integrity_in<usual_integrity> {
  using type = image_digest;
};
template <>
struct owner_hash<no_hash> {
  using type = xxhash_digest;
};

}  // namespace tensorpull::detail
