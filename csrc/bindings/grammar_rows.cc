// The grammars of a batch's rows as Python sees them; csrc/_core.pyi documents the names.
#include "grammar_rows.h"

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <memory>
#include <vector>

#include "arrays.h"
#include "bind.h"

namespace py = pybind11;

namespace pagemill {

void bind_grammar_rows(py::module_& m) {
  const Array<int32_t> none(0);
  py::class_<GrammarRows>(m, "GrammarRows")
      .def(py::init<int32_t, int32_t>(), py::arg("num_slots"), py::arg("vocab_size"))
      .def_property_readonly("num_words", &GrammarRows::num_words)
      .def("attach", [](GrammarRows& self, int32_t slot, std::shared_ptr<Grammar> grammar,
                        std::shared_ptr<PageSpans> page) {
             self.attach(slot, std::move(grammar), std::move(page));
           },
           py::arg("slot"), py::arg("grammar"), py::arg("page") = nullptr)
      .def("detach", &GrammarRows::detach)
      .def("is_attached", &GrammarRows::is_attached)
      .def("state", [](const GrammarRows& self, int32_t slot) {
        RowState state = self.state(slot);
        // The slot's page may be let go of before what Python keeps.
        if (!state.span.is_open()) state.page = nullptr;
        return state;
      })
      .def("set_state", &GrammarRows::set_state)
      .def("set_closing", &GrammarRows::set_closing, py::arg("slot"), py::kw_only(),
           py::arg("tokens_left"), py::arg("loops"))
      .def("is_narrowed", &GrammarRows::is_narrowed)
      .def("note_best", &GrammarRows::note_best)
      .def(
          "take_marks",
          [](GrammarRows& self, const Array<int32_t>& slots, Array<uint8_t>& out) {
            self.take_marks(read(slots), write(out));
          },
          py::arg("slots").noconvert(), py::arg("out").noconvert())
      .def(
          "fill_bitmask",
          [](GrammarRows& self, const Array<int32_t>& slots, Array<int32_t>& out,
             const Array<int32_t>& starts, const Array<int32_t>& drafts, bool ordinary) {
            const auto from = read(slots);
            const auto to = write(out);
            const GrammarRows::Drafts ahead{read(starts), read(drafts)};
            const py::gil_scoped_release unlocked;
            self.fill_bitmask(from, ahead, to, ordinary);
          },
          py::arg("slots").noconvert(), py::arg("out").noconvert(),
          py::arg("starts").noconvert() = none, py::arg("drafts").noconvert() = none,
          py::arg("ordinary") = false)
      .def(
          "masked_argmax",
          [](GrammarRows& self, uintptr_t logits, int64_t stride, const Array<int32_t>& slots,
             Array<int32_t> out, const Array<int32_t>& starts, const Array<int32_t>& drafts,
             const Array<int32_t>& lines) {
            const auto from = read(slots);
            const auto to = write(out);
            const GrammarRows::Drafts ahead{read(starts), read(drafts)};
            const py::gil_scoped_release unlocked;
            const auto rows = read(lines);
            self.masked_argmax(reinterpret_cast<const float*>(logits), stride, from, ahead, to,
                               rows);
          },
          py::arg("logits"), py::arg("stride"), py::arg("slots").noconvert(),
          py::arg("out").noconvert(), py::arg("starts").noconvert() = none,
          py::arg("drafts").noconvert() = none, py::arg("lines").noconvert() = none)
      .def(
          "masked_sample",
          [](GrammarRows& self, uintptr_t logits, int64_t stride, const Array<int32_t>& slots,
             Array<int32_t> out, const Array<int32_t>& starts, const Array<int32_t>& drafts,
             const Array<float>& temperature, const Array<float>& top_p,
             const Array<double>& uniforms, const Array<int32_t>& lines) {
            const auto n = out.size();
            if (temperature.size() != n || top_p.size() != n || uniforms.size() != n) {
              throw py::value_error("one temperature, top_p and uniform a position");
            }
            std::vector<Draw> draws;
            for (py::ssize_t i = 0; i < n; ++i) {
              draws.push_back({temperature.data()[i], top_p.data()[i], uniforms.data()[i]});
            }
            const auto from = read(slots);
            const auto to = write(out);
            const GrammarRows::Drafts ahead{read(starts), read(drafts)};
            const py::gil_scoped_release unlocked;
            const auto rows = read(lines);
            self.masked_sample(reinterpret_cast<const float*>(logits), stride, from, ahead, draws,
                               to, rows);
          },
          py::arg("logits"), py::arg("stride"), py::arg("slots").noconvert(),
          py::arg("out").noconvert(), py::arg("starts").noconvert(),
          py::arg("drafts").noconvert(), py::kw_only(), py::arg("temperature").noconvert(),
          py::arg("top_p").noconvert(), py::arg("uniforms").noconvert(),
          py::arg("lines").noconvert() = none)
      .def(
          "find_wanted",
          [](GrammarRows& self, const Array<int32_t>& slots, const Array<int32_t>& starts,
             const Array<int32_t>& drafts, int32_t most, const Array<uint8_t>& whole) {
            GrammarRows::Wanted wanted;
            const auto from = read(slots);
            const auto flags = read(whole);
            const GrammarRows::Drafts ahead{read(starts), read(drafts)};
            {
              const py::gil_scoped_release unlocked;
              wanted = self.find_wanted(from, ahead, most, flags);
            }
            return py::make_tuple(array_of(wanted.settled), array_of(wanted.lines),
                                  wanted.num_lines, wanted.num_sparse, array_of(wanted.outputs));
          },
          py::arg("slots").noconvert(), py::arg("starts").noconvert() = none,
          py::arg("drafts").noconvert() = none, py::kw_only(), py::arg("most"),
          py::arg("whole").noconvert() = Array<uint8_t>(0))
      .def(
          "accept",
          [](const GrammarRows& self, const Array<int32_t>& slots, const Array<int32_t>& starts,
             const Array<int32_t>& drafts, const Array<int32_t>& chosen, Array<int32_t>& counts) {
            self.accept(read(slots), {read(starts), read(drafts)}, read(chosen), write(counts));
          },
          py::arg("slots").noconvert(), py::arg("starts").noconvert(),
          py::arg("drafts").noconvert(), py::arg("chosen").noconvert(),
          py::arg("counts").noconvert())
      .def(
          "advance",
          [](GrammarRows& self, const Array<int32_t>& slots, const Array<int32_t>& tokens,
             Array<uint8_t>& ends) { self.advance(read(slots), read(tokens), write(ends)); },
          py::arg("slots").noconvert(), py::arg("tokens").noconvert(), py::arg("ends").noconvert())
      .def("count_legal", [](const GrammarRows& self, int32_t slot, const Array<int32_t>& tokens) {
        return self.count_legal(slot, read(tokens));
      });
}

}  // namespace pagemill
