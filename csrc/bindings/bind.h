// The parts of the extension module, each bound in its own file of this folder.
#pragma once

#include <pybind11/pybind11.h>

namespace pagemill {

// Weak, so that a build links whichever parts its sources hold; a part that is absent is skipped.
void bind_scheduler(pybind11::module_& module) __attribute__((weak));
void bind_grammar(pybind11::module_& module) __attribute__((weak));
void bind_cpu(pybind11::module_& module) __attribute__((weak));

}  // namespace pagemill
