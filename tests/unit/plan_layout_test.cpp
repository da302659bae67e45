#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/bytes.h"
#include "plan/layout.h"
#include "random_program.h"

namespace spillway {
namespace {

constexpr std::uint64_t layout_seed = 9000;

template <typename Visit>
void for_each_layout(const Visit& visit) {
  for (std::uint64_t seed = layout_seed; seed < layout_seed + 100; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const RandomPrograms programs(seed);
    visit(programs, programs.layout());
    if (testing::Test::HasFailure()) return;
  }
}

template <typename Visit>
void for_each_operand(const Op& op, const Visit& visit) {
  for (const auto* operands : {&op.reads, &op.writes}) {
    for (const Operand& operand : *operands) {
      if (operand.exists()) visit(operand);
    }
  }
}

TEST(PlanLayout, SegmentsAreRunsOfEqualLabels) {
  for_each_layout([](const RandomPrograms& programs, const Layout& layout) {
    const Segments& segments = layout.programs[0].segments;
    const auto& ops = programs.step().ops;
    EXPECT_EQ(segments.begin.front(), 0);
    EXPECT_EQ(segments.begin.back(), std::ssize(ops));
    for (std::size_t i = 1; i < ops.size(); ++i) {
      const bool begins =
          std::binary_search(segments.begin.begin(), segments.begin.end(), static_cast<std::int32_t>(i));
      EXPECT_EQ(begins, !(ops[i].label == ops[i - 1].label));
    }
  });
}

TEST(PlanLayout, OperandsOfSeveralValuesLieAdjacent) {
  for_each_layout([](const RandomPrograms& programs, const Layout& layout) {
    for (std::size_t p = 0; p < 2; ++p) {
      const auto& places = layout.programs[p].places;
      for (const Op& op : programs.programs()[p]->ops) {
        for_each_operand(op, [&](const Operand& operand) {
          std::int64_t end_bytes = places[index_of(operand.first)].offset_bytes;
          for (std::size_t v = index_of(operand.first); v < index_of(operand.first) + operand.count; ++v) {
            EXPECT_EQ(places[v].bundle, places[index_of(operand.first)].bundle);
            EXPECT_EQ(places[v].offset_bytes, end_bytes);
            end_bytes += programs.programs()[p]->values[v].type.bytes();
          }
        });
      }
    }
  });
}

TEST(PlanLayout, ValuesLieInsideTheirBundlesAndBundlesApart) {
  for_each_layout([](const RandomPrograms& programs, const Layout& layout) {
    std::int64_t end = 0;
    for (const Bundle& bundle : layout.bundles) {
      EXPECT_EQ(bundle.address % layout.page_bytes, 0);
      EXPECT_EQ(bundle.bytes % 4096, 0) << "for direct I/O";
      EXPECT_GE(bundle.address, end);
      end = bundle.address + bundle.bytes;
    }
    EXPECT_LE(end, layout.address_bytes);
    for (std::size_t p = 0; p < 2; ++p) {
      const Program& program = *programs.programs()[p];
      for (std::size_t v = 0; v < program.values.size(); ++v) {
        const Place& place = layout.programs[p].places[v];
        const ValueKind kind = program.values[v].kind;
        if (kind == ValueKind::input || kind == ValueKind::output) {
          EXPECT_EQ(place.bundle, BundleId::none) << "the host's";
        } else if (place.bundle != BundleId::none) {
          EXPECT_LE(place.offset_bytes + program.values[v].type.bytes(), layout.bundles[index_of(place.bundle)].bytes);
        }
      }
    }
  });
}

TEST(PlanLayout, AllProgramsSeeAPieceInOnePlace) {
  for_each_layout([](const RandomPrograms& programs, const Layout& layout) {
    ASSERT_EQ(layout.piece_places.size(), programs.state().pieces().size());
    std::set<std::pair<BundleId, std::int64_t>> places;
    for (const Place& place : layout.piece_places) {
      EXPECT_TRUE(layout.bundles[index_of(place.bundle)].state);
      EXPECT_LT(static_cast<std::int32_t>(index_of(place.bundle)), layout.state_bundles);
      EXPECT_TRUE(places.insert({place.bundle, place.offset_bytes}).second) << "two pieces in one place";
    }
    for (std::size_t p = 0; p < 2; ++p) {
      const Program& program = *programs.programs()[p];
      for (std::size_t v = 0; v < program.values.size(); ++v) {
        if (program.values[v].piece == PieceId::none) continue;
        const Place& place = layout.programs[p].places[v];
        const Place& piece = layout.piece_places[index_of(program.values[v].piece)];
        EXPECT_TRUE(place.bundle == piece.bundle && place.offset_bytes == piece.offset_bytes);
      }
    }
  });
}

// Runs the ops in order on bytes that remember which value they hold.
TEST(PlanLayout, NoValueIsOverwrittenBeforeItsLastRead) {
  for_each_layout([](const RandomPrograms& programs, const Layout& layout) {
    for (std::size_t p = 0; p < 2; ++p) {
      const Program& program = *programs.programs()[p];
      std::map<std::pair<BundleId, std::int64_t>, std::size_t> holds;  // by 256 bytes
      const auto each_cell = [&](const Operand& operand, const auto& visit) {
        for (std::size_t v = index_of(operand.first); v < index_of(operand.first) + operand.count; ++v) {
          const Place& place = layout.programs[p].places[v];
          if (place.bundle == BundleId::none) continue;
          for (std::int64_t at = 0; at < program.values[v].type.bytes(); at += 256) {
            visit(holds[{place.bundle, place.offset_bytes + at}], v);
          }
        }
      };
      for (std::size_t v = 0; v < program.values.size(); ++v) {
        if (program.values[v].kind != ValueKind::state_in) continue;
        each_cell({static_cast<ValueId>(v), 1}, [](std::size_t& cell, std::size_t value) { cell = value; });
      }
      for (const Op& op : program.ops) {
        for (const Operand& read : op.reads) {
          if (!read.exists()) continue;
          each_cell(read, [](std::size_t& cell, std::size_t value) { EXPECT_EQ(cell, value); });
        }
        for (const Operand& write : op.writes) {
          each_cell(write, [](std::size_t& cell, std::size_t value) { cell = value; });
        }
      }
    }
  });
}

TEST(PlanLayout, UsesSayWhatASegmentDoes) {
  for_each_layout([](const RandomPrograms& programs, const Layout& layout) {
    const ProgramLayout& program = layout.programs[0];
    std::map<BundleId, int> created, ended;
    std::set<BundleId> alive;
    for (std::int32_t s = 0; s < program.segments.count(); ++s) {
      std::set<BundleId> named;
      for (const Use& use : program.uses[static_cast<std::size_t>(s)]) {
        EXPECT_TRUE(named.insert(use.bundle).second);
        EXPECT_LE(use.first_op, use.last_op);
        created[use.bundle] += use.creates ? 1 : 0;
        ended[use.bundle] += use.ends ? 1 : 0;
        if (use.creates) alive.insert(use.bundle);
        EXPECT_TRUE(layout.bundles[index_of(use.bundle)].state || alive.contains(use.bundle));
        if (use.ends) alive.erase(use.bundle);
      }
      for (auto i = static_cast<std::size_t>(program.segments.begin[static_cast<std::size_t>(s)]);
           i < static_cast<std::size_t>(program.segments.begin[static_cast<std::size_t>(s) + 1]); ++i) {
        for_each_operand(programs.step().ops[i], [&](const Operand& operand) {
          const BundleId bundle = program.places[index_of(operand.first)].bundle;
          EXPECT_TRUE(bundle == BundleId::none || named.contains(bundle));
        });
      }
    }
    EXPECT_TRUE(alive.empty());
    for (const auto& [bundle, count] : created) {
      const bool state = layout.bundles[index_of(bundle)].state;
      EXPECT_EQ(count, state ? 0 : 1);
      EXPECT_EQ(ended[bundle], state ? 0 : 1);
    }
  });
}

TEST(PlanLayout, AWriteTakesTheBytesOfAReadThatEnds) {
  State state;
  Program program;
  for (int i = 0; i < 3; ++i) program.values.push_back({{DType::f32, 4, 64}, ValueKind::local, PieceId::none});
  const auto operand = [](std::int32_t value) { return Operand{static_cast<ValueId>(value), 1}; };
  program.ops.push_back({&mix_spec, {}, {}, {operand(0)}, {}});
  program.ops.push_back({&in_place_spec, {}, {operand(0)}, {operand(1)}, {}});
  program.ops.push_back({&in_place_spec, {}, {operand(1)}, {operand(2)}, {}});
  program.ops.push_back({&mix_spec, {}, {operand(1)}, {}, {}});  // so value 1 outlives the op that could have taken it
  const Program* const programs[] = {&program};
  const Layout layout = lay_out(programs, state, 4096);
  const auto& places = layout.programs[0].places;
  EXPECT_EQ(places[0].offset_bytes, places[1].offset_bytes);
  EXPECT_NE(places[1].offset_bytes, places[2].offset_bytes);
}

TEST(PlanLayout, ThePageSizeFollowsFromTheLargestSegment) {
  const RandomPrograms programs(layout_seed);
  const Layout layout = lay_out(programs.programs(), programs.state(), 0);
  EXPECT_EQ(layout.page_bytes & (layout.page_bytes - 1), 0);
  EXPECT_GE(layout.page_bytes, 4096);
  EXPECT_LE(layout.page_bytes, 2 * mib);
}

}  // namespace
}  // namespace spillway
