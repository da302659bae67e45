#include "telemetry/tensorboard_file.h"

#include <tensorboard.pb.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>

#include "base/error.h"
#include "telemetry/crc32c.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;
using Message = tensorboard::Event;
using tensorboard::SessionLog;

constexpr std::string_view name_prefix = "events.out.tfevents.";

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// TensorBoard reads the files of a directory by name, and the name begins with a time: the clock's, or one after the
// latest file there, whichever is later. Of a clock before 1970 the sign would turn the order around.
std::int64_t next_name_seconds(const fs::path& directory) {
  std::int64_t seconds = std::max<std::int64_t>(0, static_cast<std::int64_t>(wall_seconds()));
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(directory, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(name_prefix)) continue;
    std::int64_t taken = 0;
    std::from_chars(name.data() + name_prefix.size(), name.data() + name.size(), taken);
    seconds = std::max(seconds, taken + 1);
  }
  return seconds;
}

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 && name[0] != '\0' ? name : "localhost";
}

// Of a new file in this directory, which is made if need be.
fs::path new_name(const fs::path& directory) {
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) throw DeviceError("{}: cannot be made ({})", directory.string(), error.message());
  return directory / fmt::format("{}{:010}.{}.{}.0", name_prefix, next_name_seconds(directory), host_name(), getpid());
}

template <typename Integer>
void append_little_endian(std::string& out, Integer value) {
  for (std::size_t byte = 0; byte < sizeof value; ++byte) out += static_cast<char>((value >> (8 * byte)) & 0xFF);
}

// Evaluations and steps are values of one step.
class Scalars {
 public:
  explicit Scalars(std::int64_t step) {
    event_.set_wall_time(wall_seconds());
    event_.set_step(step);
  }
  void add(std::string tag, double value) {
    auto* const scalar = event_.mutable_summary()->add_value();
    scalar->set_tag(std::move(tag));
    scalar->set_simple_value(static_cast<float>(value));
  }
  template <typename Enum, typename Number, std::size_t count>
  void add(std::string_view group, std::string_view unit, const std::array<Number, count>& values,
           std::size_t most = count) {
    for (std::size_t i = 0; i < most; ++i) {
      add(fmt::format("{}/{}_{}", group, name_of(static_cast<Enum>(i)), unit), static_cast<double>(values[i]));
    }
  }
  std::string record() const { return tensorboard_record(event_.SerializeAsString()); }

 private:
  Message event_;
};

}  // namespace

std::string tensorboard_record(const std::string& bytes) {
  std::string record;
  append_little_endian(record, static_cast<std::uint64_t>(bytes.size()));
  append_little_endian(record, masked_crc32c(record));
  record += bytes;
  append_little_endian(record, masked_crc32c(bytes));
  return record;
}

TensorBoardFile::TensorBoardFile(const fs::path& directory, std::int64_t first_step)
    : file_(new_name(directory), AppendedFile::Begin::new_file) {
  Message version;
  version.set_wall_time(wall_seconds());
  version.set_file_version("brain.Event:2");  // from this version on a session's start takes steps back
  Message start;
  start.set_wall_time(version.wall_time());
  start.set_step(first_step);
  start.mutable_session_log()->set_status(SessionLog::START);
  file_.append(tensorboard_record(version.SerializeAsString()) + tensorboard_record(start.SerializeAsString()));
}

void TensorBoardFile::write(const StepRecord& r) {
  Scalars scalars(r.step);
  scalars.add("train/loss", static_cast<double>(r.loss));
  scalars.add("train/grad_norm", static_cast<double>(r.grad_norm));
  scalars.add("train/learning_rate", r.learning_rate);
  if (r.eval_loss) scalars.add("eval/loss", *r.eval_loss);
  scalars.add("speed/step_seconds", r.step_seconds);
  scalars.add("speed/tokens_per_second", r.tokens_per_second);
  scalars.add("speed/stall_seconds", r.stall_seconds);
  if (r.lower_bound_seconds) scalars.add("speed/share_of_bound", *r.lower_bound_seconds / r.step_seconds);
  scalars.add("disk/read_bytes", static_cast<double>(r.disk_read_bytes));
  scalars.add("disk/write_bytes", static_cast<double>(r.disk_write_bytes));
  if (r.link) scalars.add("link/up_bytes", static_cast<double>(r.link->up_bytes));
  if (r.link) scalars.add("link/down_bytes", static_cast<double>(r.link->down_bytes));
  scalars.add("memory/rss_bytes", static_cast<double>(r.rss_bytes));
  if (r.totals) {
    scalars.add<StepPhase>("phase", "seconds", r.totals->phase_seconds);
    scalars.add<WaitCause>("wait", "seconds", r.totals->wait_seconds,
                           r.link ? wait_cause_count : disk_wait_cause_count);
    scalars.add<MemoryTag>("memory", "bytes", r.totals->memory_bytes);
    if (r.link) scalars.add<MemoryTag>("device_memory", "bytes", r.totals->device_memory_bytes);
  }
  file_.append(scalars.record());
}

}  // namespace spillway
