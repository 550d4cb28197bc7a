// Arguments that the bindings of several kernels take.
#pragma once

#include <pybind11/numpy.h>

#include <stdexcept>
#include <string>

#include "cpu/batch_layout.h"
#include "cpu/packed_matrix.h"

namespace pagemill {

using Int32Array = pybind11::array_t<int32_t, pybind11::array::c_style>;

inline void require(bool holds, const char* message) {
  if (!holds) throw std::invalid_argument(message);
}

inline BatchLayout layout_of(const Int32Array& block_tables, const Int32Array& slots,
                      const Int32Array& query_start, const Int32Array& context_lens) {
  require(block_tables.ndim() == 2, "block_tables must have two dimensions");
  require(slots.ndim() == 1 && query_start.ndim() == 1 && context_lens.ndim() == 1,
          "slots, query_start and context_lens must have one dimension");
  require(query_start.shape(0) == slots.shape(0) + 1 &&
              context_lens.shape(0) == slots.shape(0),
          "slots, query_start and context_lens are of different batches");
  return {block_tables.data(),
          slots.data(),
          query_start.data(),
          context_lens.data(),
          static_cast<int32_t>(slots.shape(0)),
          static_cast<int32_t>(block_tables.shape(0)),
          static_cast<int32_t>(block_tables.shape(1))};
}

inline WeightKind weight_kind(const std::string& name) {
  if (name == "fp32") return WeightKind::kFloat32;
  if (name == "bf16") return WeightKind::kBfloat16;
  if (name == "int8") return WeightKind::kInt8;
  throw std::invalid_argument("a packed matrix is fp32, bf16 or int8, not '" + name + "'");
}

}  // namespace pagemill
