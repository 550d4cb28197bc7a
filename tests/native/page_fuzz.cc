// Mutated markup through the text builder, with sanitizers: no read out of bounds, no hang.
//   page_fuzz SECONDS SEED FILE...
#include <chrono>
#include <cstdlib>
#include <cwctype>
#include <fstream>
#include <iostream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "page_cost.h"
#include "page_text.h"

using pagemill::Characters;
using pagemill::CharacterTests;

namespace {

constexpr CharacterTests kTests = {
    [](uint32_t code) { return code == 0xA0 || code == 0x2028 || code == 0x3000; },
    [](uint32_t code) { return code >= 0xFF10 && code <= 0xFF19; },
    [](uint32_t code) { return code == 0xB2 || (code >= 0xFF10 && code <= 0xFF19); },
    [](uint32_t code) { return code >= 0xC0 && code < 0x2000; },
    [](uint32_t code) { return static_cast<uint32_t>(std::towlower(static_cast<wint_t>(code))); },
};

const char* const kPieces[] = {
    "<",         ">",          "\"",         "=\"",     "</",       "<!--",     "-->",
    "<script>",  "</script>",  "<svg>",      "</svg>",  "<select>", "<option>", "</option>",
    "</select>", "<template>", "</template>", "<tr>",   "</tr>",    "<td>",     "</td>",
    "&amp;",     "&",          "<p hidden=\"\" id=\"a\">", "</p>",  "<img alt=\"Red cup\">",
    " class=\"nav menu\"",     " style=\"position:absolute; top:0; width:1\"", "<s>", "</s>",
    "\xC3",      "\xE4\xB8\xAD", "\xF0\x9F\x99\x82", "\xC4\xB0", " ", "\n", "<nav>", "</nav>",
    "<dt>", "</dt>", "<dd>", "</dd>", "<a href=\"/x\">", "</a>", "<h1>", "</h1>", "<br>"};

// These leave tags balanced, so that what follows is read too.
const char* const kWhole[] = {
    "<br>", "<img alt=\"Red cup\">", "<p hidden=\"\" id=\"a\">x</p>", "<s>9</s>", "a:", "&amp;",
    "<table><tbody><tr><td>a</td><td><p>b</p><p>c</p></td></tr></tbody></table>", "\xC4\xB0",
    "<select><option>a</option><option selected=\"\">b</option></select>", "<tr><td>x</td></tr>",
    "<nav><ul><li><a href=\"/a\">Home</a></li></ul></nav>", "<dl><dt>a</dt><dd>b</dd></dl>",
    "<script><!--<script></script>--></script>", "<svg><g></g></svg>", "<sup>2</sup>",
    "<div style=\"display: none; position: absolute;\">z</div>", "<td>stray</td>", "<li>a</li>",
    "<a class=\"sr-only\" href=\"#a\">b</a>", "<xmp><b></xmp>", "<input type=\"submit\">"};

std::string read_file(const char* path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void mutate(std::string& text, std::mt19937_64& random) {
  const auto below = [&](size_t n) { return n == 0 ? 0 : random() % n; };
  for (size_t i = 1 + below(4); i > 0; --i) {
    const size_t at = below(text.size() + 1);
    // Between tags, so that text or whole elements go where they may stand.
    const size_t border = std::min(text.find('<', at), text.size());
    switch (below(8)) {
      case 0:
        text.insert(at, kPieces[below(std::size(kPieces))]);
        break;
      case 1:
        text.erase(at, 1 + below(below(4) == 0 ? 400 : 4));
        break;
      case 2:
        text.insert(below(text.size() + 1), text.substr(at, below(300)));
        break;
      case 3:
        if (at < text.size()) text[at] = static_cast<char>(random());
        break;
      case 4:
      case 5:
      case 6:
        text.insert(border, kWhole[below(std::size(kWhole))]);
        break;
      default:
        text.replace(at, std::min<size_t>(2, text.size() - at), kPieces[below(std::size(kPieces))]);
    }
  }
}

[[noreturn]] void fail(const char* why, const std::string& markup) {
  std::ofstream("build/page_fuzz.failed", std::ios::binary) << markup;
  std::cerr << why << ": see build/page_fuzz.failed\n";
  std::exit(1);
}

// Whether the markup could be told apart.
bool check(const std::string& markup, bool menus) {
  const Characters characters(kTests);
  pagemill::VisibleText found;
  const auto outcome =
      pagemill::visible_text(markup, markup, characters, {1 << 20, 5.0}, menus, found);
  pagemill::page_cost(markup);
  if (outcome == pagemill::PageTextOutcome::kTooSlow) fail("slow", markup);
  if (outcome != pagemill::PageTextOutcome::kDone) return false;
  int64_t end = 0;
  for (size_t i = 0; i < found.starts.size(); ++i) {
    const auto source = static_cast<size_t>(found.piece_sources[i]);
    if (found.starts[i] < end || found.ends[i] < found.starts[i] || source >= found.sources.size()) {
      fail("pieces out of order", markup);
    }
    end = found.ends[i];
  }
  if (end > static_cast<int64_t>(pagemill::count_code_points(found.text))) {
    fail("pieces beyond the text", markup);
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  std::vector<std::string> seeds;
  for (int i = 3; i < argc; ++i) seeds.push_back(read_file(argv[i]));
  std::mt19937_64 random(std::strtoull(argv[2], nullptr, 10));
  const auto stop = std::chrono::steady_clock::now() + std::chrono::seconds(std::atoi(argv[1]));
  int64_t runs = 0, read = 0;
  std::string text;
  for (; std::chrono::steady_clock::now() < stop; ++runs) {
    // Mutations pile up, so that markup gets far from what pages are.
    if (text.empty() || text.size() > (1 << 18) || random() % 3 == 0) {
      text = seeds[random() % seeds.size()];
    }
    mutate(text, random);
    read += check(text, random() % 2 == 0);
  }
  std::cout << runs << " pages, of which " << read << " to the end\n";
}
