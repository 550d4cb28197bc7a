#include "token_tail.h"

#include <algorithm>
#include <string>
#include <vector>

namespace pagemill {
namespace {

constexpr size_t kLookBack = 3;  // tokens

// Whether some token of the trie begins with `text` and goes on, legally, from `end`.
bool may_grow(const ByteDfa& dfa, const TokenTrie& trie, const std::string& text,
              const RowState& end) {
  const auto nodes = trie.all().nodes();
  size_t at = 0;
  size_t stop = nodes.size();
  for (const char byte : text) {
    while (at < stop && nodes[at].byte != static_cast<uint8_t>(byte)) {
      at += static_cast<size_t>(nodes[at].subtree);
    }
    if (at >= stop) return false;
    stop = at + static_cast<size_t>(nodes[at].subtree);
    ++at;
  }
  std::vector<RowState> path{end};
  while (at < stop) {
    path.resize(nodes[at].depth - text.size() + 1);
    RowState next = path.back();
    if (!dfa.step(next, nodes[at].byte)) {
      at += static_cast<size_t>(nodes[at].subtree);
      continue;
    }
    if (!trie.all().ids_of(at).empty()) return true;
    path.push_back(next);
    ++at;
  }
  return false;
}

}  // namespace

size_t count_settled(const ByteDfa& dfa, const TokenTrie& trie, std::span<const RowState> states,
                     std::span<const int32_t> tokens) {
  const size_t first = tokens.size() - std::min(tokens.size(), kLookBack);
  for (size_t i = first; i < tokens.size(); ++i) {
    std::string text;
    for (size_t k = i; k < tokens.size(); ++k) text += trie.bytes(tokens[k]);
    if (may_grow(dfa, trie, text, states[tokens.size()])) return i;
  }
  return tokens.size();
}

}  // namespace pagemill
