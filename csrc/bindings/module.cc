#include "bind.h"

PYBIND11_MODULE(_core, module) {
  module.doc() = "The C++ core: scheduler, constrained decoding, CPU kernels.";
  if (pagemill::bind_scheduler != nullptr) pagemill::bind_scheduler(module);
  if (pagemill::bind_grammar != nullptr) pagemill::bind_grammar(module);
  if (pagemill::bind_cpu != nullptr) pagemill::bind_cpu(module);
}
