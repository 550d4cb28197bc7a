#include "byte_dfa.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace pagemill {
namespace {

constexpr std::string_view kMagic = "PMDF";
constexpr uint32_t kVersion = 2;

[[noreturn]] void refuse(const std::string& what) {
  throw std::invalid_argument("grammar table: " + what);
}

// Reads little-endian fields off a table and refuses to run past its end.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  std::string_view take(size_t count) {
    if (count > bytes_.size()) refuse("cut short");
    const std::string_view taken = bytes_.substr(0, count);
    bytes_.remove_prefix(count);
    return taken;
  }
  uint8_t u8() { return static_cast<uint8_t>(take(1)[0]); }
  uint16_t u16() {
    const std::string_view b = take(2);
    return static_cast<uint16_t>(static_cast<uint8_t>(b[0]) | static_cast<uint8_t>(b[1]) << 8);
  }
  uint32_t u32() {
    const uint32_t low = u16();
    return low | static_cast<uint32_t>(u16()) << 16;
  }
  std::vector<uint16_t> u16_array(size_t count) {
    if (count > bytes_.size() / 2) refuse("cut short");
    std::vector<uint16_t> values(count);
    for (uint16_t& value : values) value = u16();
    return values;
  }
  bool at_end() const { return bytes_.empty(); }

 private:
  std::string_view bytes_;
};

CounterOp read_op(Reader& reader) {
  CounterOp op{};
  op.counter = reader.u8();
  const uint8_t kind = reader.u8();
  op.limit = reader.u16();
  if (op.counter >= kMaxCounters) refuse("counter " + std::to_string(op.counter));
  if (kind < 1 || kind > 3) refuse("counter operation " + std::to_string(kind));
  op.kind = static_cast<CounterOp::Kind>(kind);
  return op;
}

}  // namespace

ByteDfa ByteDfa::from_bytes(std::string_view table) {
  Reader reader(table);
  if (reader.take(kMagic.size()) != kMagic) refuse("not one");
  if (const uint32_t version = reader.u32(); version != kVersion) {
    refuse("version " + std::to_string(version) + ", this side reads " + std::to_string(kVersion));
  }
  ByteDfa dfa;
  const uint32_t num_states = reader.u32();
  const uint32_t num_classes = reader.u32();
  const uint32_t num_ops = reader.u32();
  const uint32_t start = reader.u32();
  if (num_states == 0 || num_states > static_cast<uint32_t>(kMaxStates)) {
    refuse(std::to_string(num_states) + " states");
  }
  if (num_classes == 0 || num_classes > 256) refuse(std::to_string(num_classes) + " byte classes");
  if (num_ops > 0xFFFE) refuse(std::to_string(num_ops) + " counter operations");
  if (start >= num_states) refuse("start state out of range");
  dfa.num_states_ = static_cast<int32_t>(num_states);
  dfa.num_classes_ = num_classes;
  dfa.start_ = static_cast<int32_t>(start);
  std::vector<bool> inhabited(num_classes, false);
  for (uint8_t& byte_class : dfa.classes_) {
    byte_class = reader.u8();
    if (byte_class >= num_classes) refuse("byte class out of range");
    inhabited[byte_class] = true;
  }
  // Its edges would count as ways to the end that no byte can go.
  if (std::find(inhabited.begin(), inhabited.end(), false) != inhabited.end()) {
    refuse("byte class without a byte");
  }
  for (uint32_t i = 0; i < num_ops; ++i) {
    dfa.ops_.push_back(read_op(reader));
    dfa.has_verbatim_ |= dfa.ops_.back().kind == CounterOp::Kind::kEnter;
  }
  const std::string_view finals = reader.take(num_states);
  dfa.final_.assign(finals.begin(), finals.end());
  const size_t num_edges = static_cast<size_t>(num_states) * num_classes;
  dfa.transitions_ = reader.u16_array(num_edges);
  if (num_ops > 0) dfa.edge_ops_ = reader.u16_array(num_edges);
  if (!reader.at_end()) refuse("longer than it says");

  dfa.has_edges_.assign(num_states, 0);
  for (size_t edge = 0; edge < num_edges; ++edge) {
    if (dfa.transitions_[edge] == kNoEdge) continue;
    if (dfa.transitions_[edge] >= num_states) refuse("edge to a state out of range");
    if (num_ops > 0 && dfa.edge_ops_[edge] > num_ops) refuse("edge operation out of range");
    dfa.has_edges_[edge / num_classes] = 1;
  }
  dfa.measure_distances();
  dfa.find_only_bytes();
  return dfa;
}

size_t ByteDfa::check(int32_t state) const {
  if (state < 0 || state >= num_states_) {
    throw std::invalid_argument("state " + std::to_string(state) + " of an automaton of " +
                                std::to_string(num_states_));
  }
  return static_cast<size_t>(state);
}

bool ByteDfa::step_span(RowState& row, uint8_t byte, int32_t to) {
  if (row.page == nullptr) return false;
  const PageSpans::Step step = row.page->step(row.span, byte);
  if (step == PageSpans::Step::kNo) return false;
  if (step == PageSpans::Step::kLeft) row.span = {};
  row.state = to;
  return true;
}

std::string ByteDfa::forced_run(int32_t state) const {
  std::string run;
  // Every state reaches a final one, so a chain without alternatives cannot be a circle.
  while (!is_final(state)) {
    int only = -1;
    for (int byte = 0; byte < 256; ++byte) {
      if (target(state, static_cast<uint8_t>(byte)) == kDead) continue;
      if (only >= 0) return run;
      only = byte;
    }
    run.push_back(static_cast<char>(only));
    state = target(state, static_cast<uint8_t>(only));
  }
  return run;
}

int32_t ByteDfa::find_forced_byte(const RowState& row) const {
  int32_t only = -1;
  for (int32_t byte = 0; byte < 256; ++byte) {
    RowState moved = row;
    if (!step(moved, static_cast<uint8_t>(byte))) continue;
    if (only >= 0) return -1;
    only = byte;
  }
  return only;
}

void ByteDfa::find_only_bytes() {
  only_byte_.assign(num_states_, -1);
  for (int32_t state = 0; state < num_states_; ++state) {
    if (final_[state] != 0) continue;
    int32_t count = 0;
    int32_t byte = -1;
    bool counted = false;
    for_each_edge(state, [&](uint8_t label, int32_t, const CounterOp* op) {
      ++count;
      byte = label;
      counted |= op != nullptr;
    });
    if (counted) {
      only_byte_[state] = kAskCounters;
    } else if (count == 1) {
      only_byte_[state] = static_cast<int16_t>(byte);
    }
  }
}

void ByteDfa::measure_distances() {
  // Breadth first, backwards from the final states over the reversed edges.
  const size_t n = static_cast<size_t>(num_states_);
  std::vector<uint32_t> first(n + 1, 0);
  for (const uint16_t to : transitions_) {
    if (to != kNoEdge) ++first[to + 1];
  }
  for (size_t i = 0; i < n; ++i) first[i + 1] += first[i];
  std::vector<uint16_t> sources(first[n]);
  std::vector<uint32_t> fill(first.begin(), first.end() - 1);
  for (size_t edge = 0; edge < transitions_.size(); ++edge) {
    const uint16_t to = transitions_[edge];
    if (to != kNoEdge) sources[fill[to]++] = static_cast<uint16_t>(edge / num_classes_);
  }
  distance_.assign(n, -1);
  std::vector<uint16_t> queue;
  queue.reserve(n);
  for (size_t state = 0; state < n; ++state) {
    if (final_[state] == 0) continue;
    distance_[state] = 0;
    queue.push_back(static_cast<uint16_t>(state));
  }
  for (size_t head = 0; head < queue.size(); ++head) {
    const uint16_t to = queue[head];
    for (uint32_t i = first[to]; i < first[to + 1]; ++i) {
      if (distance_[sources[i]] >= 0) continue;
      distance_[sources[i]] = distance_[to] + 1;
      queue.push_back(sources[i]);
    }
  }
  if (queue.size() != n) refuse("a state that reaches no end");
}

}  // namespace pagemill
