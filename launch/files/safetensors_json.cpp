#include "launch/files/safetensors_json.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "launch/files/printable.h"
#include "launch/files/stored_tensor.h"
#include "src/error.h"

namespace ringattn {
namespace {

// Receives the parser's events and keeps only entries. It knows where it is by `place_`, and there are no
// other places, so nesting is bounded by the format itself and a bomb of brackets is refused at its third
// bracket.
class HeaderEvents final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit HeaderEvents(const std::string& file) : file_(file) {}

  std::vector<SafetensorsEntry> take() { return std::move(entries_); }

  // Returning false would make the parser stop without a word, so everything unexpected throws.
  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("a boolean"); }
  bool number_integer(number_integer_t value) override {
    return unexpected("the negative number " + std::to_string(value));
  }
  bool number_float(number_float_t, const string_t& text) override {
    return unexpected("the number " + printable(text) + ", which is no 64-bit integer");
  }
  bool binary(binary_t&) override { return unexpected("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ == Place::shape) {
      if (value > static_cast<number_unsigned_t>(std::numeric_limits<index_t>::max())) {
        fail("shape has the dimension " + std::to_string(value) + ", over 2^63 - 1");
      }
      if (entries_.back().shape.size() == kMaxRank) {
        fail("shape has more than " + std::to_string(kMaxRank) + " dimensions");
      }
      entries_.back().shape.push_back(static_cast<index_t>(value));
      return true;
    }
    if (place_ != Place::offsets) return unexpected("the number " + std::to_string(value));
    if (offsets_ == 2) fail("data_offsets has more than two numbers");
    (offsets_++ == 0 ? entries_.back().begin : entries_.back().end) = value;
    return true;
  }

  // Metadata is for people; its keys and strings are skipped.
  bool string(string_t& value) override {
    if (place_ == Place::metadata) return true;
    if (place_ != Place::tensor || field_ != "dtype") return unexpected("the string " + printable(value));
    entries_.back().dtype = std::move(value);
    return true;
  }

  bool start_object(std::size_t) override {
    if (place_ == Place::before) {
      place_ = Place::top;
    } else if (place_ == Place::top) {
      place_ = name_ == "__metadata__" ? Place::metadata : Place::tensor;
      if (place_ == Place::tensor) entries_.emplace_back().name = name_;
      fields_.clear();
    } else {
      return unexpected("an object");
    }
    return true;
  }

  bool key(string_t& name) override {
    if (place_ == Place::top) {
      name_ = name;
      if (!names_.insert(name).second)
        throw DataError(file_ + ": tensor " + printable(name) + " comes twice");
    } else if (place_ == Place::tensor) {
      if (name != "dtype" && name != "shape" && name != "data_offsets")
        fail("unknown key " + printable(name));
      if (!fields_.insert(name).second) fail(name + " comes twice");
      field_ = name;
    }
    return true;
  }

  bool end_object() override {
    if (place_ == Place::tensor) {
      for (const char* field : {"dtype", "shape", "data_offsets"}) {
        if (!fields_.contains(field)) fail(std::string(field) + " is missing");
      }
    }
    place_ = place_ == Place::top ? Place::after : Place::top;
    return true;
  }

  bool start_array(std::size_t) override {
    if (place_ != Place::tensor || field_ == "dtype") return unexpected("an array");
    place_ = field_ == "shape" ? Place::shape : Place::offsets;
    offsets_ = 0;
    return true;
  }

  bool end_array() override {
    if (place_ == Place::offsets && offsets_ != 2) fail("data_offsets needs two numbers");
    place_ = Place::tensor;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception&) override {
    throw DataError(file_ + ": header is not valid JSON at its byte " + std::to_string(position));
  }

 private:
  // before -> top -> (metadata | tensor -> (shape | offsets)) -> after
  enum class Place : std::uint8_t { before, top, metadata, tensor, shape, offsets, after };

  [[noreturn]] void fail(const std::string& why) const {
    throw DataError(file_ + ": tensor " + printable(name_) + ": " + why);
  }

  bool unexpected(const std::string& value) const {
    if (place_ == Place::before) throw DataError(file_ + ": header is not a JSON object, but " + value);
    if (place_ == Place::metadata)
      throw DataError(file_ + ": __metadata__ holds " + value + ", only strings may be");
    if (place_ == Place::top) fail("is not an object, but " + value);
    fail((place_ == Place::shape     ? "shape"
          : place_ == Place::offsets ? "data_offsets"
                                     : field_) +
         " holds " + value);
  }

  const std::string& file_;
  std::vector<SafetensorsEntry> entries_;
  std::set<std::string> names_;   // of all tensors so far
  std::set<std::string> fields_;  // of the tensor at hand
  std::string name_, field_;      // the keys that the next value belongs to
  Place place_ = Place::before;
  int offsets_ = 0;
};

}  // namespace

std::vector<SafetensorsEntry> read_safetensors_json(const std::string& file, std::string_view text) {
  if (!text.starts_with('{'))
    throw DataError(file + ": header does not begin with '{', but with " + printable(text.substr(0, 8)));
  // The parser takes a zero byte for the end of its input and would never look at what follows.
  if (const std::size_t zero = text.find('\0'); zero != std::string_view::npos) {
    throw DataError(file + ": header has a zero byte at " + std::to_string(zero));
  }
  HeaderEvents events(file);
  nlohmann::json::sax_parse(text.begin(), text.end(), &events);
  return events.take();
}

}  // namespace ringattn
