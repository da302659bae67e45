#include "text/pretokenizer.h"

#include <map>

#include "base/error.h"
#include "text/normalizer.h"
#include "text/utf8.h"

namespace spillway {
namespace {

constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

struct Segment {
  std::size_t begin, end;
  bool is_match;
};

// A match joins the segment on one side of it, unless that is a match that was itself just joined or placed.
std::vector<Segment> merge_forward(const std::vector<Segment>& segments) {
  std::vector<Segment> merged;
  bool previous_match = false;
  for (const Segment& segment : segments) {
    if (segment.is_match && !previous_match && !merged.empty()) {
      merged.back().end = segment.end;
    } else {
      merged.push_back(segment);
    }
    previous_match = segment.is_match;
  }
  return merged;
}

std::vector<Segment> merge_backward(const std::vector<Segment>& segments) {
  std::vector<Segment> merged;
  for (std::size_t i = 0; i < segments.size(); ++i) {
    merged.push_back(segments[i]);
    if (segments[i].is_match && i + 1 < segments.size() && !segments[i + 1].is_match) {
      merged.back().end = segments[++i].end;
    }
  }
  return merged;
}

std::vector<Segment> merge_alike(const std::vector<Segment>& segments) {
  std::vector<Segment> merged;
  for (const Segment& segment : segments) {
    if (!merged.empty() && merged.back().is_match == segment.is_match) {
      merged.back().end = segment.end;
    } else {
      merged.push_back(segment);
    }
  }
  return merged;
}

}  // namespace

std::string metaspace_prepend_scheme(const Fields& fields) {
  const bool prefix = fields.flag("add_prefix_space", true);
  if (!fields.has("prepend_scheme")) return prefix ? "always" : "never";
  const std::string& scheme = fields.text("prepend_scheme");
  if (scheme != "always" && scheme != "first" && scheme != "never") {
    fields.refuse("the prepend_scheme \"" + scheme + "\"");
  }
  if (fields.has("add_prefix_space") && !prefix && scheme != "never") {
    fields.refuse("add_prefix_space false with the prepend_scheme \"" + scheme + "\"");
  }
  return scheme;
}

PreTokenizer::PreTokenizer(const nlohmann::json& value, const std::string& where) {
  if (!value.is_null()) add(Fields(value, where), 0);
}

void PreTokenizer::add(const Fields& fields, int depth) {
  const std::string& type = fields.text("type");
  if (byte_level_) fields.refuse("a pre-tokenizer after ByteLevel (" + type + ")");
  if (type == "Sequence") {
    if (depth == kDeepestSequence) fields.refuse("a Sequence nested this deep");
    fields.only({"type", "pretokenizers"});
    for (const Fields& inner : fields.objects("pretokenizers")) add(inner, depth + 1);
  } else if (type == "Split") {
    add_split(fields);
  } else if (type == "Digits") {
    fields.only({"type", "individual_digits"});
    const bool individual = fields.flag("individual_digits", false);
    steps_.emplace_back(
        Split{Pattern::regex("\\p{N}", fields.where()), individual ? Behavior::isolated : Behavior::contiguous, false});
  } else if (type == "ByteLevel") {
    add_byte_level(fields);
  } else if (type == "Metaspace") {
    add_metaspace(fields);
  } else {
    fields.refuse("the pre-tokenizer " + type);
  }
}

void PreTokenizer::add_split(const Fields& fields) {
  static const std::map<std::string, Behavior, std::less<>> kBehaviors = {
      {"Removed", Behavior::removed},
      {"Isolated", Behavior::isolated},
      {"MergedWithPrevious", Behavior::merged_with_previous},
      {"MergedWithNext", Behavior::merged_with_next},
      {"Contiguous", Behavior::contiguous}};
  fields.only({"type", "pattern", "behavior", "invert"});
  const std::string& behavior = fields.text("behavior");
  if (!kBehaviors.contains(behavior)) fields.refuse("the behavior \"" + behavior + "\"");
  steps_.emplace_back(Split{fields.pattern("pattern"), kBehaviors.at(behavior), fields.flag("invert", false)});
}

void PreTokenizer::add_byte_level(const Fields& fields) {
  fields.only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
  if (fields.flag("add_prefix_space", true)) steps_.emplace_back(PrefixSpace{});
  if (fields.flag("use_regex", true)) {
    steps_.emplace_back(Split{Pattern::regex(kGpt2Pattern, fields.where()), Behavior::isolated, false});
  }
  byte_level_ = true;
}

void PreTokenizer::add_metaspace(const Fields& fields) {
  static const std::map<std::string, PrependScheme, std::less<>> kSchemes = {
      {"always", PrependScheme::always}, {"first", PrependScheme::first}, {"never", PrependScheme::never}};
  fields.only({"type", "replacement", "str_rep", "add_prefix_space", "prepend_scheme", "split"});
  const std::string& replacement = fields.text("replacement");
  if (replacement.empty()) fields.refuse("an empty replacement");
  steps_.emplace_back(Metaspace{replacement, kSchemes.at(metaspace_prepend_scheme(fields))});
  if (fields.flag("split", true)) {
    steps_.emplace_back(Split{Pattern::literal(replacement), Behavior::merged_with_next, false});
  }
}

void PreTokenizer::run(std::size_t step, std::string_view text, bool at_start, const Piece& piece) const {
  if (text.empty()) return;
  if (step == steps_.size()) return piece(text);
  if (const auto* split = std::get_if<Split>(&steps_[step])) return run_split(*split, step, text, at_start, piece);
  if (const auto* metaspace = std::get_if<Metaspace>(&steps_[step])) {
    std::string marked = replace_matches(text, Pattern::literal(" "), metaspace->replacement);
    const bool wanted =
        metaspace->prepend == PrependScheme::always || (metaspace->prepend == PrependScheme::first && at_start);
    if (wanted && !marked.starts_with(metaspace->replacement)) marked.insert(0, metaspace->replacement);
    return run(step + 1, marked, at_start, piece);
  }
  if (text.front() == ' ') return run(step + 1, text, at_start, piece);
  run(step + 1, " " + std::string(text), at_start, piece);
}

void PreTokenizer::run_split(const Split& split, std::size_t step, std::string_view text, bool at_start,
                             const Piece& piece) const {
  const auto pass_on = [&](std::size_t begin, std::size_t end) {
    run(step + 1, text.substr(begin, end - begin), at_start && begin == 0, piece);
  };
  if (split.behavior == Behavior::isolated || split.behavior == Behavior::removed) {
    const bool remove = split.behavior == Behavior::removed;
    split.pattern.split(text, [&](std::size_t begin, std::size_t end, bool is_match) {
      if (!remove || is_match == split.invert) pass_on(begin, end);
    });
    return;
  }
  std::vector<Segment> segments;
  split.pattern.split(text, [&](std::size_t begin, std::size_t end, bool is_match) {
    segments.push_back({begin, end, is_match != split.invert});
  });
  const std::vector<Segment> merged = split.behavior == Behavior::merged_with_previous ? merge_forward(segments)
                                      : split.behavior == Behavior::merged_with_next   ? merge_backward(segments)
                                                                                       : merge_alike(segments);
  for (const Segment& segment : merged) pass_on(segment.begin, segment.end);
}

}  // namespace spillway
