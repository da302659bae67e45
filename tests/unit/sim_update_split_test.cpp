// Who updates what, in virtual time: the split of a steady state is that of the closed form, and none is slower than an
// update on one processor alone.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "plan/tiers.h"
#include "plan/update_split.h"
#include "program/spec.h"
#include "sim/simulate.h"

namespace spillway {
namespace {

OpSpec spec(std::string_view name, bool anywhere) {
  OpSpec spec;
  spec.name = name;
  spec.anywhere = anywhere;
  return spec;
}
const OpSpec backward_spec = spec("backward", false);
const OpSpec update_spec = spec("update", true);

// A step of sub-groups as in the paper: a weight and a gradient of 2 bytes a parameter, master and moments of 12. Only
// updates take time.
class Updates {
 public:
  explicit Updates(const std::vector<std::int64_t>& rows) : rows_(rows) {
    for (std::size_t g = 0; g < rows.size(); ++g) {
      add_tensor(fmt::format("weight{}", g), DType::bf16, rows[g]);
      for (const char* what : {"master", "exp_avg", "exp_avg_sq"})
        add_tensor(fmt::format("{}{}", what, g), DType::f32, rows[g]);
    }
    for (std::size_t p = 0; p < state_.pieces().size(); ++p) {
      const Tensor& tensor = state_.tensor(state_.piece(static_cast<PieceId>(p)).tensor);
      versions_.push_back(add({tensor.dtype, tensor.rows, tensor.cols}, ValueKind::state_in, static_cast<PieceId>(p)));
    }
    std::vector<Operand> gradients;
    for (std::size_t g = 0; g < rows.size(); ++g) {
      gradients.push_back({add({DType::bf16, rows[g], cols}, ValueKind::local), 1});
      const Label label{Phase::backward, static_cast<std::int32_t>(g), -1, "part", 0};
      program_.ops.push_back({&backward_spec, {}, {{versions_[4 * g], 1}}, {gradients.back()}, label});
    }
    for (std::size_t g = 0; g < rows.size(); ++g) {
      Op op{&update_spec, {}, {gradients[g]}, {}, {Phase::update, static_cast<std::int32_t>(g), -1, "part", 0}};
      for (std::size_t p = 4 * g; p < 4 * g + 4; ++p) {
        op.reads.push_back({versions_[p], 1});
        const ValueType type = program_.value(versions_[p]).type;
        op.writes.push_back({add(type, ValueKind::state_out, static_cast<PieceId>(p)), 1});
      }
      program_.ops.push_back(op);
    }
    layout_ = lay_out(std::vector<const Program*>{&program_}, state_, page_bytes);
    groups_ = update_groups(program_, layout_, 0);
  }

  std::int64_t groups() const { return std::ssize(groups_); }

  // Pages for all weights and gradients, and for the state of `held` groups of this many rows.
  std::int64_t device_pages(std::int64_t held, std::int64_t held_rows) const {
    std::int64_t pages = held * (12 * held_rows * cols / page_bytes);
    for (const std::int64_t rows : rows_) pages += 2 * (2 * rows * cols / page_bytes);
    return pages;
  }

  double seconds(double share, std::int64_t device_pages, const UpdateRates& rates, double link) const {
    const std::vector<bool> below = updates_below(groups_, layout_, 0, share);
    const TierPages pages{std::max(device_pages, smallest_pages(layout_)), 3 * in_memory_pages(layout_, 0)};
    const Plan plan = make_tiered_plan(layout_, 0, pages, {.below = &below});
    EXPECT_EQ(verify(plan, layout_, program_), "");
    StepRates step;
    for (const Op& op : program_.ops) {
      const auto parameters = static_cast<double>(program_.type_of(op.writes.front()).elements());
      step.op_seconds.push_back(op.spec->anywhere ? parameters / rates.device_parameters_per_second : 0);
      step.host_seconds.push_back(op.spec->anywhere ? parameters / rates.host_parameters_per_second : 0);
    }
    step.read_bytes_per_second = step.write_bytes_per_second = step.mixed_bytes_per_second = 1e300;
    step.link = {link, link, 0};
    return simulate_steady(plan, layout_, step).seconds;
  }

  std::int64_t on_device(double share) const {
    const std::vector<bool> below = updates_below(groups_, layout_, 0, share);
    return groups() - std::count(below.begin(), below.end(), true);
  }

  double parameters() const {
    double sum = 0;
    for (const std::int64_t rows : rows_) sum += static_cast<double>(rows * cols);
    return sum;
  }

 private:
  static constexpr std::int64_t cols = 1024;
  static constexpr std::int64_t page_bytes = 65536;

  void add_tensor(const std::string& name, DType dtype, std::int64_t rows) {
    Tensor tensor;
    tensor.name = name;
    tensor.dtype = dtype;
    tensor.rows = rows;
    tensor.cols = cols;
    state_.add(tensor, rows * cols);
  }

  ValueId add(ValueType type, ValueKind kind, PieceId piece = PieceId::none) {
    program_.values.push_back({type, kind, piece});
    return static_cast<ValueId>(program_.values.size() - 1);
  }

  std::vector<std::int64_t> rows_;
  State state_;
  Program program_;
  Layout layout_;
  std::vector<ValueId> versions_;
  std::vector<UpdateGroup> groups_;
};

constexpr UpdateRates published{1.5e9, 25e9};
constexpr double published_link = 55e9;

TEST(UpdateSplit, TheEstimateIsTheClosedForm) {
  const LinkRate link{published_link, published_link, 0};
  const auto closed_form = [](double state) {
    const double b = published_link;
    return 1 + (state / b + 1 / 25e9) / (1 / 1.5e9 - 2 / b);
  };
  EXPECT_NEAR(closed_form(12), 1.41, 0.005);
  EXPECT_NEAR(closed_form(24), 1.76, 0.005);
  for (const double state : {8.0, 10.0, 12.0, 24.0}) {
    EXPECT_NEAR(balanced_device_share(published, link, {.state = state}), 1 / closed_form(state), 1e-12);
  }
  EXPECT_EQ(balanced_device_share({30e9, 25e9}, link, {}), 0);  // the host is faster than the link
}

TEST(UpdateSplit, ThePlanOfASteadyStateHasTheSplitOfTheClosedForm) {
  const Updates updates(std::vector<std::int64_t>(48, 64));
  const std::int64_t pages = updates.device_pages(3, 64);
  const double estimate = balanced_device_share(published, {published_link, published_link, 0}, {});
  // From elsewhere, so that it is found and not only taken over.
  const double share = choose_device_share(
      0.3, 1.0 / 48, [&](double tried) { return updates.seconds(tried, pages, published, published_link); });
  // Up to three groups' state stays on the device, and does not cross the link of which the closed form knows.
  EXPECT_NEAR(static_cast<double>(updates.on_device(share)), 48 * estimate, 2.5);
  const auto alone = [&](double all) { return updates.seconds(all, pages, published, published_link); };
  EXPECT_LT(alone(share), 0.85 * std::min(alone(0), alone(1)));
}

// Some of the groups' state finds room in the device's memory, and one group is larger than the others.
TEST(UpdateSplit, NeverSlowerThanOneProcessorAloneAtAnyRates) {
  int faster = 0;
  std::vector<std::int64_t> uneven(20, 64);
  uneven[3] = 640;
  for (const auto& rows : {std::vector<std::int64_t>(16, 64), uneven}) {
    const Updates updates(rows);
    for (const std::int64_t held : {3, 12}) {
      const std::int64_t pages = updates.device_pages(held, 64);
      for (const double host : {0.1e9, 1.5e9, 12e9}) {
        for (const double device : {1e9, 25e9}) {
          for (const double link : {5e9, 55e9, 450e9}) {
            SCOPED_TRACE(
                fmt::format("{} groups, {} held, rates {}, {} and {}", updates.groups(), held, host, device, link));
            const UpdateRates rates{host, device};
            const auto seconds = [&](double share) { return updates.seconds(share, pages, rates, link); };
            const double share = choose_device_share(balanced_device_share(rates, {link, link, 0}, {}),
                                                     1 / static_cast<double>(updates.groups()), seconds);
            const double least = std::min(seconds(0), seconds(1));
            EXPECT_LE(seconds(share), least * (1 + 1e-9));
            faster += seconds(share) < 0.9 * least ? 1 : 0;
          }
        }
      }
    }
  }
  EXPECT_GT(faster, 20);
}

}  // namespace
}  // namespace spillway
