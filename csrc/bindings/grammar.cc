// Constrained decoding as Python sees it; csrc/_core.pyi documents the names.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "arrays.h"
#include "bind.h"
#include "byte_dfa.h"
#include "grammar.h"
#include "row_state.h"
#include "suffix_array.h"
#include "token_trie.h"

namespace py = pybind11;

namespace pagemill {
namespace {

uint8_t as_byte(int value) {
  if (value < 0 || value > 255) throw py::value_error("a byte is 0 to 255");
  return static_cast<uint8_t>(value);
}

RowState at_state(const Grammar& grammar, int32_t state) {
  RowState row = grammar.start();
  row.state = state;
  grammar.check(row);
  return row;
}

Array<int32_t> mask_of(Grammar& grammar, const RowState& row, bool any_split) {
  grammar.check(row);
  Array<int32_t> out(grammar.trie().num_words());
  const auto split = any_split ? Grammar::Split::kAny : Grammar::Split::kOwn;
  grammar.with_mask(row, split, [&](std::span<const int32_t> bits, int32_t, std::span<const int32_t>) {
    std::copy(bits.begin(), bits.end(), out.mutable_data());
  });
  return out;
}

// Nanoseconds of so many look-ups, the first of which may make the mask.
double time_mask(Grammar& grammar, const RowState& row, int32_t times) {
  grammar.check(row);
  int64_t bits = 0;
  const auto start = std::chrono::steady_clock::now();
  for (int32_t i = 0; i < times; ++i) {
    grammar.with_mask(row, Grammar::Split::kOwn, [&](std::span<const int32_t>, int32_t popcount,
                                                     std::span<const int32_t>) {
      bits += popcount;
    });
  }
  const std::chrono::duration<double, std::nano> passed = std::chrono::steady_clock::now() - start;
  if (bits < 0) throw std::logic_error("a mask of less than no bits");
  return passed.count();
}

int32_t min_tokens(const Grammar& grammar) {
  const ClosingTable& table = grammar.closing();
  if (!table.known() || table.least() >= ClosingTable::kNever) return 0;
  return std::max(table.least(), 1);
}

void bind_row_state(py::module_& m) {
  py::class_<RowState>(m, "RowState")
      .def(py::init<>())
      .def_readwrite("state", &RowState::state)
      .def_property_readonly("in_span", [](const RowState& self) { return self.span.is_open(); })
      .def_readwrite("overlay", &RowState::overlay)
      .def_readwrite("counters", &RowState::counters)
      .def("copy", [](const RowState& self) { return self; }, py::keep_alive<0, 1>())
      .def("__eq__", [](const RowState& a, const RowState& b) { return a == b; });
}

void bind_byte_dfa(py::module_& m) {
  py::class_<ByteDfa, std::shared_ptr<ByteDfa>>(m, "ByteDfa")
      .def_static("from_bytes",
                  [](const py::bytes& table) {
                    return std::make_shared<ByteDfa>(
                        ByteDfa::from_bytes(static_cast<std::string_view>(table)));
                  })
      .def_property_readonly("num_states", &ByteDfa::num_states)
      .def_property_readonly("start", &ByteDfa::start)
      .def_property_readonly("has_counters", &ByteDfa::has_counters)
      .def_property_readonly("has_verbatim", &ByteDfa::has_verbatim)
      .def("next", [](const ByteDfa& self, int32_t state,
                      int byte) { return self.next(state, as_byte(byte)); })
      .def("step",
           [](const ByteDfa& self, RowState& row, int byte) {
             self.is_final(row.state);  // throws for a state of another automaton
             return self.step(row, as_byte(byte));
           })
      .def("is_final", &ByteDfa::is_final)
      .def("has_edges", &ByteDfa::has_edges)
      .def("forced_run",
           [](const ByteDfa& self, int32_t state) { return py::bytes(self.forced_run(state)); })
      .def("distance", &ByteDfa::distance)
      .def("accepts", [](const ByteDfa& self, const py::bytes& text) {
        RowState row;
        row.state = self.start();
        for (const char byte : static_cast<std::string_view>(text)) {
          if (!self.step(row, static_cast<uint8_t>(byte))) return false;
        }
        return self.is_final(row.state);
      });
}

void bind_token_trie(py::module_& m) {
  py::class_<TokenTrie, std::shared_ptr<TokenTrie>>(m, "TokenTrie")
      .def(py::init([](const std::vector<py::bytes>& tokens, std::vector<int32_t> eos_ids) {
             std::vector<std::string> strings(tokens.begin(), tokens.end());
             return std::make_shared<TokenTrie>(std::move(strings), std::move(eos_ids));
           }),
           py::arg("tokens"), py::arg("eos_ids"))
      .def_property_readonly("vocab_size", &TokenTrie::vocab_size)
      .def_property_readonly("num_words", &TokenTrie::num_words);
}

void bind_one_grammar(py::module_& m) {
  py::class_<Grammar, std::shared_ptr<Grammar>>(m, "Grammar")
      .def(py::init([](std::shared_ptr<ByteDfa> dfa, std::shared_ptr<TokenTrie> trie,
                       const BpeEncoder* encoder) {
             return std::make_shared<Grammar>(std::move(dfa), std::move(trie), encoder);
           }),
           py::arg("dfa").none(false), py::arg("trie").none(false), py::arg("encoder") = nullptr)
      .def("start", &Grammar::start, py::arg("page") = nullptr, py::keep_alive<0, 2>())
      .def_property_readonly("has_verbatim",
                             [](const Grammar& self) { return self.dfa().has_verbatim(); })
      .def("mask", &mask_of, py::arg("row"), py::kw_only(), py::arg("any_split") = false)
      .def(
          "mask",
          [](Grammar& self, int32_t state, bool any_split) {
            return mask_of(self, at_state(self, state), any_split);
          },
          py::arg("state"), py::kw_only(), py::arg("any_split") = false)
      .def("time_mask", &time_mask, py::arg("row"), py::arg("times"))
      .def("only_token",
           [](const Grammar& self, int32_t state) {
             return self.only_token(at_state(self, state).state);
           })
      .def("advance",
           [](const Grammar& self, const RowState& row, int32_t token) -> py::object {
             self.check(row);
             RowState moved = row;
             return self.advance(moved, token) ? py::cast(moved) : py::none();
           },
           py::keep_alive<0, 2>())
      .def("advance",
           [](const Grammar& self, int32_t state, int32_t token) {
             RowState row = at_state(self, state);
             return self.advance(row, token) ? row.state : ByteDfa::kDead;
           })
      .def_property_readonly("num_masks", &Grammar::num_masks)
      .def_property_readonly("min_tokens",
                             [](const Grammar& self) {
                               const py::gil_scoped_release unlocked;
                               return min_tokens(self);
                             })
      .def("tokens_to_end", [](const Grammar& self, const RowState& row) {
        self.check(row);
        const ClosingTable& table = self.closing();
        const int32_t situation = table.known() ? table.situation(row) : -1;
        return situation < 0 ? ClosingTable::kNever : table.to_end(situation);
      });
}

void bind_page_spans(py::module_& m) {
  py::class_<PageSpans, std::shared_ptr<PageSpans>>(m, "PageSpans")
      .def(py::init([](std::string_view text) {
             const py::gil_scoped_release unlocked;
             return std::make_shared<PageSpans>(text);
           }),
           py::arg("text"))
      .def("admits", [](const PageSpans& self, std::string_view written, int most) {
        PageSpan span;
        if (most < 0 || !self.enter(span, static_cast<uint16_t>(std::min(most, 0xFFFF)))) {
          return false;
        }
        for (const char byte : written) {
          if (self.step(span, static_cast<uint8_t>(byte)) != PageSpans::Step::kInside) return false;
        }
        return self.step(span, '"') == PageSpans::Step::kLeft;
      }, py::arg("written"), py::arg("most") = PageSpans::kMaxCharacters)
      .def_property_readonly("farthest", &PageSpans::farthest);
  m.def(
      "suffix_array",
      [](const py::bytes& text) { return array_of(suffix_array(static_cast<std::string_view>(text))); },
      py::arg("text"));
}

}  // namespace

void bind_grammar(py::module_& module) {
  bind_page_spans(module);
  bind_row_state(module);
  bind_byte_dfa(module);
  bind_token_trie(module);
  bind_one_grammar(module);
}

}  // namespace pagemill
