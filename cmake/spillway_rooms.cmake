# The sources of a room, compiled a dozen at a time: reading headers and making the same templates again is most of
# compiling. Names in unnamed namespaces are then those of the whole room; a room that is APART has them by source.
# That a source includes what it uses is seen with OFF, and by clang-tidy, which reads each by itself.
option(SPILLWAY_UNITY "Compile the sources of a room together" ON)
function(spillway_unity target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${SPILLWAY_UNITY} UNITY_BUILD_BATCH_SIZE 12)
endfunction()

# spillway_room(NAME [ROOMS room…] [LINK target…] [EXCLUDE regex] [APART]): the library spillway_NAME of src/NAME.
function(spillway_room name)
  cmake_parse_arguments(ROOM "APART" "EXCLUDE" "ROOMS;LINK" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${name}/*.cpp)
  list(FILTER sources EXCLUDE REGEX "/main\\.cpp$")
  if(ROOM_EXCLUDE)
    list(FILTER sources EXCLUDE REGEX "${ROOM_EXCLUDE}")
  endif()
  list(TRANSFORM ROOM_ROOMS PREPEND spillway_)
  if(sources)
    add_library(spillway_${name} STATIC ${sources})
    target_include_directories(spillway_${name} PUBLIC $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/src>)
    target_link_libraries(spillway_${name} PUBLIC ${ROOM_ROOMS} ${ROOM_LINK} PRIVATE $<BUILD_INTERFACE:spillway_flags>)
    if(NOT ROOM_APART)
      spillway_unity(spillway_${name})
    endif()
  else()
    add_library(spillway_${name} INTERFACE)
    target_include_directories(spillway_${name} INTERFACE $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/src>)
    target_link_libraries(spillway_${name} INTERFACE ${ROOM_ROOMS} ${ROOM_LINK})
  endif()
endfunction()

# The CPU side of ops/: cpu*.cpp is compiled once; kernel*.cpp once for each named target, in a namespace of that name
# (SPILLWAY_TARGET), and the processor's features choose at run time. INSIDE: what is linked, but changes the flags of
# no other room.
function(spillway_kernels name)
  cmake_parse_arguments(ROOM "" "" "ROOMS;LINK;INSIDE" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/ops/cpu*.cpp ${CMAKE_SOURCE_DIR}/src/ops/*/cpu*.cpp)
  file(GLOB_RECURSE kernels CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/ops/*/kernel*.cpp)
  list(REMOVE_DUPLICATES sources)
  set(tiles ${sources})  # long to compile, so by themselves
  list(FILTER tiles INCLUDE REGEX "/cpu_register_tile[^/]*\\.cpp$")
  list(TRANSFORM ROOM_ROOMS PREPEND spillway_)
  if(NOT sources AND NOT kernels)
    add_library(spillway_${name} INTERFACE)
    target_link_libraries(spillway_${name} INTERFACE ${ROOM_ROOMS} ${ROOM_LINK})
    return()
  endif()
  set(target_avx512 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma -mf16c -mprefer-vector-width=512)
  set(target_avx512_bf16 ${target_avx512} -mavx512bf16)
  set(target_avx2 -mavx2 -mfma -mf16c)
  set(target_baseline)
  add_library(spillway_${name} STATIC ${sources})
  spillway_unity(spillway_${name})
  set_source_files_properties(${tiles} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  foreach(target baseline avx2 avx512 avx512_bf16)
    if(kernels)
      add_library(spillway_${name}_${target} OBJECT ${kernels})
      target_compile_definitions(spillway_${name}_${target} PRIVATE SPILLWAY_TARGET=${target})
      target_compile_options(spillway_${name}_${target} PRIVATE ${target_${target}} -O3)
      if(SPILLWAY_SANITIZE)  # else each by itself, so that what is inlined does not depend on the others
        spillway_unity(spillway_${name}_${target})
      endif()
      if(SPILLWAY_SANITIZE MATCHES address)  # of lanes, many small objects: most of compiling the packed update
        target_compile_options(spillway_${name}_${target} PRIVATE -fno-sanitize-address-use-after-scope)
      endif()
      target_link_libraries(spillway_${name}_${target} PRIVATE ${ROOM_ROOMS} spillway_flags)
      target_sources(spillway_${name} PRIVATE $<TARGET_OBJECTS:spillway_${name}_${target}>)
    endif()
  endforeach()
  target_compile_options(spillway_${name} PRIVATE -O3)  # under sanitizers too: products are most of what tests wait for
  target_include_directories(spillway_${name} PUBLIC $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/src>)
  target_link_libraries(spillway_${name} PUBLIC ${ROOM_ROOMS} ${ROOM_LINK}
                        PRIVATE ${ROOM_INSIDE} $<BUILD_INTERFACE:spillway_flags>)
endfunction()

# What tests would wait for most under sanitizers: planning and the plain loops that kernels are compared with, which are
# optimised, and register tiles, of whose loops TileMatmul shows them the ends of rows instead.
function(spillway_lighten_sanitizers)
  if(NOT SPILLWAY_SANITIZE)
    return()
  endif()
  file(GLOB references CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/ops/*/reference.cpp)
  file(GLOB tiles CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/ops/matmul/cpu_register_tile*.cpp)
  set_source_files_properties(${references} PROPERTIES COMPILE_OPTIONS -O2)
  set_source_files_properties(${tiles} PROPERTIES COMPILE_OPTIONS -fno-sanitize=all)
  foreach(room plan sim)
    target_compile_options(spillway_${room} PRIVATE -O2)
  endforeach()
endfunction()
