#include "bind.h"

PYBIND11_MODULE(_core, module) {
  module.doc() = "The C++ core: scheduler, constrained decoding, CPU kernels.";
  pagemill::bind_scheduler(module);
  pagemill::bind_grammar(module);
  pagemill::bind_grammar_rows(module);
  pagemill::bind_draft(module);
  pagemill::bind_cpu(module);
  pagemill::bind_expression(module);
  pagemill::bind_page(module);
}
