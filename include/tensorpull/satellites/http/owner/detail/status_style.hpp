// The style of a status page, and the policy that lets a browser use it and nothing else.
#pragma once

#include <tensorpull/core/sha256.hpp>
#include <tensorpull/satellites/http/detail/base64.hpp>

#include <array>
#include <cstddef>
#include <span>
#include <string_view>

namespace tensorpull::detail {

inline constexpr std::string_view status_style =
    ":root{color-scheme:light dark;--ink:#1c2330;--dim:#5b6575;--page:#f5f6f8;--card:#fff;--edge:#dde1e7;--bar:#2f6fdd;"
    "--good:#1c7f47;--bad:#b3261e}"
    "@media(prefers-color-scheme:dark){:root{--ink:#e6e9ee;--dim:#98a2b3;--page:#14171c;--card:#1d2127;--edge:#323842;"
    "--bar:#6ea1ff;--good:#5fc98d;--bad:#ff8a80}}"
    "*{box-sizing:border-box}"
    "body{margin:0 auto;max-width:64rem;padding:1.5rem 1rem;background:var(--page);color:var(--ink);"
    "font:15px/1.45 system-ui,sans-serif;font-variant-numeric:tabular-nums}"
    "h1{margin:0 0 1rem;font-size:1.35rem}h1 small,h2 small{color:var(--dim);font-weight:400;font-size:.85em}"
    "dl{display:grid;grid-template-columns:repeat(auto-fit,minmax(7.5rem,1fr));gap:.6rem;margin:0 0 1.2rem}"
    "dl div,section{background:var(--card);border:1px solid var(--edge);border-radius:.5rem}"
    "dl div{padding:.5rem .8rem}dt{color:var(--dim);font-size:.8rem}dd{margin:0;font-size:1.15rem;font-weight:600}"
    "section{margin:0 0 .8rem;padding:.8rem 1rem;overflow-x:auto}h2{margin:0;font-size:1.05rem;overflow-wrap:anywhere}"
    "p{margin:.1rem 0 0;color:var(--dim)}table{width:100%;margin-top:.6rem;border-collapse:collapse;table-layout:fixed}"
    "th,td{padding:.3rem .6rem .3rem 0;text-align:left;font-weight:400;border-top:1px solid var(--edge);"
    "overflow-wrap:anywhere}th{color:var(--dim);font-size:.8rem;border:0}.n{text-align:right}"
    "tbody th{color:inherit;font-size:1em;border-top:1px solid var(--edge)}th:last-child,td:last-child{padding:.3rem 0 .3rem .6rem}"
    "col.b{width:28%}col.c{width:13%}col.d{width:22%}"
    "progress{width:100%;height:.6rem;accent-color:var(--bar);vertical-align:middle}"
    ".good{color:var(--good)}.bad{color:var(--bad)}.dim{color:var(--dim)}"
    "@media(max-width:40rem){col.b{width:17%}col.c{width:17%}col.d{width:24%}th,td{padding-right:.3rem}body{font-size:13px}}";

/// Base64 of the style's SHA-256, as Content-Security-Policy names it.
inline constexpr std::array<char, 44> status_style_digest = [] {
  sha256_hash hash;
  for (const char c : status_style) {
    const std::byte one{static_cast<unsigned char>(c)};
    hash.update(std::span(&one, 1));
  }
  const sha256_value digest = hash.value();
  std::array<char, 44> out{};
  std::size_t n = 0;
  put_base64(
      digest.size(), [&](std::size_t i) { return std::to_integer<unsigned char>(digest[i]); },
      [&](char c) noexcept { out[n++] = c; });
  return out;
}();

}  // namespace tensorpull::detail
