// Each CUDA kernel against the CPU's kernel of the same op: to the bit where all processors must agree, otherwise
// within what other orders of a sum give.
#include <numeric>

#include "cuda/cuda_ops.h"
#include "ops/adamw/adamw.h"
#include "ops/add/add.h"
#include "ops/attention/attention.h"
#include "ops/columns/columns.h"
#include "ops/cross_entropy/cross_entropy.h"
#include "ops/embedding/embedding.h"
#include "ops/gelu/gelu.h"
#include "ops/grad_norm/grad_norm.h"
#include "ops/kv_cache/kv_cache.h"
#include "ops/layernorm/layernorm.h"
#include "ops/linear/linear.h"
#include "ops/reduce/reduce.h"
#include "ops/rmsnorm/rmsnorm.h"
#include "ops/rope/rope.h"
#include "ops/round/round.h"
#include "ops/swiglu/swiglu.h"

namespace spillway {
namespace {

using namespace ops_test;

class CudaKernels : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = cuda_reason(); !reason.empty()) GTEST_SKIP() << reason;
  }

  Matrix random(DType dtype, std::int64_t rows, std::int64_t cols, double deviation = 1, double mean = 0) {
    return random_matrix(dtype, rows, cols, seeded_.rng, deviation, mean);
  }
  // Whole numbers from `low` on, below `end`.
  Matrix indices(std::int64_t rows, int low, int end) {
    std::uniform_int_distribution<int> any(low, end - 1);
    std::vector<double> numbers;
    for (std::int64_t i = 0; i < rows; ++i) numbers.push_back(any(seeded_.rng));
    return matrix({DType::i32, rows, 1}, numbers);
  }

  Seeded seeded_;
};

constexpr DType dtypes[] = {DType::f32, DType::bf16};

TEST_F(CudaKernels, ElementsAreNearTheCpus) {
  for (const DType dtype : dtypes) {
    for (const auto& [rows, cols] : {std::pair(37, 50), std::pair(128, 256), std::pair(1, 3)}) {
      const Matrix a = random(dtype, rows, cols, 2);
      const Matrix b = random(dtype, rows, cols, 2);
      const Matrix c = random(dtype, rows, cols, 2);
      expect_cuda_is_cpu_to_the_bit({&add_spec, {}, {a, b}});
      expect_cuda_near_cpu({&gelu_spec, {}, {a}});
      expect_cuda_near_cpu({&gelu_dx_spec, {}, {a, b}});
      expect_cuda_near_cpu({&swiglu_spec, {}, {a, b}});
      expect_cuda_near_cpu({&swiglu_dx_spec, {}, {a, b, c}});
    }
  }
  expect_cuda_is_cpu_to_the_bit({&round_to_bf16_spec, {}, {random(DType::f32, 123, 77)}});
}

TEST_F(CudaKernels, RopeIsNearTheCpus) {
  for (const DType dtype : dtypes) {
    std::vector<double> frequencies;
    for (int i = 0; i < 24; ++i) frequencies.push_back(std::pow(10000.0, -i / 24.0));
    for (const std::int64_t inverse : {0, 1}) {
      expect_cuda_near_cpu(
          {&rope_spec,
           {{"head_dim", std::int64_t{48}}, {"inverse", inverse}},
           {random(dtype, 19, 3 * 48), indices(19, 0, 5000), matrix({DType::f32, 24, 1}, frequencies)}});
    }
  }
}

TEST_F(CudaKernels, NormsAreNearTheCpus) {
  for (const DType dtype : dtypes) {
    for (const auto& [rows, cols] : {std::pair(300, 136), std::pair(17, 1200), std::pair(513, 20)}) {
      const Matrix x = random(dtype, rows, cols, 2, 0.5);
      const Matrix w = random(dtype, cols, 1, 1, 1);
      const Matrix b = random(dtype, cols, 1);
      const Matrix dy = random(dtype, rows, cols);
      const OpCase layer{&layernorm_spec, {{"epsilon", 1e-5}}, {x, w, b}};
      const std::vector<Matrix> made = run(layer);
      expect_cuda_near_cpu(layer, Tolerance{1.0 / 128, 1e-5});
      expect_cuda_near_cpu({&layernorm_dx_spec, {}, {x, w, made[1], made[2], dy}}, Tolerance{1.0 / 128, 1e-4});
      const OpCase rms{&rmsnorm_spec, {{"epsilon", 1e-5}}, {x, w}};
      expect_cuda_near_cpu(rms, Tolerance{1.0 / 128, 1e-5});
      expect_cuda_near_cpu({&rmsnorm_dx_spec, {}, {x, w, run(rms)[1], dy}}, Tolerance{1.0 / 128, 1e-4});
    }
    const OpCase heads{&rmsnorm_spec, {{"epsilon", 1e-5}}, {random(dtype, 33, 4 * 16), random(dtype, 16, 1)}};
    expect_cuda_near_cpu(heads, Tolerance{1.0 / 128, 1e-5});
  }
}

TEST_F(CudaKernels, SumsAreTheCpus) {
  for (const DType dtype : dtypes) {
    expect_cuda_is_cpu_to_the_bit({&column_sums_spec, {}, {random(dtype, 600, 130)}});
    for (const auto& [rows, cols, block_rows] :
         {std::tuple(100, 70, 32), std::tuple(7, 5, 3), std::tuple(300, 64, 128)}) {
      expect_cuda_near_cpu({&sum_squares_spec, {{"block_rows", std::int64_t{block_rows}}}, {random(dtype, rows, cols)}},
                           Tolerance{1e-13, 0});
    }
  }
  const Matrix partials = random(DType::f32, 5, 130);
  expect_cuda_is_cpu_to_the_bit({&add_partials_spec, {}, {partials, random(DType::f32, 130, 1)}});
  expect_cuda_is_cpu_to_the_bit({&add_partials_spec, {}, {partials, absent()}});
  const Matrix losses = random(DType::f32, 700, 1);
  expect_cuda_is_cpu_to_the_bit({&loss_sum_spec, {}, {losses, random(DType::f32, 3, 1), losses}});
  for (const double limit : {0.0, 0.5, 1e6}) {
    Matrix squares = random(DType::f64, 300, 1);
    for (double& number : squares.numbers) number *= number;
    expect_cuda_is_cpu_to_the_bit({&clip_factor_spec, {}, {matrix({DType::f32, 1, 1}, {limit}), squares, squares}});
  }
}

TEST_F(CudaKernels, EmbeddingsAreTheCpusToTheBit) {
  for (const DType dtype : dtypes) {
    const Matrix ids = indices(300, 0, 60);
    const Attrs rows{{"row_begin", std::int64_t{10}}};
    for (const std::int64_t cols : {33, 64}) {
      const Matrix tile = random(dtype, 40, cols);
      expect_cuda_is_cpu_to_the_bit({&embed_rows_spec, rows, {ids, tile, absent()}});
      expect_cuda_is_cpu_to_the_bit({&embed_rows_spec, rows, {ids, tile, random(dtype, 300, cols)}});
      const Attrs sums{{"row_begin", std::int64_t{10}}, {"rows", std::int64_t{40}}};
      const Matrix dx = random(dtype, 300, cols);
      expect_cuda_is_cpu_to_the_bit({&embed_grad_spec, sums, {ids, dx, absent()}});
      expect_cuda_is_cpu_to_the_bit({&embed_grad_spec, sums, {ids, dx, random(DType::f32, 40, cols)}});
      const Matrix positions = indices(300, -1, 60);
      expect_cuda_is_cpu_to_the_bit({&add_positions_spec, {}, {dx, tile, positions}});
    }
    // Many tokens of one id, and of two by turns: all sums to few rows, over several rounds of a block.
    std::vector<double> turns;
    for (int i = 0; i < 700; ++i) turns.push_back(i < 550 ? 3 : i % 2);
    expect_cuda_is_cpu_to_the_bit({&embed_grad_spec,
                                   {{"row_begin", std::int64_t{0}}, {"rows", std::int64_t{4}}},
                                   {matrix({DType::i32, 700, 1}, turns), random(dtype, 700, 300), absent()}});
    const Attrs part{{"row_begin", std::int64_t{2}},
                     {"row_count", std::int64_t{9}},
                     {"col_begin", std::int64_t{8}},
                     {"col_count", std::int64_t{16}}};
    expect_cuda_is_cpu_to_the_bit({&columns_spec, part, {random(dtype, 20, 40)}});
  }
}

TEST_F(CudaKernels, CrossEntropyIsNearTheCpus) {
  for (const std::int64_t bf16 : {0, 1}) {
    for (const std::int64_t gradient : {0, 1}) {
      const Attrs attrs{{"row_begin", std::int64_t{4}},
                        {"row_count", std::int64_t{20}},
                        {"gradient", gradient},
                        {"dlogits_bf16", bf16}};
      expect_cuda_near_cpu({&cross_entropy_spec,
                            attrs,
                            {indices(30, -1, 900), matrix({DType::f32, 1, 1}, {1.0 / 64}),
                             random(DType::f32, 20, 600, 4), random(DType::f32, 20, 300, 4)}},
                           Tolerance{bf16 != 0 ? 1.0 / 128 : 1e-5, 1e-6});
    }
  }
}

TEST_F(CudaKernels, ProductsAreNearTheCpus) {
  for (const DType dtype : dtypes) {
    const Tolerance tolerance = dtype == DType::f32 ? Tolerance{1e-5, 1e-5} : Tolerance{1.0 / 128, 1e-3};
    for (const std::int64_t out_in : {0, 1}) {
      for (const auto& [rows, in, out] : {std::tuple(96, 64, 136), std::tuple(50, 72, 48), std::tuple(130, 256, 128)}) {
        const Matrix x = random(dtype, rows, in);
        const Matrix w = out_in != 0 ? random(dtype, out, in) : random(dtype, in, out);
        const Matrix dy = random(dtype, rows, out);
        const Matrix old = out_in != 0 ? random(DType::f32, out, in) : random(DType::f32, in, out);
        const Attrs attrs{{"weight_out_in", out_in}};
        const Attrs wide{{"weight_out_in", out_in}, {"out_f32", std::int64_t{1}}};
        expect_cuda_near_cpu({&linear_spec, attrs, {x, w, absent()}}, tolerance);
        expect_cuda_near_cpu({&linear_spec, attrs, {x, w, random(dtype, out, 1)}}, tolerance);
        expect_cuda_near_cpu({&linear_spec, wide, {x, w, absent()}}, tolerance);
        expect_cuda_near_cpu({&linear_dx_spec, attrs, {dy, w, absent()}}, tolerance);
        expect_cuda_near_cpu({&linear_dx_spec, wide, {dy, w, random(DType::f32, rows, in)}}, tolerance);
        expect_cuda_near_cpu({&linear_dw_spec, attrs, {x, dy, absent()}}, tolerance);
        expect_cuda_near_cpu({&linear_dw_spec, attrs, {x, dy, old}}, tolerance);
        const Attrs rounded{{"weight_out_in", out_in}, {"rounded", std::int64_t{1}}};
        if (dtype == DType::bf16) expect_cuda_near_cpu({&linear_dw_spec, rounded, {x, dy, absent()}}, tolerance);
      }
    }
    const Attrs chosen{{"weight_out_in", std::int64_t{1}},
                       {"out_f32", std::int64_t{1}},
                       {"row_begin", std::int64_t{3}},
                       {"row_count", std::int64_t{7}}};
    expect_cuda_near_cpu({&linear_spec, chosen, {random(dtype, 20, 40), random(dtype, 33, 40), absent()}}, tolerance);
    const Attrs rows{
        {"weight_out_in", std::int64_t{1}}, {"row_begin", std::int64_t{3}}, {"row_count", std::int64_t{7}}};
    expect_cuda_near_cpu({&linear_dw_spec, rows, {random(dtype, 20, 40), random(dtype, 7, 33), absent()}}, tolerance);
  }
}

TEST_F(CudaKernels, AttentionIsNearTheCpus) {
  struct Case {
    std::int64_t sequences, length, heads, kv_heads, head_dim;
  };
  for (const DType dtype : dtypes) {
    const Tolerance tolerance = dtype == DType::f32 ? Tolerance{1e-5, 1e-5} : Tolerance{1.0 / 32, 1.0 / 128};
    for (const Case& c :
         {Case{2, 50, 4, 2, 16}, Case{1, 200, 2, 2, 64}, Case{3, 65, 6, 1, 24}, Case{1, 130, 2, 1, 128},
          Case{1, 300, 4, 2, 128}, Case{2, 70, 2, 2, 80}, Case{2, 70, 2, 1, 20}, Case{1, 90, 2, 1, 256}}) {
      for (const bool packed : {false, true}) {
        Attrs attrs{
            {"sequence_length", c.length}, {"heads", c.heads}, {"kv_heads", c.kv_heads}, {"head_dim", c.head_dim}};
        if (packed) attrs.set("packed", std::int64_t{1});
        const std::int64_t rows = c.sequences * c.length;
        std::vector<Matrix> reads;
        if (packed) {
          reads = {random(dtype, rows, (c.heads + 2 * c.kv_heads) * c.head_dim)};
        } else {
          reads = {random(dtype, rows, c.heads * c.head_dim), random(dtype, rows, c.kv_heads * c.head_dim),
                   random(dtype, rows, c.kv_heads * c.head_dim)};
        }
        const OpCase forward{&attention_spec, attrs, reads};
        expect_cuda_near_cpu(forward, tolerance);
        const std::vector<Matrix> made = run(forward);
        reads.insert(reads.end(), {made[0], made[1], random(dtype, rows, c.heads * c.head_dim)});
        expect_cuda_near_cpu({&attention_dx_spec, attrs, reads}, tolerance);
      }
    }
  }
}

TEST_F(CudaKernels, GenerationIsNearTheCpus) {
  for (const DType dtype : dtypes) {
    const Matrix cache = random(dtype, 90, 2 * 24);
    expect_cuda_is_cpu_to_the_bit({&kv_append_spec, {}, {cache, random(dtype, 12, 2 * 24), indices(12, -1, 95)}});
    const Attrs heads{{"heads", std::int64_t{4}}, {"kv_heads", std::int64_t{2}}, {"head_dim", std::int64_t{24}}};
    expect_cuda_near_cpu(
        {&kv_attention_spec, heads, {random(dtype, 5, 4 * 24), cache, random(dtype, 90, 2 * 24), indices(5, -1, 90)}},
        dtype == DType::f32 ? Tolerance{1e-5, 1e-5} : Tolerance{1.0 / 64, 1.0 / 256});
  }
}

class CudaAdamw : public CudaKernels {
 protected:
  Matrix scalars() const {
    AdamwProducts products;
    const AdamwSettings settings{0.9, 0.95, 1e-8, 0.1};
    for (int step = 0; step < 3; ++step) products.advance(settings);
    const AdamwScalars by = adamw_scalars(settings, products, 1e-3);
    return matrix(adamw_scalars_type, {by.b1, by.c1, by.b2, by.c2, by.keep, by.step, by.r, by.eps, by.noise});
  }
  Matrix bits(DType dtype, std::int64_t rows, std::int64_t cols, int end) {
    std::uniform_int_distribution<int> any(0, end - 1);
    std::vector<double> numbers;
    for (std::int64_t i = 0; i < rows * cols; ++i) numbers.push_back(any(seeded_.rng));
    return matrix({dtype, rows, cols}, numbers);
  }
  // Moments in 8 bits as a run has them: exponents that f32 has, zeros behind them.
  Matrix packed(std::int64_t rows, std::int64_t cols) {
    Matrix made = bits(DType::u8, rows, packed_row_bytes(cols), 256);
    const std::int64_t width = packed_row_bytes(cols);
    for (std::int64_t i = 0; i < rows * width; ++i) {
      double& number = made.numbers[static_cast<std::size_t>(i)];
      const std::int64_t col = i % width;
      if (col >= cols + divide_up(cols, packed_block)) {
        number = 0;
      } else if (col >= cols) {
        number = 100 + static_cast<int>(number) % 30;
      }
    }
    return made;
  }
  void expect_cpu(DType dtype, std::int64_t rows, std::int64_t cols, bool is_packed, bool clips) {
    const Attrs attrs{{"row_begin", std::int64_t{2}}, {"decay", std::int64_t{clips}}};
    Matrix squares = random(DType::f32, rows, cols, 1e-3);
    for (double& number : squares.numbers) number = std::abs(number);
    const Matrix low = dtype == DType::bf16 ? bits(DType::u16, rows, cols, 65536) : absent();
    expect_cuda_is_cpu_to_the_bit(
        {&adamw_spec,
         attrs,
         {random(dtype, rows, cols), is_packed ? packed(rows, cols) : random(DType::f32, rows, cols, 1e-2),
          is_packed ? packed(rows, cols) : squares, low, random(dtype, rows + 5, cols, 0.1),
          clips ? matrix({DType::f32, 1, 1}, {0.37}) : absent(), scalars()}});
  }
};

TEST_F(CudaAdamw, IsTheCpusToTheBit) {
  for (const DType dtype : dtypes) {
    for (const bool clips : {false, true}) {
      for (const bool is_packed : {false, true}) {
        expect_cpu(dtype, 40, 100, is_packed, clips);
        expect_cpu(dtype, 3, 256, is_packed, clips);
      }
    }
  }
}

}  // namespace
}  // namespace spillway
