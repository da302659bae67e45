#include <dnnl.h>
#include <dnnl.hpp>
#include <omp.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "ops/matmul/matmul.h"
#include "ops/matmul/panel_matmul.h"

namespace spillway {
namespace {

using Type = dnnl::memory::data_type;

std::atomic<bool> library_in_use{false};
std::optional<Isa> isa_cap;

dnnl_cpu_isa_t library_isa(Isa isa) {
  switch (isa) {
    case Isa::baseline: return dnnl_cpu_isa_sse41;
    case Isa::avx2: return dnnl_cpu_isa_avx2;
    case Isa::avx512:
    case Isa::avx512_bf16: break;
  }
  return dnnl_cpu_isa_all;
}

// The library's one engine; making it fixes the instruction set. Never destroyed: threads may outlive main's statics.
const dnnl::engine& engine() {
  static const dnnl::engine* const made = [] {
    library_in_use = true;
    const dnnl_cpu_isa_t isa = library_isa(isa_cap.value_or(best_isa()));
    if (isa != dnnl_cpu_isa_all) {
      const dnnl_status_t status = dnnl_set_max_cpu_isa(isa);
      SPILLWAY_CHECK(status == dnnl_success, "oneDNN status {}", static_cast<int>(status));
    }
    const dnnl_status_t status = dnnl_set_primitive_cache_capacity(0);
    SPILLWAY_CHECK(status == dnnl_success, "oneDNN status {}", static_cast<int>(status));
    return new dnnl::engine(dnnl::engine::kind::cpu, 0);
  }();
  return *made;
}

bool library_has(dnnl_cpu_isa_t isa) {
  engine();
  return (dnnl_get_effective_cpu_isa() & isa) == isa;
}

bool has_avx512() { return library_has(dnnl_cpu_isa_avx512_core); }

// This thread's stream; its first use prepares the thread.
dnnl_stream_t stream() {
  thread_local const dnnl::stream own = [] {
    prepare_matmul_thread();
    return dnnl::stream(engine());
  }();
  return own.get();
}

Type library_type(DType dtype) {
  SPILLWAY_CHECK(dtype == DType::f32 || dtype == DType::bf16, "{}", name_of(dtype));
  return dtype == DType::f32 ? Type::f32 : Type::bf16;
}

dnnl::memory::desc dense(std::int64_t rows, std::int64_t cols, DType dtype, bool transposed = false) {
  using Dims = dnnl::memory::dims;
  return {Dims{rows, cols}, library_type(dtype), transposed ? Dims{1, rows} : Dims{cols, 1}};
}

std::string describe(const MatmulShape& shape) {
  return fmt::format("a product of {} x {} x {} from {} to {}", shape.m, shape.n, shape.k, name_of(shape.in),
                     name_of(shape.out));
}

dnnl::matmul::primitive_desc describe_primitive(const MatmulShape& shape) {
  SPILLWAY_CHECK(shape.m > 0 && shape.n > 0 && shape.k > 0, "{}", describe(shape));
  SPILLWAY_CHECK(!shape.accumulate || shape.out == DType::f32, "{} adds to C", describe(shape));
  prepare_matmul_thread();  // the thread count is compiled into the primitive
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (shape.accumulate) {
    dnnl::post_ops sum;
    sum.append_sum(1.0F);
    attributes.set_post_ops(sum);
  }
  const auto a = dense(shape.m, shape.k, shape.in);
  const auto b = dense(shape.k, shape.n, shape.in, shape.transposed_b);
  const auto c = dense(shape.m, shape.n, shape.out);
  try {
    const auto operation =
        shape.has_bias ? dnnl::matmul::desc(a, b, dense(1, shape.n, shape.bias), c) : dnnl::matmul::desc(a, b, c);
    return {operation, attributes, engine()};
  } catch (const dnnl::error& error) {
    throw UserError("oneDNN has no implementation of {} on this processor ({}); use dtype f32", describe(shape),
                    error.what());
  }
}

std::string_view tiles_given() {
  const char* const given = std::getenv("SPILLWAY_TILES");
  return given == nullptr ? std::string_view() : given;
}

void check_implementation(const MatmulShape& shape, std::string_view implementation) {
  const std::string_view wanted = has_avx512() ? "brg:" : "gemm:jit";
  if (implementation.starts_with(wanted) || implementation.starts_with("brg:")) return;
  throw UserError("oneDNN chose '{}' for {} on this processor, whose results may vary; set SPILLWAY_MAX_ISA=avx2",
                  implementation, describe(shape));
}

}  // namespace

// A primitive and the memory objects of its runs: a run borrows a set, so that none is created once every thread has
// had one.
struct Matmul::Compiled {
  struct Handles {
    dnnl::memory a, b, bias, c, scratch;
  };

  explicit Compiled(const MatmulShape& shape)
      : description(describe_primitive(shape)), primitive(description), has_bias(shape.has_bias) {
    check_implementation(shape, description.impl_info_str());
    scratch_bytes = static_cast<std::int64_t>(description.scratchpad_desc().get_size());
  }

  std::unique_ptr<Handles> make_handles() const;
  std::unique_ptr<Handles> borrow();
  void give_back(std::unique_ptr<Handles> handles);
  void execute(Handles& handles, const MatmulOperands& operands) const;

  dnnl::matmul::primitive_desc description;
  dnnl::matmul primitive;
  bool has_bias = false;
  std::int64_t scratch_bytes = 0;
  std::mutex free_mutex;
  std::vector<std::unique_ptr<Handles>> free;
};

std::unique_ptr<Matmul::Compiled::Handles> Matmul::Compiled::make_handles() const {
  const auto unbound = [](const dnnl::memory::desc& of) { return dnnl::memory(of, engine(), DNNL_MEMORY_NONE); };
  auto handles = std::make_unique<Handles>();
  handles->a = unbound(description.src_desc());
  handles->b = unbound(description.weights_desc());
  handles->c = unbound(description.dst_desc());
  if (has_bias) handles->bias = unbound(description.bias_desc());
  if (scratch_bytes > 0) handles->scratch = unbound(description.scratchpad_desc());
  return handles;
}

std::unique_ptr<Matmul::Compiled::Handles> Matmul::Compiled::borrow() {
  {
    const std::lock_guard lock(free_mutex);
    if (!free.empty()) {
      auto handles = std::move(free.back());
      free.pop_back();
      return handles;
    }
  }
  return make_handles();
}

void Matmul::Compiled::give_back(std::unique_ptr<Handles> handles) {
  const std::lock_guard lock(free_mutex);
  free.push_back(std::move(handles));
}

void Matmul::Compiled::execute(Handles& handles, const MatmulOperands& operands) const {
  std::array<dnnl_exec_arg_t, 5> arguments;
  int count = 0;
  const auto bind = [&](int argument, dnnl::memory& memory, const void* address) {
    memory.set_data_handle(const_cast<void*>(address));
    arguments[static_cast<std::size_t>(count++)] = {argument, memory.get()};
  };
  bind(DNNL_ARG_SRC, handles.a, operands.a);
  bind(DNNL_ARG_WEIGHTS, handles.b, operands.b);
  bind(DNNL_ARG_DST, handles.c, operands.c);
  if (has_bias) bind(DNNL_ARG_BIAS, handles.bias, operands.bias);
  if (scratch_bytes > 0) bind(DNNL_ARG_SCRATCHPAD, handles.scratch, operands.scratch);
  const dnnl_status_t status = dnnl_primitive_execute(primitive.get(), stream(), count, arguments.data());
  SPILLWAY_CHECK(status == dnnl_success, "oneDNN status {}", static_cast<int>(status));
}

Matmul::Matmul(const MatmulShape& shape) : compiled_(std::make_unique<Compiled>(shape)) {
  compiled_->give_back(compiled_->make_handles());
}
Matmul::~Matmul() = default;
Matmul::Matmul(Matmul&&) noexcept = default;
Matmul& Matmul::operator=(Matmul&&) noexcept = default;

std::int64_t Matmul::scratch_bytes() const { return compiled_->scratch_bytes; }

void Matmul::run(const MatmulOperands& operands) const {
  auto handles = compiled_->borrow();
  compiled_->execute(*handles, operands);
  compiled_->give_back(std::move(handles));
}

void prepare_matmul_thread() { omp_set_num_threads(1); }

void cap_matmul_isa(Isa isa) {
  SPILLWAY_CHECK(!library_in_use, "the instruction set is capped after the first product was made");
  isa_cap = isa < best_isa() ? isa : best_isa();
}

bool matmul_has_bf16() { return library_has(dnnl_cpu_isa_avx512_core_bf16); }

Isa matmul_tile_isa() {
  static const Isa isa = [] {
    if (tiles_given() == "off") return Isa::baseline;
    if (has_avx512()) return Isa::avx512;
    return library_has(dnnl_cpu_isa_avx2) ? Isa::avx2 : Isa::baseline;
  }();
  return isa;
}

bool matmul_has(Bf16Product how) {
  switch (how) {
    case Bf16Product::pairs: return matmul_has_bf16();
    case Bf16Product::widened: return true;
    case Bf16Product::amx: return library_has(dnnl_cpu_isa_avx512_core_amx);  // it asks the kernel
  }
  return false;
}

Bf16Product matmul_bf16_product() {
  static const Bf16Product product = [] {
    using enum Bf16Product;
    for (const auto& [name, how] : {std::pair("pairs", pairs), std::pair("widened", widened), std::pair("amx", amx)}) {
      if (tiles_given() == name && matmul_has(how)) return how;
    }
    if (matmul_has(amx)) return amx;
    __builtin_cpu_init();
    return matmul_has(pairs) && __builtin_cpu_is("intel") == 0 ? pairs : widened;
  }();
  return product;
}

std::string matmul_numeric_key() {
  engine();
  const dnnl_version_t& version = *dnnl_version();
  std::string key = fmt::format("onednn {}.{}.{} {} isa {:#x}", version.major, version.minor, version.patch,
                                version.hash, static_cast<unsigned>(dnnl_get_effective_cpu_isa()));
  std::vector<MatmulShape> samples = {{.m = 128, .n = 768, .k = 768}};
  if (matmul_has_bf16()) samples.push_back({.m = 128, .n = 768, .k = 768, .in = DType::bf16, .out = DType::bf16});
  for (const MatmulShape& shape : samples) {
    key += fmt::format(" {} {}", name_of(shape.in), describe_primitive(shape).impl_info_str());
  }
  const Isa tiles = matmul_tile_isa();
  if (tiles == Isa::avx2) key += " tiles 6x16";
  if (tiles == Isa::avx512) key += " tiles 8x48 6x64";
  if (tiles != Isa::baseline && matmul_bf16_product() == Bf16Product::widened) key += " widened B";
  if (tiles != Isa::baseline && matmul_bf16_product() == Bf16Product::amx) key += " amx 32x32";
  key += " panels";
  for (const std::int64_t rows : {1, 1024, 4096}) key += fmt::format(" {}", matmul_panel_rows(rows));
  return key;
}

}  // namespace spillway
