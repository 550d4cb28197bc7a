// The parts of the extension module, each bound in its own file of this folder.
#pragma once

#include <pybind11/pybind11.h>

namespace pagemill {

void bind_scheduler(pybind11::module_& module);
void bind_grammar(pybind11::module_& module);
void bind_grammar_rows(pybind11::module_& module);
void bind_draft(pybind11::module_& module);
void bind_cpu(pybind11::module_& module);
void bind_expression(pybind11::module_& module);
void bind_page(pybind11::module_& module);

}  // namespace pagemill
