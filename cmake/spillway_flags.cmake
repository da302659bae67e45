# Flags that belong to the promises: contraction is off everywhere and no fast-math flag is used, so that an expression
# has one value on every target. -fno-math-errno and -fno-trapping-math change no value; they let sqrt be one instruction.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

# Some twenty test programs: GNU ld takes seconds for each.
find_program(SPILLWAY_LLD ld.lld)
if(SPILLWAY_TESTS AND SPILLWAY_LLD)
  add_link_options(-fuse-ld=lld)
endif()

add_library(spillway_flags INTERFACE)
target_compile_options(spillway_flags INTERFACE
  -Wall -Wextra -Wpedantic -Werror -Wconversion -Wnon-virtual-dtor -Wno-psabi
  -Wno-restrict  # false alarms of g++ 12 on std::string (GCC bug 105329)
  # Of the names of another source that is compiled together with this one nothing is to be said.
  "$<IF:$<BOOL:$<TARGET_PROPERTY:UNITY_BUILD>>,-Wshadow=local;-Wno-subobject-linkage,-Wshadow>"
  -ffp-contract=off -fno-math-errno -fno-trapping-math)
if(SPILLWAY_SANITIZE)
  target_compile_options(spillway_flags INTERFACE -fsanitize=${SPILLWAY_SANITIZE} -fno-omit-frame-pointer
    -fno-sanitize-recover=all)
  # Where memory is touched AddressSanitizer finds what these find, but for casts to a wrong class; they are a good part of
  # compiling.
  if(SPILLWAY_SANITIZE MATCHES undefined)
    target_compile_options(spillway_flags INTERFACE -fno-sanitize=null,object-size,vptr,pointer-overflow)
  endif()
  target_link_options(spillway_flags INTERFACE -fsanitize=${SPILLWAY_SANITIZE})
endif()
