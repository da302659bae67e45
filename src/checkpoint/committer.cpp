#include "checkpoint/committer.h"

#include <algorithm>
#include <ctime>

#include "base/error.h"
#include "base/steady_clock.h"
#include "checkpoint/manifest_slots.h"
#include "checkpoint/superblock.h"
#include "store/aligned_buffer.h"

namespace spillway {

std::string_view name_of(CommitPoint point) {
  switch (point) {
    case CommitPoint::begun: return "begun";
    case CommitPoint::manifest_slot_written: return "manifest slot written";
    case CommitPoint::manifest_written: return "manifest written";
    case CommitPoint::flushed: return "flushed";
    case CommitPoint::superblock_written: return "superblock written";
    case CommitPoint::superblocks_written: return "superblocks written";
    case CommitPoint::durable: return "durable";
    case CommitPoint::released: return "released";
  }
  return "?";
}

namespace {

// State that is not committed has slots in a snapshot too.
void release_others(std::vector<SlotId> named, std::vector<SlotId> held, SlotStore& slots) {
  std::sort(named.begin(), named.end());
  std::sort(held.begin(), held.end());
  std::vector<SlotId> others;
  std::set_difference(held.begin(), held.end(), named.begin(), named.end(), std::back_inserter(others));
  slots.release(others);
}

}  // namespace

CommitLease::CommitLease(SlotStore& slots, RetainedCommit commit) : slots_(slots), commit_(std::move(commit)) {
  slots_.hold(commit_.slots);
  slots_.promise_release();
}

CommitLease::~CommitLease() {
  slots_.release(commit_.slots);
  slots_.end_promise();
}

Committer::Committer(const State& state, const Layout& layout, SlotStore& slots, const OpenedCatalogue& opened,
                     const CommitterOptions& options)
    : state_(state),
      layout_(layout),
      slots_(slots),
      options_(options),
      generation_(opened.last_generation),
      place_(opened.place),
      retained_(opened.commits) {
  SPILLWAY_CHECK(slots.kept(), "a store without names holds no commits, but {} were asked for",
                 options.retained_commits);
  SPILLWAY_CHECK(options.retained_commits >= 1 && options.retained_commits <= most_retained_commits,
                 "{} retained commits", options.retained_commits);
  thread_ = std::thread([this] { run(); });
}

Committer::~Committer() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Committer::submit(CommitRequest request) {
  Job job;
  job.commit = std::move(request);
  start(std::move(job));
}

void Committer::start(Job job) {
  job.submitted = SteadyClock::now();
  slots_.promise_release();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return std::ssize(jobs_) < most_pending; });
  if (failure_) {
    slots_.end_promise();
    std::rethrow_exception(failure_);
  }
  jobs_.push_back(std::move(job));
  lock.unlock();
  changed_.notify_all();
}

int Committer::pending() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(jobs_.size());
}

void Committer::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return jobs_.empty(); });
  if (failure_) std::rethrow_exception(failure_);
}

void Committer::check() const {
  const std::lock_guard lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
}

std::vector<CommitEntry> Committer::commits() const {
  const std::lock_guard lock(mutex_);
  std::vector<CommitEntry> entries;
  for (const RetainedCommit& commit : retained_) entries.push_back(commit.entry);
  return entries;
}

std::unique_ptr<CommitLease> Committer::lease(std::uint64_t generation) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(retained_.begin(), retained_.end(),
                                  [&](const RetainedCommit& commit) { return commit.entry.generation == generation; });
  return found == retained_.end() ? nullptr : std::make_unique<CommitLease>(slots_, *found);
}

void Committer::prune(std::int64_t keep) {
  SPILLWAY_CHECK(keep >= 1, "{} commits to keep", keep);
  wait();
  Job job;
  {
    const std::lock_guard lock(mutex_);
    if (std::ssize(retained_) <= keep) return;
    job.retained.assign(retained_.end() - keep, retained_.end());
  }
  start(std::move(job));
  wait();
}

void Committer::forget_after(std::uint64_t generation) {
  wait();
  Job job;
  {
    const std::lock_guard lock(mutex_);
    for (const RetainedCommit& commit : retained_) {
      if (commit.entry.generation <= generation) job.retained.push_back(commit);
    }
    if (job.retained.size() == retained_.size()) return;
  }
  start(std::move(job));
  wait();
}

// --- The commit thread ---

void Committer::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stop_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    Job& job = jobs_.front();
    if (!failure_) {
      lock.unlock();
      std::exception_ptr failure;
      try {
        carry_out(job);
      } catch (const std::exception&) {
        failure = std::current_exception();
        slots_.stop(failure);
      }
      lock.lock();
      failure_ = failure;
    }
    slots_.end_promise();
    jobs_.pop_front();
    changed_.notify_all();
  }
}

// After a failure nothing is released: what the superblocks on disk name is not known.
void Committer::carry_out(Job& job) {
  const std::uint64_t generation = ++generation_;
  flush_seconds_ = 0;
  std::vector<RetainedCommit> before;
  {
    const std::lock_guard lock(mutex_);
    before = retained_;
  }
  std::vector<RetainedCommit> after = job.commit ? before : job.retained;
  if (job.commit) after.push_back(write_commit(*job.commit, generation));
  while (std::ssize(after) > options_.retained_commits && job.commit) after.erase(after.begin());
  write_superblocks(after, generation);
  {
    const std::lock_guard lock(mutex_);
    retained_ = after;
  }
  for (const RetainedCommit& commit : before) {
    const bool kept = std::any_of(after.begin(), after.end(),
                                  [&](const RetainedCommit& other) { return other.entry == commit.entry; });
    if (!kept) slots_.release(commit.slots);
  }
  point(CommitPoint::released);
  if (!job.commit || !options_.on_durable) return;
  const std::chrono::duration<double> seconds = SteadyClock::now() - job.submitted;
  options_.on_durable({after.back().entry, seconds.count(), flush_seconds_});
}

RetainedCommit Committer::write_commit(CommitRequest& request, std::uint64_t generation) {
  point(CommitPoint::begun);
  Manifest manifest = manifest_of(state_, layout_, request.snapshot, slots_);
  manifest.generation = generation;
  manifest.facts = std::move(request.facts);
  const WrittenManifest written =
      write_manifest_slots(manifest, slots_, [this](int slot) { point(CommitPoint::manifest_slot_written, slot); });
  point(CommitPoint::manifest_written);
  flush();
  point(CommitPoint::flushed);
  const auto [file, index] = slots_.place_of(written.slots.front());
  RetainedCommit commit{{generation, manifest.facts.step, static_cast<std::int64_t>(std::time(nullptr)), written.bytes,
                         written.checksum, file, index},
                        {}};
  commit.slots.reserve(manifest.extents.size() + written.slots.size());
  for (const ManifestExtent& extent : manifest.extents) {
    commit.slots.push_back(slots_.slot_at(extent.file, extent.index));
  }
  release_others(commit.slots, request.snapshot.slots, slots_);
  commit.slots.insert(commit.slots.end(), written.slots.begin(), written.slots.end());
  return commit;
}

void Committer::write_superblocks(const std::vector<RetainedCommit>& commits, std::uint64_t generation) {
  Superblock superblock{generation, {}};
  for (const RetainedCommit& commit : commits) superblock.commits.push_back(commit.entry);
  const int place = (place_ + 1) % superblock_places;
  const AlignedBuffer block(slot_file_block_bytes);
  for (std::int32_t file = 0; file < slots_.file_count(); ++file) {
    write_superblock(superblock, slots_.run(), file, slots_.file_count(), block.span());
    slots_.write_block(file, superblock_offset_bytes(place), block.span());
    point(CommitPoint::superblock_written, file);
  }
  point(CommitPoint::superblocks_written);
  flush();
  place_ = place;
  point(CommitPoint::durable);
}

void Committer::flush() {
  const auto start = SteadyClock::now();
  slots_.flush();
  flush_seconds_ += seconds_since(start);
}

void Committer::point(CommitPoint where, int part) const {
  if (options_.on_point) options_.on_point(where, part);
}

}  // namespace spillway
