// Where a model ends its tokens in the structure of JSON.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace pagemill {

// A text may be split in ways that no tokenizer would choose, and models do: a quote by itself,
// where "," in quotes is one token. So it is remembered, for each pair of neighbours of which one
// is structural (outside of strings, or a quote), whether a token ended between them of late.
class TokenSplits {
 public:
  TokenSplits() {
    for (auto& row : split_) row.fill(0.5f);
  }

  struct Byte {
    uint8_t byte;
    bool structural;
  };

  bool is_split(Byte left, Byte right) const {
    return (left.structural || right.structural) && rate(left, right) > 0.5f;
  }
  // Whether a token ends after it, as far as what usually follows tells.
  bool ends_token(Byte left) const {
    return left.structural && is_split(left, {left.byte == '"' ? uint8_t{','} : uint8_t{'"'}, true});
  }

  void learn(Byte left, Byte right, bool split) {
    if (!left.structural && !right.structural) return;
    float& rate = split_[class_of(left)][class_of(right)];
    rate += kPace * ((split ? 1.0f : 0.0f) - rate);
  }

 private:
  static constexpr float kPace = 0.3f;
  static constexpr std::string_view kStructure = "\":,[]{}";
  static constexpr size_t kContent = kStructure.size();  // of strings, numbers, literals

  static size_t class_of(Byte byte) {
    if (!byte.structural) return kContent;
    const size_t at = kStructure.find(static_cast<char>(byte.byte));
    return at == std::string_view::npos ? kContent : at;
  }
  float rate(Byte left, Byte right) const { return split_[class_of(left)][class_of(right)]; }

  std::array<std::array<float, kContent + 1>, kContent + 1> split_;
};

}  // namespace pagemill
