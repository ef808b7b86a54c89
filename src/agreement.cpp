#include "src/agreement.h"

#include <algorithm>
#include <map>
#include <span>
#include <string>

#include "src/error.h"

namespace ringattn {
namespace {

using Blob = std::vector<std::byte>;

// Fields as bytes: name, NUL, value, NUL, ... Neither names nor values hold a NUL.
Blob pack(const std::vector<Field>& fields) {
  std::string text;
  for (const Field& f : fields) text.append(f.name).append(1, '\0').append(f.value).append(1, '\0');
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

std::vector<Field> unpack(std::span<const std::byte> blob) {
  std::vector<std::string> words(1);
  for (const std::byte b : blob) {
    if (b == std::byte{0})
      words.emplace_back();
    else
      words.back().push_back(static_cast<char>(b));
  }
  std::vector<Field> fields;
  for (std::size_t i = 0; i + 1 < words.size(); i += 2) fields.push_back({words[i], words[i + 1]});
  return fields;
}

std::string value_of(const std::vector<Field>& fields, const std::string& name) {
  const auto it = std::ranges::find(fields, name, &Field::name);
  return it == fields.end() ? "absent" : it->value;
}

// The value that most ranks have; among equals the one of the lowest rank.
std::string majority(const std::vector<std::string>& values) {
  std::map<std::string, std::size_t> votes;
  for (const auto& v : values) ++votes[v];
  const auto most = std::ranges::max_element(votes, {}, [](const auto& v) { return v.second; })->second;
  return *std::ranges::find_if(values, [&](const auto& v) { return votes[v] == most; });
}

// "rank 3: seqlen_k 65536, others 32768", for the first field that is not the same everywhere; "" if none.
std::string first_difference(const std::vector<std::vector<Field>>& ranks) {
  for (const auto& candidate : ranks) {  // a field that only one rank has is a difference, too
    for (const Field& field : candidate) {
      std::vector<std::string> values;
      values.reserve(ranks.size());
      for (const auto& r : ranks) values.push_back(value_of(r, field.name));
      const std::string usual = majority(values);
      const auto odd = std::ranges::find_if(values, [&](const auto& v) { return v != usual; });
      if (odd == values.end()) continue;
      return "ranks disagree: rank " + std::to_string(odd - values.begin()) + ": " + field.name + " " + *odd +
             ", others " + usual;
    }
  }
  return "";
}

enum class Kind : std::uint8_t { well, usage, data, comm, device, memory, other };

struct Verdict {
  Kind kind = Kind::well;
  std::string text;
};

Verdict verdict_of(const std::exception_ptr& error) {
  if (!error) return {};
  try {
    std::rethrow_exception(error);
  } catch (const UsageError& e) {
    return {Kind::usage, e.what()};
  } catch (const DataError& e) {
    return {Kind::data, e.what()};
  } catch (const CommError& e) {
    return {Kind::comm, e.what()};
  } catch (const DeviceError& e) {
    return {Kind::device, e.what()};
  } catch (const std::bad_alloc& e) {
    return {Kind::memory, e.what()};
  } catch (const std::exception& e) {
    return {Kind::other, e.what()};
  } catch (...) {
    return {Kind::other, "unknown exception"};
  }
}

// What agree_all_well exchanges: the number of bytes of the operation in eight, lowest first, the operation,
// the kind of the verdict, its text.
struct Message {
  std::vector<Field> operation;
  Verdict verdict;
};

Blob pack(const Message& message) {
  const Blob operation = pack(message.operation);
  Blob blob;
  for (int shift = 0; shift < 64; shift += 8)
    blob.push_back(static_cast<std::byte>(operation.size() >> shift & 0xff));
  blob.insert(blob.end(), operation.begin(), operation.end());
  blob.push_back(static_cast<std::byte>(message.verdict.kind));
  const auto text = std::as_bytes(std::span(message.verdict.text));
  blob.insert(blob.end(), text.begin(), text.end());
  return blob;
}

Message unpack_message(std::span<const std::byte> blob) {
  std::size_t size = 0;
  for (std::size_t i = 8; i-- > 0;) size = size << 8 | static_cast<std::size_t>(blob[i]);
  Message message{.operation = unpack(blob.subspan(8, size)), .verdict = {}};
  message.verdict.kind = static_cast<Kind>(blob[8 + size]);
  for (const std::byte b : blob.subspan(9 + size)) message.verdict.text.push_back(static_cast<char>(b));
  return message;
}

[[noreturn]] void raise(Kind kind, const std::string& text) {
  switch (kind) {
    case Kind::usage:
      throw UsageError(text);
    case Kind::data:
      throw DataError(text);
    case Kind::comm:
      throw CommError(text);
    case Kind::device:
      throw DeviceError(text);
    case Kind::memory:
      throw OutOfMemory(text);
    default:
      throw std::runtime_error(text);
  }
}

}  // namespace

void agree_on_fields(Communicator& comm, const std::vector<Field>& fields, Deadline deadline) {
  std::vector<std::vector<Field>> ranks;
  for (const Blob& blob : comm.all_gather(pack(fields), deadline)) ranks.push_back(unpack(blob));
  if (const std::string difference = first_difference(ranks); !difference.empty())
    throw UsageError(difference);
}

void agree_all_well(Communicator& comm, const std::exception_ptr& mine, Deadline deadline,
                    const Operation& operation) {
  const Verdict own = verdict_of(mine);
  if (own.kind == Kind::comm) std::rethrow_exception(mine);
  const Blob blob = pack(Message{{{"call", operation.call}, {"problem", operation.problem}}, own});
  const std::vector<Blob> blobs = comm.all_gather(blob, deadline);

  std::vector<std::vector<Field>> operations;
  std::vector<Verdict> verdicts;
  for (const Blob& b : blobs) {
    Message message = unpack_message(b);
    operations.push_back(std::move(message.operation));
    verdicts.push_back(std::move(message.verdict));
  }
  // Ranks that do different things make no sense of each other's errors.
  if (const std::string difference = first_difference(operations); !difference.empty())
    throw UsageError(difference);

  const auto failed = std::ranges::find_if(verdicts, [](const Verdict& v) { return v.kind != Kind::well; });
  if (failed == verdicts.end()) return;
  // What went wrong in the same way everywhere is nobody's in particular.
  if (std::ranges::all_of(blobs, [&](const Blob& b) { return b == blob; })) std::rethrow_exception(mine);
  const auto rank = failed - verdicts.begin();
  if (rank == comm.rank() && own.kind == Kind::other) std::rethrow_exception(mine);
  raise(failed->kind, "rank " + std::to_string(rank) + ": " + failed->text);
}

}  // namespace ringattn
