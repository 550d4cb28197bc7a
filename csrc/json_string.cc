#include "json_string.h"

#include <array>

namespace pagemill {
namespace {

// The well-formed byte sequences of UTF-8 (Unicode, table 3-7): a lead byte, then the range of the
// second byte and how many bytes from 80 to BF follow that.
struct Sequences {
  uint8_t first_lead, last_lead, low, high;
  int32_t more;
};
constexpr std::array<Sequences, 8> kSequences{{{0xC2, 0xDF, 0x80, 0xBF, 0},
                                               {0xE0, 0xE0, 0xA0, 0xBF, 1},
                                               {0xE1, 0xEC, 0x80, 0xBF, 1},
                                               {0xED, 0xED, 0x80, 0x9F, 1},
                                               {0xEE, 0xEF, 0x80, 0xBF, 1},
                                               {0xF0, 0xF0, 0x90, 0xBF, 2},
                                               {0xF1, 0xF3, 0x80, 0xBF, 2},
                                               {0xF4, 0xF4, 0x80, 0x8F, 2}}};

bool is_plain_ascii(uint8_t byte) {
  return byte >= 0x20 && byte < 0x7F && byte != '"' && byte != '\\';
}

const Sequences* sequences_of(uint8_t lead) {
  for (const Sequences& sequences : kSequences) {
    if (lead >= sequences.first_lead && lead <= sequences.last_lead) return &sequences;
  }
  return nullptr;
}

// The one state that all bytes of the range lead to without counting, or kDead.
int32_t common_target(const ByteDfa& dfa, int32_t state, uint8_t low, uint8_t high) {
  const int32_t to = dfa.next(state, low);
  for (int byte = low; byte <= high; ++byte) {
    const auto edge = dfa.edge(state, static_cast<uint8_t>(byte));
    if (edge.to != to || edge.op != nullptr) return ByteDfa::kDead;
  }
  return to;
}

}  // namespace

int32_t count_plain_characters(std::string_view text) {
  int32_t count = 0;
  for (size_t i = 0; i < text.size(); ++count) {
    const auto byte = [&](size_t at) { return static_cast<uint8_t>(text[at]); };
    if (is_plain_ascii(byte(i))) {
      ++i;
      continue;
    }
    const Sequences* sequences = sequences_of(byte(i));
    if (sequences == nullptr) return -1;
    const size_t length = 2 + static_cast<size_t>(sequences->more);
    if (i + length > text.size()) return -1;
    if (byte(i + 1) < sequences->low || byte(i + 1) > sequences->high) return -1;
    for (size_t k = 2; k < length; ++k) {
      if (byte(i + k) < 0x80 || byte(i + k) > 0xBF) return -1;
    }
    i += length;
  }
  return count;
}

std::optional<PlainLoop> find_plain_loop(const ByteDfa& dfa, int32_t state) {
  const auto model = dfa.edge(state, ' ');
  if (model.to != state) return std::nullopt;
  if (model.op != nullptr && model.op->kind != CounterOp::Kind::kCount) return std::nullopt;
  for (int byte = 0x20; byte < 0x7F; ++byte) {
    if (!is_plain_ascii(static_cast<uint8_t>(byte))) continue;
    const auto edge = dfa.edge(state, static_cast<uint8_t>(byte));
    if (edge.to != state || edge.op != model.op) return std::nullopt;
  }
  for (const Sequences& sequences : kSequences) {
    for (int lead = sequences.first_lead; lead <= sequences.last_lead; ++lead) {
      const auto edge = dfa.edge(state, static_cast<uint8_t>(lead));
      if (edge.to == ByteDfa::kDead || edge.op != model.op) return std::nullopt;
      int32_t at = common_target(dfa, edge.to, sequences.low, sequences.high);
      for (int32_t k = 0; k < sequences.more && at != ByteDfa::kDead; ++k) {
        at = common_target(dfa, at, 0x80, 0xBF);
      }
      if (at != state) return std::nullopt;
    }
  }
  return PlainLoop{model.op};
}

}  // namespace pagemill
