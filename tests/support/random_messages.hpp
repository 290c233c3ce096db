// Messages of every kind with random values.
#pragma once

#include "messages.hpp"
#include "random.hpp"

namespace test {

/// Messages of every kind whose numbers are random, among them the greatest; lists of every length from none to many.
inline std::vector<tp::frame> random_messages(generator& random, std::vector<std::vector<std::string_view>>& names,
                                              std::vector<std::vector<tp::schema_row>>& rows) {
  auto all = every_message();
  for (tp::frame& m : all) {
    const auto number = [&] { return random.below(4) == 0 ? ~std::uint64_t{0} : random(); };
    m.id = static_cast<std::uint32_t>(number());
    m.ref = {number(), number()};
    m.version = number(), m.nonce = number(), m.fingerprint = number(), m.digest = number(), m.offset = number();
    m.image_bytes = number(), m.data_start = number(), m.tensors = number();
    m.length = static_cast<std::uint32_t>(number()), m.delay_ms = static_cast<std::uint32_t>(number());
    m.application = static_cast<std::uint32_t>(number()), m.window = static_cast<std::uint16_t>(number());
    m.request_words = static_cast<std::uint16_t>(number());
    m.flag = random.below(2) == 0;
    m.memory = random.below(2) == 0;
    m.recipient = {number()}, m.reason = static_cast<std::uint32_t>(number()),
    m.chunk_digest = static_cast<tp::digest_kind>(random.below(3));
    m.status = static_cast<tp::status>(random.below(12));
    names.emplace_back();
    for (std::uint64_t n = random.below(6); n > 0; --n)
      names.back().push_back(std::string_view("a name of 24 characters.").substr(random.below(25)));
    m.names = names.back();
    m.slices = std::span(some_slices).first(random.below(3) == 0 ? std::min<std::size_t>(names.back().size(), 3) : 0);
    rows.emplace_back();
    for (std::uint64_t n = random.below(6); n > 0; --n)
      rows.back().push_back(
          {names.back().empty() ? "" : names.back()[0], "BF16", std::span(some_shape).first(random.below(4))});
    m.rows = rows.back();
    m.ranges = std::span(some_ranges).first(random.below(3));
    m.references = std::span(some_references).first(random.below(3));
    m.body = std::span(some_body).first(random.below(14));
  }
  return all;
}

}  // namespace test
