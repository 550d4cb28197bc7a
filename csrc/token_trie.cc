#include "token_trie.h"

#include <algorithm>
#include <stdexcept>

#include "json_string.h"

namespace pagemill {
namespace {

constexpr size_t kMaxTokenBytes = 4096;
constexpr size_t kMaxVocabulary = 1 << 22;
// Longer plain tokens are walked: a ready mask for each length would not pay.
constexpr int32_t kMaxPlainCharacters = 64;

size_t common_prefix(const std::string& a, const std::string& b) {
  const size_t limit = std::min(a.size(), b.size());
  size_t i = 0;
  while (i < limit && a[i] == b[i]) ++i;
  return i;
}

}  // namespace

PreorderTrie::PreorderTrie(std::span<const std::string> tokens, std::vector<int32_t> members)
    : ids_(std::move(members)) {
  // In byte order each token's nodes follow those of its prefixes: a preorder of the trie.
  std::sort(ids_.begin(), ids_.end(), [&](int32_t a, int32_t b) {
    const int by_bytes = tokens[a].compare(tokens[b]);
    return by_bytes != 0 ? by_bytes < 0 : a < b;
  });
  nodes_.clear();
  std::vector<int32_t> path;  // nodes from the root to the latest one
  const auto close_to = [&](size_t depth) {
    for (; path.size() > depth; path.pop_back()) {
      nodes_[path.back()].subtree = static_cast<int32_t>(nodes_.size()) - path.back();
    }
  };
  for (size_t i = 0; i < ids_.size(); ++i) {
    const std::string& token = tokens[ids_[i]];
    close_to(i == 0 ? 0 : common_prefix(tokens[ids_[i - 1]], token));
    for (size_t depth = path.size(); depth < token.size(); ++depth) {
      // Nodes on the way get the ids before the token; its own last node gets the token.
      path.push_back(static_cast<int32_t>(nodes_.size()));
      nodes_.push_back({static_cast<uint8_t>(token[depth]), static_cast<uint16_t>(depth), 1,
                        static_cast<int32_t>(i)});
    }
  }
  close_to(0);
  nodes_.push_back({0, 0, 1, static_cast<int32_t>(ids_.size())});
}

TokenTrie::TokenTrie(std::vector<std::string> tokens, std::vector<int32_t> eos_ids)
    : tokens_(std::move(tokens)), eos_ids_(std::move(eos_ids)) {
  if (tokens_.empty() || tokens_.size() > kMaxVocabulary) {
    throw std::invalid_argument("vocabulary of " + std::to_string(tokens_.size()) + " tokens");
  }
  for (const int32_t id : eos_ids_) {
    if (id < 0 || id >= vocab_size()) {
      throw std::invalid_argument("end-of-sequence id " + std::to_string(id) +
                                  " outside the vocabulary");
    }
    tokens_[id].clear();
  }
  std::vector<int32_t> ordinary;
  std::vector<int32_t> rest;
  std::vector<int32_t> characters(tokens_.size(), 0);  // of plain tokens
  for (int32_t id = 0; id < vocab_size(); ++id) {
    const std::string& token = tokens_[id];
    if (token.size() > kMaxTokenBytes) {
      throw std::invalid_argument("token " + std::to_string(id) + " has over " +
                                  std::to_string(kMaxTokenBytes) + " bytes");
    }
    if (token.empty()) continue;
    ordinary.push_back(id);
    max_depth_ = std::max(max_depth_, static_cast<int32_t>(token.size()));
    const int32_t count = count_plain_characters(token);
    if (count <= 0 || count > kMaxPlainCharacters) {
      rest.push_back(id);
      continue;
    }
    characters[id] = count;
    max_characters_ = std::max(max_characters_, count);
  }
  all_ = PreorderTrie(tokens_, std::move(ordinary));
  rest_ = PreorderTrie(tokens_, std::move(rest));
  plain_.assign(static_cast<size_t>(max_characters_ + 1) * num_words(), 0);
  for (int32_t id = 0; id < vocab_size(); ++id) {
    if (characters[id] == 0) continue;
    for (int32_t length = characters[id]; length <= max_characters_; ++length) {
      int32_t& word = plain_[static_cast<size_t>(length) * num_words() + id / 32];
      word = static_cast<int32_t>(static_cast<uint32_t>(word) | uint32_t{1} << (id % 32));
    }
  }
}

std::span<const int32_t> TokenTrie::plain(int32_t characters) const {
  const int32_t length = std::clamp(characters, 0, max_characters_);
  return {plain_.data() + static_cast<size_t>(length) * num_words(),
          static_cast<size_t>(num_words())};
}

bool TokenTrie::is_eos(int32_t token) const {
  return std::find(eos_ids_.begin(), eos_ids_.end(), token) != eos_ids_.end();
}

const std::string& TokenTrie::bytes(int32_t token) const {
  static const std::string kNone;
  return token < 0 || token >= vocab_size() ? kNone : tokens_[token];
}

}  // namespace pagemill
