// The vocabulary as byte strings, laid out for one pass over all tokens.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace pagemill {

// A set of tokens as a trie flattened in preorder, so that a walk is one scan which skips a whole
// subtree when a byte is refused.
class PreorderTrie {
 public:
  struct Node {
    uint8_t byte;
    uint16_t depth;    // bytes before this one
    int32_t subtree;   // nodes from this one to the end of its subtree, itself included
    int32_t first_id;  // its tokens are the ids from here up to the next node's first_id
  };

  PreorderTrie() = default;
  PreorderTrie(std::span<const std::string> tokens, std::vector<int32_t> members);

  std::span<const Node> nodes() const { return {nodes_.data(), nodes_.size() - 1}; }
  std::span<const int32_t> ids_of(size_t node) const {
    return {ids_.data() + nodes_[node].first_id, ids_.data() + nodes_[node + 1].first_id};
  }

 private:
  std::vector<Node> nodes_{{0, 0, 1, 0}};  // one more than there are, holding the end of ids_
  std::vector<int32_t> ids_;
};

// All ordinary tokens of a vocabulary. Immutable; built once per tokenizer and shared by its
// grammars. Ids with an empty byte string (special and padding ids) are in no trie.
//
// Plain tokens, those of whole characters that stand raw in a JSON string, are also kept as ready
// masks by their number of characters: inside a string all of them are legal or too long.
class TokenTrie {
 public:
  // Throws std::invalid_argument for an empty vocabulary, an over-long token, or end-of-sequence
  // ids outside the vocabulary. End-of-sequence ids are never ordinary tokens.
  TokenTrie(std::vector<std::string> tokens, std::vector<int32_t> eos_ids);

  int32_t vocab_size() const { return static_cast<int32_t>(tokens_.size()); }
  int32_t num_words() const { return (vocab_size() + 31) / 32; }
  int32_t max_depth() const { return max_depth_; }
  const PreorderTrie& all() const { return all_; }

  // The tokens that aren't plain.
  const PreorderTrie& rest() const { return rest_; }

  // Of the longest plain token with a ready mask.
  int32_t max_characters() const { return max_characters_; }

  // The mask of the plain tokens of at most `characters` characters.
  std::span<const int32_t> plain(int32_t characters) const;

  std::span<const int32_t> eos_ids() const { return eos_ids_; }
  bool is_eos(int32_t token) const;

  // The bytes of an ordinary token; empty for an id that is never legal or out of range.
  const std::string& bytes(int32_t token) const;

 private:
  std::vector<std::string> tokens_;
  std::vector<int32_t> eos_ids_;
  int32_t max_depth_ = 0;
  int32_t max_characters_ = 0;  // of a plain token
  PreorderTrie all_;
  PreorderTrie rest_;
  std::vector<int32_t> plain_;  // [max_characters_ + 1, num_words]
};

}  // namespace pagemill
