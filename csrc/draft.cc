#include "draft.h"

#include <algorithm>
#include <stdexcept>

#include "page_lines.h"
#include "token_tail.h"

namespace pagemill {
namespace {

constexpr int32_t kLongMatch = 8;       // bytes
constexpr size_t kBytesPerToken = 8;    // more than tokens of text have on average
constexpr uint8_t kTryAgain = 8;        // a kind that fails is tried once in so many drafts
constexpr float kSlotPace = 0.15f;      // how fast rates follow what held
constexpr size_t kGuessBytes = 4;       // of a span, until its start is as good as confirmed
constexpr size_t kMaxGrammars = 256;    // whose habits are kept
constexpr float kCommonPace = 0.02f;

size_t index_of(DraftKind kind) { return static_cast<size_t>(kind); }

}  // namespace

bool Drafter::Walk::push(uint8_t byte, DraftKind as) {
  if (!grammar->dfa().step(state, byte)) return false;
  cursor.push(byte);
  bytes.push_back(static_cast<char>(byte));
  kinds.push_back(as);
  return true;
}

bool Drafter::Walk::may(uint8_t byte) const {
  RowState ahead = state;
  return grammar->dfa().step(ahead, byte);
}

Drafter::Drafter(const GrammarRows& rows, std::shared_ptr<const BpeEncoder> encoder,
                 DraftConfig config)
    : rows_(rows),
      encoder_(std::move(encoder)),
      config_(config),
      slots_(rows.num_slots()),
      rates_{1.0f, 0.85f, 0.4f, 0.6f, 0.7f, 0.6f, 0.7f} {
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

void Drafter::start(int32_t index, std::string page, std::span<const int32_t> output) {
  Slot& slot = at(index);
  Slot fresh;
  fresh.used = true;
  fresh.rates = rates_;
  if (config_.page && !page.empty()) fresh.page = std::make_unique<PageIndex>(std::move(page));
  slot = std::move(fresh);
  if (!rows_.is_attached(index)) return;
  slot.state = rows_.grammar(index).start();
  take(index, slot, output);
}

void Drafter::end(int32_t index) { at(index) = Slot{}; }

std::vector<int16_t>& Drafter::habits_of(const Grammar& grammar) {
  if (habits_.size() >= kMaxGrammars && !habits_.contains(&grammar)) habits_.clear();
  std::vector<int16_t>& habits = habits_[&grammar];
  // A grammar may come to lie where another one lay.
  const auto num_states = static_cast<size_t>(grammar.dfa().num_states());
  if (habits.size() != num_states) habits.assign(num_states, -1);
  return habits;
}

void Drafter::take(int32_t index, Slot& slot, std::span<const int32_t> tokens) {
  const Grammar& grammar = rows_.grammar(index);
  std::vector<int16_t>& habits = habits_of(grammar);
  for (const int32_t token : tokens) {
    for (const char c : grammar.trie().bytes(token)) {
      const auto byte = static_cast<uint8_t>(c);
      if (!slot.cursor.in_value_string()) habits[slot.state.state] = byte;
      grammar.dfa().step(slot.state, byte);
      follow(slot, byte);
    }
  }
}

void Drafter::follow(Slot& slot, uint8_t byte) {
  const bool was_open = slot.cursor.in_value_string();
  slot.cursor.push(byte);
  if (!was_open || slot.cursor.in_value_string() || slot.page == nullptr) return;
  const auto match = slot.page->find_suffix(slot.cursor.tail(), slot.place);
  if (match.end != PageIndex::kNone) slot.place = match.end;
}

void Drafter::learn(Slot& slot, DraftKind kind, bool held) {
  const float outcome = held ? 1.0f : 0.0f;
  float& own = slot.rates[index_of(kind)];
  own += kSlotPace * (outcome - own);
  float& common = rates_[index_of(kind)];
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
    const size_t drafted = std::min(slot.tokens.size(), static_cast<size_t>(num_drafts[i]));
    for (size_t k = 0; k < std::min(drafted, brought.size()); ++k) {
      const DraftKind kind = slot.kinds[k];
      const bool held = brought[k] == slot.tokens[k];
      if (kind != DraftKind::kForced) learn(slot, kind, held);
      if (!held) break;
      ++(kind == DraftKind::kForced ? forced : copied)[i];
    }
    slot.tokens.clear();
    slot.kinds.clear();
    if (!slot.used || !rows_.is_attached(slots[i])) continue;
    take(slots[i], slot, brought);
  }
}

void Drafter::propose(std::span<const int32_t> slots, std::vector<int32_t>& starts,
                      std::vector<int32_t>& tokens) {
  starts.assign(1, 0);
  tokens.clear();
  for (const int32_t index : slots) at(index);
  for (const int32_t index : slots) {
    Slot& slot = slots_[index];
    slot.tokens.clear();
    slot.kinds.clear();
    // What closing narrows is chosen position by position.
    if (slot.used && rows_.is_attached(index) && !rows_.is_narrowed(index)) make(index, slot);
    tokens.insert(tokens.end(), slot.tokens.begin(), slot.tokens.end());
    starts.push_back(static_cast<int32_t>(tokens.size()));
  }
}

void Drafter::make(int32_t index, Slot& slot) {
  const RowState start = rows_.state(index);
  Walk walk{&rows_.grammar(index), slot.page.get(), start, slot.cursor, slot.place, false,
            DraftKind::kLong, {}, {}, &habits_of(rows_.grammar(index))};
  const size_t most = kBytesPerToken * static_cast<size_t>(config_.most_tokens);
  bool more = true;
  while (more && walk.bytes.size() < most) {
    more = config_.forced && add_forced(walk);
    if (!config_.page || walk.bytes.size() >= most) continue;
    if (walk.cursor.in_value_string()) {
      more |= walk.page != nullptr && add_copied(walk);
    } else {
      more |= (walk.page != nullptr && open_value(walk)) || add_habit(walk);
    }
  }
  if (walk.bytes.empty()) return;
  encode(slot, start, walk);
}

bool Drafter::add_forced(Walk& walk) const {
  const size_t before = walk.bytes.size();
  while (walk.bytes.size() < before + PageIndex::kMaxMatch * 4) {
    const int32_t byte = walk.grammar->dfa().forced_byte(walk.state);
    // A byte after a guess is forced only if the guess holds, which its own kind answers for.
    if (byte < 0 || !walk.push(static_cast<uint8_t>(byte), DraftKind::kForced)) break;
  }
  return walk.bytes.size() > before;
}

bool Drafter::add_habit(Walk& walk) const {
  const int32_t byte = (*walk.habits)[walk.state.state];
  return byte >= 0 && walk.push(static_cast<uint8_t>(byte), DraftKind::kHabit);
}

// At the start of a value: open a string where the page has something for it, or copy a number.
bool Drafter::open_value(Walk& walk) const {
  if (walk.cursor.after_element()) {
    const auto next = next_line(walk.page->text(), walk.place);
    if (!next || !walk.may(',')) return false;
    Walk ahead = walk;
    if (!ahead.push(',', DraftKind::kNext) || !ahead.push('"', DraftKind::kNext)) return false;
    ahead.place = *next;
    ahead.on_page = true;
    ahead.kind = DraftKind::kNext;
    walk = std::move(ahead);
    return true;
  }
  if (!walk.cursor.at_value()) return false;
  const auto place = find_label(walk.page->text(), walk.cursor.name());
  if (!place) return false;
  const std::string_view value = walk.page->text().substr(*place);
  if (walk.push('"', DraftKind::kLabel)) {
    walk.place = *place;
    walk.on_page = true;
    walk.kind = DraftKind::kLabel;
    return true;
  }
  size_t length = 0;
  while (length < value.size() && is_of_number(value[length]) &&
         walk.push(static_cast<uint8_t>(value[length]), DraftKind::kLabel)) {
    ++length;
  }
  return length > 0;
}

// Where the open string, empty so far, may start on the page.
bool Drafter::find_start(Walk& walk) const {
  const std::string_view text = walk.page->text();
  const auto set = [&](std::optional<int32_t> place, DraftKind kind) {
    if (!place) return false;
    walk.place = *place;
    walk.kind = kind;
    return true;
  };
  if (set(find_label(text, walk.cursor.name()), DraftKind::kLabel)) return true;
  if (walk.place == PageIndex::kNone) return set(find_heading(text), DraftKind::kHeading);
  return walk.cursor.in_array() && set(next_line(text, walk.place), DraftKind::kNext);
}

bool Drafter::add_copied(Walk& walk) const {
  if (!walk.on_page) {
    if (walk.cursor.is_empty()) {
      if (!find_start(walk)) return false;
    } else {
      const auto match = walk.page->find_suffix(walk.cursor.tail(), walk.place);
      if (match.end == PageIndex::kNone) return false;
      walk.place = match.end;
      walk.kind = match.length >= kLongMatch ? DraftKind::kLong : DraftKind::kShort;
    }
  }
  walk.on_page = false;
  const std::string_view text = walk.page->text();
  const size_t before = walk.bytes.size();
  const size_t end = line_end(text, static_cast<size_t>(walk.place));
  auto at = static_cast<size_t>(walk.place);
  const size_t most = before + kBytesPerToken * static_cast<size_t>(config_.most_tokens);
  for (; at < end && walk.bytes.size() < most; ++at) {
    if (walk.bytes.size() >= before + kGuessBytes) walk.kind = DraftKind::kLong;
    const auto byte = static_cast<uint8_t>(text[at]);
    const bool escapes = byte == '"' || byte == '\\';
    if (escapes && !walk.push('\\', walk.kind)) break;
    if (!walk.push(byte, walk.kind)) break;
  }
  walk.place = static_cast<int32_t>(at);
  if (at == end && walk.push('"', walk.kind)) return true;
  return walk.bytes.size() > before;
}

void Drafter::encode(Slot& slot, const RowState& start, const Walk& walk) const {
  encoder_->encode(walk.bytes, slot.tokens);
  const TokenTrie& trie = walk.grammar->trie();
  std::vector<RowState> states{start};  // before each token
  size_t byte = 0;
  for (size_t i = 0; i < slot.tokens.size(); ++i) {
    RowState state = states.back();
    const size_t length = trie.bytes(slot.tokens[i]).size();
    if (byte + length > walk.bytes.size() || !walk.grammar->advance(state, slot.tokens[i])) {
      slot.tokens.resize(i);
      break;
    }
    slot.kinds.push_back(*std::max_element(walk.kinds.begin() + byte,
                                           walk.kinds.begin() + byte + length));
    byte += length;
    states.push_back(state);
  }
  const size_t kept = keep(slot);
  if (kept == slot.tokens.size()) {
    // All that is known is drafted: what follows may be one token with the end of it.
    slot.tokens.resize(count_settled(*walk.grammar, states, slot.tokens));
  } else {
    slot.tokens.resize(kept);
  }
  slot.kinds.resize(slot.tokens.size());
}

// How many tokens are worth a place in the step.
size_t Drafter::keep(Slot& slot) const {
  const size_t most = std::min(slot.tokens.size(), static_cast<size_t>(config_.most_tokens));
  float chance = 1.0f;
  for (size_t i = 0; i < most; ++i) {
    const DraftKind kind = slot.kinds[i];
    if (kind == DraftKind::kForced) continue;
    chance *= slot.rates[index_of(kind)];
    if (chance >= kWorthwhile) continue;
    uint8_t& waited = slot.waited[index_of(kind)];
    const bool first = chance == slot.rates[index_of(kind)];
    if (!first || ++waited < kTryAgain) return i;
    waited = 0;
    return i + 1;
  }
  return most;
}

}  // namespace pagemill
