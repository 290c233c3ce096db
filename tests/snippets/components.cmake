cmake_minimum_required(VERSION 3.25)
project(snippet LANGUAGES CXX)
file(WRITE "${CMAKE_BINARY_DIR}/program.cpp" "int main() {}\n")
add_executable(program "${CMAKE_BINARY_DIR}/program.cpp")
# SNIPPET
