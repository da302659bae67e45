// Sums, losses, norms and the update.
#include <vector>

#include "cuda/kernels.h"
#include "ops/adamw/adamw.h"
#include "ops/reduce/reduce.h"

namespace spillway::cuda {
namespace {

constexpr int first_tile = 2;  // reads of cross-entropy before its logits: targets, scale

// A table of addresses goes to the device with each op that needs one, into its scratch memory.
template <typename Row>
const Row* bring_table(Device& device, const std::vector<Row>& table) {
  device.bring(device.scratch(), table.data(), std::ssize(table) * static_cast<std::int64_t>(sizeof(Row)));
  return reinterpret_cast<const Row*>(device.scratch());
}

// Reads from `first` on, each a column of numbers.
std::vector<std::int64_t> rows_of(const KernelKey& key, std::size_t first) {
  std::vector<std::int64_t> rows;
  for (std::size_t i = first; i < key.reads.size(); ++i) rows.push_back(key.reads[i].rows);
  return rows;
}

std::vector<Part> parts_of(const KernelArgs& args, std::size_t first, const std::vector<std::int64_t>& rows) {
  std::vector<Part> parts;
  for (std::size_t i = 0; i < rows.size(); ++i) parts.push_back({args.reads[first + i], rows[i]});
  return parts;
}

}  // namespace

std::unique_ptr<Kernel> make_column_sums(const KernelKey& key, Device& device) {
  return started(key, [&device, x = key.reads[0]](const KernelArgs& args) {
    column_sums(device.compute(), float_of(x.dtype), args.reads[0], args.write<float>(0), x.rows, x.cols,
                partial_block_rows);
  });
}

std::unique_ptr<Kernel> make_add_partials(const KernelKey& key, Device& device) {
  return started(key, [&device, partials = key.reads[0]](const KernelArgs& args) {
    add_partials(device.compute(), args.read<float>(0), args.read<float>(1), args.write<float>(0), partials.rows,
                 partials.cols);
  });
}

std::unique_ptr<Kernel> make_sum_squares(const KernelKey& key, Device& device) {
  return started(key,
                 [&device, grad = key.reads[0], block_rows = key.attrs.integer("block_rows")](const KernelArgs& args) {
                   sum_squares(device.compute(), float_of(grad.dtype), args.reads[0], args.write<double>(0),
                               grad.elements(), block_rows * grad.cols);
                 });
}

std::unique_ptr<Kernel> make_loss_sum(const KernelKey& key, Device& device) {
  device.need_scratch(std::ssize(key.reads) * static_cast<std::int64_t>(sizeof(Part)));
  return started(key, [&device, rows = rows_of(key, 0)](const KernelArgs& args) {
    const Part* const parts = bring_table(device, parts_of(args, 0, rows));
    loss_sum(device.compute(), parts, std::ssize(rows), args.write<double>(0));
  });
}

std::unique_ptr<Kernel> make_clip_factor(const KernelKey& key, Device& device) {
  device.need_scratch(std::ssize(key.reads) * static_cast<std::int64_t>(sizeof(Part)));
  return started(key, [&device, rows = rows_of(key, 1)](const KernelArgs& args) {
    const Part* const parts = bring_table(device, parts_of(args, 1, rows));
    clip_factor(device.compute(), parts, std::ssize(rows), args.read<float>(0), args.write<double>(0),
                args.write<float>(1));
  });
}

std::unique_ptr<Kernel> make_cross_entropy(const KernelKey& key, Device& device) {
  std::vector<std::int64_t> cols;
  std::int64_t vocabulary = 0;
  for (std::size_t i = first_tile; i < key.reads.size(); ++i) {
    cols.push_back(key.reads[i].cols);
    vocabulary += key.reads[i].cols;
  }
  device.need_scratch(std::ssize(cols) * static_cast<std::int64_t>(sizeof(LogitTile)));
  return started(key, [&device, cols, vocabulary, rows = key.attrs.integer("row_count"),
                       row_begin = key.attrs.integer("row_begin"), gradient = key.attrs.integer("gradient") != 0,
                       bf16 = key.attrs.integer("dlogits_bf16") != 0](const KernelArgs& args) {
    std::vector<LogitTile> tiles;
    for (std::size_t i = 0; i < cols.size(); ++i) {
      tiles.push_back(
          {args.read<float>(first_tile + static_cast<int>(i)), gradient ? args.writes[1 + i] : nullptr, cols[i]});
    }
    cross_entropy(device.compute(), bf16 ? Float::bf16 : Float::f32,
                  {.targets = args.read<std::int32_t>(0) + row_begin,
                   .scale = args.read<float>(1),
                   .tiles = bring_table(device, tiles),
                   .losses = args.write<float>(0),
                   .tile_count = std::ssize(cols),
                   .rows = rows,
                   .vocabulary = vocabulary,
                   .gradient = gradient});
  });
}

std::unique_ptr<Kernel> make_adamw(const KernelKey& key, Device& device) {
  const ValueType weight = key.writes[0];
  const ValueType moment = key.writes[1];
  const std::int64_t grad_skip_bytes = key.attrs.integer("row_begin") * weight.cols * size_of(weight.dtype);
  return started(
      key, [&device, weight, moment, grad_skip_bytes, decay = key.attrs.integer("decay") != 0](const KernelArgs& args) {
        const auto read = [&](AdamwRead which) { return args.reads[static_cast<std::size_t>(which)]; };
        const bool split = weight.dtype == DType::bf16;
        Adamw of{.weight = read(AdamwRead::weight),
                 .exp_avg = read(AdamwRead::exp_avg),
                 .exp_avg_sq = read(AdamwRead::exp_avg_sq),
                 .low = args.read<std::uint16_t>(static_cast<int>(AdamwRead::low)),
                 .grad = read(AdamwRead::grad) + grad_skip_bytes,
                 .clip = args.read<float>(static_cast<int>(AdamwRead::clip)),
                 .scalars = args.read<float>(static_cast<int>(AdamwRead::scalars)),
                 .weight_out = args.writes[0],
                 .exp_avg_out = args.writes[1],
                 .exp_avg_sq_out = args.writes[2],
                 .low_out = split ? args.write<std::uint16_t>(3) : nullptr,
                 .decay = decay};
        if (moment.dtype == DType::f32) {
          adamw(device.compute(), float_of(weight.dtype), of, weight.elements());
          return;
        }
        if (of.exp_avg != of.exp_avg_out) device.copy_within(of.exp_avg_out, of.exp_avg, moment.bytes());
        if (of.exp_avg_sq != of.exp_avg_sq_out) device.copy_within(of.exp_avg_sq_out, of.exp_avg_sq, moment.bytes());
        adamw_packed(device.compute(), float_of(weight.dtype), of, weight.rows, weight.cols, moment.cols);
      });
}

}  // namespace spillway::cuda
