# What nearly every source includes, compiled once for the rooms and once for the tests: in the debug build reading it is
# a good part of compiling. The others have none: release, so that a source that forgets an include does not compile, and
# thread, where g++ 12 has false alarms of std::string in headers that it compiled.
option(SPILLWAY_PRECOMPILE "Compile the headers of libraries once" OFF)
if(SPILLWAY_PRECOMPILE)
  set(common <algorithm> <array> <atomic> <chrono> <cmath> <cstdint> <cstring> <filesystem> <fstream> <functional> <map>
             <memory> <mutex> <optional> <span> <string> <string_view> <thread> <vector> <fmt/format.h>)
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/precompiled.cpp CONTENT "int main() {}\n")
  add_library(spillway_precompiled_rooms OBJECT ${CMAKE_BINARY_DIR}/precompiled.cpp)
  target_link_libraries(spillway_precompiled_rooms PRIVATE spillway_flags fmt::fmt)
  target_precompile_headers(spillway_precompiled_rooms PRIVATE ${common})
  if(SPILLWAY_TESTS)
    find_package(GTest REQUIRED)
    add_executable(spillway_precompiled_tests ${CMAKE_BINARY_DIR}/precompiled.cpp)
    target_link_libraries(spillway_precompiled_tests PRIVATE spillway_flags fmt::fmt GTest::gmock)
    target_precompile_headers(spillway_precompiled_tests PRIVATE ${common} <gmock/gmock.h> <gtest/gtest.h>)
  endif()
endif()

# kind: rooms or tests.
function(spillway_precompile target kind)
  if(SPILLWAY_PRECOMPILE)
    target_precompile_headers(${target} REUSE_FROM spillway_precompiled_${kind})
  endif()
endfunction()
