#include "launch/files/python_literal.h"

#include <charconv>

#include "launch/files/printable.h"
#include "src/error.h"

namespace ringattn {

void PythonLiteral::fail(const std::string& why) const {
  throw DataError(file_ + ": header, byte " + std::to_string(at_) + " of the dictionary: " + why);
}

void PythonLiteral::skip_blanks() {
  while (at_ < text_.size() && text_[at_] == ' ') ++at_;
}

bool PythonLiteral::accept(char c) {
  skip_blanks();
  if (at_ == text_.size() || text_[at_] != c) return false;
  ++at_;
  return true;
}

void PythonLiteral::expect(char c) {
  if (accept(c)) return;
  fail("expected '" + std::string(1, c) + "', found " + printable(text_.substr(at_, 10)));
}

std::string PythonLiteral::string(const std::string& what) {
  skip_blanks();
  const std::size_t begin = at_ + 1;
  if (at_ == text_.size() || (text_[at_] != '\'' && text_[at_] != '"')) {
    fail(what + " is not a string: " + printable(text_.substr(at_, 20)));
  }
  const std::size_t end = text_.find(text_[at_], begin);
  if (end == std::string_view::npos) fail(what + " is a string without an end");
  const std::string_view value = text_.substr(begin, end - begin);
  for (const char c : value) {
    if (c < 0x20 || c > 0x7e || c == '\\')
      fail(what + " has a character that is not read: " + printable(value));
  }
  at_ = end + 1;
  return std::string(value);
}

bool PythonLiteral::boolean(const std::string& what) {
  skip_blanks();
  for (const bool value : {true, false}) {
    const std::string_view word = value ? "True" : "False";
    if (text_.substr(at_).starts_with(word)) {
      at_ += word.size();
      return value;
    }
  }
  fail(what + " is neither True nor False: " + printable(text_.substr(at_, 10)));
}

index_t PythonLiteral::integer(const std::string& what) {
  skip_blanks();
  const char* const begin = text_.data() + at_;
  const char* const end = text_.data() + text_.size();
  index_t value = 0;
  const auto [past, error] = std::from_chars(begin, end, value);
  const std::string_view digits(begin, static_cast<std::size_t>(past - begin));
  if (error == std::errc::result_out_of_range)
    fail(what + " has a dimension over 2^63 - 1: " + printable(digits));
  if (error != std::errc{})
    fail(what + " has something else than integers: " + printable(text_.substr(at_, 10)));
  if (value < 0) fail(what + " has the negative dimension " + std::string(digits));
  // Python 3 refuses 007 and -0 is not what any writer means; both would be read as something else elsewhere.
  if (digits != std::to_string(value)) fail(what + " has the malformed integer " + printable(digits));
  at_ += digits.size();
  return value;
}

std::vector<index_t> PythonLiteral::tuple(const std::string& what) {
  std::vector<index_t> values;
  if (!accept('(')) fail(what + " is not a tuple: " + printable(text_.substr(at_, 10)));
  while (!accept(')')) {
    values.push_back(integer(what));
    if (accept(',')) continue;
    // "(5)" is an integer in brackets; only "(5,)" is a tuple.
    if (values.size() == 1) fail(what + " is not a tuple: a single dimension needs a comma, (5,)");
    expect(')');
    break;
  }
  return values;
}

void PythonLiteral::expect_padding_and_newline() {
  skip_blanks();
  if (text_.substr(at_) != "\n") {
    fail("expected blanks and one newline after the dictionary, found " + printable(text_.substr(at_, 20)));
  }
}

}  // namespace ringattn
