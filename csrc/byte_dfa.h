// The automaton of a schema over bytes, with counters for lengths and counts.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "row_state.h"

namespace pagemill {

// What an edge does to a counter. An edge whose condition fails does not exist.
struct CounterOp {
  enum class Kind : uint8_t {
    kCount = 1,  // requires counter < limit, then adds one
    kClose = 2,  // requires counter >= limit, then sets it to 0
    kEnter = 3,  // opens a span of the row's page, of at most `limit` characters
  };
  uint8_t counter;
  Kind kind;
  uint16_t limit;
};

// A dense byte automaton read from a table of `pagemill.schemas` (schemas/table.py describes the
// layout). Immutable, so threads may share it. Every state reaches a final one; from_bytes refuses
// tables that break this or point outside themselves.
class ByteDfa {
 public:
  static constexpr int32_t kDead = -1;
  static constexpr int32_t kMaxStates = 65534;

  // Throws std::invalid_argument saying what is wrong with the table.
  static ByteDfa from_bytes(std::string_view table);

  int32_t num_states() const { return num_states_; }
  int32_t start() const { return start_; }
  bool is_final(int32_t state) const { return final_[check(state)] != 0; }
  bool has_edges(int32_t state) const { return has_edges_[check(state)] != 0; }
  bool has_counters() const { return !ops_.empty(); }
  bool has_verbatim() const { return has_verbatim_; }
  std::span<const CounterOp> ops() const { return ops_; }

  // Bytes of one class have equal edges everywhere.
  int32_t num_classes() const { return static_cast<int32_t>(num_classes_); }
  uint8_t byte_class(uint8_t byte) const { return classes_[byte]; }

  // The following state, or kDead; counters are taken to allow it.
  int32_t next(int32_t state, uint8_t byte) const {
    return target(static_cast<size_t>(check(state)), byte);
  }

  struct Edge {
    int32_t to;           // kDead when there is none
    const CounterOp* op;  // nullptr on plain edges
  };
  Edge edge(int32_t state, uint8_t byte) const {
    const size_t edge = check(state) * num_classes_ + classes_[byte];
    if (transitions_[edge] == kNoEdge) return {kDead, nullptr};
    const bool plain = edge_ops_.empty() || edge_ops_[edge] == 0;
    return {transitions_[edge], plain ? nullptr : &ops_[edge_ops_[edge] - 1]};
  }

  // As next(), for a state known to be one of this automaton.
  int32_t next_unchecked(int32_t state, uint8_t byte) const {
    return target(static_cast<size_t>(state), byte);
  }

  // Moves a row by one byte; false, with the row unchanged, when the byte is not legal there.
  // The row's state must be one of this automaton.
  bool step(RowState& row, uint8_t byte) const {
    const size_t edge = row.state * num_classes_ + classes_[byte];
    const uint16_t to = transitions_[edge];
    if (to == kNoEdge) return false;
    if (row.span.is_open()) return step_span(row, byte, to);
    if (!edge_ops_.empty() && edge_ops_[edge] != 0) {
      const CounterOp& op = ops_[edge_ops_[edge] - 1];
      uint16_t& counter = row.counters[op.counter];
      if (op.kind == CounterOp::Kind::kCount) {
        if (counter >= op.limit) return false;
        ++counter;
      } else if (op.kind == CounterOp::Kind::kEnter) {
        if (row.page == nullptr || !row.page->enter(row.span, op.limit)) return false;
        row.span.body = to;
      } else {
        if (counter < op.limit) return false;
        counter = 0;
      }
    }
    row.state = to;
    return true;
  }

  // The bytes that follow with no alternative, up to a choice or a final state.
  std::string forced_run(int32_t state) const;

  // The only byte that may follow in a row's situation, counters considered; -1 where there are
  // several, or where the text may end.
  int32_t forced_byte(const RowState& row) const {
    const int32_t only = only_byte_[check(row.state)];
    return only == kAskCounters ? find_forced_byte(row) : only;
  }

  // Bytes of the shortest way to a final state, counters taken to allow it.
  int32_t distance(int32_t state) const { return distance_[check(state)]; }

  // Calls visit(byte, to, op) for each edge of a state.
  template <typename Visit>
  void for_each_edge(int32_t state, Visit visit) const {
    for (int byte = 0; byte < 256; ++byte) {
      const Edge found = edge(state, static_cast<uint8_t>(byte));
      if (found.to != kDead) visit(static_cast<uint8_t>(byte), found.to, found.op);
    }
  }

 private:
  static constexpr uint16_t kNoEdge = 0xFFFF;

  ByteDfa() = default;
  size_t check(int32_t state) const;
  int32_t target(size_t state, uint8_t byte) const {
    const uint16_t to = transitions_[state * num_classes_ + classes_[byte]];
    return to == kNoEdge ? kDead : static_cast<int32_t>(to);
  }
  static constexpr int16_t kAskCounters = -2;
  static bool step_span(RowState& row, uint8_t byte, int32_t to);
  void measure_distances();
  void find_only_bytes();
  int32_t find_forced_byte(const RowState& row) const;

  int32_t num_states_ = 0;
  int32_t start_ = 0;
  bool has_verbatim_ = false;
  size_t num_classes_ = 0;
  std::array<uint8_t, 256> classes_{};
  std::vector<CounterOp> ops_;
  std::vector<uint16_t> transitions_;  // [states, classes]
  std::vector<uint16_t> edge_ops_;     // [states, classes], 0 or 1 + index into ops_; or empty
  std::vector<uint8_t> final_;
  std::vector<uint8_t> has_edges_;
  std::vector<int32_t> distance_;
  std::vector<int16_t> only_byte_;
};

}  // namespace pagemill
