#include "draft_source.h"

#include <algorithm>

#include "page_lines.h"

namespace pagemill {
namespace {

constexpr size_t kMostValue = 256;       // bytes of a guessed value
constexpr float kPriorWeight = 2.0f;     // tries that a prior counts for
constexpr float kMostTries = 16.0f;      // older ones fade

bool ends_number(uint8_t byte) { return byte == ',' || byte == ']' || byte == '}'; }

bool opens_value(uint8_t byte) { return byte != '[' && byte != '{' && !ends_number(byte); }

}  // namespace

std::string_view guess_name(Guess guess) {
  static constexpr std::array<std::string_view, kNumGuesses> kNames{
      "forced", "run_end", "prompt", "record", "past", "close", "habit", "label", "heading", "next",
      "latest", "first", "past_value", "open"};
  return kNames[index_of(guess)];
}

void RecordHistory::add_record(const std::string& record,
                               const std::unordered_map<int32_t, int32_t>& values) {
  if (record.size() > kMostBytes / 4) return;
  if (records_.text().size() + record.size() > kMostBytes) {
    records_ = TextIndex{};
    latest_.clear();
  }
  const auto start = static_cast<int32_t>(records_.text().size());
  records_.append(record);
  for (const auto& [state, at] : values) latest_[state] = start + at;
}

int32_t RecordHistory::latest(int32_t state) const {
  const auto found = latest_.find(state);
  return found == latest_.end() ? TextIndex::kNone : found->second;
}

float RecordHistory::rate(int32_t state, Guess guess, float prior) const {
  const auto found = tallies_.find(state);
  if (found == tallies_.end()) return prior;
  const size_t i = index_of(guess);
  return (prior * kPriorWeight + found->second.held[i]) /
         (kPriorWeight + found->second.tried[i]);
}

void RecordHistory::learn(int32_t state, Guess guess, bool held) {
  Tally& tally = tallies_[state];
  const size_t i = index_of(guess);
  if (tally.tried[i] >= kMostTries) {
    const float fade = 1.0f - 1.0f / kMostTries;
    tally.tried[i] *= fade;
    tally.held[i] *= fade;
  }
  tally.tried[i] += 1.0f;
  tally.held[i] += held ? 1.0f : 0.0f;
}

bool RecordPlace::push(const Grammar& grammar, uint8_t byte, bool& ended) {
  const int32_t before = state.state;
  if (!grammar.dfa().step(state, byte)) return false;
  ended = false;
  const bool was_string = cursor.in_value_string();
  const bool starts = cursor.at_value() && opens_value(byte);
  const auto end_value = [&] {
    latest_at = value_at;
    if (first_at < 0) first_at = value_at;
    value_at = -1;
    ended = true;
  };
  if (value_at >= 0 && !was_string && ends_number(byte)) end_value();
  cursor.push(byte);
  if (starts) {
    value_at = length;
    value_state = before;
  }
  ++length;
  if (value_at >= 0 && was_string && !cursor.in_value_string()) end_value();
  return true;
}

bool RecordPlace::may(const Grammar& grammar, uint8_t byte) const {
  RowState ahead = state;
  return grammar.dfa().step(ahead, byte);
}

std::string value_text(std::string_view json, int32_t at) {
  std::string_view rest = json.substr(static_cast<size_t>(at), kMostValue);
  const bool quoted = !rest.empty() && rest[0] == '"';
  for (size_t i = 1; i < rest.size(); ++i) {
    if (quoted && rest[i] == '\\') {
      ++i;
    } else if (quoted ? rest[i] == '"' : ends_number(static_cast<uint8_t>(rest[i]))) {
      return std::string(rest.substr(0, i + 1));
    }
  }
  return std::string(rest);
}

PromptText::PromptText(std::string text, std::string_view page) {
  page = page.substr(0, TextIndex::kMaxBytes);
  size_t found = page.empty() ? text.size() : text.rfind(page);
  if (found == std::string::npos) {
    found = text.size();
    text += page;
  }
  // Of more than an index takes, the end stands nearest to the record.
  const size_t extra = text.size() - std::min(text.size(), TextIndex::kMaxBytes);
  text.erase(0, extra);
  page_from_ = found - std::min(found, extra);
  index_.append(text);
  if (const auto at = find_heading(this->text().substr(page_from_))) {
    heading_ = static_cast<int32_t>(page_from_) + *at;
  }
}

std::optional<int32_t> PromptText::label(std::string_view name) {
  const auto [place, added] = labels_.try_emplace(std::string(name));
  if (added) {
    if (const auto at = find_label(text().substr(page_from_), name)) {
      place->second = static_cast<int32_t>(page_from_) + *at;
    }
  }
  return place->second;
}

std::optional<int32_t> PromptText::line_after(int32_t at) const {
  if (at < 0 || static_cast<size_t>(at) < page_from_) return std::nullopt;
  return next_line(text(), at);
}

std::string PromptText::value_at(int32_t at, bool quoted) const {
  std::string value;
  const auto start = static_cast<size_t>(at);
  if (!quoted) {
    for (size_t i = start; i < text().size() && is_of_number(text()[i]); ++i) value += text()[i];
    return value;
  }
  value += '"';
  const size_t end = line_end(text(), start);
  for (size_t i = start; i < end && value.size() < kMostValue; ++i) {
    if (text()[i] == '"' || text()[i] == '\\') value += '\\';
    value += text()[i];
    if (i + 1 == end) value += '"';
  }
  return value;
}

}  // namespace pagemill
