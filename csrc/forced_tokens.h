// How text that a grammar forces is split into tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bpe.h"
#include "byte_dfa.h"
#include "token_trie.h"

namespace pagemill {

// Where an automaton leaves no choice of text, several tokens are legal all the same: "pr", "price".
// The tokenizer's own split is the one that the model knows, and the others say nothing new. So in
// such a state one token is left: the first of the encoded run, if no longer legal token could
// stand in its place that reaches beyond the run. At the end of a run, where one could, tokens that
// reach the end of the run are left. Immutable; by states, since a run depends on nothing else.
class ForcedTokens {
 public:
  ForcedTokens(const ByteDfa& dfa, const TokenTrie& trie, const BpeEncoder& encoder);

  // The only token of a state, or -1.
  int32_t only(int32_t state) const { return only_[static_cast<size_t>(state)]; }

  // Clears the bits of legal tokens that say less than they could, or split a run otherwise.
  void restrict(const ByteDfa& dfa, const TokenTrie& trie, int32_t state,
                std::vector<int32_t>& bits) const;

 private:
  void find(const ByteDfa& dfa, const TokenTrie& trie, const BpeEncoder& encoder, int32_t state);

  std::vector<int32_t> only_;   // by state
  std::vector<int32_t> first_;  // by state, of the run's encoding; -1 where nothing is forced
};

}  // namespace pagemill
