// The cost of pages as Python sees it; csrc/_core.pyi documents the names.
#include <pybind11/pybind11.h>

#include "bind.h"
#include "page_cost.h"

namespace py = pybind11;

namespace pagemill {

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
}

}  // namespace pagemill
