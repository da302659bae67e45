// A commit holds the versions of the end of its step, whatever the steps after it do meanwhile.
#include <gtest/gtest.h>

#include <cstring>

#include "base/error.h"
#include "executor/executor.h"
#include "golden/model_folder.h"
#include "one_choice.h"
#include "ops/adamw/adamw.h"
#include "scratch_folder.h"
#include "session/feed.h"
#include "session/model_files.h"
#include "session/setup.h"
#include "under_sanitizer.h"

namespace spillway {
namespace {

class EqualCommit : public testing::Test {
 protected:
  static constexpr int steps = 4;

  void SetUp() override {
    const auto config = nlohmann::json::parse(R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
      "vocab_size": 1000, "hidden_size": 96, "intermediate_size": 200, "num_hidden_layers": 3, "num_attention_heads": 6,
      "num_key_value_heads": 2, "max_position_embeddings": 256, "tie_word_embeddings": false})");
    golden::write_model(scratch_ / "model", config, "");
    TrainOptions options;
    options.model = (scratch_ / "model").string();
    options.output_dir = (scratch_ / "out").string();
    options.max_seq_len = 64;
    options.threads = 2;
    options.piece_elements = 65536;
    options.page_size_bytes = 16384;
    leave_one_choice_under_sanitizer(options);
    options.max_grad_norm = 0;
    setup_.emplace(options);
  }

  // The state after each step, as the commits hold it when all steps are done.
  std::vector<std::vector<std::byte>> committed(std::int64_t pages, std::uint64_t delay_seed) {
    const Layout& layout = setup_->planned.layout;
    const std::vector<Plan> plans{make_plan(layout, 0, pages, {.commits = true})};
    EXPECT_EQ(verify(plans[0], layout, setup_->steps.usual().program), "");
    const std::vector<const Program*> programs{&setup_->steps.usual().program};
    ExecutorOptions options;
    options.threads = 2;
    options.delay_seed = delay_seed;
    options.poison = true;
    SlotStoreOptions slots;
    slots.directories = {scratch_.path()};
    slots.slot_bytes = layout.page_bytes;
    slots.slot_count = disk_slots_for(layout, plans, steps);
    options.slots = std::make_shared<SlotStore>(slots);
    std::vector<SlotSnapshot> snapshots;
    options.on_commit = [&](SlotSnapshot snapshot) { snapshots.push_back(std::move(snapshot)); };
    std::vector<std::vector<std::byte>> states;
    {
      Executor executor(layout, programs, plans, setup_->kernels, options);
      executor.settle(plans[0], plans[0].entry);
      load_weights(executor, layout, setup_->model, setup_->folder, setup_->files);
      set_frequencies(executor, 0, setup_->steps.usual().inverse_frequencies, setup_->config.model);
      const AdamwSettings settings;
      AdamwProducts products;
      const float scale = 0.01F;
      std::memcpy(executor.host_value(0, setup_->steps.usual().scale), &scale, sizeof scale);
      for (int step = 0; step < steps; ++step) {
        products.advance(settings);
        const AdamwScalars scalars = adamw_scalars(settings, products, 1e-3);
        std::memcpy(executor.host_value(0, setup_->steps.usual().adamw), &scalars, sizeof scalars);
        executor.run(plans[0]);
      }
      executor.drain();
      EXPECT_EQ(snapshots.size(), static_cast<std::size_t>(steps));
      for (const SlotSnapshot& snapshot : snapshots) states.push_back(state_in(*options.slots, snapshot));
      EXPECT_TRUE(states.back() == state_in(executor)) << "the last commit is the state of the run";
    }
    return states;
  }

  std::vector<std::byte> state_in(const SlotStore& slots, const SlotSnapshot& snapshot) const {
    const Layout& layout = setup_->planned.layout;
    std::vector<std::vector<std::byte>> bundles(static_cast<std::size_t>(layout.state_bundles));
    AlignedBytes page(layout.page_bytes);
    for (std::size_t b = 0; b < bundles.size(); ++b) {
      for (const SlotId slot : snapshot.of(b)) {
        slots.read_slot(slot, {page.data(), static_cast<std::size_t>(layout.page_bytes)});
        bundles[b].insert(bundles[b].end(), page.data(), page.data() + layout.page_bytes);
      }
    }
    std::vector<std::byte> state;
    for (std::size_t p = 0; p < layout.piece_places.size(); ++p) {
      const Place& place = layout.piece_places[p];
      const auto bytes = setup_->model.state().bytes_of(static_cast<PieceId>(p));
      std::vector<std::byte>& bundle = bundles[index_of(place.bundle)];
      bundle.resize(std::max(bundle.size(), static_cast<std::size_t>(place.offset_bytes + bytes)));  // never written: 0
      state.insert(state.end(), bundle.begin() + place.offset_bytes, bundle.begin() + place.offset_bytes + bytes);
    }
    return state;
  }

  std::vector<std::byte> state_in(Executor& executor) const {
    std::vector<std::byte> state;
    const State& pieces = setup_->model.state();
    for (std::size_t p = 0; p < pieces.pieces().size(); ++p) {
      const auto id = static_cast<PieceId>(p);
      executor.visit_piece(id, false,
                           [&](const std::byte* data) { state.insert(state.end(), data, data + pieces.bytes_of(id)); });
    }
    return state;
  }

  ScratchFolder scratch_;
  std::optional<TrainingSetup> setup_;
};

TEST_F(EqualCommit, HoldsTheVersionsOfItsStepWhateverTheBudgetAndTheTiming) {
  const Layout& layout = setup_->planned.layout;
  const std::int64_t smallest = smallest_pages(layout);
  const std::int64_t largest = in_memory_pages(layout, 0);
  const std::vector<std::vector<std::byte>> expected = committed(largest, 0);
  for (int step = 1; step < steps; ++step) {
    EXPECT_FALSE(expected[static_cast<std::size_t>(step)] == expected[static_cast<std::size_t>(step) - 1]);
  }
  for (const std::int64_t pages : {smallest, (smallest + largest) / 2, largest}) {
    for (const std::uint64_t delay_seed : cases(std::vector{5U, 0U})) {
      EXPECT_TRUE(committed(pages, delay_seed) == expected) << pages << " pages, delays " << delay_seed;
    }
  }
}

}  // namespace
}  // namespace spillway
