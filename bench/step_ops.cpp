#include "step_ops.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <set>
#include <span>
#include <string>

#include "base/bytes.h"
#include "base/error.h"
#include "ops/embedding/embedding.h"

namespace spillway::bench {
namespace {

Layout layout_of(const TrainingProgram& training, const Model& model) {
  const Program* const program = &training.program;
  return lay_out(std::span(&program, 1), model.state(), 0);
}

std::string kind_of(const StepOp& op) {
  std::string kind = fmt::format("{} {}", op.key.spec->name, op.in_head);
  for (const ValueType& read : op.key.reads) kind += fmt::format(" {}{}x{}", name_of(read.dtype), read.rows, read.cols);
  for (std::size_t w = 0; w < op.key.writes.size(); ++w) {
    const ValueType& write = op.key.writes[w];
    kind += fmt::format(" > {}{}x{}", name_of(write.dtype), write.rows, write.cols);
    for (std::size_t r = 0; r < op.key.reads.size(); ++r) kind += op.in_place(r, w) ? fmt::format(" in {}", r) : "";
  }
  return kind;
}

// Bytes of the op's operands; of embedding rows, gradients and positions only the named ones.
struct OperandBytes {
  std::vector<std::int64_t> reads;
  std::vector<std::int64_t> writes;

  explicit OperandBytes(const StepOp& op) {
    for (const ValueType& type : op.key.reads) reads.push_back(type.bytes());
    for (const ValueType& type : op.key.writes) writes.push_back(type.bytes());
    if (op.key.spec == &embed_rows_spec) keep_looked_up(op);
    if (op.key.spec == &embed_grad_spec) keep_added_up(op);
    if (op.key.spec == &add_positions_spec) reads[1] = named(op, 2, op.key.reads[1]).table_bytes;
  }

 private:
  struct Named {
    std::int64_t tokens = 0;       // whose row is in the table
    std::int64_t table_bytes = 0;  // of its rows that are named, each once
  };

  static Named named(const StepOp& op, std::size_t ids_read, const ValueType& table) {
    const std::int64_t begin = op.key.attrs.integer_or("row_begin", 0);
    const auto* const ids = reinterpret_cast<const std::int32_t*>(op.call.reads[ids_read]);
    Named all;
    std::set<std::int32_t> rows;
    for (std::int64_t i = 0; i < op.key.reads[ids_read].rows; ++i) {
      if (ids[i] < begin || ids[i] >= begin + table.rows) continue;
      ++all.tokens;
      rows.insert(ids[i]);
    }
    all.table_bytes = std::ssize(rows) * row_bytes(table);
    return all;
  }
  static std::int64_t row_bytes(const ValueType& type) { return type.cols * size_of(type.dtype); }

  // Tokens of other tiles stay as they are, or are copied, or become zero where there are none.
  void keep_looked_up(const StepOp& op) {
    const Named rows = named(op, 0, op.key.reads[1]);
    const std::int64_t copied = rows.tokens * row_bytes(op.key.writes[0]);
    reads[1] = rows.table_bytes;
    if (reads[2] > 0) reads[2] -= copied;
    if (!op.in_place(2, 0)) return;
    reads[2] = 0;
    writes[0] = copied;
  }
  void keep_added_up(const StepOp& op) {
    const Named rows = named(op, 0, op.key.writes[0]);
    reads[1] = rows.tokens * row_bytes(op.key.reads[1]);
    if (op.in_place(2, 0)) reads[2] = writes[0] = rows.table_bytes;
  }
};

}  // namespace

Pages::Pages(std::int64_t bytes) : bytes_(static_cast<std::size_t>(bytes + huge_page_bytes)) {
  void* const mapped =
      mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) throw DoesNotFit("memory: no {} of addresses", format_bytes(bytes));
  data_ = static_cast<std::byte*>(mapped);
  madvise(data_, bytes_, MADV_HUGEPAGE);
}

Pages::~Pages() { munmap(data_, bytes_); }

std::byte* Pages::first() const { return data_ + (-reinterpret_cast<std::intptr_t>(data_) & (huge_page_bytes - 1)); }

void Pages::zero(const std::byte* at, std::int64_t bytes) const {
  if (at >= data_ && at < data_ + bytes_) std::memset(data_ + (at - data_), 0, static_cast<std::size_t>(bytes));
}

void Pages::give_back() const { madvise(data_, bytes_, MADV_DONTNEED); }

std::vector<Stream> streams_of(const StepOp& op) {
  const OperandBytes bytes(op);
  std::vector<Stream> streams;
  for (std::size_t r = 0; r < bytes.reads.size(); ++r) {
    if (bytes.reads[r] > 0) streams.push_back({const_cast<std::byte*>(op.call.reads[r]), bytes.reads[r], true, false});
  }
  for (std::size_t w = 0; w < bytes.writes.size(); ++w) {
    if (bytes.writes[w] == 0) continue;
    const auto same = std::find_if(streams.begin(), streams.end(),
                                   [&](const Stream& stream) { return stream.data == op.call.writes[w]; });
    if (same != streams.end()) {
      same->written = true;
    } else {
      streams.push_back({op.call.writes[w], bytes.writes[w], false, true});
    }
  }
  return streams;
}

StepOps::StepOps(const ModelConfig& config, DType dtype, const StepShape& shape)
    : model_(config, dtype, Purpose::training, {}),
      training_(record_training(model_, shape)),
      layout_(layout_of(training_, model_)),
      pages_(layout_.address_bytes),
      bound_(training_.program, layout_.programs[0], nullptr, false, kernels_) {
  feed(shape);
}

void StepOps::feed(const StepShape& shape) const {
  std::mt19937 random(7);
  std::uniform_int_distribution<std::int32_t> id(0, static_cast<std::int32_t>(model_.config().vocab_size) - 1);
  const auto at = [&](const Operand& input) { return bound_.host().data(input.first); };
  const auto integers = [&](const Operand& input) { return reinterpret_cast<std::int32_t*>(at(input)); };
  for (const MicroBatchInputs& inputs : training_.micro_batches) {
    for (std::int64_t t = 0; t < shape.tokens(); ++t) {
      integers(inputs.ids)[t] = id(random);
      integers(inputs.targets)[t] = id(random);
      integers(inputs.positions)[t] = static_cast<std::int32_t>(t % shape.sequence_length);
    }
  }
  const float scale = 1.0F / static_cast<float>(shape.tokens() * shape.micro_batches);
  std::memcpy(at(training_.scale), &scale, sizeof scale);
  if (!training_.inverse_frequencies.exists()) return;
  const std::vector<float> frequencies = rope_inverse_frequencies(model_.config());
  std::memcpy(at(training_.inverse_frequencies), frequencies.data(), frequencies.size() * sizeof(float));
}

std::vector<std::vector<StepOp>> StepOps::kinds() const {
  std::vector<std::vector<StepOp>> kinds;
  std::vector<std::string> names;
  BundleData data;
  for (const Bundle& bundle : layout_.bundles) data.push_back(pages_.first() + bundle.address);
  for (std::size_t i = 0; i < training_.program.ops.size(); ++i) {
    const Op& recorded = training_.program.ops[i];
    StepOp op{key_of(training_.program, recorded), {}, recorded.label.phase == Phase::head};
    bound_.prepare(static_cast<OpId>(i), data, op.call);
    if (const int offset = op.key.spec->offset_read; offset >= 0) {  // the call has the address of the first row used
      ValueType& read = op.key.reads[static_cast<std::size_t>(offset)];
      read.rows = op.key.attrs.integer_or("row_count", read.rows);
    }
    const std::string name = kind_of(op);
    const auto at = static_cast<std::size_t>(std::find(names.begin(), names.end(), name) - names.begin());
    if (at == names.size()) {
      names.push_back(name);
      kinds.emplace_back();
    }
    kinds[at].push_back(std::move(op));
  }
  return kinds;
}

void StepOps::touch(const StepOp& op) const {
  for (std::size_t r = 0; r < op.key.reads.size(); ++r) pages_.zero(op.call.reads[r], op.key.reads[r].bytes());
  for (std::size_t w = 0; w < op.key.writes.size(); ++w) pages_.zero(op.call.writes[w], op.key.writes[w].bytes());
}

}  // namespace spillway::bench
