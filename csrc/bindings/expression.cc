// The schema compiler's automata as Python sees them; csrc/_core.pyi documents the names.
#include "expression.h"

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "automaton.h"
#include "bind.h"

namespace py = pybind11;

namespace pagemill {
namespace {

using Ops = std::vector<std::tuple<int, int, int>>;
using Dense = py::array_t<int32_t, py::array::c_style>;

CounterOp counter_op(int counter, int kind, int limit) {
  if (counter < 0 || counter >= kMaxCounters) throw py::value_error("no such counter");
  if (kind < 1 || kind > 3) throw py::value_error("no such counter operation");
  if (limit < 0 || limit > 0xFFFF) throw py::value_error("a limit is 0 to 65535");
  return {static_cast<uint8_t>(counter), static_cast<CounterOp::Kind>(kind),
          static_cast<uint16_t>(limit)};
}

py::tuple table_of(const Automaton& automaton, std::span<const CounterOp> ops) {
  if (automaton.size() > static_cast<size_t>(ByteDfa::kMaxStates)) throw TooManyStates();
  return py::make_tuple(py::bytes(write_table(automaton, ops)), automaton.size());
}

py::tuple minimal_table(const Dense& next, const Dense& edge_ops,
                        const py::array_t<bool, py::array::c_style>& final, int32_t start,
                        const Ops& op_list) {
  const auto n = static_cast<size_t>(final.size());
  if (static_cast<size_t>(next.size()) != n * 256 || edge_ops.size() != next.size()) {
    throw py::value_error("next and edge_ops are [states, 256]");
  }
  if (start < 0 || static_cast<size_t>(start) >= n) throw py::value_error("no such start");
  std::vector<CounterOp> ops;
  for (const auto& [counter, kind, limit] : op_list) {
    ops.push_back(counter_op(counter, kind, limit));
  }
  Automaton automaton;
  automaton.start = start;
  for (size_t state = 0; state < n; ++state) {
    const int32_t from = automaton.add(final.data()[state]);
    for (int byte = 0; byte < 256; ++byte) {
      const int32_t to = next.data()[state * 256 + byte];
      const int32_t op = edge_ops.data()[state * 256 + byte];
      if (to < 0) continue;
      if (static_cast<size_t>(to) >= n || op < 0 || static_cast<size_t>(op) > ops.size()) {
        throw py::value_error("an edge that leads nowhere");
      }
      automaton.append(from, {static_cast<uint8_t>(byte), static_cast<uint8_t>(byte),
                              static_cast<uint16_t>(op), to});
    }
  }
  return table_of(minimise(automaton), ops);
}

}  // namespace

void bind_expression(py::module_& m) {
  py::register_exception<Ambiguous>(m, "Ambiguous");
  py::register_exception<TooManyStates>(m, "TooManyStates");
  m.def("minimal_table", &minimal_table);
  py::class_<Expressions>(m, "Expressions")
      .def(py::init<size_t>(), py::arg("max_states"))
      .def("literal", [](Expressions& self, const py::bytes& text) { return self.literal(text); })
      .def("characters", &Expressions::characters)
      .def("concat", &Expressions::concat)
      .def("either", &Expressions::either)
      .def("repeat", &Expressions::repeat, py::arg("node"), py::arg("least"), py::arg("most"))
      .def("counted",
           [](Expressions& self, Expressions::Id node, int counter, int kind, int limit) {
             return self.counted(node, counter_op(counter, kind, limit));
           })
      .def("members", &Expressions::members, py::arg("members"), py::arg("rest") = -1,
           py::arg("least") = 0, py::arg("most") = -1)
      .def("automaton",
           [](Expressions& self, size_t num_states,
              const std::vector<std::tuple<int32_t, uint8_t, uint8_t, int32_t>>& edges,
              const std::vector<int32_t>& finals) {
             std::vector<Automaton::Edge> made;
             std::vector<int32_t> sources;
             for (const auto& [from, low, high, to] : edges) {
               made.push_back({low, high, 0, to});
               sources.push_back(from);
             }
             return self.automaton(num_states, made, sources, finals);
           })
      .def("intersect", &Expressions::intersect)
      .def("subtract", &Expressions::subtract)
      .def(
          "bounded",
          [](Expressions& self, Expressions::Id body, Expressions::Id end, int tick, int least,
             int most, int counter) {
            return self.bounded(body, end, counter_op(tick, 1, 0), least, most, counter);
          },
          py::arg("body"), py::arg("end"), py::kw_only(), py::arg("tick"), py::arg("least"),
          py::arg("most"), py::arg("counter"))
      .def("is_empty", &Expressions::is_empty)
      .def("table", [](Expressions& self, Expressions::Id node) {
        return table_of(self.compile(node), self.ops());
      });
}

}  // namespace pagemill
