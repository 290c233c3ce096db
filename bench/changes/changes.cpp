// What it costs to send the new one of two versions of a model to who has the old one: bytes, seconds to make it ready,
// and seconds over a line, in every way that there is. Arguments: two safetensors files of the same tensors; ms of a
// round trip and Mbit/s (none: no line); a file of what is sent instead of the model, such as adapters (- : none); a
// file to write the model to that 8 bits lead to. Prints a line of JSON for each way. Without the right to make network
// namespaces the line is left out, and it says so.
#include "../wan/line.hpp"

#include <tensorpull/image/header.hpp>
#include <tensorpull/satellites/differences/deflate/deflate.hpp>
#include <tensorpull/satellites/differences/download_changes.hpp>
#include <tensorpull/satellites/differences/widened.hpp>
#include <tensorpull/tensorpull.hpp>
#include <tensorpull/tensors/safetensors/safetensors_image.hpp>
#include <tensorpull/tensors/tensor_list.hpp>
#include <tensorpull/transports/host/owner.hpp>

#include <cerrno>
#include <fstream>
#include <memory>
#include <optional>

using namespace tensorpull;

namespace {

struct long_lines : default_limits {
  static constexpr std::size_t pipelined_requests = 16;  // as `send`, `recv` and the Python package have
};
using net = pipeline<tensor_list, fixed_bytes<2_MiB>, tcp, long_lines, chunk_and_image_digest>;

template <class T>
auto must(T&& value) {
  if (value) return std::move(*value);
  std::fprintf(stderr, "%s\n", describe(value.error()).c_str());
  std::_Exit(1);
}

/// A model of any tensors, in memory of its own.
class model {
 public:
  explicit model(const source_view& from) : image_(made(from)) {}
  model(const model&) = delete;
  model& operator=(const model&) = delete;

  dynamic_image& image() { return image_; }
  const dynamic_image& image() const { return image_; }
  source_view source() const { return image_.source(); }
  std::uint64_t bytes() const { return image_.schema().image_bytes; }
  std::vector<tensor_view> tensors() const {
    std::vector<tensor_view> all;
    for (const mutable_tensor_view& t : views_) all.push_back({t.name, t.type, t.shape, t.data});
    return all;
  }
  bool same_as(const model& other) const {
    const auto mine = must(image_version<xxh3_64>(source())), theirs = must(image_version<xxh3_64>(other.source()));
    return mine == theirs;
  }
  void write(const char* path) const {
    std::vector<std::byte> header(image_.schema().header_bytes);
    write_header(image_.schema(), 0, header);
    std::ofstream file(path, std::ios::binary);
    file.write(reinterpret_cast<const char*>(header.data()), static_cast<std::streamsize>(header.size()));
    for (std::size_t i = 0; i < image_.schema().tensor_count; ++i) {
      const tensor_entry& t = image_.schema().tensors[i];
      file.write(reinterpret_cast<const char*>(source().address(i)), static_cast<std::streamsize>(t.size_bytes()));
    }
    if (!file.flush()) std::_Exit(1);
  }

 private:
  static constexpr std::size_t alignment = 64;

  dynamic_image made(const source_view& from) {
    const image_schema& schema = *from.schema;
    std::size_t all = alignment;
    for (std::size_t i = 0; i < schema.tensor_count; ++i)
      all += static_cast<std::size_t>(schema.tensors[i].size_bytes()) + alignment;
    memory_.resize(all);
    names_.resize(schema.tensor_count);
    shapes_.resize(schema.tensor_count);
    std::size_t at = alignment - reinterpret_cast<std::uintptr_t>(memory_.data()) % alignment;
    for (std::size_t i = 0; i < schema.tensor_count; ++i) {
      const tensor_entry& t = schema.tensors[i];
      names_[i] = t.name;
      shapes_[i].assign(t.extents().begin(), t.extents().end());
      const auto n = static_cast<std::size_t>(t.size_bytes());
      const std::span<std::byte> room(memory_.data() + at, n);
      if (const auto ok = detail::read_range(from, schema.header_bytes + t.begin, room); !ok) std::_Exit(1);
      views_.push_back({names_[i], t.type, shapes_[i], room.data()});
      at += (n + alignment - 1) / alignment * alignment;
    }
    return must(dynamic_image::make(std::span<const mutable_tensor_view>(views_)));
  }

  std::vector<std::byte> memory_;
  std::vector<std::string> names_;
  std::vector<std::vector<std::uint64_t>> shapes_;
  std::vector<mutable_tensor_view> views_;
  dynamic_image image_;
};

model read(const char* path) { return model(must(safetensors_image::open(path)).source()); }

/// An owner at the far end of the line, with what is published there; and how long a pull from it takes.
class far_owner {
 public:
  template <class Publish>
  far_owner(const bench::line& line, Publish publish)
      : process_([&](int pipe) {
          line.far().enter();
          auto owner = must(net::downloader::open({.listen = std::string(bench::line::far_address) + ":0"}));
          const reference ref = publish(owner);
          bench::write_value(pipe, owner.port());
          bench::write_value(pipe, ref);
          (void)owner.run(stop_token{});
        }) {
    address_ = bench::line::far_address + (":" + std::to_string(process_.read<std::uint16_t>()));
    ref_ = process_.read<reference>();
  }
  /// `pull(address, reference)`, once.
  template <class Pull>
  double seconds(Pull pull) const {
    const auto start = bench::clock::now();
    pull(address_, ref_);
    return bench::seconds_since(start);
  }

 private:
  bench::child process_;
  std::string address_;
  reference ref_;
};

void print(const char* way, std::uint64_t bytes, std::uint64_t whole, double ready, std::optional<double> over_line) {
  std::printf("{\"way\": \"%s\", \"bytes\": %llu, \"of_the_whole\": %.4f, \"ready_seconds\": %.2f", way,
              static_cast<unsigned long long>(bytes), static_cast<double>(bytes) / static_cast<double>(whole), ready);
  if (over_line) std::printf(", \"line_seconds\": %.2f", *over_line);
  std::printf("}\n");
  std::fflush(stdout);
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 3) {
    std::fprintf(stderr, "usage: %s OLD NEW [MS MBIT] [INSTEAD] [MOVED]\n", arguments[0]);
    return 2;
  }
  const auto argument = [&](int i) -> const char* {
    return count > i && std::string_view(arguments[i]) != "-" ? arguments[i] : nullptr;
  };
  const model old = read(arguments[1]), now = read(arguments[2]);
  std::optional<bench::line> line;
  if (argument(3) != nullptr && argument(4) != nullptr) {
    line.emplace(bench::line_conditions{.round_trip = std::atof(argument(3)) / 1e3,
                                        .bytes_per_second = std::atof(argument(4)) * 1e6 / 8});
    if (line->failed() != nullptr) {
      std::printf(
          "{\"without\": \"The line is left out: it needs root and network namespaces, and %s cannot be had (%s).\"}\n",
          line->failed(), std::strerror(errno));
      line.reset();
    }
  }
  const auto over_line = [&](auto publish, auto pull) -> std::optional<double> {
    if (!line) return {};
    return far_owner(*line, publish).seconds(pull);
  };
  const auto check = [&](bool right, const char* what) {
    if (right) return;
    std::fprintf(stderr, "%s: another model has come\n", what);
    std::_Exit(1);
  };
  const auto fetch = [&](const model& what, model& into) {
    return over_line([&](auto& owner) { return must(owner.add_tensors(what.image())); },
                     [&](const std::string& address, const reference& ref) {
                       must(net::download_tensors(address, ref, into.image()));
                     });
  };

  {
    model mine(old.source());
    const auto took = fetch(now, mine);
    check(!line || mine.same_as(now), "the whole");
    print("the whole", now.bytes(), now.bytes(), 0, took);
  }
  {
    deflate_coder coder;
    const auto start = bench::clock::now();
    const auto difference = must(model_difference::make(old.source(), now.source(), coder));
    const double ready = bench::seconds_since(start);
    const auto from = must(image_version<xxh3_64>(old.source()));
    model mine(old.source());
    const auto took = over_line(
        [&](auto& owner) {
          const reference whole = must(owner.add_tensors(now.image()));
          must(owner.add_image(difference.image(), {.id = difference_id(whole, from)}));
          return whole;
        },
        [&](const std::string& address, const reference& whole) {
          std::uint64_t came = 0;
          must(download_changes<net>(address, whole, mine.image(), coder, {}, &came));
          check(came == difference.image().schema->image_bytes, "the whole instead of a difference");
        });
    check(!line || mine.same_as(now), "a difference");
    print("what has changed, without loss", difference.image().schema->image_bytes, now.bytes(), ready, took);
  }
  const auto narrow = [&]<class Scheme>(Scheme, const char* name, const char* file) {
    const auto start = bench::clock::now();
    const auto difference = must(narrowed_difference<Scheme>::make(now.tensors(), old.tensors()));
    const double ready = bench::seconds_since(start);
    model mine(old.source());
    const auto took = over_line([&](auto& owner) { return must(owner.add_image(difference.model().source())); },
                                [&](const std::string& address, const reference& ref) {
                                  land to(mine.image().destination());
                                  auto moves = must(widened<land, Scheme>::make(to, mine.source()));
                                  must(net::pull(address, ref, moves));
                                });
    print(name, difference.model().schema().image_bytes, now.bytes(), ready, took);
    if (line && file != nullptr) mine.write(file);
  };
  narrow(blocks_of_8_bits<>{}, "what has changed, in 8 bits", argument(6));
  narrow(blocks_of_4_bits<>{}, "what has changed, in 4 bits", nullptr);
  if (argument(5) != nullptr) {
    const model instead = read(argument(5));
    model mine(instead.source());
    print("instead of the model", instead.bytes(), now.bytes(), 0, fetch(instead, mine));
  }
  return 0;
}
