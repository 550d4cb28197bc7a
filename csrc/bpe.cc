#include "bpe.h"

#include <algorithm>
#include <limits>
#include <stdexcept>

namespace pagemill {
namespace {

uint64_t pair_key(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

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

BpeEncoder::BpeEncoder(std::vector<int32_t> byte_ids, std::span<const Merge> merges,
                       CharClasses classes, bool split_digits)
    : byte_ids_(std::move(byte_ids)), classes_(std::move(classes)), split_digits_(split_digits) {
  if (byte_ids_.size() != 256) throw std::invalid_argument("one token for each of 256 bytes");
  const auto negative = [](int32_t id) { return id < -1; };
  if (std::any_of(byte_ids_.begin(), byte_ids_.end(), negative)) {
    throw std::invalid_argument("negative token id");
  }
  if (merges.size() > std::numeric_limits<int32_t>::max() / 2) {
    throw std::invalid_argument("too many merges");
  }
  merges_.reserve(merges.size());
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const Merge& m = merges[rank];
    if (m.left < 0 || m.right < 0 || m.merged < 0) {
      throw std::invalid_argument("negative token id");
    }
    merges_[pair_key(m.left, m.right)] = {static_cast<int32_t>(rank), m.merged};
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

void BpeEncoder::merge(std::string_view piece, std::vector<int32_t>& out) const {
  const size_t first = out.size();
  for (const char byte : piece) {
    const int32_t id = byte_ids_[static_cast<uint8_t>(byte)];
    if (id >= 0) out.push_back(id);
  }
  while (out.size() - first > 1) {
    Known best{std::numeric_limits<int32_t>::max(), 0};
    size_t at = 0;
    for (size_t i = first; i + 1 < out.size(); ++i) {
      const auto known = merges_.find(pair_key(out[i], out[i + 1]));
      if (known == merges_.end() || known->second.rank >= best.rank) continue;
      best = known->second;
      at = i;
    }
    if (best.rank == std::numeric_limits<int32_t>::max()) return;
    out[at] = best.merged;
    out.erase(out.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
}

void BpeEncoder::encode_segment(std::string_view text, std::vector<int32_t>& out) const {
  for (size_t at = 0; at < text.size();) {
    const size_t end = piece(text, at);
    merge(text.substr(at, end - at), out);
    at = end;
  }
}

void BpeEncoder::encode(std::string_view text, std::vector<int32_t>& out) const {
  if (merges_.empty()) {
    merge(text, out);
    return;
  }
  size_t start = 0;
  for (size_t at = 0; split_digits_ && at < text.size();) {
    const Char next = char_at(text, at);
    if (next.kind == CharClass::kNumber) {
      encode_segment(text.substr(start, at - start), out);
      encode_segment(text.substr(at, next.length), out);
      start = at + next.length;
    }
    at += next.length;
  }
  encode_segment(text.substr(start), out);
}

}  // namespace pagemill
