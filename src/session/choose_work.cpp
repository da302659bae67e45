#include <algorithm>
#include <array>
#include <span>

#include "base/bytes.h"
#include "base/counted.h"
#include "base/error.h"
#include "session/choice.h"

namespace spillway {
namespace {

constexpr double seconds_per_day = 86400;
// Of what another choice writes: worth to be taken where it is as fast.
constexpr double worthwhile_saving = 0.1;
// Below this share of a step, what disk and link cost is not worth another order or a recomputation.
constexpr double negligible_cost = 0.01;
// Of what computing loses beside a busy disk, which goes with the bytes moved: other choices move up to a fifth less.
constexpr double avoidable_slowing = 0.2;
// Of the pages beyond the smallest budget, those tried for what is kept of each kind.
constexpr double shares_of_awaited[] = {0, 0.2, 0.35, 0.5, 0.65, 0.8};
constexpr double shares_of_held[] = {0, 0.5, 0.65, 0.8, 1};
constexpr double shares_of_settling[] = {0.1, default_settling, 0.5, 0.7};  // see PlanRequest
// Of the work of choosing; the rest is kept for ways of clipping.
constexpr double share_for_steps = 0.85;

class Search {
 public:
  Search(const WorkLimits& limits, const std::function<WorkScore(const WorkChoice&)>& score)
      : limits_(limits), score_(score), most_ops_(limits.most_ops) {}

  WorkChosen run() {
    if (limits_.before && limits_.stays_near) return run_near(*limits_.before);
    if (limits_.before) {
      const std::optional<WorkScore> before = try_one(*limits_.before);
      if (before->fits && is_good_enough(*before)) return std::move(chosen_);
      if (before->fits && !limits_.policy) best_kept(*limits_.before, limits_.before->keep);
    }
    const WorkChoice first = first_choice(limits_);
    try_one(first);
    const std::vector<WorkOrder> orders = orders_of(limits_);
    if (is_good_enough(chosen_.score)) {
      WorkChoice other = first;
      other.order = orders.back();
      if (chosen_.score.fits && !chosen_.score.moves_nothing()) try_one(other);
      return std::move(chosen_);
    }
    if (!limits_.policy) try_policies(first);  // before others, since the work of choosing may be used up
    for (const WorkOrder order : orders) {
      WorkChoice choice = first;
      choice.order = order;
      if (limits_.recompute) {
        try_one(choice);
      } else {
        try_kinds(choice);
      }
    }
    if (!limits_.policy) try_policies(chosen_.choice);
    WorkChoice plain = first;
    plain.order = chosen_.choice.order;
    if (!limits_.settling) plain.settling = 0.5;  // some of what is found from there is not found from the default
    const WorkChoice best = chosen_.choice;
    improve(best, Keep::awaited, 0.4);  // each apart, since one leads to other recomputing than the other
    improve(best, Keep::held, 0.4);
    if (!is_allowed(chosen_.score)) write_less(orders);
    improve(plain, Keep::awaited, 0.5);
    improve(plain, Keep::held, 1);
    if (!limits_.policy) try_policy(chosen_.choice, Policy::belady);
    return std::move(chosen_);
  }

 private:
  WorkChosen run_near(const WorkChoice& before) {
    try_one(before);
    WorkChoice plain = first_choice(limits_);
    plain.order = before.order;
    const std::optional<WorkScore> of_plain = try_one(plain);
    if (of_plain && of_plain->fits && of_plain->moves_nothing()) return {plain, *of_plain, chosen_.tried};
    if (chosen_.score.fits && is_good_enough(chosen_.score)) return std::move(chosen_);
    if (!limits_.settling) plain.settling = 0.5;
    if (!limits_.recompute) try_kinds(plain);
    if (!chosen_.score.fits) return std::move(chosen_);
    const WorkChoice best = chosen_.choice;
    improve(best, Keep::awaited, 0.4);
    improve(best, Keep::held, 0.4);
    if (const std::optional<WorkChoice> other = best_of_another_kind()) {
      improve(*other, Keep::awaited, 0.5);
      improve(*other, Keep::held, 1);
    }
    if (limits_.policy) return std::move(chosen_);
    try_policies(chosen_.choice);
    for (const auto& choice : {std::optional(chosen_.choice), best_of_another_kind()}) {
      if (choice) try_policy(*choice, Policy::belady);
    }
    return std::move(chosen_);
  }

  bool is_good_enough(const WorkScore& score) const {
    if (!score.fits) return true;
    if (score.moves_nothing()) return true;
    const double stalled = score.stalled_seconds + score.mean_seconds() - score.seconds;
    const double avoidable = stalled + avoidable_slowing * score.slowed_seconds;
    return is_allowed(score) && avoidable < negligible_cost * score.seconds;
  }

  bool is_allowed(const WorkScore& score) const { return score.writes_at_most(limits_.max_disk_writes_per_day); }

  bool is_better(const WorkScore& a, const WorkScore& b) const {
    if (a.fits != b.fits) return a.fits;
    const bool allowed = is_allowed(a);
    if (allowed != is_allowed(b)) return allowed;
    if (!allowed) return a.writes_per_step() < b.writes_per_step();
    const bool saves_the_disk =
        static_cast<double>(a.write_bytes()) < (1 - worthwhile_saving) * static_cast<double>(b.write_bytes());
    if (saves_the_disk && a.mean_seconds() <= b.mean_seconds()) return true;
    return a.mean_seconds() < b.mean_seconds() * (1 - least_gain);
  }

  // Where nothing writes as little as it may, from what writes least of the rest: what is made again is not written,
  // and state that is long in use is not either where it is kept.
  void write_less(const std::vector<WorkOrder>& orders) {
    WorkChoice choice = first_choice(limits_);
    if (!limits_.recompute) choice.recompute = {RecomputeKind::block, layers()};
    for (const WorkOrder order : orders) {
      choice.order = order;
      improve(choice, Keep::held, 0.5);
    }
  }

  // In the order of what they cost for the bytes they save. The time of a step is convex in the bytes moved, so once a
  // kind in all layers is slower than the one before, the next is too, and the best lies between the two.
  void try_kinds(WorkChoice choice) {
    const std::optional<WorkScore> none = try_one(choice);
    if (!none) return;
    WorkScore last = *none;
    RecomputeKind best = RecomputeKind::none;
    RecomputeKind beyond = RecomputeKind::none;
    for (const RecomputeKind kind : {RecomputeKind::cheap, RecomputeKind::attention, RecomputeKind::block}) {
      choice.recompute = {kind, layers()};
      const std::optional<WorkScore> score = try_one(choice);
      if (!score) return;
      const bool is_worth_it = is_better(*score, last);
      if (!is_worth_it && last.fits) {
        beyond = kind;
        break;
      }
      if (is_worth_it) best = kind;
      last = *score;
    }
    for (const RecomputeKind kind : {best, beyond}) {
      if (kind == RecomputeKind::none) continue;
      for (const std::int32_t part : {2, 4}) {
        choice.recompute = {kind, layers() / part};
        if (layers() >= part) try_one(choice);
      }
    }
  }

  // What other systems do is within reach of ours: none of their rules is faster than what is chosen.
  void try_policies(const WorkChoice& choice) {
    for (const Policy policy : {Policy::lifetime, Policy::lru, Policy::everything_on_disk}) try_policy(choice, policy);
  }

  // Nothing is pinned for rules that were not made for it.
  void try_policy(WorkChoice choice, Policy policy) {
    choice.policy = policy;
    choice.pinned = 0;
    choice.keep = {};
    choice.settling = default_settling;
    try_one(choice);
  }

  // How much is kept of this kind, what waits for the next forward, what is recomputed, and how much is left to what
  // was changed last: one of them at a time, until none is faster otherwise. They share memory and disk, so what is
  // best of one depends on the others. Ends when this share of what is left of the work of choosing is used up, so that
  // some is left for what is tried after it.
  void improve(WorkChoice choice, Keep keep, double share) {
    const double left = share_for_steps * static_cast<double>(limits_.most_ops) - static_cast<double>(planned_ops_);
    most_ops_ = planned_ops_ + static_cast<std::int64_t>(share * left);
    for (WorkChoice before = choice;; before = choice) {
      if (!limits_.policy) choice = best_kept(choice, keep);
      if (!limits_.deferred_layers) choice = climb(choice, deferrals_of(choice));
      if (choice == before && !limits_.settling) choice = best_settling(choice);
      if (choice == before && !limits_.recompute) choice = best_recomputed(choice);
      if (choice == before) break;
    }
    most_ops_ = limits_.most_ops;
  }

  // The best that was tried and recomputes otherwise than the best of all.
  std::optional<WorkChoice> best_of_another_kind() const {
    const WorkTried* best = nullptr;
    for (const WorkTried& tried : chosen_.tried) {
      const bool is_other = tried.choice.recompute.kind != chosen_.choice.recompute.kind;
      if (is_other && tried.score.fits && (best == nullptr || is_better(tried.score, best->score))) best = &tried;
    }
    return best == nullptr ? std::nullopt : std::optional(best->choice);
  }

  // Of our own rule, also where another one's plan was better.
  WorkChoice best_kept(const WorkChoice& choice, Keep keep) {
    WorkChoice best = choice;
    WorkChoice other = choice;
    other.policy = Policy::automatic;
    for (const double share : keep == Keep::held ? std::span<const double>(shares_of_held) : shares_of_awaited) {
      other.pinned = share;
      other.keep = share > 0 ? keep : Keep{};
      take_better(best, other);
    }
    return best;
  }

  // Other rules have nothing of the kind.
  WorkChoice best_settling(const WorkChoice& choice) {
    return choice.policy == Policy::automatic ? climb(choice, settlings_of(choice)) : choice;
  }

  WorkChoice best_recomputed(WorkChoice choice) {
    choice = climb(choice, kinds_of(choice));
    return choice.recompute.kind == RecomputeKind::none ? choice : climb(choice, parts_of(choice));
  }

  // Up from where the choice is in a row of choices, and down, until two in turn are not better than the best: one
  // alone may lie on a step that gains nothing yet.
  WorkChoice climb(const WorkChoice& choice, const std::vector<WorkChoice>& row) {
    WorkChoice best = choice;
    const auto at = std::find(row.begin(), row.end(), choice);
    if (at == row.end()) return best;
    constexpr int patience = 2;
    int misses = 0;
    for (auto up = std::next(at); up != row.end() && misses < patience; ++up) {
      misses = take_better(best, *up) ? 0 : misses + 1;
    }
    misses = 0;
    for (auto down = at; down != row.begin() && misses < patience; --down) {
      misses = take_better(best, *std::prev(down)) ? 0 : misses + 1;
    }
    return best;
  }

  bool take_better(WorkChoice& best, const WorkChoice& other) {
    const std::optional<WorkScore> score_of_best = try_one(best);
    const std::optional<WorkScore> score = try_one(other);
    if (!score || !score_of_best || !is_better(*score, *score_of_best)) return false;
    best = other;
    return true;
  }

  std::vector<WorkChoice> deferrals_of(WorkChoice choice) const {
    std::vector<WorkChoice> row;
    for (const std::int32_t eighths : {0, 1, 2, 4, 6, 8}) {
      choice.deferred_layers = layers() * eighths / 8;
      if (row.empty() || !(row.back() == choice)) row.push_back(choice);
    }
    return row;
  }

  static std::vector<WorkChoice> settlings_of(WorkChoice choice) {
    std::vector<WorkChoice> row;
    for (const double share : shares_of_settling) {
      choice.settling = share;
      row.push_back(choice);
    }
    return row;
  }

  std::vector<WorkChoice> kinds_of(WorkChoice choice) const {
    const std::int32_t recomputed = choice.recompute.layers > 0 ? choice.recompute.layers : layers();
    choice.recompute = {};
    std::vector<WorkChoice> row{choice};
    for (const RecomputeKind kind : {RecomputeKind::cheap, RecomputeKind::attention, RecomputeKind::block}) {
      choice.recompute = {kind, recomputed};
      row.push_back(choice);
    }
    return row;
  }

  std::vector<WorkChoice> parts_of(WorkChoice choice) const {
    std::vector<WorkChoice> row;
    for (const std::int32_t part : {4, 2, 1}) {
      if (layers() < part) continue;
      choice.recompute.layers = layers() / part;
      row.push_back(choice);
    }
    return row;
  }

  std::int32_t layers() const { return static_cast<std::int32_t>(limits_.layers); }

  // Nothing when the work of choosing is used up.
  std::optional<WorkScore> try_one(const WorkChoice& choice) {
    const auto known = std::find_if(chosen_.tried.begin(), chosen_.tried.end(),
                                    [&](const WorkTried& tried) { return tried.choice == choice; });
    if (known != chosen_.tried.end()) return known->score;
    if (planned_ops_ > most_ops_) return std::nullopt;
    const WorkScore score = score_(choice);
    planned_ops_ += score.ops;
    if (chosen_.tried.empty() || is_better(score, chosen_.score)) {
      chosen_.choice = choice;
      chosen_.score = score;
    }
    chosen_.tried.push_back({choice, score});
    return score;
  }

  const WorkLimits& limits_;
  const std::function<WorkScore(const WorkChoice&)>& score_;
  WorkChosen chosen_;
  std::int64_t most_ops_;  // to be planned by what is tried now
  std::int64_t planned_ops_ = 0;
};

}  // namespace

double WorkScore::writes_per_step() const {
  return static_cast<double>(write_bytes()) + commit_bytes_per_second * seconds;
}

double WorkScore::writes_per_day() const { return seconds > 0 ? writes_per_step() / seconds * seconds_per_day : 0; }

bool WorkScore::writes_at_most(std::int64_t bytes_per_day) const {
  return bytes_per_day <= 0 || writes_per_day() <= static_cast<double>(bytes_per_day);
}

std::string describe(const WorkChoice& choice) {
  std::string text = fmt::format("by {}", name_of(choice.order));
  const int layers = choice.recompute.layers;
  if (choice.recompute.kind != RecomputeKind::none && layers > 0)
    text += fmt::format(", recompute {} in {}", name_of(choice.recompute.kind), counted(layers, "layer"));
  if (choice.deferred_layers > 0)
    text += fmt::format(", updates of {} before their next forward", counted(choice.deferred_layers, "layer"));
  if (choice.pinned > 0) {
    text += fmt::format(", {:.0f}% kept for state that {}", 100 * choice.pinned,
                        choice.keep == Keep::held ? "is long in use" : "would be waited for");
  }
  if (choice.settling != default_settling) {
    text += fmt::format(", {:.0f}% for what was changed last", 100 * choice.settling);
  }
  if (choice.policy != Policy::automatic) text += fmt::format(", policy {}", name_of(choice.policy));
  return text;
}

std::string note_on(const WorkChoice& choice, const WorkScore& score, const std::vector<WorkTried>& tried,
                    const WorkLimits& limits, std::string_view way_of_tried) {
  if (score.fits && !score.writes_at_most(limits.max_disk_writes_per_day)) {
    std::string note = fmt::format(
        "work: {}; it writes {} a day, more than max_disk_writes_per_day, and nothing tried writes less a "
        "step",
        describe(choice), format_bytes(static_cast<std::int64_t>(score.writes_per_day())));
    if (limits.commits_each_step) return note + "; each step commits, which save_steps spaces out";
    const double commits_a_day = score.commit_bytes_per_second * seconds_per_day;
    if (commits_a_day >= worthwhile_saving * score.writes_per_day())
      note += fmt::format("; {} of this by commits, which save_steps spaces out",
                          format_bytes(static_cast<std::int64_t>(commits_a_day)));
    return note;
  }
  if (tried.size() < 2) return {};
  std::string note = fmt::format("work: {}; {:.3g} s a step predicted", describe(choice), score.seconds);
  const WorkTried& first = tried.front();
  if (!first.score.fits || first.score.seconds < score.seconds * (1 + least_gain)) return note;
  return note + fmt::format(", instead of {:.3g} s {}{}", first.score.seconds, describe(first.choice), way_of_tried);
}

std::vector<WorkOrder> orders_of(const WorkLimits& limits) {
  std::vector<WorkOrder> orders{first_choice(limits).order};
  if (!limits.order && limits.micro_batches > 1) orders.push_back(WorkOrder::by_micro_batch);
  return orders;
}

WorkChoice first_choice(const WorkLimits& limits) {
  WorkChoice choice;
  choice.order = limits.order.value_or(choice.order);
  choice.recompute = limits.recompute.value_or(choice.recompute);
  choice.policy = limits.policy.value_or(choice.policy);
  choice.deferred_layers = limits.deferred_layers.value_or(choice.deferred_layers);
  choice.settling = limits.settling.value_or(choice.settling);
  return choice;
}

WorkChosen choose_work(const WorkLimits& limits, const std::function<WorkScore(const WorkChoice&)>& score) {
  return Search(limits, score).run();
}

}  // namespace spillway
