#include "paced_run.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <utility>

#include "base/error.h"
#include "session/session.h"

namespace spillway::bench {
namespace {

[[noreturn]] void throw_gone() {
  throw DeviceError(
      "a run that takes turns is gone; if the system killed it for want of memory, give fewer settings: their runs are "
      "all there at once");
}

// Less than a pipe writes at once.
template <typename T>
void send(int to, const T& value) {
  if (write(to, &value, sizeof value) != sizeof value) throw_gone();
}

template <typename T>
T receive(int from) {
  T value;
  if (read(from, &value, sizeof value) != sizeof value) throw_gone();
  return value;
}

// In the process of the run.
class Turns : public TrainObserver {
 public:
  Turns(int from_parent, int to_parent) : from_parent_(from_parent), to_parent_(to_parent) {}

  void note(std::string_view) override {}
  void started(const RunSummary&) override {}
  void finished(const RunEnd&) override {}
  void step(const StepRecord& record) override {
    send(to_parent_, PacedStep{record.step_seconds, record.tokens_per_second,
                               static_cast<double>(record.disk_read_bytes + record.disk_write_bytes)});
    if (--allowed_ == 0 && record.step < record.total_steps) wait();
  }
  void wait() { allowed_ = receive<std::int64_t>(from_parent_); }

 private:
  int from_parent_;
  int to_parent_;
  std::int64_t allowed_ = 0;
};

// Exits with 0 when the run has made all its steps. Nothing may get out: on the stack below are the parent's other
// runs, whose end would kill them.
[[noreturn]] void run_in_child(TrainOptions options, int from_parent, int to_parent) noexcept {
  int status = 1;
  try {
    options.memory_bytes = receive<std::int64_t>(from_parent);
    Turns turns(from_parent, to_parent);
    turns.wait();
    std::filesystem::remove_all(options.output_dir);
    run_train(options, turns);
    status = 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  std::error_code ignored;
  std::filesystem::remove_all(options.output_dir, ignored);
  _exit(status);
}

}  // namespace

PacedRun::PacedRun(TrainOptions options) : options_(std::move(options)), left_(options_.max_steps) {
  std::array<int, 2> down{}, up{};
  if (pipe2(down.data(), O_CLOEXEC) != 0 || pipe2(up.data(), O_CLOEXEC) != 0) throw DeviceError("no pipes");
  signal(SIGPIPE, SIG_IGN);  // a run or a parent that is gone is an error of the one that writes
  std::fflush(stdout);
  child_ = fork();
  if (child_ < 0) throw DeviceError("no process for a run");
  if (child_ == 0) {
    close(down[1]);
    close(up[0]);
    run_in_child(options_, down[0], up[1]);
  }
  close(down[0]);
  close(up[1]);
  to_child_ = down[1];
  from_child_ = up[0];
}

PacedRun::PacedRun(PacedRun&& other) noexcept
    : options_(std::move(other.options_)),
      child_(std::exchange(other.child_, 0)),
      to_child_(std::exchange(other.to_child_, -1)),
      from_child_(std::exchange(other.from_child_, -1)),
      left_(other.left_) {}

PacedRun::~PacedRun() {
  if (child_ == 0) return;
  if (left_ > 0) kill(child_, SIGKILL);
  waitpid(child_, nullptr, 0);
  close(to_child_);
  close(from_child_);
  std::error_code ignored;
  std::filesystem::remove_all(options_.output_dir, ignored);
}

void PacedRun::set_memory_bytes(std::int64_t bytes) { send(to_child_, bytes); }

std::vector<PacedStep> PacedRun::turn(std::int64_t steps) {
  SPILLWAY_CHECK(steps > 0 && steps <= left_, "a turn of {} steps, {} left", steps, left_);
  send(to_child_, steps);
  std::vector<PacedStep> made;
  for (; steps > 0; --steps, --left_) made.push_back(receive<PacedStep>(from_child_));
  if (left_ > 0) return made;
  int status = 0;
  waitpid(child_, &status, 0);
  child_ = 0;
  close(to_child_);
  close(from_child_);
  if (status != 0) throw DeviceError("a run that takes turns has not ended well");
  return made;
}

}  // namespace spillway::bench
