#include "page_repeats.h"

#include <algorithm>
#include <iterator>

namespace pagemill {
namespace {

// A menu has at least so many links. Of its lines those without a digit and no longer than this are
// left out, if what remains of the page is more than that.
constexpr size_t kMenuLinks = 6;
constexpr uint32_t kMaxMenuLine = 60;
constexpr size_t kMinPageChars = 200;
constexpr uint32_t kMinRepeat = 60;  // characters of a line that isn't said twice

bool is_menu_line(const TextLine& line) {
  return !line.empty() && line.back() == kInMenu && !line.front().text.starts_with('#');
}

// Whether the line of a menu is one link.
bool is_link(const TextLine& line) {
  return line.size() > 1 && line[line.size() - 2].is_link_end() &&
         std::ranges::count_if(line, &TextPart::is_link_end) == 1;
}

bool is_of_menu(const TextLine& line, const Characters& characters) {
  uint32_t chars = 0;
  for (const TextPart& part : line) {
    for (CodePoints points(part.text); !points.done(); ++chars) {
      if (characters.is_decimal(points.next())) return false;
    }
  }
  return chars <= kMaxMenuLine;
}

// Calls `take` with each word of a text, in lower case.
template <typename Take>
void each_word(std::string_view text, const Characters& characters, Take take) {
  std::string word;
  const auto end_word = [&] {
    if (!word.empty()) take(word);
    word.clear();
  };
  for (CodePoints points(text); !points.done();) {
    const uint32_t code = points.next();
    if (code == 0x130) {  // lower case of I with a dot are two characters, the second no letter
      word.push_back('i');
      end_word();
      continue;
    }
    uint32_t lower = characters.lower(code);
    if (lower == 0x3C2) lower = 0x3C3;  // the last sigma of a word
    if (!characters.is_word(lower)) {
      end_word();
    } else if (lower < 0x80) {
      word.push_back(static_cast<char>(lower));
    } else {
      // Any encoding does, as words are only held against each other.
      for (const int shift : {0, 7, 14}) {
        word.push_back(static_cast<char>(0x80 | ((lower >> shift) & 0x7F)));
      }
    }
  }
  end_word();
}

}  // namespace

void drop_menus(TextLines& lines, const Characters& characters) {
  std::vector<bool> dropped(lines.size(), false);
  for (size_t begin = 0; begin < lines.size();) {
    size_t end = begin;
    size_t links = 0;
    for (; end < lines.size() && is_menu_line(lines[end]); ++end) links += is_link(lines[end]);
    for (size_t i = begin; links >= kMenuLinks && i < end; ++i) {
      dropped[i] = is_link(lines[i]) && is_of_menu(lines[i], characters);
    }
    begin = end + 1;
  }
  size_t left = 0;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (dropped[i]) continue;
    for (const TextPart& part : lines[i]) {
      if (part.source >= 0) left += count_code_points(part.text);
    }
  }
  if (left < kMinPageChars) return;
  size_t kept = 0;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (dropped[i]) continue;
    if (kept != i) lines[kept] = std::move(lines[i]);
    ++kept;
  }
  lines.resize(kept);
}

Repeats::Repeats(const Characters& characters,
                 const std::unordered_map<int32_t, std::string_view>& alternatives,
                 const std::unordered_set<std::string_view>& seen)
    : alternatives_(alternatives) {
  if (alternatives.empty()) return;
  std::unordered_map<std::string, bool> is_told;
  for (const auto& [source, words] : alternatives) {
    each_word(words, characters, [&](const std::string& word) { is_told[word] = false; });
  }
  for (const std::string_view text : seen) {
    each_word(text, characters, [&](const std::string& word) {
      if (const auto found = is_told.find(word); found != is_told.end()) found->second = true;
    });
  }
  for (const auto& [source, words] : alternatives) {
    bool all = true;
    each_word(words, characters, [&](const std::string& word) { all = all && is_told[word]; });
    if (all) told_.insert(source);
  }
}

void Repeats::drop_pictured(TextLine& line) const {
  const auto opens = [](const TextPart& part) { return part.text == "["; };
  if (alternatives_.empty() || std::ranges::none_of(line, opens)) return;
  const TextPart space{" "};
  TextLine kept;
  for (size_t at = 0; at < line.size();) {
    if (at + 2 < line.size() && opens(line[at]) && told_.contains(line[at + 1].source)) {
      at += 3;
      continue;
    }
    if (line[at].text != space.text || (!kept.empty() && kept.back().text != space.text)) {
      kept.push_back(line[at]);
    }
    ++at;
  }
  while (!kept.empty() && kept.back() == space) kept.pop_back();
  line = std::move(kept);
}

bool Repeats::says_nothing_new(const TextLine& line) {
  std::string words;
  for (const TextPart& part : line) {
    if (part.source >= 0) words += part.text;
  }
  if (words.empty()) return true;
  const bool is_link = line.back().is_link_end() && line.size() <= 2;
  if (!is_link && (count_code_points(words) < kMinRepeat || std::ranges::count(line, kCell) > 0)) {
    return false;
  }
  return !said_.insert(std::move(words)).second;
}

}  // namespace pagemill
