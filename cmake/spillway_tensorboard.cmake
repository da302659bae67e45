# The messages of src/telemetry/tensorboard.proto as code, spillway_tensorboard_messages: <tensorboard.pb.h>. What the
# generator writes is held to its rules, not to ours.
set(tensorboard_folder ${CMAKE_BINARY_DIR}/tensorboard)
file(MAKE_DIRECTORY ${tensorboard_folder})
add_library(spillway_tensorboard_messages STATIC ${CMAKE_SOURCE_DIR}/src/telemetry/tensorboard.proto)
protobuf_generate(TARGET spillway_tensorboard_messages LANGUAGE cpp APPEND_PATH PROTOC_OUT_DIR ${tensorboard_folder})
target_include_directories(spillway_tensorboard_messages SYSTEM PUBLIC $<BUILD_INTERFACE:${tensorboard_folder}>)
target_link_libraries(spillway_tensorboard_messages PUBLIC protobuf::libprotobuf-lite)
