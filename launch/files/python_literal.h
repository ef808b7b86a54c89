// The few Python literals that a .npy header is made of, read strictly: what Python itself would refuse is
// refused, and so is what it would accept but NumPy never writes (escapes, prefixes, expressions).
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "src/types.h"

namespace ringattn {

// A cursor over the text. Every member that finds something else than it was asked for throws DataError with
// the file, the byte in the dictionary and what was expected there. Blanks before a token are skipped.
class PythonLiteral {
 public:
  PythonLiteral(const std::string& file, std::string_view text) : file_(file), text_(text) {}

  bool accept(char c);  // true and past it, if it comes next
  void expect(char c);
  std::string string(const std::string& what);           // '...' or "...", printable ASCII, no backslash
  bool boolean(const std::string& what);                 // True or False
  std::vector<index_t> tuple(const std::string& what);   // of decimal integers: (), (5,), (2, 3), (2, 3,)
  void expect_padding_and_newline();                     // blanks, then one newline as the last byte
  [[noreturn]] void fail(const std::string& why) const;  // throws

 private:
  void skip_blanks();
  index_t integer(const std::string& what);

  const std::string& file_;
  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace ringattn
