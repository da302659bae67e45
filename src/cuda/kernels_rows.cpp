// Element by element, and row by row.
#include "cuda/kernels.h"
#include "ops/reduce/reduce.h"

namespace spillway::cuda {

std::unique_ptr<Kernel> make_add(const KernelKey& key, Device& device) {
  return started(
      key, [&device, type = float_of(key.reads[0].dtype), count = key.writes[0].elements()](const KernelArgs& args) {
        add(device.compute(), type, args.reads[0], args.reads[1], args.writes[0], count);
      });
}

std::unique_ptr<Kernel> make_gelu(const KernelKey& key, Device& device) {
  return started(
      key, [&device, type = float_of(key.reads[0].dtype), count = key.writes[0].elements()](const KernelArgs& args) {
        gelu(device.compute(), type, args.reads[0], args.writes[0], count);
      });
}

std::unique_ptr<Kernel> make_gelu_dx(const KernelKey& key, Device& device) {
  return started(
      key, [&device, type = float_of(key.reads[0].dtype), count = key.writes[0].elements()](const KernelArgs& args) {
        gelu_dx(device.compute(), type, args.reads[0], args.reads[1], args.writes[0], count);
      });
}

std::unique_ptr<Kernel> make_swiglu(const KernelKey& key, Device& device) {
  return started(
      key, [&device, type = float_of(key.reads[0].dtype), count = key.writes[0].elements()](const KernelArgs& args) {
        swiglu(device.compute(), type, args.reads[0], args.reads[1], args.writes[0], count);
      });
}

std::unique_ptr<Kernel> make_swiglu_dx(const KernelKey& key, Device& device) {
  return started(
      key, [&device, type = float_of(key.reads[0].dtype), count = key.writes[0].elements()](const KernelArgs& args) {
        swiglu_dx(device.compute(), type, {args.reads[0], args.reads[1], args.reads[2], args.writes[0], args.writes[1]},
                  count);
      });
}

std::unique_ptr<Kernel> make_round_to_bf16(const KernelKey& key, Device& device) {
  return started(key, [&device, count = key.writes[0].elements()](const KernelArgs& args) {
    round_to_bf16(device.compute(), args.read<float>(0), args.write<std::uint16_t>(0), count);
  });
}

std::unique_ptr<Kernel> make_rope(const KernelKey& key, Device& device) {
  const std::int64_t head_dim = key.attrs.integer("head_dim");
  return started(
      key, [&device, head_dim, type = float_of(key.reads[0].dtype), rows = key.reads[0].rows,
            heads = key.reads[0].cols / head_dim, inverse = key.attrs.integer("inverse") != 0](const KernelArgs& args) {
        rope(device.compute(), type,
             {.x = args.reads[0],
              .positions = args.read<std::int32_t>(1),
              .frequencies = args.read<float>(2),
              .y = args.writes[0],
              .rows = rows,
              .heads = heads,
              .head_dim = head_dim,
              .inverse = inverse});
      });
}

std::unique_ptr<Kernel> make_layernorm(const KernelKey& key, Device& device) {
  return started(key, [&device, x = key.reads[0],
                       epsilon = static_cast<float>(key.attrs.real("epsilon"))](const KernelArgs& args) {
    layernorm(device.compute(), float_of(x.dtype),
              {.x = args.reads[0],
               .w = args.reads[1],
               .b = args.reads[2],
               .y = args.writes[0],
               .mean = args.write<float>(1),
               .rstd = args.write<float>(2),
               .rows = x.rows,
               .cols = x.cols,
               .epsilon = epsilon});
  });
}

std::unique_ptr<Kernel> make_layernorm_dx(const KernelKey& key, Device& device) {
  return started(key, [&device, x = key.reads[0]](const KernelArgs& args) {
    layernorm_dx(device.compute(), float_of(x.dtype),
                 {.x = args.reads[0],
                  .w = args.reads[1],
                  .mean = args.read<float>(2),
                  .rstd = args.read<float>(3),
                  .dy = args.reads[4],
                  .dx = args.writes[0],
                  .partial_w = args.write<float>(1),
                  .partial_b = args.write<float>(2),
                  .rows = x.rows,
                  .cols = x.cols,
                  .block_rows = partial_block_rows});
  });
}

std::unique_ptr<Kernel> make_rmsnorm(const KernelKey& key, Device& device) {
  return started(key,
                 [&device, type = float_of(key.reads[0].dtype), groups = key.writes[1].rows, width = key.reads[1].rows,
                  epsilon = static_cast<float>(key.attrs.real("epsilon"))](const KernelArgs& args) {
                   rmsnorm(device.compute(), type,
                           {.x = args.reads[0],
                            .w = args.reads[1],
                            .y = args.writes[0],
                            .rstd = args.write<float>(1),
                            .groups = groups,
                            .width = width,
                            .epsilon = epsilon});
                 });
}

std::unique_ptr<Kernel> make_rmsnorm_dx(const KernelKey& key, Device& device) {
  return started(key, [&device, type = float_of(key.reads[0].dtype), groups = key.reads[2].rows,
                       width = key.reads[1].rows](const KernelArgs& args) {
    rmsnorm_dx(device.compute(), type,
               {.x = args.reads[0],
                .w = args.reads[1],
                .rstd = args.read<float>(2),
                .dy = args.reads[3],
                .dx = args.writes[0],
                .partial = args.write<float>(1),
                .groups = groups,
                .width = width,
                .block_groups = partial_block_rows});
  });
}

std::unique_ptr<Kernel> make_columns(const KernelKey& key, Device& device) {
  const std::int64_t element_bytes = size_of(key.reads[0].dtype);
  return started(key, [&device, element_bytes, rows = key.writes[0].rows, cols = key.writes[0].cols,
                       from_cols = key.reads[0].cols, row_begin = key.attrs.integer("row_begin"),
                       col_begin = key.attrs.integer("col_begin")](const KernelArgs& args) {
    copy_rows(device.compute(), {.from = args.reads[0],
                                 .to = args.writes[0],
                                 .rows = rows,
                                 .row_bytes = cols * element_bytes,
                                 .row_begin = row_begin,
                                 .from_row_bytes = from_cols * element_bytes,
                                 .skip_bytes = col_begin * element_bytes});
  });
}

std::unique_ptr<Kernel> make_embed_rows(const KernelKey& key, Device& device) {
  return started(key,
                 [&device, rows = key.writes[0].rows, row_bytes = key.writes[0].cols * size_of(key.writes[0].dtype),
                  tile_rows = key.reads[1].rows, row_begin = key.attrs.integer("row_begin")](const KernelArgs& args) {
                   embed_rows(device.compute(), {.ids = args.read<std::int32_t>(0),
                                                 .tile = args.reads[1],
                                                 .previous = args.reads[2],
                                                 .out = args.writes[0],
                                                 .rows = rows,
                                                 .row_bytes = row_bytes,
                                                 .row_begin = row_begin,
                                                 .tile_rows = tile_rows});
                 });
}

std::unique_ptr<Kernel> make_embed_grad(const KernelKey& key, Device& device) {
  return started(key, [&device, type = float_of(key.reads[1].dtype), tokens = key.reads[0].rows, out = key.writes[0],
                       row_begin = key.attrs.integer("row_begin")](const KernelArgs& args) {
    if (args.reads[2] == nullptr) {
      device.clear(args.writes[0], out.bytes());
    } else if (args.reads[2] != args.writes[0]) {
      device.copy_within(args.writes[0], args.reads[2], out.bytes());
    }
    embed_grad(device.compute(), type,
               {.ids = args.read<std::int32_t>(0),
                .dx = args.reads[1],
                .out = args.write<float>(0),
                .tokens = tokens,
                .rows = out.rows,
                .cols = out.cols,
                .row_begin = row_begin});
  });
}

std::unique_ptr<Kernel> make_add_positions(const KernelKey& key, Device& device) {
  return started(key, [&device, x = key.reads[0], position_count = key.reads[1].rows](const KernelArgs& args) {
    add_positions(device.compute(), float_of(x.dtype),
                  {.x = args.reads[0],
                   .weight = args.reads[1],
                   .positions = args.read<std::int32_t>(2),
                   .out = args.writes[0],
                   .rows = x.rows,
                   .cols = x.cols,
                   .position_count = position_count});
  });
}

std::unique_ptr<Kernel> make_kv_append(const KernelKey& key, Device& device) {
  return started(key, [&device, cache = key.reads[0], fresh_rows = key.reads[1].rows](const KernelArgs& args) {
    if (args.reads[0] != args.writes[0]) device.copy_within(args.writes[0], args.reads[0], cache.bytes());
    kv_append(device.compute(), {.fresh = args.reads[1],
                                 .positions = args.read<std::int32_t>(2),
                                 .out = args.writes[0],
                                 .fresh_rows = fresh_rows,
                                 .cache_rows = cache.rows,
                                 .row_bytes = cache.cols * size_of(cache.dtype)});
  });
}

}  // namespace spillway::cuda
