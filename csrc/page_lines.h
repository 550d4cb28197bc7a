// The lines of a page's text, as values stand in them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace pagemill {

// The end of the line that holds `at`, white space before it left out; not before `at`.
size_t line_end(std::string_view text, size_t at);

// Where the next line with a value in it starts, list marks and the like passed by.
std::optional<int32_t> next_line(std::string_view text, int32_t at);

// Where the value of a member stands: after "Name:" at the start of a line, or on the line after
// one that says nothing but the name. Case doesn't matter, "_" stands for a space too. The last
// such place of the page.
std::optional<int32_t> find_label(std::string_view text, std::string_view name);

// Where the text of the first heading starts ("# ...").
std::optional<int32_t> find_heading(std::string_view text);

// A byte of a JSON number.
bool is_of_number(char byte);

}  // namespace pagemill
