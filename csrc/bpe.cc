#include "bpe.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <queue>
#include <stdexcept>
#include <tuple>

namespace pagemill {
namespace {

// Up to this many symbols a look at all of them is quicker than a heap.
constexpr size_t kShort = 48;

// The length of a contraction that GPT-2's expression sets apart, or 0.
size_t contraction(std::string_view text) {
  if (text.size() < 2 || text[0] != '\'') return 0;
  if (std::string_view("stmd").find(text[1]) != std::string_view::npos) return 2;
  const std::string_view two = text.substr(1, 2);
  return two == "re" || two == "ve" || two == "ll" ? 3 : 0;
}

}  // namespace

CharClasses::CharClasses(std::vector<int32_t> starts, std::vector<uint8_t> classes)
    : starts_(std::move(starts)), classes_(std::move(classes)) {
  if (starts_.size() != classes_.size()) throw std::invalid_argument("one class a run");
  if (!starts_.empty() && starts_[0] != 0) throw std::invalid_argument("the first run starts at 0");
  if (!std::is_sorted(starts_.begin(), starts_.end())) {
    throw std::invalid_argument("runs must ascend");
  }
  if (std::any_of(classes_.begin(), classes_.end(), [](uint8_t c) { return c > 3; })) {
    throw std::invalid_argument("a class is 0 to 3");
  }
  ascii_.fill(CharClass::kOther);
  for (int32_t c = 0; c < 128 && !starts_.empty(); ++c) {
    const auto after = std::upper_bound(starts_.begin(), starts_.end(), c);
    ascii_[c] = static_cast<CharClass>(classes_[after - starts_.begin() - 1]);
  }
}

CharClass CharClasses::of(int32_t code_point) const {
  if (code_point < 128) return ascii_[code_point];
  if (starts_.empty()) return CharClass::kOther;
  const auto after = std::upper_bound(starts_.begin(), starts_.end(), code_point);
  return static_cast<CharClass>(classes_[after - starts_.begin() - 1]);
}

MergeTable::MergeTable(std::span<const Merge> merges) : size_(merges.size()) {
  if (merges.size() > std::numeric_limits<int32_t>::max() / 4) {
    throw std::invalid_argument("too many merges");
  }
  slots_.resize(std::bit_ceil(std::max<size_t>(2, 2 * merges.size())));
  shift_ = 64 - std::countr_zero(slots_.size());
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const Merge& m = merges[rank];
    if (m.left < 0 || m.right < 0 || m.merged < 0) {
      throw std::invalid_argument("negative token id");
    }
    size_t at = first_slot(m.left, m.right);
    while (slots_[at].left >= 0 && (slots_[at].left != m.left || slots_[at].right != m.right)) {
      at = (at + 1) & (slots_.size() - 1);
    }
    slots_[at] = {m.left, m.right, {static_cast<int32_t>(rank), m.merged}};
  }
}

size_t MergeTable::first_slot(int32_t left, int32_t right) const {
  const uint64_t key =
      static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  return key * 0x9E3779B97F4A7C15u >> shift_;  // Knuth's multiplicative hashing
}

MergeTable::Known MergeTable::of(int32_t left, int32_t right) const {
  for (size_t at = first_slot(left, right);; at = (at + 1) & (slots_.size() - 1)) {
    const Slot& slot = slots_[at];
    if (slot.left < 0) return {};
    if (slot.left == left && slot.right == right) return slot.known;
  }
}

BpeEncoder::BpeEncoder(std::vector<int32_t> byte_ids, std::span<const Merge> merges,
                       CharClasses classes, bool split_digits)
    : byte_ids_(std::move(byte_ids)),
      merges_(merges),
      classes_(std::move(classes)),
      split_digits_(split_digits) {
  if (byte_ids_.size() != 256) throw std::invalid_argument("one token for each of 256 bytes");
  const auto negative = [](int32_t id) { return id < -1; };
  if (std::any_of(byte_ids_.begin(), byte_ids_.end(), negative)) {
    throw std::invalid_argument("negative token id");
  }
}

BpeEncoder::Char BpeEncoder::char_at(std::string_view text, size_t at) const {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(at);
  if (lead < 0x80) return {classes_.of(lead), 1};
  const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || at + length > text.size()) return {CharClass::kOther, 1};
  int32_t code_point = lead & (0xFF >> (length + 1));
  for (size_t k = 1; k < length; ++k) {
    if ((byte(at + k) & 0xC0) != 0x80) return {CharClass::kOther, 1};
    code_point = code_point << 6 | (byte(at + k) & 0x3F);
  }
  return {classes_.of(code_point), length};
}

size_t BpeEncoder::run(std::string_view text, size_t at, CharClass kind) const {
  while (at < text.size()) {
    const Char next = char_at(text, at);
    if (next.kind != kind) break;
    at += next.length;
  }
  return at;
}

size_t BpeEncoder::piece(std::string_view text, size_t at) const {
  if (const size_t length = contraction(text.substr(at)); length > 0) return at + length;
  const size_t after_space = text[at] == ' ' ? at + 1 : at;
  if (after_space < text.size()) {
    const CharClass kind = char_at(text, after_space).kind;
    if (kind != CharClass::kSpace) return run(text, after_space, kind);
  }
  // White space: the last one goes with the word that follows, if it doesn't stand alone.
  size_t end = at;
  size_t last = at;
  while (end < text.size()) {
    const Char next = char_at(text, end);
    if (next.kind != CharClass::kSpace) break;
    last = end;
    end += next.length;
  }
  return end < text.size() && last > at ? last : end;
}

void BpeEncoder::merge_short(std::vector<Symbol>& symbols) const {
  while (symbols.size() > 1) {
    size_t at = 0;
    for (size_t i = 1; i + 1 < symbols.size(); ++i) {
      if (symbols[i].next.rank < symbols[at].next.rank) at = i;
    }
    Symbol& left = symbols[at];
    if (left.next.rank == MergeTable::kNone) return;
    left.id = left.next.merged;
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(at) + 1);
    left.next = at + 1 < symbols.size() ? merges_.of(left.id, symbols[at + 1].id)
                                        : MergeTable::Known{};
    if (at > 0) symbols[at - 1].next = merges_.of(symbols[at - 1].id, left.id);
  }
}

// The same with a heap of the pairs, and links over the symbols that are gone.
void BpeEncoder::merge_long(std::vector<Symbol>& symbols) const {
  using Pair = std::tuple<int32_t, size_t, int32_t>;  // rank, place of the left one, merged
  std::priority_queue<Pair, std::vector<Pair>, std::greater<>> pairs;
  const size_t count = symbols.size();
  std::vector<size_t> before(count), after(count);
  const auto push = [&](size_t at) {
    const MergeTable::Known& next = symbols[at].next;
    if (next.rank != MergeTable::kNone) pairs.emplace(next.rank, at, next.merged);
  };
  for (size_t i = 0; i < count; ++i) {
    before[i] = i - 1;
    after[i] = i + 1;
    push(i);
  }
  while (!pairs.empty()) {
    const auto [rank, at, merged] = pairs.top();
    pairs.pop();
    // A pair that is no longer there; a symbol that is gone has no next.
    if (symbols[at].next.rank != rank || symbols[at].next.merged != merged) continue;
    const size_t gone = after[at];
    symbols[at].id = merged;
    symbols[gone].id = -1;
    symbols[gone].next = {};
    after[at] = after[gone];
    symbols[at].next = {};
    if (after[at] < count) {
      before[after[at]] = at;
      symbols[at].next = merges_.of(merged, symbols[after[at]].id);
      push(at);
    }
    if (at > 0) {
      symbols[before[at]].next = merges_.of(symbols[before[at]].id, merged);
      push(before[at]);
    }
  }
  std::erase_if(symbols, [](const Symbol& symbol) { return symbol.id < 0; });
}

template <class Visit>
void BpeEncoder::each_piece(std::string_view text, Visit visit) const {
  if (merges_.empty()) {
    visit(size_t{0}, text);
    return;
  }
  const auto segment = [&](size_t start, size_t end) {
    const std::string_view part = text.substr(0, end);
    while (start < end) {
      const size_t stop = piece(part, start);
      visit(start, text.substr(start, stop - start));
      start = stop;
    }
  };
  size_t start = 0;
  for (size_t at = 0; split_digits_ && at < text.size();) {
    const Char next = char_at(text, at);
    if (next.kind == CharClass::kNumber) {
      segment(start, at);
      segment(at, at + next.length);
      start = at + next.length;
    }
    at += next.length;
  }
  segment(start, text.size());
}

void BpeEncoder::encode(std::string_view text, std::vector<int32_t>& out,
                        std::vector<int32_t>* starts) const {
  if (text.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    throw std::invalid_argument("a text of more than 2 GiB");
  }
  std::vector<Symbol> symbols;
  each_piece(text, [&](size_t start, std::string_view piece) {
    symbols.clear();
    for (size_t i = 0; i < piece.size(); ++i) {
      const int32_t id = byte_ids_[static_cast<uint8_t>(piece[i])];
      if (id >= 0) symbols.push_back({id, static_cast<int32_t>(start + i), {}});
    }
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      symbols[i].next = merges_.of(symbols[i].id, symbols[i + 1].id);
    }
    if (symbols.size() <= kShort) {
      merge_short(symbols);
    } else {
      merge_long(symbols);
    }
    for (const Symbol& symbol : symbols) {
      out.push_back(symbol.id);
      if (starts != nullptr) starts->push_back(symbol.start);
    }
  });
}

}  // namespace pagemill
