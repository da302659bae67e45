#include "session/choice.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "base/error.h"

namespace spillway {

std::optional<Recompute> forced_recompute(const TrainOptions& options, std::int64_t layers) {
  const std::string_view text = options.recompute;
  if (text == "auto") return std::nullopt;
  const std::size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  constexpr std::array kinds = {RecomputeKind::none, RecomputeKind::cheap, RecomputeKind::attention,
                                RecomputeKind::block};
  const auto kind = std::find_if(kinds.begin(), kinds.end(), [&](RecomputeKind k) { return name_of(k) == name; });
  std::int64_t count = layers;
  bool valid = kind != kinds.end();
  if (colon != std::string_view::npos) {
    const std::string_view digits = text.substr(colon + 1);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), count);
    valid = valid && error == std::errc() && end == digits.data() + digits.size() && count >= 0;
  }
  if (!valid)
    throw UserError(
        "recompute is {}; it must be auto, none, cheap, attention or block, and may name a number of layers, as in "
        "block:8",
        text);
  return Recompute{*kind, static_cast<std::int32_t>(std::min(count, layers))};
}

std::vector<std::string> idle_requests(const TrainOptions& options) {
  std::vector<std::string> sentences;
  const bool clips = options.max_grad_norm > 0;
  if (!clips && options.clip_mode != "auto") {
    sentences.push_back(fmt::format(
        "clip_mode is {} and has nothing to decide, since max_grad_norm is 0: updates are made during backward",
        options.clip_mode));
  }
  if (options.deferred_layers <= 0) return sentences;
  if (clips) {
    sentences.push_back(fmt::format(
        "deferred_layers is {} and not used, since max_grad_norm is {}: clip_mode says when updates are made",
        options.deferred_layers, options.max_grad_norm));
  } else if (options.save_steps == 1) {
    sentences.push_back(fmt::format(
        "deferred_layers is {} and not used, since save_steps is 1: a commit is of a step whose updates are made",
        options.deferred_layers));
  }
  return sentences;
}

std::optional<double> forced_device_updates(const TrainOptions& options) {
  const std::string_view text = options.update_on;
  if (text == "auto") return std::nullopt;
  if (text == "cpu") return 0;
  if (text == "device") return 1;
  double every = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), every);
  if (error != std::errc() || end != text.data() + text.size() || !(every >= 1 && every < 1e9))
    throw UserError(
        "update_on is {}; it must be auto, cpu, device, or a number from 1 on: the device updates one in so many "
        "parameters",
        text);
  return 1 / every;
}

std::optional<WorkOrder> forced_order(const TrainOptions& options) {
  if (options.order == name_of(WorkOrder::by_layer)) return WorkOrder::by_layer;
  if (options.order == name_of(WorkOrder::by_micro_batch)) return WorkOrder::by_micro_batch;
  return std::nullopt;
}

std::optional<std::int32_t> forced_deferral(const TrainOptions& options, std::int64_t layers) {
  if (options.max_grad_norm > 0 || options.save_steps == 1) return 0;
  if (options.deferred_layers < 0) return std::nullopt;
  return static_cast<std::int32_t>(std::min(options.deferred_layers, layers));
}

}  // namespace spillway
