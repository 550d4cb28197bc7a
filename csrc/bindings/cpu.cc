// Python's view of the CPU kernels.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <stdexcept>

#include "bind.h"
#include "cpu/instruction_set.h"
#include "cpu/paged_attention.h"
#include "cpu/thread_pool.h"

namespace py = pybind11;

namespace pagemill {
namespace {

using Int32Array = py::array_t<int32_t, py::array::c_style>;

void require(bool holds, const char* message) {
  if (!holds) throw std::invalid_argument(std::string("paged_attention: ") + message);
}

void call_paged_attention(uintptr_t query, uintptr_t key_cache, uintptr_t value_cache,
                          uintptr_t out, const Int32Array& block_tables, const Int32Array& slots,
                          const Int32Array& query_start, const Int32Array& context_lens,
                          int32_t num_blocks, int32_t num_heads, int32_t num_kv_heads,
                          int32_t head_dim, int32_t block_size, float scale) {
  require(block_tables.ndim() == 2, "block_tables must have two dimensions");
  require(slots.ndim() == 1 && query_start.ndim() == 1 && context_lens.ndim() == 1,
          "slots, query_start and context_lens must have one dimension");
  require(query_start.shape(0) == slots.shape(0) + 1 &&
              context_lens.shape(0) == slots.shape(0),
          "slots, query_start and context_lens are of different batches");
  const PagedAttentionArgs args{
      reinterpret_cast<const float*>(query),
      reinterpret_cast<const float*>(key_cache),
      reinterpret_cast<const float*>(value_cache),
      reinterpret_cast<float*>(out),
      block_tables.data(),
      slots.data(),
      query_start.data(),
      context_lens.data(),
      static_cast<int32_t>(slots.shape(0)),
      static_cast<int32_t>(block_tables.shape(0)),
      static_cast<int32_t>(block_tables.shape(1)),
      num_blocks,
      num_heads,
      num_kv_heads,
      head_dim,
      block_size,
      scale,
  };
  check(args);
  py::gil_scoped_release unlocked;
  paged_attention(args);
}

}  // namespace

void bind_cpu(py::module_& module) {
  module.def("set_num_threads", &set_num_threads, py::arg("n"));
  module.def("instruction_sets", &instruction_sets);
  module.def("instruction_set", &instruction_set_name);
  module.def("use_instruction_set", &use_instruction_set, py::arg("name"));
  module.def("paged_attention", &call_paged_attention, py::arg("query"), py::arg("key_cache"),
             py::arg("value_cache"), py::arg("out"), py::arg("block_tables").noconvert(),
             py::arg("slots").noconvert(), py::arg("query_start").noconvert(),
             py::arg("context_lens").noconvert(), py::arg("num_blocks"), py::arg("num_heads"),
             py::arg("num_kv_heads"), py::arg("head_dim"), py::arg("block_size"),
             py::arg("scale"));
}

}  // namespace pagemill
