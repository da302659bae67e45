#include "store/slot_file.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <thread>

#include "base/bytes.h"
#include "base/error.h"
#include "store/aligned_buffer.h"
#include "store/checksum.h"
#include "store/slot_head.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;

// The slots up to and with this file are its and the earlier ones' share of all, rounded up.
std::int64_t slots_of_file(std::int64_t slot_count, std::size_t file, std::span<const double> shares) {
  double before = 0;
  for (std::size_t i = 0; i < file; ++i) before += shares[i];
  const auto slots_below = [&](double share) {
    const double exact = share * static_cast<double>(slot_count);
    return std::min(slot_count, static_cast<std::int64_t>(std::ceil(exact - 1e-6)));
  };
  const std::int64_t end = file + 1 == shares.size() ? slot_count : slots_below(before + shares[file]);
  return std::max<std::int64_t>(0, end - slots_below(before));
}

std::vector<double> normalized(std::vector<double> shares, std::size_t files) {
  if (shares.empty()) shares.assign(files, 1);
  SPILLWAY_CHECK(shares.size() == files, "{} shares of {} files", shares.size(), files);
  double sum = 0;
  for (const double share : shares) {
    SPILLWAY_CHECK(share > 0, "a share of {}", share);
    sum += share;
  }
  for (double& share : shares) share /= sum;
  return shares;
}

std::int64_t head_bytes(bool kept) { return kept ? slot_file_head_bytes : 0; }

}  // namespace

void SlotSnapshot::add(std::span<const SlotId> bundle) {
  if (first.empty()) first.push_back(0);
  slots.insert(slots.end(), bundle.begin(), bundle.end());
  first.push_back(static_cast<std::int32_t>(slots.size()));
}

std::span<const SlotId> SlotSnapshot::of(std::size_t bundle) const {
  SPILLWAY_CHECK(bundle < bundles(), "bundle {} of {}", bundle, bundles());
  const auto begin = static_cast<std::size_t>(first[bundle]);
  return std::span(slots).subspan(begin, static_cast<std::size_t>(first[bundle + 1]) - begin);
}

SlotStore::SlotStore(DiskCalls* calls, bool kept)
    : calls_(calls != nullptr ? calls : &system_disk_calls()), kept_(kept) {}

SlotStore::SlotStore(const SlotStoreOptions& options) : SlotStore(options.calls, options.keep) {
  slot_bytes_ = options.slot_bytes;
  reserved_ = options.reserved_slots;
  SPILLWAY_CHECK(slot_bytes_ > 0 && slot_bytes_ % direct_alignment == 0, "slots of {} bytes", slot_bytes_);
  SPILLWAY_CHECK(options.slot_count >= 0 && options.slot_count <= INT32_MAX, "{} slots", options.slot_count);
  SPILLWAY_CHECK(reserved_ >= 0 && reserved_ <= options.slot_count, "{} of {} slots reserved", reserved_,
                 options.slot_count);
  SPILLWAY_CHECK(!options.directories.empty(), "{} directories", options.directories.size());
  if (kept_) run_ = options.run == RunId() ? RunId::random() : options.run;
  set_shares(normalized(options.shares, options.directories.size()));
  make_files(options);
  slots_in_.resize(files_.size());
  free_.resize(files_.size());
  for (std::int32_t i = 0; i < file_count(); ++i) {
    add_slots_to(i, slots_of_file(options.slot_count, static_cast<std::size_t>(i), shares_));
  }
}

void SlotStore::make_files(const SlotStoreOptions& options) {
  const auto count = static_cast<std::int32_t>(options.directories.size());
  for (std::int32_t i = 0; i < count; ++i) {
    const fs::path& directory = options.directories[static_cast<std::size_t>(i)];
    const std::int64_t bytes =
        head_bytes(kept_) + slots_of_file(options.slot_count, static_cast<std::size_t>(i), shares_) * slot_bytes_;
    files_.push_back(kept_ ? SpillFile::make(directory, slot_file_name(run_, i, count), bytes)
                           : SpillFile::make_unnamed(directory, bytes));
    SpillFile& file = files_.back();
    file.turn_direct();
    if (!kept_) continue;
    const AlignedBuffer block(slot_file_block_bytes);
    write_head({run_, i, count, slot_bytes_}, block.span());
    file.write(*calls_, 0, block.span());
  }
  if (!kept_) return;
  for (const SpillFile& file : files_) file.settle(*calls_);
  for (SpillFile& file : files_) file.stay();
}

std::unique_ptr<SlotStore> SlotStore::open(const SlotSet& set, DiskCalls* calls, SpillAccess access) {
  SPILLWAY_CHECK(set.complete(), "a set of {} files", set.paths.size());
  std::unique_ptr<SlotStore> store(new SlotStore(calls, true));
  store->run_ = set.run;
  store->writes_ = access == SpillAccess::write;
  for (const fs::path& path : set.paths) store->files_.push_back(SpillFile::open(path, access));
  const auto count = static_cast<std::int32_t>(store->files_.size());
  store->slots_in_.resize(store->files_.size());
  store->free_.resize(store->files_.size());
  for (std::int32_t i = 0; i < count; ++i) {
    SpillFile& file = store->files_[static_cast<std::size_t>(i)];
    file.turn_direct();
    const AlignedBuffer block(slot_file_block_bytes);
    file.read(*store->calls_, 0, block.span());
    const SlotHead head = read_head(block.span(), file.name());
    if (i == 0) store->slot_bytes_ = head.slot_bytes;
    if (head != SlotHead{set.run, i, count, store->slot_bytes_}) {
      throw UserError(
          "{}: its head says file {} of {} of run {} with slots of {}: give the files of one run, under the names "
          "they had",
          file.name(), head.index, head.count, head.run.text(), format_bytes(head.slot_bytes));
    }
    const std::int64_t here = std::max<std::int64_t>(0, file.size_bytes() - slot_file_head_bytes) / head.slot_bytes;
    store->add_slots_to(i, std::min<std::int64_t>(here, INT32_MAX / count));
  }
  std::vector<double> shares;
  for (const std::int64_t slots : store->slots_in_)
    shares.push_back(static_cast<double>(std::max<std::int64_t>(slots, 1)));
  store->set_shares(std::move(shares));
  return store;
}

void SlotStore::attach(IoEngine& engine) {
  SPILLWAY_CHECK(engine_files_.empty(), "attached to {} files already", engine_files_.size());
  for (const SpillFile& file : files_) engine_files_.push_back(engine.add_file(file.descriptor()));
}

void SlotStore::set_shares(std::vector<double> shares) {
  const std::size_t files = files_.empty() ? shares.size() : files_.size();
  shares_ = normalized(std::move(shares), files);
  credit_.assign(files, 0);
}

void SlotStore::grow(std::int64_t slot_count, std::int64_t reserved_slots) {
  bool grows = false;
  for (std::int32_t i = 0; i < file_count(); ++i) {
    const std::int64_t wanted = slots_of_file(slot_count, static_cast<std::size_t>(i), shares_);
    if (wanted <= slots_in(i)) continue;
    files_[static_cast<std::size_t>(i)].reserve(head_bytes(kept_) + wanted * slot_bytes_);
    grows = true;
  }
  if (grows) flush();
  for (std::int32_t i = 0; i < file_count(); ++i) {
    add_slots_to(i, slots_of_file(slot_count, static_cast<std::size_t>(i), shares_));
  }
  const std::lock_guard lock(mutex_);
  reserved_ = reserved_slots;
}

std::size_t SlotStore::checked(SlotId slot) const {
  const auto index = static_cast<std::int32_t>(slot);
  SPILLWAY_CHECK(index >= 0 && slot_at(index % file_count(), index / file_count()) == slot, "slot {} of {}", index,
                 checksums_.size());
  return static_cast<std::size_t>(index);
}

std::pair<std::int32_t, std::int32_t> SlotStore::place_of(SlotId slot) const {
  const auto index = static_cast<std::int32_t>(checked(slot));
  return {index % file_count(), index / file_count()};
}

SlotId SlotStore::slot_at(std::int32_t file, std::int32_t index) const {
  if (file < 0 || file >= file_count() || index < 0 || index >= slots_in(file)) return SlotId::none;
  return static_cast<SlotId>(index * file_count() + file);
}

SlotStore::Location SlotStore::location(SlotId slot) const {
  const auto [file, index] = place_of(slot);
  return {engine_files_.empty() ? file : engine_files_[static_cast<std::size_t>(file)],
          head_bytes(kept_) + index * slot_bytes_};
}

int SlotStore::descriptor(SlotId slot) const {
  return files_[static_cast<std::size_t>(place_of(slot).first)].descriptor();
}

void SlotStore::seal(SlotId slot, std::span<const std::byte> bytes) { checksums_[checked(slot)] = checksum_of(bytes); }

std::uint64_t SlotStore::checksum(SlotId slot) const { return checksums_[checked(slot)]; }

void SlotStore::verify(SlotId slot, std::span<const std::byte> bytes) const {
  const std::uint64_t found = checksum_of(bytes);
  if (found == checksum(slot)) return;
  throw DeviceError(
      "{} at offset {}: {} bytes do not verify (checksum {:016x}, written {:016x}): the disk changed them",
      files_[static_cast<std::size_t>(place_of(slot).first)].name(), location(slot).offset_bytes, bytes.size(), found,
      checksum(slot));
}

void SlotStore::read_slot(SlotId slot, std::span<std::byte> into) const {
  const auto [file, index] = place_of(slot);
  read_block(file, location(slot).offset_bytes, into);
}

void SlotStore::write_slot(SlotId slot, std::span<const std::byte> from) {
  const auto [file, index] = place_of(slot);
  write_block(file, location(slot).offset_bytes, from);
}

void SlotStore::read_block(std::int32_t file, std::int64_t offset_bytes, std::span<std::byte> into) const {
  files_[static_cast<std::size_t>(file)].read(*calls_, offset_bytes, into);
}

void SlotStore::write_block(std::int32_t file, std::int64_t offset_bytes, std::span<const std::byte> from) {
  files_[static_cast<std::size_t>(file)].write(*calls_, offset_bytes, from);
}

void SlotStore::flush() {
  if (!writes_) return;
  std::vector<std::exception_ptr> failures(files_.size());
  const auto flush_one = [&](std::size_t i) {
    try {
      files_[i].flush(*calls_);
    } catch (const std::exception&) {
      failures[i] = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> others;
    for (std::size_t i = 1; i < files_.size(); ++i) others.emplace_back(flush_one, i);
    flush_one(0);
  }
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

fs::path SlotStore::path(std::int32_t file) const {
  const SpillFile& found = files_[static_cast<std::size_t>(file)];
  return found.path().empty() ? found.directory() : found.path();
}

bool SlotStore::direct() const {
  return std::all_of(files_.begin(), files_.end(), [](const SpillFile& file) { return file.direct(); });
}

std::string SlotStore::describe() const {
  std::string text;
  for (std::int32_t i = 0; i < file_count(); ++i) {
    const SpillFile& file = files_[static_cast<std::size_t>(i)];
    text += fmt::format("{}{}: {} slots of {}", i == 0 ? "" : "; ", file.directory().string(), slots_in(i),
                        format_bytes(slot_bytes_));
    if (file.direct()) text += ", direct";
    if (!file.note().empty()) text += ", " + file.note();
  }
  return text;
}

DeviceError SlotStore::failure(SlotId slot, IoRequest::Kind kind, const IoCompletion& completion) const {
  const std::string name = files_[static_cast<std::size_t>(place_of(slot).first)].name();
  const char* const verb = kind == IoRequest::Kind::read ? "reading" : "writing";
  const std::int64_t offset_bytes = location(slot).offset_bytes;
  if (completion.error == 0) {
    return DeviceError(
        "{} {} at offset {} ended after {} of {} bytes: check the disk, or name another directory with --spill-dir",
        verb, name, offset_bytes, completion.bytes, completion.wanted_bytes);
  }
  return DeviceError(
      "{} {} at offset {} failed ({}): check the disk and its free space, or name another directory with --spill-dir",
      verb, name, offset_bytes, errno_text(completion.error));
}

}  // namespace spillway
