// A letter stands for a number drawn at random, a word for the product of its letters, a language
// for the sum of its words: the value, modulo a prime, of the language's generating function at a
// random point. That of a state is that of its edges' targets, each times its letters, and one
// where the state is final. These equations are solved by elimination in the order in which a
// depth-first search leaves the states: each is then a sum of what the search has not left yet,
// which is nothing but for the heads of the loops around it.
#include "fingerprint.h"

#include <array>
#include <span>
#include <utility>

namespace pagemill {
namespace {

using Edge = Automaton::Edge;

constexpr uint64_t kPrime = (uint64_t{1} << 61) - 1;
constexpr int kMaxNesting = 1000;

uint64_t plus(uint64_t a, uint64_t b) {
  const uint64_t sum = a + b;
  return sum >= kPrime ? sum - kPrime : sum;
}
uint64_t minus(uint64_t a, uint64_t b) { return plus(a, kPrime - b); }
uint64_t times(uint64_t a, uint64_t b) {
  const unsigned __int128 product = static_cast<unsigned __int128>(a) * b;
  return plus(static_cast<uint64_t>(product) & kPrime, static_cast<uint64_t>(product >> 61));
}
uint64_t inverse(uint64_t a) {
  uint64_t result = 1;
  for (uint64_t power = kPrime - 2; power > 0; power >>= 1) {
    if ((power & 1) != 0) result = times(result, a);
    a = times(a, a);
  }
  return result;
}

// The same numbers every time, so that equal schemas take equal time.
uint64_t drawn(uint64_t seed) {
  seed = (seed + 1) * 0x9E3779B97F4A7C15ull;
  seed = (seed ^ seed >> 30) * 0xBF58476D1CE4E5B9ull;
  seed = (seed ^ seed >> 27) * 0x94D049BB133111EBull;
  return (seed ^ seed >> 31) % kPrime;
}

class Elimination {
 public:
  explicit Elimination(const Automaton& automaton)
      : automaton_(automaton), stage_(automaton.size(), Stage::kNew), sums_(automaton.size()) {
    size_t edges = 0;
    for (const auto& row : automaton.edges) edges += row.size();
    work_left_ = 16 * static_cast<int64_t>(edges + automaton.size()) + 10'000;
    before_[0] = 0;
    for (int byte = 0; byte < 256; ++byte) {
      before_[byte + 1] = plus(before_[byte], drawn(static_cast<uint64_t>(byte)));
    }
  }

  std::vector<uint64_t> solve() {
    struct Visit {
      int32_t state;
      size_t edge;
    };
    std::vector<Visit> path{{automaton_.start, 0}};
    stage_[automaton_.start] = Stage::kOpen;
    while (!path.empty()) {
      auto& [state, edge] = path.back();
      const auto& row = automaton_.edges[state];
      while (edge < row.size() && stage_[row[edge].to] != Stage::kNew) ++edge;
      if (edge < row.size()) {
        const int32_t to = row[edge].to;
        stage_[to] = Stage::kOpen;
        path.push_back({to, 0});
      } else {
        if (!leave(state)) return {};
        path.pop_back();
      }
    }
    std::vector<uint64_t> values(sums_.size());
    for (size_t state = 0; state < sums_.size(); ++state) {
      if (!settle(static_cast<int32_t>(state), 0)) return {};
      values[state] = sums_[state].constant;
    }
    return values;
  }

 private:
  enum class Stage : uint8_t { kNew, kOpen, kLeft };
  struct Part {
    int32_t head;
    uint64_t factor;
  };
  // A constant and parts of heads, a piece of `parts_`.
  struct Sum {
    uint64_t constant = 0;
    uint32_t first = 0, size = 0;
  };

  uint64_t weight(const Edge& edge) const {
    const uint64_t bytes = minus(before_[edge.high + 1], before_[edge.low]);
    return edge.op == 0 ? bytes : times(bytes, drawn(256 + edge.op));
  }

  std::span<const Part> parts(const Sum& sum) const {
    return {parts_.data() + sum.first, sum.size};
  }

  static void add(std::vector<Part>& to, int32_t head, uint64_t factor) {
    for (Part& part : to) {
      if (part.head == head) {
        part.factor = plus(part.factor, factor);
        return;
      }
    }
    to.push_back({head, factor});
  }

  void keep(int32_t state, uint64_t constant, const std::vector<Part>& sum) {
    sums_[state] = {constant, static_cast<uint32_t>(parts_.size()),
                    static_cast<uint32_t>(sum.size())};
    parts_.insert(parts_.end(), sum.begin(), sum.end());
  }

  // Makes the sum of a state that was left one of open states alone.
  bool settle(int32_t state, int nesting) {
    const Sum sum = sums_[state];
    bool settled = true;
    for (const Part& part : parts(sum)) settled &= stage_[part.head] == Stage::kOpen;
    if (settled) return true;
    if (nesting > kMaxNesting) return false;
    uint64_t constant = sum.constant;
    std::vector<Part> made;
    for (uint32_t i = 0; i < sum.size; ++i) {
      const Part part = parts_[sum.first + i];
      if (stage_[part.head] == Stage::kOpen) {
        add(made, part.head, part.factor);
        continue;
      }
      if (!settle(part.head, nesting + 1)) return false;
      const Sum& inner = sums_[part.head];
      constant = plus(constant, times(part.factor, inner.constant));
      for (const Part& more : parts(inner)) add(made, more.head, times(part.factor, more.factor));
      work_left_ -= inner.size * static_cast<int64_t>(made.size());
    }
    keep(state, constant, made);
    return work_left_ > 0;
  }

  bool leave(int32_t state) {
    uint64_t constant = automaton_.final[state] != 0 ? 1 : 0;
    sum_.clear();
    for (const Edge& edge : automaton_.edges[state]) {
      const uint64_t factor = weight(edge);
      if (stage_[edge.to] == Stage::kOpen) {
        add(sum_, edge.to, factor);
        continue;
      }
      if (!settle(edge.to, 0)) return false;
      const Sum& to = sums_[edge.to];
      constant = plus(constant, times(factor, to.constant));
      for (const Part& part : parts(to)) add(sum_, part.head, times(factor, part.factor));
      work_left_ -= to.size * static_cast<int64_t>(sum_.size());
    }
    // What the state says of itself goes to the other side.
    for (size_t i = 0; i < sum_.size(); ++i) {
      if (sum_[i].head != state) continue;
      const uint64_t left = minus(1, sum_[i].factor);
      if (left == 0) return false;
      const uint64_t scale = inverse(left);
      sum_.erase(sum_.begin() + static_cast<std::ptrdiff_t>(i));
      constant = times(constant, scale);
      for (Part& part : sum_) part.factor = times(part.factor, scale);
      break;
    }
    keep(state, constant, sum_);
    stage_[state] = Stage::kLeft;
    return work_left_ > 0;
  }

  const Automaton& automaton_;
  std::vector<Stage> stage_;
  std::vector<Sum> sums_;
  std::vector<Part> parts_;
  std::vector<Part> sum_;
  std::array<uint64_t, 257> before_;  // sums of the letters below a byte
  int64_t work_left_;
};

}  // namespace

std::vector<uint64_t> fingerprints(const Automaton& automaton) {
  if (automaton.empty()) return {};
  return Elimination(automaton).solve();
}

}  // namespace pagemill
