#include "draft_walk.h"

#include <algorithm>

#include "page_lines.h"

namespace pagemill {
namespace {

constexpr int32_t kMinStructure = 8;  // bytes that match, for a guess between values

}  // namespace

DraftWalk::DraftWalk(const Sources& sources, const RecordPlace& place,
                     std::vector<ValueGuess> values, const DraftConfig& config)
    : sources_(sources), place_(place), values_(std::move(values)), config_(config) {}

bool DraftWalk::push(uint8_t byte, Guess guess, size_t matched, float rate) {
  if (config_.page && place_.at_value()) find_values();
  const RowState before = place_.state;
  const bool was_inside = place_.cursor.in_string();
  bool ended = false;
  if (!place_.push(*sources_.grammar, byte, ended)) return false;
  states_.push_back(before);
  structural_.push_back(was_inside && place_.cursor.in_string() ? 0 : 1);
  bytes_.push_back(static_cast<char>(byte));
  guesses_.push_back({guess, static_cast<uint8_t>(length_class(matched)), rate});
  if (ended) values_.clear();
  return true;
}

std::string DraftWalk::tail() const {
  const std::string_view record = sources_.record->text();
  const size_t kept = std::min<size_t>(record.size(), TextIndex::kMaxMatch);
  std::string text(record.substr(record.size() - kept));
  text += bytes_;
  if (text.size() > TextIndex::kMaxMatch) text.erase(0, text.size() - TextIndex::kMaxMatch);
  return text;
}

TextIndex::Match DraftWalk::find_again(std::string_view context) const {
  const auto length = static_cast<int32_t>(sources_.record->text().size());
  return sources_.record->find_suffix(context, length, bytes_.empty() ? length : length + 1);
}

void DraftWalk::run(size_t most) {
  most_ = most;
  bool more = true;
  while (more && bytes_.size() < most_) {
    more = config_.forced && add_forced();
    if (!config_.page || bytes_.size() >= most_) continue;
    if (place_.at_value()) {
      more |= add_start();
    } else if (place_.value_at >= 0) {
      more |= add_in_value();
    } else {
      more |= add_between();
    }
  }
}

bool DraftWalk::add_forced() {
  const size_t before = bytes_.size();
  const Grammar& grammar = *sources_.grammar;
  while (bytes_.size() < most_) {
    const int32_t byte = grammar.dfa().forced_byte(place_.state);
    if (byte < 0) break;
    if (!push(static_cast<uint8_t>(byte), Guess::kForced, 0, 1.0f)) break;
  }
  return bytes_.size() > before;
}

// Copies `text` to its end, to the end of the value, or to what the grammar refuses.
bool DraftWalk::add_text(std::string_view text, Guess guess, size_t matched, float first_rate) {
  const size_t before = bytes_.size();
  for (const char byte : text) {
    if (bytes_.size() >= most_) break;
    const size_t copied = bytes_.size() - before;
    const float chance = copied == 0 ? first_rate : rate(guess, matched + copied);
    if (!push(static_cast<uint8_t>(byte), guess, matched + copied, chance)) break;
    if (place_.value_at < 0) break;
  }
  return bytes_.size() > before;
}

bool DraftWalk::add_prompt(int32_t at, size_t matched) {
  const std::string_view text = sources_.prompt->text();
  const size_t before = bytes_.size();
  const size_t end = line_end(text, static_cast<size_t>(at));
  auto from = static_cast<size_t>(at);
  for (; from < end && bytes_.size() < most_; ++from) {
    const size_t copied = matched + bytes_.size() - before;
    const auto byte = static_cast<uint8_t>(text[from]);
    const float chance = rate(Guess::kPrompt, copied);
    if ((byte == '"' || byte == '\\') && !push('\\', Guess::kPrompt, copied, chance)) break;
    if (!push(byte, Guess::kPrompt, copied, chance)) break;
  }
  place_.prompt_at = static_cast<int32_t>(from);
  if (from == end) {
    const size_t copied = matched + bytes_.size() - before;
    push('"', Guess::kClose, copied, rate(Guess::kClose, copied));
  }
  return bytes_.size() > before;
}

std::vector<ValueGuess> DraftWalk::guess_values(const Sources& sources, const RecordPlace& place,
                                                std::string_view record) {
  std::vector<ValueGuess> values;
  const Grammar& grammar = *sources.grammar;
  const bool quoted = place.may(grammar, '"');
  const auto add = [&](Guess guess, std::string text) {
    if (text.empty() || !place.may(grammar, static_cast<uint8_t>(text[0]))) return;
    const float prior = (*sources.rates)[index_of(guess)][0];
    values.push_back({guess, std::move(text), sources.history->rate(place.state.state, guess, prior)});
  };
  const auto add_line = [&](Guess guess, std::optional<int32_t> at) {
    if (at) add(guess, sources.prompt->value_at(*at, quoted));
  };
  add_line(Guess::kLabel, sources.prompt->label(place.cursor.name()));
  if (place.first_at < 0) add_line(Guess::kHeading, sources.prompt->heading());
  if (place.cursor.in_array()) add_line(Guess::kNext, sources.prompt->line_after(place.prompt_at));
  if (place.latest_at >= 0) add(Guess::kLatest, value_text(record, place.latest_at));
  if (place.first_at >= 0 && place.first_at != place.latest_at) {
    add(Guess::kFirst, value_text(record, place.first_at));
  }
  const int32_t past = sources.history->latest(place.state.state);
  if (past != TextIndex::kNone) {
    add(Guess::kPastValue, value_text(sources.history->records().text(), past));
  }
  if (quoted) add(Guess::kOpen, "\"");
  return values;
}

void DraftWalk::find_values() {
  values_ = guess_values(sources_, place_, std::string(sources_.record->text()) + bytes_);
}

bool DraftWalk::add_start() {
  find_values();
  const ValueGuess* best = nullptr;
  for (const ValueGuess& value : values_) {
    if (best == nullptr || value.rate > best->rate) best = &value;
  }
  const std::string context = tail();
  const auto again = find_again(context);
  if (again.length >= kMinStructure) {
    const float chance = rate(Guess::kRecord, static_cast<size_t>(again.length));
    if (best == nullptr || chance > best->rate) {
      const std::string record = std::string(sources_.record->text()) + bytes_;
      const std::string text = value_text(record, again.end);
      return add_text(text, Guess::kRecord, static_cast<size_t>(again.length), chance);
    }
  }
  const int32_t habit = sources_.history->habit(place_.state.state);
  if (habit == ']' && (best == nullptr || rate(Guess::kHabit, 0) > best->rate)) {
    return push(']', Guess::kHabit, 0, rate(Guess::kHabit, 0));
  }
  if (best == nullptr) return false;
  // The quote is as sure as the string, whatever is in it.
  float open = 0;
  for (const ValueGuess& value : values_) {
    if (value.text[0] == best->text[0]) open = std::max(open, value.rate);
  }
  const ValueGuess chosen = *best;
  if (chosen.guess == Guess::kOpen) return push('"', Guess::kOpen, 0, open);
  const size_t before = bytes_.size();
  for (const char byte : chosen.text) {
    const size_t copied = bytes_.size() - before;
    const float chance = copied == 0   ? open
                         : copied == 1 ? chosen.rate / open
                                       : rate(chosen.guess, std::max<size_t>(copied, 4));
    if (bytes_.size() >= most_) break;
    if (!push(static_cast<uint8_t>(byte), chosen.guess, copied, chance)) break;
    if (place_.value_at < 0) break;
  }
  return bytes_.size() > before;
}

bool DraftWalk::add_in_value() {
  std::string record(sources_.record->text());
  record += bytes_;
  const std::string_view so_far = std::string_view(record).substr(static_cast<size_t>(place_.value_at));
  struct Option {
    float rate = 0;
    Guess guess = Guess::kPrompt;
    size_t matched = 0;
    std::string text;
    int32_t at = -1;
  } best;
  for (const ValueGuess& value : values_) {
    if (value.text.size() <= so_far.size() || !value.text.starts_with(so_far)) continue;
    const float chance =
        so_far.size() < 2 ? value.rate : rate(value.guess, std::max<size_t>(so_far.size(), 4));
    if (chance > best.rate) {
      best = {chance, value.guess, so_far.size(), value.text.substr(so_far.size()), -1};
    }
  }
  if (place_.cursor.in_value_string() && !place_.cursor.is_empty()) {
    const auto match = sources_.prompt->index().find_suffix(place_.cursor.tail(), place_.prompt_at);
    if (match.end != TextIndex::kNone) {
      const auto matched = static_cast<size_t>(match.length);
      const float chance = rate(Guess::kPrompt, matched);
      if (chance > best.rate) best = {chance, Guess::kPrompt, matched, {}, match.end};
    }
  }
  const std::string context = tail();
  const auto offer = [&](TextIndex::Match match, Guess guess, std::string_view text) {
    if (match.end == TextIndex::kNone) return;
    const auto matched = static_cast<size_t>(match.length);
    const float chance = rate(guess, matched);
    if (chance <= best.rate) return;
    best = {chance, guess, matched, std::string(text.substr(static_cast<size_t>(match.end), 256)), -1};
  };
  offer(find_again(context), Guess::kRecord, record);
  const TextIndex& past = sources_.history->records();
  const auto newest = static_cast<int32_t>(past.text().size());
  offer(past.find_suffix(context, newest), Guess::kPast, past.text());
  if (best.rate <= 0) return false;
  if (best.at >= 0) return add_prompt(best.at, best.matched);
  return add_text(best.text, best.guess, best.matched, best.rate);
}

bool DraftWalk::add_between() {
  const std::string context = tail();
  const auto again = find_again(context);
  const std::string_view record = sources_.record->text();
  if (again.length >= kMinStructure && static_cast<size_t>(again.end) < record.size()) {
    const auto matched = static_cast<size_t>(again.length);
    const auto byte = static_cast<uint8_t>(record[static_cast<size_t>(again.end)]);
    if (push(byte, Guess::kRecord, matched, rate(Guess::kRecord, matched))) return true;
  }
  const int32_t byte = sources_.history->habit(place_.state.state);
  if (byte >= 0) return push(static_cast<uint8_t>(byte), Guess::kHabit, 0, rate(Guess::kHabit, 0));
  if (!place_.cursor.after_element() || !place_.may(*sources_.grammar, ',')) return false;
  if (!sources_.prompt->line_after(place_.prompt_at)) return false;
  return push(',', Guess::kHabit, 0, rate(Guess::kHabit, 0));
}

}  // namespace pagemill
