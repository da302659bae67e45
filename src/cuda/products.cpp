#include "cuda/products.h"

#include <cublasLt.h>
#include <dlfcn.h>

#include <array>
#include <vector>

#include "base/error.h"

namespace spillway::cuda {

struct ProductLibrary::Calls {
  void* library = nullptr;
  cublasLtHandle_t handle = nullptr;
  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtDestroy) destroy = nullptr;
  decltype(&cublasLtGetVersion) version = nullptr;
  decltype(&cublasLtMatmul) matmul = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic = nullptr;
  decltype(&cublasLtMatmulDescCreate) create_desc = nullptr;
  decltype(&cublasLtMatmulDescDestroy) destroy_desc = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) set_desc = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) create_layout = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) destroy_layout = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) create_preference = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) destroy_preference = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) set_preference = nullptr;
};

namespace {

void* open_library() {
  const std::string name = fmt::format("libcublasLt.so.{}", CUBLAS_VER_MAJOR);
  for (const std::string& path : {name, fmt::format("{}/{}", SPILLWAY_CUDA_LIBRARIES, name)}) {
    if (void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
  }
  throw DeviceError("CUDA: {} was not found: install cuBLAS of CUDA {} or name its folder in LD_LIBRARY_PATH", name,
                    CUBLAS_VER_MAJOR);
}

template <typename Call>
void find(void* library, const char* name, Call& call) {
  call = reinterpret_cast<Call>(dlsym(library, name));
  if (call == nullptr)
    throw DeviceError("CUDA: cuBLASLt has no {}: install the one of CUDA {}", name, CUBLAS_VER_MAJOR);
}

void check_product(cublasStatus_t status, std::string_view what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw DeviceError("CUDA: {} failed with status {} of cuBLASLt; {}", what, static_cast<int>(status),
                    status == CUBLAS_STATUS_ALLOC_FAILED
                        ? "give less --device-memory, or end what else uses the device"
                        : "what was committed is safe; see the driver's messages (dmesg)");
}

cudaDataType_t type_of(DType dtype) { return dtype == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F; }

}  // namespace

ProductLibrary::ProductLibrary() : calls_(std::make_unique<Calls>()) {
  Calls& calls = *calls_;
  calls.library = open_library();
  find(calls.library, "cublasLtCreate", calls.create);
  find(calls.library, "cublasLtDestroy", calls.destroy);
  find(calls.library, "cublasLtGetVersion", calls.version);
  find(calls.library, "cublasLtMatmul", calls.matmul);
  find(calls.library, "cublasLtMatmulAlgoGetHeuristic", calls.heuristic);
  find(calls.library, "cublasLtMatmulDescCreate", calls.create_desc);
  find(calls.library, "cublasLtMatmulDescDestroy", calls.destroy_desc);
  find(calls.library, "cublasLtMatmulDescSetAttribute", calls.set_desc);
  find(calls.library, "cublasLtMatrixLayoutCreate", calls.create_layout);
  find(calls.library, "cublasLtMatrixLayoutDestroy", calls.destroy_layout);
  find(calls.library, "cublasLtMatmulPreferenceCreate", calls.create_preference);
  find(calls.library, "cublasLtMatmulPreferenceDestroy", calls.destroy_preference);
  find(calls.library, "cublasLtMatmulPreferenceSetAttribute", calls.set_preference);
  check_product(calls.create(&calls.handle), "opening cuBLASLt");
}

// The library itself stays: it has threads and memory of its own that do not bear being unloaded.
ProductLibrary::~ProductLibrary() { calls_->destroy(calls_->handle); }

std::string ProductLibrary::version() const { return fmt::format("cuBLASLt {}", calls_->version()); }

// cuBLASLt's matrices are column-major: what it computes here is Cᵀ = Bᵀ·Aᵀ, whose first factor is our B.
struct Product::Parts {
  const ProductLibrary::Calls& calls;
  ProductShape shape;
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t a = nullptr;
  cublasLtMatrixLayout_t b = nullptr;
  cublasLtMatrixLayout_t c = nullptr;
  cublasLtMatmulAlgo_t algorithm{};

  ~Parts() {
    if (desc != nullptr) calls.destroy_desc(desc);
    for (cublasLtMatrixLayout_t layout : {a, b, c}) {
      if (layout != nullptr) calls.destroy_layout(layout);
    }
  }

  template <typename Value>
  void set(cublasLtMatmulDescAttributes_t attribute, const Value& value) const {
    check_product(calls.set_desc(desc, attribute, &value, sizeof value), "describing a product");
  }
  // Of a row-major matrix, seen as its transpose.
  cublasLtMatrixLayout_t layout(DType dtype, std::int64_t rows, std::int64_t cols) const {
    cublasLtMatrixLayout_t made = nullptr;
    check_product(calls.create_layout(&made, type_of(dtype), static_cast<std::uint64_t>(cols),
                                      static_cast<std::uint64_t>(rows), cols),
                  "describing a matrix");
    return made;
  }
  void describe();
  void choose();
};

void Product::Parts::describe() {
  check_product(calls.create_desc(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F), "describing a product");
  set(CUBLASLT_MATMUL_DESC_TRANSA, shape.transposed_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(CUBLASLT_MATMUL_DESC_TRANSB, shape.transposed_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (shape.has_bias) {
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(shape.bias));
  }
  a = shape.transposed_a ? layout(shape.in, shape.k, shape.m) : layout(shape.in, shape.m, shape.k);
  b = shape.transposed_b ? layout(shape.in, shape.n, shape.k) : layout(shape.in, shape.k, shape.n);
  c = layout(shape.out, shape.m, shape.n);
}

void Product::Parts::choose() {
  cublasLtMatmulPreference_t preference = nullptr;
  check_product(calls.create_preference(&preference), "choosing an algorithm");
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    check_product(calls.set_preference(preference, attribute, &value, sizeof value), "choosing an algorithm");
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::uint64_t>(product_workspace_bytes));
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
         static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, static_cast<std::uint32_t>(shape.b_alignment_bytes));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, static_cast<std::uint32_t>(shape.a_alignment_bytes));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, std::uint32_t{16});
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, std::uint32_t{16});
  std::array<cublasLtMatmulHeuristicResult_t, 1> found{};
  int count = 0;
  const cublasStatus_t status =
      calls.heuristic(calls.handle, desc, b, a, c, c, preference, static_cast<int>(found.size()), found.data(), &count);
  calls.destroy_preference(preference);
  if (status != CUBLAS_STATUS_SUCCESS || count == 0 || found[0].state != CUBLAS_STATUS_SUCCESS) {
    throw UserError("CUDA: cuBLASLt has no product of {} x {} x {} in {}; give another dtype, or --device cpu", shape.m,
                    shape.n, shape.k, name_of(shape.in));
  }
  algorithm = found[0].algo;
}

Product::Product(const ProductLibrary& library, const ProductShape& shape)
    : parts_(new Parts{.calls = library.calls(), .shape = shape}) {
  parts_->describe();
  parts_->choose();
}

Product::~Product() = default;

// One call at a time: the bias's address belongs to the description.
void Product::start(Stream stream, const ProductOperands& operands) const {
  const float one = 1;
  const float beta = parts_->shape.accumulate ? 1.0F : 0.0F;
  if (parts_->shape.has_bias) parts_->set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, operands.bias);
  const void* const sum = parts_->shape.accumulate ? operands.sum : operands.c;
  check_product(parts_->calls.matmul(parts_->calls.handle, parts_->desc, &one, operands.b, parts_->b, operands.a,
                                     parts_->a, &beta, sum, parts_->c, operands.c, parts_->c, &parts_->algorithm,
                                     operands.workspace, static_cast<std::size_t>(product_workspace_bytes), stream),
                "starting a product");
}

}  // namespace spillway::cuda
