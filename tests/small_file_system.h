// A small file system in memory, which a test can fill, where the kernel lets the test mount one: as root, or in a user
// namespace of its own.
#pragma once

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <utility>

namespace spillway {

class SmallFileSystem {
 public:
  SmallFileSystem(std::filesystem::path at, std::int64_t bytes) : at_(std::move(at)), why_not_(own_mounts()) {
    std::filesystem::create_directory(at_);
    if (!why_not_.empty()) return;
    mounted_ = ::mount("tmpfs", at_.c_str(), "tmpfs", 0, ("size=" + std::to_string(bytes)).c_str()) == 0;
    if (!mounted_) why_not_ = reason();
  }
  ~SmallFileSystem() {
    if (mounted_) ::umount2(at_.c_str(), MNT_DETACH);
  }
  SmallFileSystem(const SmallFileSystem&) = delete;
  SmallFileSystem& operator=(const SmallFileSystem&) = delete;

  bool mounted() const { return mounted_; }
  const std::string& why_not() const { return why_not_; }

  // Takes all space but so many bytes, while a run may be taking some too.
  void fill_but(std::int64_t free_bytes) const {
    const int filler = ::open(filler_path().c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    int failed = ENOSPC;
    for (int tries = 0; tries < 100 && failed == ENOSPC; ++tries) {
      const off_t taken = ::lseek(filler, 0, SEEK_END);
      const std::int64_t more = static_cast<std::int64_t>(std::filesystem::space(at_).available) - free_bytes;
      failed = more > 0 ? ::posix_fallocate(filler, taken, more) : 0;
    }
    ::close(filler);
    if (failed != 0) throw std::system_error(failed, std::system_category(), filler_path());
  }
  void free_again() const { std::filesystem::remove(filler_path()); }

 private:
  static std::string reason() { return std::system_category().message(errno); }

  std::string filler_path() const { return (at_ / "filler").string(); }

  static void write(const char* path, const std::string& text) { std::ofstream(path) << text; }

  // What is mounted from now on, only this process sees. Why that is not allowed; empty: it is.
  static const std::string& own_mounts() {
    static const std::string why_not = [] {
      const std::string user = std::to_string(::geteuid());
      const std::string group = std::to_string(::getegid());
      if (user != "0" || ::unshare(CLONE_NEWNS) != 0) {
        if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return reason();
        write("/proc/self/setgroups", "deny");
        write("/proc/self/uid_map", "0 " + user + " 1");
        write("/proc/self/gid_map", "0 " + group + " 1");
      }
      return ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 ? std::string() : reason();
    }();
    return why_not;
  }

  std::filesystem::path at_;
  bool mounted_ = false;
  std::string why_not_;
};

}  // namespace spillway
