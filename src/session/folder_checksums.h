// Checksums of every byte of a folder's files, in a file beside them, so that a flipped bit anywhere is found and
// named.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace spillway {

inline constexpr std::string_view checksums_name = "spillway_checksums.json";

// Reads all regular files of the folder and writes the checksums, durably. Throws DeviceError.
void write_checksums(const std::filesystem::path& folder);

// A sentence for each file that is missing or has another size, and for each block that is not as it was written, with
// the offset and, in a safetensors file, the tensor. Throws UserError when the file of checksums is missing or wrong.
std::vector<std::string> verify_checksums(const std::filesystem::path& folder);

}  // namespace spillway
