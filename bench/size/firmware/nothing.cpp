// The board alone: what every row has besides its pipeline, and no row is charged for.
#include "board.hpp"

int pipeline() {
  std::byte bytes[4];
  const std::size_t n = board::read(bytes);
  return static_cast<int>(board::write(std::span(bytes).first(n)) + board::now_ms() + board::random());
}
