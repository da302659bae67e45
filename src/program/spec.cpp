#include "program/spec.h"

namespace spillway {

Cost streaming_cost(const Attrs&, std::span<const ValueType> reads, std::span<const ValueType> writes) {
  Cost cost;
  for (const ValueType& type : reads) cost.bytes += static_cast<double>(type.bytes());
  for (const ValueType& type : writes) cost.bytes += static_cast<double>(type.bytes());
  return cost;
}

}  // namespace spillway
