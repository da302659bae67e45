// What attention computes, in double precision and plain loops: the specification the kernels are tested against.
#pragma once

#include <vector>

#include "ops/attention/attention.h"

namespace spillway {

struct AttentionReference {
  AttentionShape shape;
  std::int64_t sequences = 1;
  bool round_terms = false;  // to bf16, as the op does in that dtype

  using Matrix = std::vector<double>;
  struct Forward {
    Matrix o;
    Matrix lse;
  };
  struct Gradients {
    Matrix dq;
    Matrix dk;
    Matrix dv;
  };
  Forward forward(const Matrix& q, const Matrix& k, const Matrix& v) const;
  Gradients backward(const Matrix& q, const Matrix& k, const Matrix& v, const Forward& made, const Matrix& d_o) const;
};

}  // namespace spillway
