// Python's view of the CPU kernels.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <stdexcept>

#include "bind.h"
#include "cpu_arguments.h"
#include "cpu/elementwise.h"
#include "cpu/instruction_set.h"
#include "cpu/packed_matrix.h"
#include "cpu/paged_attention.h"
#include "cpu/peak.h"
#include "cpu/row_tasks.h"
#include "cpu/thread_pool.h"

namespace py = pybind11;

namespace pagemill {

namespace {

void call_paged_attention(uintptr_t query, int64_t query_stride, uintptr_t key_cache, uintptr_t value_cache,
                          uintptr_t out, const Int32Array& block_tables, const Int32Array& slots,
                          const Int32Array& query_start, const Int32Array& context_lens,
                          int32_t num_blocks, int32_t num_heads, int32_t num_kv_heads,
                          int32_t head_dim, int32_t block_size, float scale) {
  const PagedAttentionArgs args{
      reinterpret_cast<const float*>(query),
      query_stride,
      reinterpret_cast<const float*>(key_cache),
      reinterpret_cast<const float*>(value_cache),
      reinterpret_cast<float*>(out),
      layout_of(block_tables, slots, query_start, context_lens),
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

void bind_elementwise(py::module_& module) {
  module.def(
      "rms_norm",
      [](uintptr_t x, uintptr_t weight, float eps, int32_t num_rows, int32_t size, uintptr_t out) {
        rms_norm(reinterpret_cast<const float*>(x), reinterpret_cast<const float*>(weight), eps,
                 num_rows, size, reinterpret_cast<float*>(out));
      },
      py::arg("x"), py::arg("weight"), py::arg("eps"), py::arg("num_rows"), py::arg("size"),
      py::arg("out"), py::call_guard<py::gil_scoped_release>());
  module.def(
      "silu_mul",
      [](uintptr_t gate_up, int32_t num_rows, int32_t size, uintptr_t out) {
        silu_mul(reinterpret_cast<const float*>(gate_up), num_rows, size,
                 reinterpret_cast<float*>(out));
      },
      py::arg("gate_up"), py::arg("num_rows"), py::arg("size"), py::arg("out"),
      py::call_guard<py::gil_scoped_release>());
  module.def(
      "hadamard",
      [](uintptr_t heads, int32_t num_heads, int32_t head_dim) {
        hadamard(reinterpret_cast<float*>(heads), num_heads, head_dim);
      },
      py::arg("heads"), py::arg("num_heads"), py::arg("head_dim"),
      py::call_guard<py::gil_scoped_release>());
  module.def(
      "rotate",
      [](uintptr_t rows, int64_t stride, uintptr_t cos, uintptr_t sin, int32_t num_rows,
         int32_t num_heads, int32_t head_dim) {
        rotate(reinterpret_cast<float*>(rows), stride, reinterpret_cast<const float*>(cos),
               reinterpret_cast<const float*>(sin), num_rows, num_heads, head_dim);
      },
      py::arg("rows"), py::arg("stride"), py::arg("cos"), py::arg("sin"), py::arg("num_rows"),
      py::arg("num_heads"), py::arg("head_dim"), py::call_guard<py::gil_scoped_release>());
}

void bind_packed_matrix(py::module_& module) {
  py::class_<PackedMatrix>(module, "PackedMatrix")
      .def(py::init([](uintptr_t weight, int32_t outputs, int32_t inputs, const std::string& kind) {
             const WeightKind parsed = weight_kind(kind);
             py::gil_scoped_release unlocked;
             return std::make_unique<PackedMatrix>(reinterpret_cast<const float*>(weight), outputs,
                                                   inputs, parsed);
           }),
           py::arg("weight"), py::arg("outputs"), py::arg("inputs"), py::arg("kind"))
      .def_property_readonly("outputs", &PackedMatrix::outputs)
      .def_property_readonly("inputs", &PackedMatrix::inputs)
      .def_property_readonly("num_bytes", &PackedMatrix::num_bytes)
      .def(
          "unpack",
          [](const PackedMatrix& matrix, uintptr_t out) {
            if (out == 0) throw std::invalid_argument("null pointer");
            for (int32_t i = 0; i < matrix.outputs(); ++i) {
              matrix.unpack_row(i, reinterpret_cast<float*>(out) + int64_t{i} * matrix.inputs());
            }
          },
          py::arg("out"), py::call_guard<py::gil_scoped_release>())
      .def(
          "multiply",
          [](const PackedMatrix& matrix, uintptr_t input, int32_t num_rows, uintptr_t out,
             uintptr_t bias, bool accumulate) {
            if (num_rows < 0) throw std::invalid_argument("negative number of rows");
            if (num_rows > 0 && input == 0) throw std::invalid_argument("null pointer");
            thread_local InputRows rows;  // as in a decoder, its memory stays
            matrix.prepare(rows, num_rows);
            const auto* values = reinterpret_cast<const float*>(input);
            for_rows(num_rows, matrix.inputs(), [&, &rows = rows](int32_t row) {
              rows.set(row, values + int64_t{row} * matrix.inputs());
            });
            matrix.multiply(rows, reinterpret_cast<const float*>(bias), accumulate,
                            reinterpret_cast<float*>(out));
          },
          py::arg("input"), py::arg("num_rows"), py::arg("out"), py::arg("bias") = 0,
          py::arg("accumulate") = false, py::call_guard<py::gil_scoped_release>())
      .def(
          "multiply_gated",
          [](const PackedMatrix& matrix, const PackedMatrix& next, uintptr_t input,
             int32_t num_rows, uintptr_t out, uintptr_t bias) {
            if (num_rows < 0) throw std::invalid_argument("negative number of rows");
            if (num_rows > 0 && input == 0) throw std::invalid_argument("null pointer");
            InputRows rows, gated;
            matrix.prepare(rows, num_rows);
            next.prepare(gated, num_rows);
            const auto* values = reinterpret_cast<const float*>(input);
            for_rows(num_rows, matrix.inputs(), [&](int32_t row) {
              rows.set(row, values + int64_t{row} * matrix.inputs());
            });
            if (!matrix.multiply_gated(rows, reinterpret_cast<const float*>(bias), gated)) {
              return false;
            }
            next.multiply(gated, nullptr, false, reinterpret_cast<float*>(out));
            return true;
          },
          py::arg("next"), py::arg("input"), py::arg("num_rows"), py::arg("out"),
          py::arg("bias") = 0, py::call_guard<py::gil_scoped_release>());
}

}  // namespace

void bind_decoder(py::module_& module);

void bind_cpu(py::module_& module) {
  module.def("set_num_threads", &set_num_threads, py::arg("n"));
  module.def("instruction_sets", &instruction_sets);
  module.def("instruction_set", &instruction_set_name);
  module.def("use_instruction_set", &use_instruction_set, py::arg("name"));
  module.def("measure_peak", &measure_peak, py::arg("what"), py::arg("seconds"),
             py::call_guard<py::gil_scoped_release>());
  bind_elementwise(module);
  bind_packed_matrix(module);
  bind_decoder(module);
  module.def("paged_attention", &call_paged_attention, py::arg("query"), py::arg("query_stride"), py::arg("key_cache"),
             py::arg("value_cache"), py::arg("out"), py::arg("block_tables").noconvert(),
             py::arg("slots").noconvert(), py::arg("query_start").noconvert(),
             py::arg("context_lens").noconvert(), py::arg("num_blocks"), py::arg("num_heads"),
             py::arg("num_kv_heads"), py::arg("head_dim"), py::arg("block_size"),
             py::arg("scale"));
}

}  // namespace pagemill
