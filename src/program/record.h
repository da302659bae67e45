// Recording: model code reads like straight-line maths, and each call appends an op to a Program. Backward is derived
// once, by walking what was recorded in reverse and letting each op's gradient rule record more ops.
#pragma once

#include <functional>
#include <map>
#include <tuple>
#include <vector>

#include "program/spec.h"

namespace spillway {

class Recorder {
 public:
  Recorder(Program& program, const State& state) : program_(program), state_(state) {}

  const Program& program() const { return program_; }
  const State& state() const { return state_; }

  // Ops recorded from here on carry this label.
  void label(const Label& label) { label_ = label; }
  const Label& label() const { return label_; }

  Operand input(const ValueType& type);

  // The current version of a whole state tensor, or of `count` of its pieces from `first_piece` on.
  Operand state_tensor(TensorId tensor);
  Operand state_pieces(TensorId tensor, std::int32_t first_piece, std::int32_t count);

  // Appends an op; returns one operand a write, each of one value of its own. `outputs` marks writes that the host
  // reads afterwards.
  std::vector<Operand> record(const OpSpec& spec, Attrs attrs, std::vector<Operand> reads, bool outputs = false);
  // The same for an op with one write.
  Operand record1(const OpSpec& spec, Attrs attrs, std::vector<Operand> reads, bool outputs = false);

  // Appends an op whose writes were made before with `local`, so that adjacent parts of one matrix can be written by
  // several ops, or are new versions made with `new_version`.
  void record_into(const OpSpec& spec, Attrs attrs, std::vector<Operand> reads, std::vector<Operand> writes);
  // Adjacent local values of these types.
  Operand local(std::span<const ValueType> parts);
  // A new version of one piece; later calls of state_tensor and state_pieces return it. A piece that was not read
  // before is created: what the step finds in it does not matter.
  Operand new_version(PieceId piece);
  // The next calls of new_version for these pieces return values that lie adjacent, so that ops recorded after them can
  // read the new versions as one matrix.
  void keep_adjacent(TensorId tensor, std::int32_t first_piece, std::int32_t count);

  // Walks the forward ops recorded since the start in reverse: parts of the model (layer, part name and index of
  // forward labels) last to first, micro-batches ascending within each, ops last to first within each. Records every
  // gradient that a trainable tensor asks for, and calls `after_part` when all micro-batches of a part are done, so
  // that updates can follow at once. `seeds` are gradients of values; `sum` is the op that adds two gradients of one
  // value.
  struct Seed {
    Operand value;
    Operand gradient;
  };
  void backward(std::span<const Seed> seeds, const OpSpec& sum,
                const std::function<void(const Label& part)>& after_part);

  // Walks one micro-batch alone, before backward() walks what is left. The forward ops of this micro-batch and of those
  // before it, heads included, are recorded; micro-batches come ascending. Stops at the first part that reads a
  // trainable tensor which another part reads too: the walks of those parts must alternate as they do without this, or
  // their sums would be other sums.
  void backward_of(std::int32_t micro_batch, std::span<const Seed> seeds, const OpSpec& sum);

  // Trainable state operands with an accumulator whose first use was in that part: once backward has passed it, nothing
  // more is added to them. The head, which has no backward walk of its own, is one part. In the order of recording.
  std::vector<Operand> accumulated_in(const Label& part) const;

  // The fp32 accumulator of a trainable state operand, absent when nothing contributed yet. A contribution that waits
  // is recorded first.
  Operand accumulator(Operand state);
  void set_accumulator(Operand state, Operand accumulator);
  // Lets `contribute`, which records ops and sets the accumulator, wait until the accumulator is next asked for, by the
  // contribution that comes after it: the sum is the same. For a gradient that takes more memory than what it is made
  // from. One at a time, and another has to be still to come.
  void contribute_later(Operand state, std::function<void()> contribute);
  // Lets the op that made the accumulator round it to bf16 where it writes it, since nothing else was added, and
  // returns that: a version of piece `kept`, or a local value where that is none. Absent where the op cannot
  // (OpSpec::rounds) or others contributed.
  Operand round_accumulator(Operand state, PieceId kept);
  // From here on the accumulator of a state operand is a version of the piece that `piece_of` names for it, and so
  // outlives the step; PieceId::none: a local value as otherwise.
  void keep_accumulators(std::function<PieceId(const Operand& state)> piece_of) { kept_in_ = std::move(piece_of); }

 private:
  friend class Gradient;

  // What a label says of the part of the model, apart from the micro-batch.
  using PartKey = std::tuple<Phase, std::int32_t, std::string_view, std::int32_t>;
  static PartKey part_of(const Label& label);

  struct Accumulated {
    Operand state;
    Operand accumulator;
    Label first_use;
    bool shared = false;            // other parts use it too
    std::function<void()> to_come;  // the contribution that waits
  };

  // The forward ops of one part, by micro-batch.
  struct Walked {
    Label label;
    std::vector<OpId> ops;
    bool done = false;
  };
  struct Part {
    std::vector<Walked> micro_batches;  // in the order of recording
  };

  // A value by piece, of which a large model has some hundred thousand; none where there is no such value.
  class PieceValues {
   public:
    ValueId& operator[](PieceId piece) {
      if (index_of(piece) >= values_.size()) values_.resize(2 * index_of(piece) + 1, ValueId::none);
      return values_[index_of(piece)];
    }

   private:
    std::vector<ValueId> values_;
  };

  void make_version(const Operand& accumulator, PieceId kept);
  std::vector<ValueType> written_types(const OpSpec& spec, const Attrs& attrs, const std::vector<Operand>& reads) const;
  void append(const OpSpec& spec, Attrs attrs, std::vector<Operand> reads, std::vector<Operand> writes);
  ValueId add_value(const Value& value);
  bool is_trainable(PieceId piece) const;
  void note_use(const Operand& operand);
  bool wants_gradient(const Operand& operand) const;
  void add_gradient(const Operand& of, const Operand& gradient);
  void find_parts();
  bool is_shared(const Walked& segment) const;
  void walk_back(Walked& segment);

  Program& program_;
  const State& state_;
  Label label_;
  const OpSpec* sum_ = nullptr;  // while walking back
  PieceValues versions_;         // the newest
  PieceValues reserved_;         // the next version's, by keep_adjacent
  std::function<PieceId(const Operand&)> kept_in_;
  std::map<ValueId, Accumulated> trainable_;               // by the first value of a trainable state operand
  std::map<PartKey, std::vector<ValueId>> first_used_in_;  // of these, by the part
  std::map<ValueId, Operand> gradients_;                   // of local values, while walking back
  std::vector<bool> wants_;                                // by value: a trainable tensor lies behind it
  std::vector<Part> parts_;                                // in the order of forward, of the ops before found_ops_
  std::size_t found_ops_ = 0;
};

// What a gradient rule sees of the op it differentiates.
class Gradient {
 public:
  Gradient(Recorder& recorder, OpId op) : recorder_(recorder), op_(op) {}

  Recorder& recorder() { return recorder_; }
  const Attrs& attrs() const;
  Operand read(int i) const;  // may be absent
  Operand write(int i) const;
  ValueType type_of(const Operand& operand) const;
  // The gradient that reached write i; absent when none did.
  Operand of_write(int i) const;
  // Whether the gradient of read i is asked for: it is there and a trainable tensor lies behind it.
  bool wants(int i) const;
  // Adds a gradient of read i, an activation, in that activation's dtype.
  void add(int i, Operand gradient);
  // Read i is a trainable tensor: its fp32 accumulator so far (absent at first), and the one that replaces it.
  Operand accumulator(int i);
  void set_accumulator(int i, Operand accumulator);

 private:
  Recorder& recorder_;
  OpId op_;
};

}  // namespace spillway
