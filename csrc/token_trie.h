// The vocabulary as byte strings, laid out for one pass over all tokens.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace pagemill {

// All ordinary tokens of a vocabulary in a trie, flattened in preorder, so that a walk is one scan
// which skips a whole subtree when a byte is refused. Immutable; built once per tokenizer and
// shared by its grammars. Ids with an empty byte string (special and padding ids) are in no node.
class TokenTrie {
 public:
  struct Node {
    uint8_t byte;
    uint16_t depth;      // bytes before this one
    int32_t subtree;     // nodes from this one to the end of its subtree, itself included
    int32_t first_id;    // its tokens are ids()[first_id] up to the next node's first_id
  };

  // Throws std::invalid_argument for an empty vocabulary, an over-long token, or end-of-sequence
  // ids outside the vocabulary. End-of-sequence ids are never ordinary tokens.
  TokenTrie(std::vector<std::string> tokens, std::vector<int32_t> eos_ids);

  int32_t vocab_size() const { return static_cast<int32_t>(tokens_.size()); }
  int32_t num_words() const { return (vocab_size() + 31) / 32; }
  int32_t max_depth() const { return max_depth_; }
  std::span<const Node> nodes() const { return {nodes_.data(), nodes_.size() - 1}; }
  std::span<const int32_t> ids_of(size_t node) const {
    return {ids_.data() + nodes_[node].first_id, ids_.data() + nodes_[node + 1].first_id};
  }
  std::span<const int32_t> eos_ids() const { return eos_ids_; }
  bool is_eos(int32_t token) const;

  // The bytes of an ordinary token; empty for an id that is never legal or out of range.
  const std::string& bytes(int32_t token) const;

 private:
  std::vector<std::string> tokens_;
  std::vector<int32_t> eos_ids_;
  std::vector<Node> nodes_;  // one more than there are, holding the end of ids_
  std::vector<int32_t> ids_;
  int32_t max_depth_ = 0;
};

}  // namespace pagemill
