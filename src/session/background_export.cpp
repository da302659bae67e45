#include "session/background_export.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "base/error.h"

namespace spillway {
namespace {

constexpr int lowest_priority = 19;
constexpr std::chrono::milliseconds longest_rest{2000};

// Thrown through write_export to end it.
struct GivenUp {};

}  // namespace

BackgroundExport::BackgroundExport(std::shared_ptr<SlotStore> slots, std::unique_ptr<CommitLease> lease,
                                   const ExportFrom& from, const RunState& run, bool only_model,
                                   const std::filesystem::path& to)
    : slots_(std::move(slots)),
      lease_(std::move(lease)),
      from_(from),
      run_(run),
      only_model_(only_model),
      to_(to),
      thread_([this] { work(); }) {}

BackgroundExport::~BackgroundExport() {
  give_up_ = true;
  hurry_ = true;
  if (thread_.joinable()) thread_.join();
}

void BackgroundExport::wait() {
  hurry_ = true;
  // Where it is permitted: nothing else is left to be done.
  if (const int thread = thread_number_; thread != 0)
    static_cast<void>(::setpriority(PRIO_PROCESS, static_cast<id_t>(thread), 0));
  if (thread_.joinable()) thread_.join();
  if (failure_) std::rethrow_exception(failure_);
}

void BackgroundExport::work() {
  thread_number_ = ::gettid();
  static_cast<void>(::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), lowest_priority));
  resumed_ = std::chrono::steady_clock::now();
  try {
    const Manifest manifest = read_manifest(*slots_, lease_->entry());
    CommitSource source(*slots_, manifest, 2);
    write_export(source, from_, only_model_ ? nullptr : &run_, to_,
                 [this](std::int64_t written_bytes) { rest(written_bytes); });
  } catch (const GivenUp&) {  // nobody asks for the result
  } catch (const std::exception&) {
    failure_ = std::current_exception();
  }
  lease_ = nullptr;
  done_ = true;
}

void BackgroundExport::rest(std::int64_t) {
  if (give_up_) throw GivenUp();
  const auto worked = std::chrono::steady_clock::now() - resumed_;
  auto left = std::min<std::chrono::nanoseconds>(
      longest_rest, std::chrono::duration_cast<std::chrono::nanoseconds>(worked * ((1 - work_share) / work_share)));
  constexpr std::chrono::milliseconds portion{20};
  for (; left.count() > 0 && !hurry_; left -= portion)
    std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(left, portion));
  resumed_ = std::chrono::steady_clock::now();
}

}  // namespace spillway
