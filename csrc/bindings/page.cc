// Reading pages as Python sees it; csrc/_core.pyi documents the names.
#include <pybind11/pybind11.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bind.h"
#include "page_cost.h"
#include "page_text.h"

namespace py = pybind11;

namespace pagemill {
namespace {

// Python's own tables; none of these calls takes part in the interpreter's state.
constexpr CharacterTests kPythonTests = {
    [](uint32_t code) { return Py_UNICODE_ISSPACE(code) != 0; },
    [](uint32_t code) { return Py_UNICODE_ISDECIMAL(code) != 0; },
    [](uint32_t code) { return Py_UNICODE_ISDIGIT(code) != 0; },
    [](uint32_t code) { return Py_UNICODE_ISALNUM(code) != 0; },
    [](uint32_t code) { return static_cast<uint32_t>(Py_UNICODE_TOLOWER(code)); },
};

std::string_view utf8_of(const py::str& text) {
  Py_ssize_t size = 0;
  const char* bytes = PyUnicode_AsUTF8AndSize(text.ptr(), &size);
  if (bytes == nullptr) throw py::error_already_set();
  return {bytes, static_cast<size_t>(size)};
}

template <typename Values, typename Make>
py::list list_of(const Values& values, Make make) {
  py::list list(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    PyList_SET_ITEM(list.ptr(), static_cast<Py_ssize_t>(i), make(values[i]).release().ptr());
  }
  return list;
}

py::list list_of(const std::vector<int64_t>& values) {
  return list_of(values, [](int64_t value) { return py::int_(value); });
}

py::object page_text(const py::str& markup, const py::bytes& source, int64_t max_nodes,
                     double max_seconds, bool menus) {
  const std::string_view markup_view = utf8_of(markup), source_view = source;
  const Characters characters(kPythonTests);
  VisibleText found;
  PageTextOutcome outcome{};
  {
    py::gil_scoped_release unlocked;
    outcome = visible_text(markup_view, source_view, characters, {max_nodes, max_seconds}, menus,
                           found);
  }
  if (outcome != PageTextOutcome::kDone) return py::cast(outcome);
  const py::list links = list_of(found.links, [](const auto& link) {
    return py::make_tuple(link.first, link.second);
  });
  return py::make_tuple(
      found.text, list_of(found.starts), list_of(found.ends), list_of(found.piece_sources),
      list_of(found.sources, [](std::string_view shown) { return py::str(shown); }),
      links);
}

}  // namespace

void bind_page(py::module_& module) {
  py::class_<PageCost>(module, "PageCost")
      .def_readonly("open_elements", &PageCost::open_elements)
      .def_readonly("open_elements_foreign", &PageCost::open_elements_foreign)
      .def_readonly("reopened", &PageCost::reopened)
      .def_readonly("max_attributes", &PageCost::max_attributes)
      .def_readonly("attribute_pairs", &PageCost::attribute_pairs)
      .def_readonly("is_overlapping", &PageCost::is_overlapping);
  module.def(
      "page_cost",
      [](const py::bytes& html) {
        const std::string_view view = html;
        py::gil_scoped_release unlocked;
        return page_cost(view);
      },
      py::arg("html"));
  py::enum_<PageTextOutcome>(module, "PageTextOutcome")
      .value("TOO_MANY_NODES", PageTextOutcome::kTooManyNodes)
      .value("TOO_SLOW", PageTextOutcome::kTooSlow)
      .value("UNSURE", PageTextOutcome::kUnsure);
  module.def("page_text", &page_text, py::arg("markup"), py::arg("source"), py::kw_only(),
             py::arg("max_nodes"), py::arg("max_seconds"), py::arg("menus"));
}

}  // namespace pagemill
