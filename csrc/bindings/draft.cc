// Drafts as Python sees them; csrc/_core.pyi documents the names.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <memory>
#include <string>
#include <vector>

#include "arrays.h"
#include "bind.h"
#include "bpe.h"
#include "draft.h"
#include "grammar_rows.h"
#include "text_index.h"

namespace py = pybind11;

namespace pagemill {
namespace {

// Turns ascending byte offsets into the numbers of characters that begin before them.
void bytes_to_characters(std::string_view text, std::vector<int32_t>& offsets) {
  int32_t byte = 0;
  int32_t characters = 0;
  for (int32_t& offset : offsets) {
    for (; byte < offset; ++byte) characters += (text[static_cast<size_t>(byte)] & 0xC0) != 0x80;
    offset = characters;
  }
}

std::shared_ptr<BpeEncoder> make_encoder(const Array<int32_t>& byte_ids,
                                         const Array<int32_t>& merges,
                                         const Array<int32_t>& class_starts,
                                         const Array<uint8_t>& classes, bool split_digits) {
  if (merges.size() % 3 != 0) throw py::value_error("a merge is three ids");
  std::vector<Merge> list;
  list.reserve(static_cast<size_t>(merges.size()) / 3);
  const auto ids = read(merges);
  for (size_t i = 0; i < ids.size(); i += 3) list.push_back({ids[i], ids[i + 1], ids[i + 2]});
  return std::make_shared<BpeEncoder>(copy(byte_ids), list,
                                      CharClasses(copy(class_starts), copy(classes)),
                                      split_digits);
}

void bind_drafter(py::module_& m) {
  py::class_<Drafter>(m, "Drafter")
      .def(py::init([](const GrammarRows& rows, std::shared_ptr<BpeEncoder> encoder,
                       int32_t most_tokens, bool forced, bool page) {
             return std::make_unique<Drafter>(rows, std::move(encoder),
                                              DraftConfig{most_tokens, forced, page});
           }),
           py::arg("rows"), py::arg("encoder").none(false), py::kw_only(), py::arg("most_tokens"),
           py::arg("forced"), py::arg("page"), py::keep_alive<1, 2>())
      .def(
          "start",
          [](Drafter& self, int32_t slot, const Array<int32_t>& prompt, const py::bytes& page,
             const Array<int32_t>& output) {
            self.start(slot, read(prompt), static_cast<std::string_view>(page), read(output));
          },
          py::arg("slot"), py::arg("prompt"), py::arg("page"), py::arg("output"))
      .def("end", &Drafter::end, py::arg("slot"))
      .def("first", [](const Drafter& self, const Grammar& grammar) {
        return array_of(self.first(grammar));
      })
      .def(
          "advance",
          [](Drafter& self, const Array<int32_t>& slots, const Array<int32_t>& counts,
             const Array<int32_t>& tokens, const Array<int32_t>& num_drafts) {
            Array<int32_t> forced(slots.size());
            Array<int32_t> copied(slots.size());
            const auto size = static_cast<size_t>(slots.size());
            self.advance(read(slots), read(counts), read(tokens), read(num_drafts),
                         {forced.mutable_data(), size}, {copied.mutable_data(), size});
            return py::make_tuple(forced, copied);
          },
          py::arg("slots").noconvert(), py::arg("counts").noconvert(),
          py::arg("tokens").noconvert(), py::arg("num_drafts").noconvert())
      .def_property_readonly("counts",
                             [](const Drafter& self) {
                               py::dict counts;
                               for (size_t i = 0; i < kNumGuesses; ++i) {
                                 const auto& count = self.counts()[i];
                                 counts[py::str(std::string(guess_name(static_cast<Guess>(i))))] =
                                     py::make_tuple(count.drafted, count.held);
                               }
                               return counts;
                             })
      .def(
          "propose",
          [](Drafter& self, const Array<int32_t>& slots, float fixed_tokens) {
            std::vector<int32_t> starts;
            std::vector<int32_t> tokens;
            self.propose(read(slots), fixed_tokens, starts, tokens);
            return py::make_tuple(array_of(starts), array_of(tokens));
          },
          py::arg("slots").noconvert(), py::kw_only(), py::arg("fixed_tokens"));
}

}  // namespace

void bind_draft(py::module_& module) {
  py::class_<BpeEncoder, std::shared_ptr<BpeEncoder>>(module, "BpeEncoder")
      .def(py::init(&make_encoder), py::kw_only(), py::arg("byte_ids").noconvert(),
           py::arg("merges").noconvert(), py::arg("class_starts").noconvert(),
           py::arg("classes").noconvert(), py::arg("split_digits"))
      .def("encode",
           [](const BpeEncoder& self, const py::bytes& text) {
             std::vector<int32_t> ids;
             const auto view = static_cast<std::string_view>(text);
             {
               const py::gil_scoped_release others_run;
               self.encode(view, ids);
             }
             return array_of(ids);
           })
      .def("encode_with_starts", [](const BpeEncoder& self, const py::bytes& text) {
        std::vector<int32_t> ids;
        std::vector<int32_t> starts;
        const auto view = static_cast<std::string_view>(text);
        {
          const py::gil_scoped_release others_run;
          self.encode(view, ids, &starts);
          bytes_to_characters(view, starts);
        }
        return py::make_tuple(array_of(ids), array_of(starts));
      });
  py::class_<TextIndex>(module, "TextIndex")
      .def(py::init([](const py::bytes& text) { return TextIndex(text); }), py::arg("text") = py::bytes(""))
      .def("append", [](TextIndex& self, const py::bytes& more) {
        self.append(static_cast<std::string_view>(more));
      })
      .def(
          "find_suffix",
          [](const TextIndex& self, const py::bytes& context, int32_t near, int32_t stop) {
            const auto match = self.find_suffix(static_cast<std::string_view>(context), near, stop);
            return py::make_tuple(match.end, match.length);
          },
          py::arg("context"), py::arg("near") = TextIndex::kNone, py::arg("stop") = 1 << 30);
  bind_drafter(module);
}

}  // namespace pagemill
