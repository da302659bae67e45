# SPILLWAY_CUDA: AUTO builds the CUDA backend where the toolkit is, ON wants it, OFF leaves it out. Without it the room
# has absent.cpp in its place, which says so at run time, and all else is complete. The kernels take a minute of one
# processor, so of the presets only release has them.
#
# The runtime library is linked statically and asks for the driver when a device is opened; cuBLASLt is loaded then too.
# So a program built here runs on machines that have neither.
set(SPILLWAY_CUDA AUTO CACHE STRING "CUDA backend: AUTO, ON or OFF")
set(SPILLWAY_CUDA_ARCHITECTURES "80;90" CACHE STRING "Compute capabilities that CUDA code is compiled for")
set(least_nvcc 13)
set(nvcc_release 0)
set(spillway_has_cuda OFF)
if(NOT SPILLWAY_CUDA STREQUAL OFF)
  find_program(SPILLWAY_NVCC nvcc HINTS ENV CUDA_PATH ENV CUDA_HOME PATHS /usr/local/cuda /opt/cuda PATH_SUFFIXES bin)
  if(SPILLWAY_NVCC)  # an older one may not even take this compiler, which would end the configuration
    execute_process(COMMAND ${SPILLWAY_NVCC} --version OUTPUT_VARIABLE nvcc_version ERROR_QUIET)
    if(nvcc_version MATCHES "release ([0-9.]+)")
      set(nvcc_release ${CMAKE_MATCH_1})
    endif()
  endif()
  if(nvcc_release VERSION_GREATER_EQUAL least_nvcc)
    set(CMAKE_CUDA_COMPILER ${SPILLWAY_NVCC})
    if(NOT CMAKE_CUDA_HOST_COMPILER)
      set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
    endif()
    set(CMAKE_CUDA_ARCHITECTURES ${SPILLWAY_CUDA_ARCHITECTURES})
    enable_language(CUDA)
    if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know that nvcc has it since 12.0
      set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
      set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
      list(APPEND CMAKE_CUDA_COMPILE_FEATURES cuda_std_20)
    endif()
    find_package(CUDAToolkit)
    find_path(SPILLWAY_CUBLASLT cublasLt.h PATHS ${CUDAToolkit_INCLUDE_DIRS} NO_DEFAULT_PATH)
  endif()
  if(TARGET CUDA::cudart_static AND SPILLWAY_CUBLASLT)
    set(spillway_has_cuda ON)
  elseif(SPILLWAY_CUDA STREQUAL ON)
    message(FATAL_ERROR "SPILLWAY_CUDA is ON, and no CUDA toolkit of ${least_nvcc} or newer was found whole: nvcc "
                        "${SPILLWAY_NVCC} (release ${nvcc_release}), cublasLt.h ${SPILLWAY_CUBLASLT}, cudart_static")
  endif()
endif()
message(STATUS "CUDA backend: ${spillway_has_cuda}")

set(spillway_cuda_excluded "/cuda/(device[^/]*|driver|host_pages|kernels[^/]*|measuring|op_times|page_pool|products|sequences|status)\\.cpp$")
if(spillway_has_cuda)
  set(spillway_cuda_excluded "/absent\\.cpp$")
  file(GLOB cuda_kernels CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/cuda/*.cu)
  add_library(spillway_cuda_kernels STATIC ${cuda_kernels})
  set_target_properties(spillway_cuda_kernels PROPERTIES CUDA_RUNTIME_LIBRARY Static
                                                         CUDA_SEPARABLE_COMPILATION OFF)
  # Each operation rounds by itself, as in all other code: see spillway_flags.cmake.
  target_compile_options(spillway_cuda_kernels PRIVATE --fmad=false --ftz=false --prec-div=true --prec-sqrt=true
                                                       -Xcompiler=-Wall,-ffp-contract=off)
  target_include_directories(spillway_cuda_kernels PUBLIC $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/src>)
  target_link_libraries(spillway_cuda_kernels PUBLIC CUDA::cudart_static)
endif()

# The room, after those it may include were made.
function(spillway_cuda_room)
  target_link_libraries(spillway_cuda PRIVATE ${CMAKE_DL_LIBS})
  if(spillway_has_cuda)
    target_link_libraries(spillway_cuda PRIVATE spillway_cuda_kernels)
    target_compile_definitions(spillway_cuda PRIVATE SPILLWAY_CUDA_LIBRARIES="${CUDAToolkit_LIBRARY_DIR}")
  endif()
endfunction()
