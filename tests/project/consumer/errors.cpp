// With the shared library: an error that it throws is caught here by its type, and a communicator written
// here is used there.
#include <ringattn/ringattn.hpp>

#include <cstdio>
#include <string>

namespace {

// Passes everything on, like a decorator that a caller brings.
class Counting final : public ringattn::Communicator {
 public:
  std::string name() const override { return "counting(" + inner_->name() + ")"; }
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte> mine,
                                                 ringattn::Deadline deadline) override {
    ++gathers;
    return inner_->all_gather(mine, deadline);
  }
  void abort(int exit_code, const std::string& why) noexcept override { inner_->abort(exit_code, why); }
  ringattn::SentCount sent() const override { return inner_->sent(); }
  int gathers = 0;

 private:
  std::unique_ptr<ringattn::Shift> start_shift(int hop, std::span<const std::byte> to_next,
                                               std::span<std::byte> from_prev,
                                               const ringattn::Route& route) override {
    return inner_->shift(hop, to_next, from_prev, route);
  }
  std::unique_ptr<ringattn::Communicator> inner_ = ringattn::make_self_communicator();
};

template <class Error, class Body>
bool throws(const char* words, Body&& body) {
  try {
    body();
  } catch (const Error& e) {
    return std::string(e.what()).find(words) != std::string::npos;
  } catch (...) {
  }
  return false;
}

}  // namespace

int main() {
  using namespace ringattn;
  const auto comm = std::make_shared<Counting>();
  const auto sharding = [](index_t length) { return Sharding::make(LayoutKind::zigzag, length, length, 1); };
  const Problem problem{.shape = {.head_dim = 8}, .mask = Mask::causal(5, 5)};
  const bool made = throws<UsageError>("head_dim is 513", [&] {
    RingAttention(comm, {.shape = {.head_dim = 513}, .mask = Mask::full(5, 5)}, sharding(5));
  });
  RingAttention ring(comm, problem, sharding(5), {.threads = 1});
  const bool called = throws<UsageError>("q has shape", [&] { ring.forward({}, {}, {}, {}); });
  const index_t huge = index_t{1} << 31;
  const bool memory = throws<OutOfMemory>("bytes", [&] {
    RingAttention(
        comm,
        {.shape = {.num_heads = 4096, .num_heads_kv = 4096, .head_dim = 512}, .mask = Mask::full(huge, huge)},
        sharding(huge));
  });
  std::printf("%d %d %d, %d gathers\n", made, called, memory, comm->gathers);
  return made && called && memory && comm->gathers > 0 ? 0 : 1;
}
