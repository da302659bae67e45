#include "plan/policy.h"

#include "base/error.h"

namespace spillway {
namespace {

// Belady's rule, exact here because the whole step is known.
class FarthestFirst : public VictimPolicy {
 public:
  std::int64_t rank(const Candidate& candidate) const override { return candidate.next_use; }
  std::int32_t lookahead_segments() const override { return 48; }
};

}  // namespace

std::unique_ptr<VictimPolicy> make_policy(Policy policy) {
  switch (policy) {
    case Policy::automatic: return std::make_unique<FarthestFirst>();
  }
  SPILLWAY_CHECK(false, "policy {} is unknown", static_cast<int>(policy));
}

}  // namespace spillway
