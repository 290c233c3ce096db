// Compares a row of a page's first table with the constants of a transport policy.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace test {

using table_row = std::map<std::string, std::string>;

/// The cells of a line of a table.
inline std::vector<std::string> cells(const std::string& line) {
  std::vector<std::string> found;
  std::istringstream in(line);
  std::string cell;
  std::getline(in, cell, '|');
  while (std::getline(in, cell, '|')) {
    cell.erase(0, cell.find_first_not_of(' '));
    cell.erase(cell.find_last_not_of(' ') + 1);
    found.push_back(cell);
  }
  return found;
}

/// The rows of the first table of a folder's README.md, by the first word of their first cell.
inline std::map<std::string, table_row> table_of(const std::string& folder) {
  std::ifstream page(TENSORPULL_HEADERS "/" + folder + "/README.md");
  std::map<std::string, table_row> rows;
  std::vector<std::string> head;
  for (std::string line; std::getline(page, line) && (head.empty() || line.starts_with("|"));) {
    if (!line.starts_with("| ")) continue;
    const auto here = cells(line);
    if (head.empty()) {
      head = here;
      continue;
    }
    table_row r;
    for (std::size_t i = 0; i < std::min(head.size(), here.size()); ++i) r[head[i]] = here[i];
    const auto name = here.at(0);
    rows[name.substr(1, name.find('`', 1) - 1)] = r;
  }
  return rows;
}

/// The row of this name has T's constants. `folder`: of the page, below include/tensorpull.
template <class T>
void table_says(const std::string& name, const std::string& folder = "transports") {
  const auto rows = table_of(folder);
  ASSERT_TRUE(rows.contains(name)) << name;
  const table_row& r = rows.at(name);
  std::string longest = r.at("Longest chunk");
  std::erase(longest, ',');
  EXPECT_EQ(longest, std::to_string(T::max_payload_bytes)) << name;
  EXPECT_EQ(r.at("Encrypts"), T::encrypted ? "yes" : "no") << name;
  EXPECT_EQ(r.at("Loses"), T::reliable && T::ordered ? "no" : "yes") << name;
  EXPECT_EQ(r.at("Others can answer"), T::anyone_answers ? "yes" : "no") << name;
  constexpr const char* kinds[] = {"none", "user", "certificate", "account"};
  EXPECT_EQ(r.at("Identifies"), kinds[static_cast<int>(T::identifies)]) << name;
}

}  // namespace test
