#include "program/record.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/error.h"

namespace spillway {
namespace {

ValueType type_of_piece(const State& state, PieceId id) {
  const Piece& piece = state.piece(id);
  const Tensor& whole = state.tensor(piece.tensor);
  return {whole.dtype, piece.row_end - piece.row_begin, whole.cols};
}

}  // namespace

ValueId Recorder::add_value(const Value& value) {
  program_.values.push_back(value);
  wants_.push_back(is_trainable(value.piece));
  return static_cast<ValueId>(program_.values.size() - 1);
}

bool Recorder::is_trainable(PieceId piece) const {
  return piece != PieceId::none && state_.tensor(state_.piece(piece).tensor).trainable;
}

Operand Recorder::input(const ValueType& type) { return {add_value({type, ValueKind::input, PieceId::none}), 1}; }

Operand Recorder::state_tensor(TensorId tensor) { return state_pieces(tensor, 0, state_.piece_count(tensor)); }

Operand Recorder::state_pieces(TensorId tensor, std::int32_t first_piece, std::int32_t count) {
  const auto first = static_cast<std::int32_t>(state_.first_piece(tensor)) + first_piece;
  SPILLWAY_CHECK(first_piece >= 0 && count > 0 && first_piece + count <= state_.piece_count(tensor),
                 "pieces {}+{} of {}", first_piece, count, state_.tensor(tensor).name);
  if (const ValueId known = versions_[static_cast<PieceId>(first)]; known != ValueId::none) return {known, count};
  // The first mention of any piece enters all pieces of the tensor, so that they have consecutive ids.
  const std::int32_t begin = static_cast<std::int32_t>(state_.first_piece(tensor));
  for (std::int32_t i = begin; i < begin + state_.piece_count(tensor); ++i) {
    const auto piece = static_cast<PieceId>(i);
    versions_[piece] = add_value({type_of_piece(state_, piece), ValueKind::state_in, piece});
  }
  return {versions_[static_cast<PieceId>(first)], count};
}

Operand Recorder::local(std::span<const ValueType> parts) {
  Operand operand{static_cast<ValueId>(program_.values.size()), static_cast<std::int32_t>(parts.size())};
  for (const ValueType& type : parts) add_value({type, ValueKind::local, PieceId::none});
  return operand;
}

Operand Recorder::new_version(PieceId piece) {
  ValueId id = std::exchange(reserved_[piece], ValueId::none);
  if (id == ValueId::none) id = add_value({type_of_piece(state_, piece), ValueKind::state_out, piece});
  versions_[piece] = id;
  return {id, 1};
}

void Recorder::keep_adjacent(TensorId tensor, std::int32_t first_piece, std::int32_t count) {
  const auto first = static_cast<std::int32_t>(state_.first_piece(tensor)) + first_piece;
  for (std::int32_t i = first; i < first + count; ++i) {
    const auto piece = static_cast<PieceId>(i);
    reserved_[piece] = add_value({type_of_piece(state_, piece), ValueKind::state_out, piece});
  }
}

std::vector<ValueType> Recorder::written_types(const OpSpec& spec, const Attrs& attrs,
                                               const std::vector<Operand>& reads) const {
  std::vector<ValueType> types;
  types.reserve(reads.size());
  for (const Operand& operand : reads) types.push_back(program_.type_of(operand));
  return spec.infer(attrs, types);
}

std::vector<Operand> Recorder::record(const OpSpec& spec, Attrs attrs, std::vector<Operand> reads, bool outputs) {
  std::vector<Operand> writes;
  for (const ValueType& type : written_types(spec, attrs, reads)) {
    writes.push_back({add_value({type, outputs ? ValueKind::output : ValueKind::local, PieceId::none}), 1});
  }
  append(spec, std::move(attrs), std::move(reads), writes);
  return writes;
}

Operand Recorder::record1(const OpSpec& spec, Attrs attrs, std::vector<Operand> reads, bool outputs) {
  const std::vector<Operand> writes = record(spec, std::move(attrs), std::move(reads), outputs);
  SPILLWAY_CHECK(writes.size() == 1, "{} has {} writes", spec.name, writes.size());
  return writes.front();
}

void Recorder::record_into(const OpSpec& spec, Attrs attrs, std::vector<Operand> reads, std::vector<Operand> writes) {
  const std::vector<ValueType> inferred = written_types(spec, attrs, reads);
  SPILLWAY_CHECK(inferred.size() == writes.size(), "{} writes {} values, not {}", spec.name, inferred.size(),
                 writes.size());
  for (std::size_t i = 0; i < writes.size(); ++i) {
    const ValueType type = program_.type_of(writes[i]);
    SPILLWAY_CHECK(type == inferred[i], "{} write {} is {} x {}, not {} x {}", spec.name, i, type.rows, type.cols,
                   inferred[i].rows, inferred[i].cols);
  }
  append(spec, std::move(attrs), std::move(reads), std::move(writes));
}

void Recorder::append(const OpSpec& spec, Attrs attrs, std::vector<Operand> reads, std::vector<Operand> writes) {
  const bool wanted = spec.gradient != nullptr && std::any_of(reads.begin(), reads.end(), [&](const Operand& operand) {
                        return operand.exists() && wants_gradient(operand);
                      });
  for (const Operand& operand : writes) {
    for_each_value(operand, [&](std::size_t v) { wants_[v] = wanted || is_trainable(program_.values[v].piece); });
  }
  for (const Operand& operand : reads) note_use(operand);
  program_.ops.push_back({&spec, std::move(attrs), std::move(reads), std::move(writes), label_});
}

void Recorder::note_use(const Operand& operand) {
  if (!operand.exists() || !is_trainable(program_.value(operand.first).piece)) return;
  const auto [entry, fresh] = trainable_.try_emplace(operand.first, Accumulated{operand, {}, label_, false, {}});
  if (fresh) first_used_in_[part_of(label_)].push_back(operand.first);
  const bool forward = label_.phase == Phase::forward || label_.phase == Phase::head;
  if (!fresh && forward && part_of(entry->second.first_use) != part_of(label_)) entry->second.shared = true;
}

bool Recorder::wants_gradient(const Operand& operand) const { return wants_[index_of(operand.first)]; }

void Recorder::add_gradient(const Operand& of, const Operand& gradient) {
  auto [entry, fresh] = gradients_.try_emplace(of.first, gradient);
  if (!fresh) entry->second = record1(*sum_, {}, {entry->second, gradient});
}

Operand Recorder::accumulator(Operand state) {
  const auto found = trainable_.find(state.first);
  if (found == trainable_.end()) return {};
  if (const std::function<void()> contribute = std::exchange(found->second.to_come, {}); contribute) contribute();
  return found->second.accumulator;
}

void Recorder::contribute_later(Operand state, std::function<void()> contribute) {
  const auto found = trainable_.find(state.first);
  SPILLWAY_CHECK(found != trainable_.end() && found->second.state == state, "%{} is not a trainable operand as used",
                 index_of(state.first));
  SPILLWAY_CHECK(!found->second.to_come, "a contribution to %{} waits already", index_of(state.first));
  found->second.to_come = std::move(contribute);
}

void Recorder::set_accumulator(Operand state, Operand accumulator) {
  const auto found = trainable_.find(state.first);
  SPILLWAY_CHECK(found != trainable_.end() && found->second.state == state, "%{} is not a trainable operand as used",
                 index_of(state.first));
  found->second.accumulator = accumulator;
  const PieceId kept = kept_in_ ? kept_in_(state) : PieceId::none;
  if (kept != PieceId::none) make_version(accumulator, kept);
}

Operand Recorder::round_accumulator(Operand state, PieceId kept) {
  const Operand accumulator = this->accumulator(state);
  const auto made = std::find_if(program_.ops.rbegin(), program_.ops.rend(), [&](const Op& op) {
    return op.writes.size() == 1 && op.writes.front() == accumulator;
  });
  SPILLWAY_CHECK(made != program_.ops.rend(), "no op wrote %{}", index_of(accumulator.first));
  const bool alone = std::none_of(made->spec->shares.begin(), made->spec->shares.end(), [&](const Share& share) {
    return made->reads[static_cast<std::size_t>(share.read)].exists();
  });
  if (!made->spec->rounds || !alone) return {};
  made->attrs.set("rounded", std::int64_t{1});
  program_.values[index_of(accumulator.first)].type = written_types(*made->spec, made->attrs, made->reads).front();
  if (kept != PieceId::none) make_version(accumulator, kept);
  return accumulator;
}

void Recorder::make_version(const Operand& accumulator, PieceId kept) {
  Value& value = program_.values[index_of(accumulator.first)];
  SPILLWAY_CHECK(accumulator.count == 1 && value.type == type_of_piece(state_, kept),
                 "an accumulator is no version of {}", state_.describe(kept));
  value.kind = ValueKind::state_out;
  value.piece = kept;
  versions_[kept] = accumulator.first;
}

// The head is one part, whatever its grid.
Recorder::PartKey Recorder::part_of(const Label& label) {
  if (label.phase == Phase::head) return {label.phase, -1, "", 0};
  return {label.phase, label.layer, label.part, label.index};
}

std::vector<Operand> Recorder::accumulated_in(const Label& part) const {
  const auto found = first_used_in_.find(part_of(part));
  if (found == first_used_in_.end()) return {};
  std::vector<ValueId> firsts = found->second;
  std::sort(firsts.begin(), firsts.end());
  std::vector<Operand> done;
  for (const ValueId first : firsts) {
    const Accumulated& entry = trainable_.at(first);
    SPILLWAY_CHECK(!entry.to_come, "a contribution to %{} waits for another that does not come", index_of(first));
    if (entry.accumulator.exists()) done.push_back(entry.state);
  }
  return done;
}

// Enters the forward ops that were recorded since it was last called.
void Recorder::find_parts() {
  std::map<std::tuple<std::int32_t, std::string_view, std::int32_t>, std::size_t> known;
  for (std::size_t p = 0; p < parts_.size(); ++p) {
    const Label& label = parts_[p].micro_batches.front().label;
    known[{label.layer, label.part, label.index}] = p;
  }
  const Label* last = nullptr;
  for (; found_ops_ < program_.ops.size(); ++found_ops_) {
    const Label& label = program_.ops[found_ops_].label;
    if (label.phase != Phase::forward) continue;
    const auto [part, fresh] = known.try_emplace({label.layer, label.part, label.index}, parts_.size());
    if (fresh) parts_.emplace_back();
    std::vector<Walked>& segments = parts_[part->second].micro_batches;
    if (last == nullptr || !(*last == label)) segments.push_back({label, {}, false});
    last = &label;
    segments.back().ops.push_back(static_cast<OpId>(found_ops_));
  }
}

bool Recorder::is_shared(const Walked& segment) const {
  return std::any_of(segment.ops.begin(), segment.ops.end(), [&](OpId id) {
    const Op& op = program_.ops[index_of(id)];
    return std::any_of(op.reads.begin(), op.reads.end(), [&](const Operand& read) {
      const auto found = trainable_.find(read.first);
      return found != trainable_.end() && found->second.shared;
    });
  });
}

void Recorder::walk_back(Walked& segment) {
  if (segment.done) return;
  segment.done = true;
  label_ = segment.label;
  label_.phase = Phase::backward;
  for (auto id = segment.ops.rbegin(); id != segment.ops.rend(); ++id) {
    Gradient gradient(*this, *id);
    const Op& op = program_.ops[index_of(*id)];
    const bool reached = std::any_of(op.writes.begin(), op.writes.end(),
                                     [&](const Operand& write) { return gradients_.contains(write.first); });
    if (!reached || op.spec->gradient == nullptr || !wants_gradient(op.writes.front())) continue;
    const std::vector<Operand> writes = op.writes;  // the rule records, which may move the ops
    op.spec->gradient(gradient);
    for (const Operand& write : writes) gradients_.erase(write.first);
  }
}

void Recorder::backward(std::span<const Seed> seeds, const OpSpec& sum,
                        const std::function<void(const Label& part)>& after_part) {
  sum_ = &sum;
  find_parts();
  for (const Seed& seed : seeds) add_gradient(seed.value, seed.gradient);
  for (auto part = parts_.rbegin(); part != parts_.rend(); ++part) {
    for (Walked& segment : part->micro_batches) walk_back(segment);
    after_part(part->micro_batches.front().label);
  }
}

void Recorder::backward_of(std::int32_t micro_batch, std::span<const Seed> seeds, const OpSpec& sum) {
  sum_ = &sum;
  find_parts();
  for (const Seed& seed : seeds) add_gradient(seed.value, seed.gradient);
  for (auto part = parts_.rbegin(); part != parts_.rend(); ++part) {
    Walked& segment = part->micro_batches.back();
    SPILLWAY_CHECK(segment.label.micro_batch == micro_batch, "the newest micro-batch is {}, not {}",
                   segment.label.micro_batch, micro_batch);
    if (is_shared(segment)) return;
    walk_back(segment);
  }
}

const Attrs& Gradient::attrs() const { return recorder_.program().ops[index_of(op_)].attrs; }

Operand Gradient::read(int i) const {
  const Op& op = recorder_.program().ops[index_of(op_)];
  return op.reads.at(static_cast<std::size_t>(i));
}

Operand Gradient::write(int i) const {
  const Op& op = recorder_.program().ops[index_of(op_)];
  return op.writes.at(static_cast<std::size_t>(i));
}

ValueType Gradient::type_of(const Operand& operand) const { return recorder_.program().type_of(operand); }

Operand Gradient::of_write(int i) const {
  const auto found = recorder_.gradients_.find(write(i).first);
  return found == recorder_.gradients_.end() ? Operand{} : found->second;
}

bool Gradient::wants(int i) const { return read(i).exists() && recorder_.wants_gradient(read(i)); }

void Gradient::add(int i, Operand gradient) { recorder_.add_gradient(read(i), gradient); }

Operand Gradient::accumulator(int i) { return recorder_.accumulator(read(i)); }

void Gradient::set_accumulator(int i, Operand accumulator) { recorder_.set_accumulator(read(i), accumulator); }

}  // namespace spillway
