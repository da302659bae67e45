// A small state that lies in slots, without an executor: what tests of commits write, commit and expect back.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "checkpoint/committer.h"
#include "checkpoint/restore.h"
#include "plan/layout.h"
#include "state/state.h"
#include "store/aligned_buffer.h"
#include "store/slot_file.h"

namespace spillway {

// Which version of each bundle there is; 0: never written.
using Versions = std::vector<std::uint64_t>;

class CommitWorld {
 public:
  static constexpr std::int64_t page_bytes = 16384;

  CommitWorld() {
    constexpr std::int64_t piece = reduction_block_elements;
    state.add({.name = "layer.weight", .dtype = DType::u8, .rows = 2560, .cols = 64}, piece);  // three pieces
    state.add({.name = "layer.weight.low", .dtype = DType::u16, .rows = 64, .cols = 32}, piece);
    state.add({.name = "norm", .dtype = DType::bf16, .rows = 100}, piece);
    state.add({.name = "cache", .dtype = DType::f32, .rows = 8, .cols = 64, .committed = false}, piece);
    layout.page_bytes = page_bytes;
    layout.piece_places = {{BundleId{1}, 0},     {BundleId{0}, 4096}, {BundleId{2}, 0},
                           {BundleId{1}, 65536}, {BundleId{0}, 256},  {BundleId{3}, 0}};
    for (const std::int64_t bytes : {69632, 69632, 32768, 4096}) {
      layout.bundles.push_back({.bytes = bytes, .address = layout.address_bytes, .state = true});
      layout.address_bytes += round_up(bytes, page_bytes);
    }
    layout.state_bundles = 4;
  }

  std::size_t bundles() const { return layout.bundles.size(); }
  std::int64_t pages() const { return layout.address_bytes / page_bytes; }
  // Slots that suffice for this many retained commits and leases: as commit_slots_for counts, by hand.
  SlotStoreOptions options(const std::filesystem::path& folder, int files, std::int64_t retained) const {
    const std::int64_t manifest = manifest_bytes_bound(state, layout, run_bytes) / page_bytes * (retained + 1);
    return {.directories = std::vector<std::filesystem::path>(static_cast<std::size_t>(files), folder),
            .slot_bytes = page_bytes,
            .slot_count = (retained + 1) * pages() + 4 + manifest,
            .reserved_slots = manifest,
            .keep = true};
  }

  static void fill(std::uint64_t version, std::span<std::byte> bytes) {
    std::uint64_t word = version * 0x9e3779b97f4a7c15U;
    for (std::size_t at = 0; at < bytes.size(); at += sizeof(word)) {
      word ^= word << 13;
      word ^= word >> 7;
      word ^= word << 17;
      std::memcpy(bytes.data() + at, &word, std::min(sizeof(word), bytes.size() - at));
    }
  }

  // Expects the commit to hold these versions, read by piece and by rows.
  void expect_versions(const SlotStore& slots, const Manifest& manifest, const Versions& versions) const {
    ASSERT_EQ(manifest.tensors.size(), 3U);
    PieceReader pieces(slots, manifest);
    TensorReader tensors(slots, manifest);
    for (std::size_t p = 0; p < state.pieces().size(); ++p) {
      const Piece& piece = state.pieces()[p];
      const Tensor& tensor = state.tensor(piece.tensor);
      if (!tensor.committed) continue;
      const Place& place = layout.piece_places[p];
      const std::uint64_t version = versions[index_of(place.bundle)];
      std::vector<std::byte> bundle(static_cast<std::size_t>(layout.bundles[index_of(place.bundle)].bytes));
      if (version != 0) fill(version, bundle);
      const auto bytes = static_cast<std::size_t>(state.bytes_of(static_cast<PieceId>(p)));
      const std::span expected = std::span(bundle).subspan(static_cast<std::size_t>(place.offset_bytes), bytes);
      std::vector<std::byte> found(bytes);
      tensors.read(tensor.name, piece.row_begin, found);
      ASSERT_TRUE(std::equal(found.begin(), found.end(), expected.begin()))
          << state.describe(static_cast<PieceId>(p)) << " of step " << manifest.facts.step;
    }
    for (const ManifestPiece& piece : manifest.pieces) {
      std::vector<std::byte> whole(static_cast<std::size_t>(manifest.bytes_of(piece)));
      pieces.read(piece, 0, whole);
    }
  }

  static constexpr std::int64_t run_bytes = 200;
  State state;
  Layout layout;
};

// One process that trains on a kept store, as far as the disk goes: it writes versions and commits them.
class CommittingRun {
 public:
  CommittingRun(const CommitWorld& world, SlotStore& slots, const OpenedCatalogue& opened,
                const CommitterOptions& options)
      : world_(world),
        slots_(slots),
        held_(world.bundles()),
        versions_(world.bundles(), 0),
        committer_(world.state, world.layout, slots, opened, options) {}

  // Writes a new version of a bundle to new slots and waits for it.
  void write(std::size_t bundle, std::uint64_t version, IoEngine* engine) {
    const std::int64_t bytes = world_.layout.bundles[bundle].bytes;
    const AlignedBuffer data(bytes);
    CommitWorld::fill(version, data.span());
    std::vector<SlotId> slots;
    for (std::int64_t at = 0; at < bytes; at += CommitWorld::page_bytes) {
      slots.push_back(slots_.allocate());
      const auto page = data.span().subspan(static_cast<std::size_t>(at),
                                            static_cast<std::size_t>(std::min(CommitWorld::page_bytes, bytes - at)));
      slots_.seal(slots.back(), page);
      if (engine == nullptr) {
        slots_.write_slot(slots.back(), page);
      } else {
        const SlotStore::Location to = slots_.location(slots.back());
        engine->submit(
            {IoRequest::Kind::write, to.file, to.offset_bytes, page.data(), std::ssize(page), slots.size() - 1});
      }
    }
    if (engine != nullptr) wait_for(*engine, slots);
    slots_.release(held_[bundle]);
    held_[bundle] = std::move(slots);
    versions_[bundle] = version;
  }

  CommitRequest request(std::int64_t step) const {
    CommitRequest request;
    for (const std::vector<SlotId>& slots : held_) request.snapshot.add(slots);
    slots_.hold(request.snapshot.slots);
    request.facts = {step, fmt::format("step {}", step)};
    return request;
  }
  void commit(std::int64_t step) { committer_.submit(request(step)); }

  Committer& committer() { return committer_; }
  const Versions& versions() const { return versions_; }

 private:
  void wait_for(IoEngine& engine, const std::vector<SlotId>& slots) {
    std::vector<IoCompletion> done;
    while (done.size() < slots.size()) engine.wait(done);
    for (const IoCompletion& end : done) {
      if (end.failed()) {
        throw slots_.failure(slots[end.tag], IoRequest::Kind::write, end);
      }
    }
  }

  const CommitWorld& world_;
  SlotStore& slots_;
  std::vector<std::vector<SlotId>> held_;
  Versions versions_;
  Committer committer_;
};

}  // namespace spillway
