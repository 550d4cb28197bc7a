#include "token_trie.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>

namespace pagemill {
namespace {

constexpr size_t kMaxTokenBytes = 4096;
constexpr size_t kMaxVocabulary = 1 << 22;

size_t common_prefix(const std::string& a, const std::string& b) {
  const size_t limit = std::min(a.size(), b.size());
  size_t i = 0;
  while (i < limit && a[i] == b[i]) ++i;
  return i;
}

}  // namespace

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
  std::vector<int32_t> order;
  for (int32_t id = 0; id < vocab_size(); ++id) {
    if (tokens_[id].size() > kMaxTokenBytes) {
      throw std::invalid_argument("token " + std::to_string(id) + " has over " +
                                  std::to_string(kMaxTokenBytes) + " bytes");
    }
    if (!tokens_[id].empty()) order.push_back(id);
  }
  // In byte order each token's nodes follow those of its prefixes: a preorder of the trie.
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    const int by_bytes = tokens_[a].compare(tokens_[b]);
    return by_bytes != 0 ? by_bytes < 0 : a < b;
  });
  std::vector<int32_t> path;  // nodes from the root to the latest one
  const auto close_to = [&](size_t depth) {
    for (; path.size() > depth; path.pop_back()) {
      nodes_[path.back()].subtree = static_cast<int32_t>(nodes_.size()) - path.back();
    }
  };
  const std::string* previous = nullptr;
  for (const int32_t id : order) {
    const std::string& token = tokens_[id];
    close_to(previous == nullptr ? 0 : common_prefix(*previous, token));
    for (size_t depth = path.size(); depth < token.size(); ++depth) {
      path.push_back(static_cast<int32_t>(nodes_.size()));
      nodes_.push_back({static_cast<uint8_t>(token[depth]), static_cast<uint16_t>(depth), 1,
                        static_cast<int32_t>(ids_.size())});
    }
    ids_.push_back(id);
    max_depth_ = std::max(max_depth_, static_cast<int32_t>(token.size()));
    previous = &token;
  }
  close_to(0);
  nodes_.push_back({0, 0, 1, static_cast<int32_t>(ids_.size())});
}

bool TokenTrie::is_eos(int32_t token) const {
  return std::find(eos_ids_.begin(), eos_ids_.end(), token) != eos_ids_.end();
}

const std::string& TokenTrie::bytes(int32_t token) const {
  static const std::string kNone;
  return token < 0 || token >= vocab_size() ? kNone : tokens_[token];
}

}  // namespace pagemill
