// Python's view of the CPU decoder and its KV cache.
#include "cpu/decoder.h"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <stdexcept>

#include "bind.h"
#include "cpu_arguments.h"
#include "cpu/kv_cache.h"
#include "cpu/thread_pool.h"

namespace py = pybind11;

namespace pagemill {

namespace {

KvKind kv_kind(const std::string& name) {
  if (name == "fp32") return KvKind::kFloat32;
  if (name == "int8") return KvKind::kInt8;
  throw std::invalid_argument("a KV cache is fp32 or int8, not '" + name + "'");
}

void forward(CpuDecoder& decoder, KvCache& cache, const Int32Array& token_ids,
             const Int32Array& positions, const Int32Array& slot_mapping,
             const Int32Array& block_tables, const Int32Array& slots,
             const Int32Array& query_start, const Int32Array& context_lens,
             const Int32Array& chosen, uintptr_t logits, int32_t num_sparse,
             const Int32Array& outputs) {
  const BatchLayout layout = layout_of(block_tables, slots, query_start, context_lens);
  for (const Int32Array* array :
       {&token_ids, &positions, &slot_mapping, &chosen, &outputs}) {
    require(array->ndim() == 1, "a step's arrays must have one dimension");
  }
  const int64_t num_tokens = layout.num_tokens();
  require(token_ids.shape(0) == num_tokens && positions.shape(0) == num_tokens &&
              slot_mapping.shape(0) == num_tokens,
          "token_ids, positions and slot_mapping want one entry for each token");
  require(chosen.shape(0) == 0 || logits != 0, "null pointer");
  const DecoderStep step{
      token_ids.data(),
      positions.data(),
      slot_mapping.data(),
      layout,
      chosen.data(),
      static_cast<int32_t>(chosen.shape(0)),
      num_sparse,
      {outputs.data(), static_cast<size_t>(outputs.shape(0))}};
  py::gil_scoped_release unlocked;
  decoder.forward(cache, step, reinterpret_cast<float*>(logits));
}

int64_t call_quantized_attention(const KvCache& cache, int32_t layer, uintptr_t query,
                                 uintptr_t out, const Int32Array& block_tables,
                                 const Int32Array& slots, const Int32Array& query_start,
                                 const Int32Array& context_lens, int32_t num_heads, float scale,
                                 bool share_prefixes) {
  const BatchLayout layout = layout_of(block_tables, slots, query_start, context_lens);
  require(cache.kind() == KvKind::kInt8, "the cache is not int8");
  require(layer >= 0 && layer < cache.num_layers(), "no such layer");
  require(num_heads >= 1 && num_heads % cache.num_kv_heads() == 0,
          "heads don't divide over KV heads");
  require(query != 0 && out != 0, "null pointer");
  check(layout, cache.num_blocks(), cache.block_size());
  py::gil_scoped_release unlocked;
  const auto* heads = reinterpret_cast<const float*>(query);
  QuantizedQueries queries;
  queries.resize(layout.num_tokens(), num_heads, cache.head_dim());
  for (int64_t i = 0; i < int64_t{layout.num_tokens()} * num_heads; ++i) {
    queries.set(i, heads + i * cache.head_dim(), cache.head_dim(), scale);
  }
  const AttentionSchedule schedule(layout, cache.block_size(), cache.num_kv_heads(),
                                   shared_pool()->num_threads(), share_prefixes);
  quantized_attention(
      {queries, cache, layer, layout, num_heads, reinterpret_cast<float*>(out)}, schedule);
  return schedule.positions_read();
}

}  // namespace

void bind_decoder(py::module_& module) {
  py::class_<KvCache>(module, "KvCache")
      .def(py::init([](int32_t num_layers, int32_t num_blocks, int32_t block_size,
                       int32_t num_kv_heads, int32_t head_dim, const std::string& kind) {
             return std::make_unique<KvCache>(num_layers, num_blocks, block_size, num_kv_heads,
                                              head_dim, kv_kind(kind));
           }),
           py::arg("num_layers"), py::arg("num_blocks"), py::arg("block_size"),
           py::arg("num_kv_heads"), py::arg("head_dim"), py::arg("kind"))
      .def_static(
          "bytes_per_block",
          [](int32_t num_layers, int32_t block_size, int32_t num_kv_heads, int32_t head_dim,
             const std::string& kind) {
            return KvCache::bytes_per_block(num_layers, block_size, num_kv_heads, head_dim,
                                            kv_kind(kind));
          },
          py::arg("num_layers"), py::arg("block_size"), py::arg("num_kv_heads"),
          py::arg("head_dim"), py::arg("kind"))
      .def_static(
          "serves",
          [](const std::string& kind, int32_t block_size, int32_t head_dim) {
            return KvCache::serves(kv_kind(kind), block_size, head_dim);
          },
          py::arg("kind"), py::arg("block_size"), py::arg("head_dim"))
      .def_property_readonly("num_blocks", &KvCache::num_blocks)
      .def_property_readonly(
          "kind", [](const KvCache& cache) {
            return cache.kind() == KvKind::kInt8 ? "int8" : "fp32";
          })
      .def(
          "write",
          [](KvCache& cache, int32_t layer, const Int32Array& slot_mapping, uintptr_t keys,
             uintptr_t values) {
            require(layer >= 0 && layer < cache.num_layers(), "no such layer");
            const int64_t width = int64_t{cache.num_kv_heads()} * cache.head_dim();
            const int64_t places = int64_t{cache.num_blocks()} * cache.block_size();
            for (py::ssize_t i = 0; i < slot_mapping.size(); ++i) {
              const int32_t slot = slot_mapping.data()[i];
              require(slot >= 0 && slot < places, "no such place");
              cache.write(layer, slot, reinterpret_cast<const float*>(keys) + i * width,
                          reinterpret_cast<const float*>(values) + i * width);
            }
          },
          py::arg("layer"), py::arg("slot_mapping").noconvert(), py::arg("keys"),
          py::arg("values"))
      .def(
          "copy_blocks",
          [](KvCache& cache, const Int32Array& sources, const Int32Array& targets) {
            require(sources.ndim() == 1 && targets.ndim() == 1 &&
                        sources.shape(0) == targets.shape(0),
                    "sources and targets must be of one length");
            cache.copy_blocks(sources.data(), targets.data(),
                              static_cast<int32_t>(sources.shape(0)));
          },
          py::arg("sources").noconvert(), py::arg("targets").noconvert());

  module.def("quantized_attention", &call_quantized_attention, py::arg("cache"),
             py::arg("layer"), py::arg("query"), py::arg("out"),
             py::arg("block_tables").noconvert(), py::arg("slots").noconvert(),
             py::arg("query_start").noconvert(), py::arg("context_lens").noconvert(),
             py::arg("num_heads"), py::arg("scale"), py::arg("share_prefixes") = true);

  py::class_<CpuDecoder>(module, "CpuDecoder")
      .def(py::init([](int32_t num_layers, int32_t hidden_size, int32_t inner_size,
                       int32_t vocab_size, int32_t num_heads, int32_t num_kv_heads,
                       int32_t head_dim, float rms_norm_eps, const std::string& kind) {
             return std::make_unique<CpuDecoder>(
                 DecoderShape{num_layers, hidden_size, inner_size, vocab_size, num_heads,
                              num_kv_heads, head_dim, rms_norm_eps},
                 weight_kind(kind));
           }),
           py::kw_only(), py::arg("num_layers"), py::arg("hidden_size"), py::arg("inner_size"),
           py::arg("vocab_size"), py::arg("num_heads"), py::arg("num_kv_heads"),
           py::arg("head_dim"), py::arg("rms_norm_eps"), py::arg("kind"))
      .def(
          "set",
          [](CpuDecoder& decoder, const std::string& name, uintptr_t values, int32_t rows,
             int32_t columns) {
            decoder.set(name, reinterpret_cast<const float*>(values), rows, columns);
          },
          py::arg("name"), py::arg("values"), py::arg("rows"), py::arg("columns"),
          py::call_guard<py::gil_scoped_release>())
      .def("tie_head", &CpuDecoder::tie_head)
      .def(
          "set_rotary",
          [](CpuDecoder& decoder, uintptr_t cos, uintptr_t sin, int32_t num_positions) {
            decoder.set_rotary(reinterpret_cast<const float*>(cos),
                               reinterpret_cast<const float*>(sin), num_positions);
          },
          py::arg("cos"), py::arg("sin"), py::arg("num_positions"))
      .def("missing", &CpuDecoder::missing)
      .def_property_readonly("num_bytes", &CpuDecoder::num_bytes)
      .def("share_prefixes", &CpuDecoder::set_share_prefixes, py::arg("on"))
      .def("forward", &forward, py::arg("cache"), py::arg("token_ids").noconvert(),
           py::arg("positions").noconvert(), py::arg("slot_mapping").noconvert(),
           py::arg("block_tables").noconvert(), py::arg("slots").noconvert(),
           py::arg("query_start").noconvert(), py::arg("context_lens").noconvert(),
           py::arg("chosen").noconvert(), py::arg("logits"), py::arg("num_sparse") = 0,
           py::arg("outputs").noconvert() = Int32Array(0));
}

}  // namespace pagemill
