#include "page_lines.h"

#include <algorithm>

namespace pagemill {
namespace {

bool is_blank(char byte) { return byte == ' ' || byte == '\t' || byte == '\r'; }

bool is_digit(char byte) { return byte >= '0' && byte <= '9'; }

char lower(char byte) { return byte >= 'A' && byte <= 'Z' ? static_cast<char>(byte + 32) : byte; }

// The first byte of a line's value: after blanks, "-", "*", "#", ">", or a number with a dot.
size_t value_start(std::string_view line) {
  size_t at = 0;
  const auto skip = [&](std::string_view set) {
    while (at < line.size() && set.find(line[at]) != std::string_view::npos) ++at;
  };
  skip(" \t-*#>|");
  size_t digits = at;
  while (digits < line.size() && digits < at + 3 && is_digit(line[digits])) ++digits;
  if (digits > at && digits + 1 < line.size() && (line[digits] == '.' || line[digits] == ')') &&
      line[digits + 1] == ' ') {
    at = digits + 2;
    skip(" \t");
  }
  return at;
}

bool same_name(std::string_view line, std::string_view name) {
  if (line.size() < name.size()) return false;
  for (size_t i = 0; i < name.size(); ++i) {
    const bool space = name[i] == '_' && (line[i] == ' ' || line[i] == '-');
    if (!space && lower(line[i]) != lower(name[i])) return false;
  }
  return true;
}

}  // namespace

size_t line_end(std::string_view text, size_t at) {
  size_t end = std::min(text.find('\n', at), text.size());
  while (end > at && is_blank(text[end - 1])) --end;
  return end;
}

std::optional<int32_t> next_line(std::string_view text, int32_t at) {
  if (at < 0) return std::nullopt;
  size_t start = text.find('\n', static_cast<size_t>(at));
  while (start != std::string_view::npos) {
    ++start;
    const size_t end = line_end(text, start);
    const size_t value = start + value_start(text.substr(start, end - start));
    if (value < end) return static_cast<int32_t>(value);
    start = text.find('\n', start);
  }
  return std::nullopt;
}

std::optional<int32_t> find_label(std::string_view text, std::string_view name) {
  if (name.empty()) return std::nullopt;
  std::optional<int32_t> found;
  for (size_t start = 0; start < text.size();) {
    const size_t stop = std::min(text.find('\n', start), text.size());
    const size_t end = line_end(text, start);
    const size_t at = start + value_start(text.substr(start, end - start));
    if (same_name(text.substr(at, end - at), name)) {
      size_t after = at + name.size();
      const bool colon = after < end && text[after] == ':';
      if (colon) ++after;
      while (after < end && is_blank(text[after])) ++after;
      if (after == end) {
        if (const auto next = next_line(text, static_cast<int32_t>(start))) found = next;
      } else if (colon) {
        found = static_cast<int32_t>(after);
      }
    }
    start = stop + 1;
  }
  return found;
}

std::optional<int32_t> find_heading(std::string_view text) {
  const size_t at = text.starts_with("# ") ? 0 : text.find("\n# ");
  if (at == std::string_view::npos) return std::nullopt;
  return static_cast<int32_t>(at + (at == 0 && text[0] == '#' ? 2 : 3));
}

bool is_of_number(char byte) { return is_digit(byte) || byte == '-' || byte == '.'; }

}  // namespace pagemill
