// Compiled into the shared library alone, which holds all rooms.
#include "session/session.h"

namespace spillway {

std::string_view library_version() { return SPILLWAY_VERSION; }

}  // namespace spillway
