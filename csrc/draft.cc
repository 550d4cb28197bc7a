#include "draft.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <stdexcept>

#include "token_tail.h"

namespace pagemill {
namespace {

constexpr size_t kBytesPerToken = 6;     // more than tokens of text have on average
constexpr uint8_t kTryAgain = 8;         // a kind that fails is tried once in so many drafts
constexpr float kSlotPace = 0.15f;       // how fast rates follow what held
constexpr float kCommonPace = 0.02f;
constexpr float kStartPace = 0.05f;      // the same of values' starts
constexpr size_t kWellStarted = 4;       // bytes of a value that make a guess a good one
constexpr size_t kMaxGrammars = 256;     // whose records are remembered

GuessRates first_rates() {
  GuessRates rates{};
  const auto set = [&](Guess guess, float a, float b, float c, float d) {
    rates[index_of(guess)] = {a, b, c, d};
  };
  set(Guess::kForced, 1.0f, 1.0f, 1.0f, 1.0f);
  set(Guess::kRunEnd, 0.95f, 0.95f, 0.95f, 0.95f);
  set(Guess::kPrompt, 0.35f, 0.6f, 0.8f, 0.9f);
  set(Guess::kRecord, 0.3f, 0.5f, 0.7f, 0.85f);
  set(Guess::kPast, 0.25f, 0.45f, 0.6f, 0.8f);
  set(Guess::kClose, 0.4f, 0.5f, 0.6f, 0.7f);
  set(Guess::kHabit, 0.7f, 0.7f, 0.7f, 0.7f);
  set(Guess::kLabel, 0.5f, 0.7f, 0.85f, 0.9f);
  set(Guess::kHeading, 0.5f, 0.7f, 0.85f, 0.9f);
  set(Guess::kNext, 0.45f, 0.7f, 0.85f, 0.9f);
  set(Guess::kLatest, 0.4f, 0.7f, 0.85f, 0.9f);
  set(Guess::kFirst, 0.3f, 0.7f, 0.85f, 0.9f);
  set(Guess::kPastValue, 0.4f, 0.7f, 0.85f, 0.9f);
  set(Guess::kOpen, 0.7f, 0.7f, 0.7f, 0.7f);
  return rates;
}

bool is_start(Guess guess) { return guess >= Guess::kLabel; }

}  // namespace

Drafter::Drafter(const GrammarRows& rows, std::shared_ptr<const BpeEncoder> encoder,
                 DraftConfig config)
    : rows_(rows),
      encoder_(std::move(encoder)),
      config_(config),
      slots_(rows.num_slots()),
      rates_(first_rates()) {
  if (encoder_ == nullptr) throw std::invalid_argument("drafts need an encoder");
  if (config_.most_tokens < 1 || config_.most_tokens > 256) {
    throw std::invalid_argument("a draft has 1 to 256 tokens");
  }
}

Drafter::Slot& Drafter::at(int32_t slot) {
  if (slot < 0 || static_cast<size_t>(slot) >= slots_.size()) {
    throw std::invalid_argument("slot " + std::to_string(slot) + " of " +
                                std::to_string(slots_.size()));
  }
  return slots_[slot];
}

void Drafter::start(int32_t index, std::span<const int32_t> prompt, std::string_view page,
                    std::span<const int32_t> output) {
  Slot& slot = at(index);
  Slot fresh;
  fresh.used = true;
  fresh.rates = rates_;
  if (rows_.is_attached(index)) {
    const Grammar& grammar = rows_.grammar(index);
    if (config_.page) {
      std::string text;
      for (const int32_t token : prompt) text += grammar.trie().bytes(token);
      fresh.prompt = PromptText(std::move(text), page);
    }
    fresh.place.state = grammar.start(rows_.page(index));
    if (output.empty()) {  // what first() told for it may be on its way
      for (const int32_t token : first(grammar)) {
        fresh.draft.push_back({token, {Guess::kForced, 0, 1.0f}});
      }
    }
  }
  slot = std::move(fresh);
  if (rows_.is_attached(index)) take(index, slot, output);
}

std::vector<int32_t> Drafter::first(const Grammar& grammar) const {
  std::vector<int32_t> tokens;
  RowState state = grammar.start();
  while (config_.forced && tokens.size() < static_cast<size_t>(config_.most_tokens)) {
    const int32_t only = grammar.only_token(state.state);
    if (only < 0 || !grammar.advance(state, only)) break;
    tokens.push_back(only);
  }
  return tokens;
}

void Drafter::end(int32_t index) {
  Slot& slot = at(index);
  if (slot.used && config_.page && rows_.is_attached(index)) {
    history_of(rows_.grammar(index)).add_record(std::string(slot.record.text()), slot.values_at);
  }
  slot = Slot{};
}

RecordHistory& Drafter::history_of(const Grammar& grammar) {
  if (histories_.size() >= kMaxGrammars && !histories_.contains(&grammar)) histories_.clear();
  const int32_t num_states = grammar.dfa().num_states();
  auto [place, added] = histories_.try_emplace(&grammar, num_states);
  // A grammar may come to lie where another one lay.
  if (place->second.num_states() != num_states) place->second = RecordHistory(num_states);
  return place->second;
}

DraftWalk::Sources Drafter::sources_of(int32_t index, Slot& slot) {
  const Grammar& grammar = rows_.grammar(index);
  return {&grammar, &slot.prompt, &slot.record, &history_of(grammar), &slot.rates};
}

void Drafter::take(int32_t index, Slot& slot, std::span<const int32_t> tokens) {
  const DraftWalk::Sources sources = sources_of(index, slot);
  const Grammar& grammar = *sources.grammar;
  for (const int32_t token : tokens) {
    const std::string& bytes = grammar.trie().bytes(token);
    const bool free = grammar.only_token(slot.place.state.state) < 0;
    for (size_t i = 0; i < bytes.size(); ++i) {
      const auto byte = static_cast<uint8_t>(bytes[i]);
      const bool was_inside = slot.place.cursor.in_string();
      take_byte(slot, sources, byte);
      const bool inside = was_inside && slot.place.cursor.in_string();
      const TokenSplits::Byte told{byte, !inside};
      if (slot.place.length > 1 && (free || i == 0) && (i > 0 || slot.last_free)) {
        splits_.learn(slot.last, told, i == 0);
      }
      slot.last = told;
    }
    slot.last_free = free;
  }
}

void Drafter::take_byte(Slot& slot, const DraftWalk::Sources& sources, uint8_t byte) {
  RecordPlace& place = slot.place;
  const bool was_value = place.value_at >= 0;
  if (place.at_value() && config_.page) {
    slot.values = DraftWalk::guess_values(sources, place, slot.record.text());
    for (const ValueGuess& guess : slot.values) {
      if (byte == ']') sources.history->learn(place.state.state, guess.guess, false);
    }
  }
  if (!place.cursor.in_value_string()) sources.history->habit(place.state.state) = byte;
  bool ended = false;
  if (!place.push(*sources.grammar, byte, ended)) return;
  if (config_.page && slot.record.text().size() < TextIndex::kMaxBytes) {
    slot.record.append(std::string_view(reinterpret_cast<const char*>(&byte), 1));
  }
  if (!was_value && place.value_at >= 0) slot.values_at[place.value_state] = place.value_at;
  if (ended && config_.page) end_value(slot, sources);
}

// A value is complete: which of the guesses at it were good?
void Drafter::end_value(Slot& slot, const DraftWalk::Sources& sources) {
  const RecordPlace& place = slot.place;
  const std::string value = value_text(slot.record.text(), place.latest_at);
  for (const ValueGuess& guess : slot.values) {
    const size_t needed = std::min(value.size(), kWellStarted);
    const bool held = guess.guess == Guess::kOpen
                          ? value[0] == '"'
                          : guess.text.compare(0, needed, value, 0, needed) == 0;
    sources.history->learn(place.value_state, guess.guess, held);
    float& common = rates_[index_of(guess.guess)][0];
    common += kStartPace * ((held ? 1.0f : 0.0f) - common);
    slot.rates[index_of(guess.guess)][0] = common;
  }
  slot.values.clear();
  if (value[0] != '"') return;
  const auto match = slot.prompt.index().find_suffix(place.cursor.tail(), place.prompt_at);
  if (match.end != TextIndex::kNone) slot.place.prompt_at = match.end;
}

void Drafter::learn(Slot& slot, const DraftByte& guess, bool held) {
  const float outcome = held ? 1.0f : 0.0f;
  if (is_start(guess.guess) && guess.length == 0) return;  // learnt when the value is complete
  float& own = slot.rates[index_of(guess.guess)][guess.length];
  own += kSlotPace * (outcome - own);
  float& common = rates_[index_of(guess.guess)][guess.length];
  common += kCommonPace * (outcome - common);
}

void Drafter::advance(std::span<const int32_t> slots, std::span<const int32_t> counts,
                      std::span<const int32_t> tokens, std::span<const int32_t> num_drafts,
                      std::span<int32_t> forced, std::span<int32_t> copied) {
  const size_t n = slots.size();
  if (counts.size() != n || num_drafts.size() != n || forced.size() != n || copied.size() != n) {
    throw std::invalid_argument("one count, draft length and result a slot");
  }
  size_t total = 0;
  for (size_t i = 0; i < n; ++i) {
    at(slots[i]);
    if (counts[i] < 0) throw std::invalid_argument("negative count");
    total += static_cast<size_t>(counts[i]);
  }
  if (total != tokens.size()) throw std::invalid_argument("counts don't add up to the tokens");
  size_t first = 0;
  for (size_t i = 0; i < n; ++i) {
    Slot& slot = slots_[slots[i]];
    const auto brought = tokens.subspan(first, static_cast<size_t>(counts[i]));
    first += brought.size();
    forced[i] = copied[i] = 0;
    const size_t drafted = std::min(slot.draft.size(), static_cast<size_t>(num_drafts[i]));
    for (size_t k = 0; k < std::min(drafted, brought.size()); ++k) {
      const Drafted& guess = slot.draft[k];
      const bool held = brought[k] == guess.token;
      Count& count = counts_[index_of(guess.guess.guess)];
      ++count.drafted;
      learn(slot, guess.guess, held);
      if (!held) break;
      ++count.held;
      const bool is_forced = guess.guess.guess <= Guess::kRunEnd;
      ++(is_forced ? forced : copied)[i];
    }
    slot.draft.clear();
    if (!slot.used || !rows_.is_attached(slots[i])) continue;
    take(slots[i], slot, brought);
  }
}

void Drafter::propose(std::span<const int32_t> slots, float fixed_tokens,
                      std::vector<int32_t>& starts, std::vector<int32_t>& tokens) {
  starts.assign(1, 0);
  tokens.clear();
  for (const int32_t index : slots) at(index);
  if (!(fixed_tokens >= 0)) throw std::invalid_argument("a step costs at least nothing");
  for (const int32_t index : slots) {
    Slot& slot = slots_[index];
    slot.draft.clear();
    // What closing narrows is chosen position by position.
    if (slot.used && rows_.is_attached(index) && !rows_.is_narrowed(index)) make(index, slot);
  }
  const float least = worthwhile(slots, fixed_tokens);
  for (const int32_t index : slots) {
    Slot& slot = slots_[index];
    slot.draft.resize(keep(slot, least));
    for (const Drafted& drafted : slot.draft) tokens.push_back(drafted.token);
    starts.push_back(static_cast<int32_t>(tokens.size()));
  }
}

// The chance from which on a draft is worth its place in the step.
float Drafter::worthwhile(std::span<const int32_t> slots, float fixed_tokens) const {
  std::vector<float> chances;
  for (const int32_t index : slots) {
    for (const Drafted& drafted : slots_[index].draft) chances.push_back(drafted.chance);
  }
  std::ranges::sort(chances, std::greater<>());
  const auto rows = static_cast<float>(slots.size());
  float expected = rows, cost = fixed_tokens + rows;
  for (const float chance : chances) {
    if (chance * cost < expected) break;
    expected += chance;
    cost += 1.0f;
  }
  return std::max(kLeastChance, expected / cost);
}

void Drafter::make(int32_t index, Slot& slot) {
  const DraftWalk::Sources sources = sources_of(index, slot);
  RecordPlace place = slot.place;
  place.state = rows_.state(index);
  DraftWalk walk(sources, place, slot.values, config_);
  walk.run(kBytesPerToken * static_cast<size_t>(config_.most_tokens));
  if (!walk.bytes().empty()) encode(slot, *sources.grammar, walk);
}

void Drafter::encode(Slot& slot, const Grammar& grammar, const DraftWalk& walk) const {
  const std::string& bytes = walk.bytes();
  const TokenTrie& trie = grammar.trie();
  const auto byte_at = [&](size_t i) {
    return TokenSplits::Byte{static_cast<uint8_t>(bytes[i]), walk.structural()[i] != 0};
  };
  std::vector<int32_t> tokens;
  std::vector<RowState> states;  // before each token
  size_t at = 0;
  const auto add = [&](int32_t token) {
    const size_t length = trie.bytes(token).size();
    if (length == 0 || at + length > bytes.size()) return false;
    if (bytes.compare(at, length, trie.bytes(token)) != 0) return false;
    DraftByte riskiest = walk.guesses()[at];
    for (size_t i = at + 1; i < at + length; ++i) {
      if (walk.guesses()[i].rate < riskiest.rate) riskiest = walk.guesses()[i];
    }
    if (riskiest.guess == Guess::kForced && grammar.only_token(walk.states()[at].state) != token) {
      riskiest.guess = Guess::kRunEnd;
      riskiest.rate = slot.rates[index_of(Guess::kRunEnd)][0];
    }
    slot.draft.push_back({token, riskiest});
    tokens.push_back(token);
    states.push_back(walk.states()[at]);
    at += length;
    return true;
  };
  std::vector<int32_t> segment;
  bool fits = true;
  while (fits && at < bytes.size()) {
    if (const int32_t only = grammar.only_token(walk.states()[at].state); only >= 0) {
      fits = add(only);
      continue;
    }
    size_t end = at + 1;
    while (end < bytes.size() && !splits_.is_split(byte_at(end - 1), byte_at(end))) ++end;
    segment.clear();
    encoder_->encode(std::string_view(bytes).substr(at, end - at), segment);
    for (const int32_t token : segment) fits = fits && add(token);
    if (fits && at < end) fits = false;
  }
  float chance = 1.0f;
  for (Drafted& drafted : slot.draft) drafted.chance = chance *= drafted.guess.rate;
  const auto most = static_cast<size_t>(config_.most_tokens);
  slot.settled = slot.draft.size();
  if (fits && slot.draft.size() <= most && !splits_.ends_token(byte_at(bytes.size() - 1))) {
    // All that is known is drafted: what follows may be one token with the end of it.
    RowState last = walk.states().back();
    grammar.dfa().step(last, static_cast<uint8_t>(bytes.back()));
    states.push_back(last);
    slot.settled = count_settled(grammar.dfa(), trie, states, tokens);
  }
  slot.draft.resize(std::min(slot.draft.size(), most));
}

// How many tokens are worth a place in the step.
size_t Drafter::keep(Slot& slot, float worthwhile) const {
  float before = 1.0f;
  for (size_t i = 0; i < slot.draft.size(); ++i) {
    const Drafted& drafted = slot.draft[i];
    const bool first = before == 1.0f;
    before = drafted.chance;
    if (drafted.chance >= worthwhile) continue;
    uint8_t& waited = slot.waited[index_of(drafted.guess.guess)];
    if (!first || ++waited < kTryAgain) return i;
    waited = 0;
    return i + 1;
  }
  return std::min(slot.draft.size(), slot.settled);
}

}  // namespace pagemill
