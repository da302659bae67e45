#include "ops/columns/cpu.h"

#include <algorithm>
#include <cstring>

namespace spillway {
namespace {

constexpr std::int64_t block_rows = 64;

class ColumnsKernel : public Kernel {
 public:
  explicit ColumnsKernel(const KernelKey& key)
      : row_begin_(key.attrs.integer("row_begin")),
        rows_(key.attrs.integer("row_count")),
        skip_bytes_(key.attrs.integer("col_begin") * size_of(key.reads[0].dtype)),
        read_row_bytes_(key.reads[0].cols * size_of(key.reads[0].dtype)),
        write_row_bytes_(key.writes[0].cols * size_of(key.writes[0].dtype)) {}

  std::int64_t tasks() const override { return (rows_ + block_rows - 1) / block_rows; }
  void run(std::int64_t task, const KernelArgs& args) const override {
    const std::int64_t end = std::min(rows_, (task + 1) * block_rows);
    for (std::int64_t row = task * block_rows; row < end; ++row) {
      std::memcpy(args.write<std::byte>(0) + row * write_row_bytes_,
                  args.read<std::byte>(0) + (row_begin_ + row) * read_row_bytes_ + skip_bytes_,
                  static_cast<std::size_t>(write_row_bytes_));
    }
  }

 private:
  std::int64_t row_begin_;
  std::int64_t rows_;
  std::int64_t skip_bytes_;
  std::int64_t read_row_bytes_;
  std::int64_t write_row_bytes_;
};

}  // namespace

std::unique_ptr<Kernel> make_columns_cpu(const KernelKey& key) { return std::make_unique<ColumnsKernel>(key); }

}  // namespace spillway
