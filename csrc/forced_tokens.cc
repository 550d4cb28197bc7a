#include "forced_tokens.h"

#include <algorithm>

#include "row_state.h"
#include "token_tail.h"

namespace pagemill {

ForcedTokens::ForcedTokens(const ByteDfa& dfa, const TokenTrie& trie, const BpeEncoder& encoder)
    : only_(dfa.num_states(), -1), first_(dfa.num_states(), -1) {
  for (int32_t state = 0; state < dfa.num_states(); ++state) find(dfa, trie, encoder, state);
}

void ForcedTokens::find(const ByteDfa& dfa, const TokenTrie& trie, const BpeEncoder& encoder,
                        int32_t state) {
  const std::string run = dfa.forced_run(state);
  if (run.empty()) return;
  std::vector<int32_t> tokens;
  encoder.encode(run, tokens);
  RowState row;
  row.state = state;
  std::vector<RowState> states{row};  // before each token
  std::string told;
  for (const int32_t token : tokens) {
    for (const char byte : trie.bytes(token)) {
      row.state = dfa.next(row.state, static_cast<uint8_t>(byte));
      if (row.state < 0) return;
    }
    told += trie.bytes(token);
    states.push_back(row);
  }
  // A vocabulary without some byte can't say the run as it is encoded.
  if (tokens.empty() || told != run) return;
  first_[state] = tokens[0];
  if (count_settled(dfa, trie, states, tokens) > 0) only_[state] = tokens[0];
}

void ForcedTokens::restrict(const ByteDfa& dfa, const TokenTrie& trie, int32_t state,
                            std::vector<int32_t>& bits) const {
  const int32_t first = first_[state];
  if (first < 0) return;
  const auto set = [&](int32_t id) {
    bits[id >> 5] =
        static_cast<int32_t>(static_cast<uint32_t>(bits[id >> 5]) | uint32_t{1} << (id & 31));
  };
  if (only_[state] >= 0) {
    std::fill(bits.begin(), bits.end(), 0);
    set(first);
    return;
  }
  const std::string run = dfa.forced_run(state);
  const auto nodes = trie.all().nodes();
  size_t at = 0;
  size_t stop = nodes.size();
  for (size_t depth = 0; depth + 1 < run.size(); ++depth) {
    while (at < stop && nodes[at].byte != static_cast<uint8_t>(run[depth])) {
      at += static_cast<size_t>(nodes[at].subtree);
    }
    if (at >= stop) break;
    for (const int32_t id : trie.all().ids_of(at)) {
      bits[id >> 5] =
          static_cast<int32_t>(static_cast<uint32_t>(bits[id >> 5]) & ~(uint32_t{1} << (id & 31)));
    }
    stop = at + static_cast<size_t>(nodes[at].subtree);
    ++at;
  }
  set(first);
}

}  // namespace pagemill
