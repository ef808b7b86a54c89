// The time that a ring of logical ranks costs beside one rank.
#include <algorithm>
#include <array>

#include "bench/gpu/ring_tensors.h"
#include "bench/gpu/rings.h"
#include "comm/device_ranks.h"

namespace ringattn::acceptance {
namespace {

constexpr std::chrono::seconds kPatience{60};
constexpr double kTarget = 1.05;  // of four ranks' time over one's, issue 5, section 4

struct Size {
  index_t seqlen, heads;
  int calls, rounds;
};

struct Seconds {
  double forward = 0, backward = 0;  // of a call
};

// The same values again and again: what they are does not matter, only that they are not all equal.
Numbers repeated(std::size_t count, DType dtype, unsigned seed) {
  KernelCase piece{
      .name = "", .shape = {.head_dim = 997, .head_dim_v = 1}, .dtype = dtype, .q_rows = 64, .k_rows = 1};
  const std::vector<std::byte> values = random_inputs(piece, seed).q.bytes;
  Numbers numbers;
  numbers.bytes.resize(count * size_of(dtype));
  for (std::size_t at = 0; at < numbers.bytes.size(); at += values.size())
    std::copy_n(values.begin(), std::min(values.size(), numbers.bytes.size() - at),
                numbers.bytes.begin() + static_cast<std::ptrdiff_t>(at));
  return numbers;
}

Inputs timing_inputs(const KernelCase& p) {
  const auto count = [](const std::array<index_t, 4>& s) {
    return static_cast<std::size_t>(s[0] * s[1] * s[2] * s[3]);
  };
  return {.q = repeated(count(p.q_shape()), p.dtype, 1),
          .k = repeated(count(p.k_shape()), p.dtype, 2),
          .v = repeated(count(p.v_shape()), p.dtype, 3),
          .dout = repeated(count(p.out_shape()), p.dtype, 4)};
}

// Of calls in a row by the clock of the host, from when all ranks have come to when all are done: events of
// one stream would not see the others.
Seconds timed(const RingCase& ring, const Inputs& inputs, int calls, const OnRanks& on_ranks) {
  Seconds seconds;
  on_ranks(ring.ranks, [&](const std::shared_ptr<Communicator>& comm) {
    const Stream stream;
    RingTensors mine(ring, inputs, comm->rank());
    RingAttention attention(
        make_device_ranks(comm, stream.get()), ring.problem(), ring.sharding(),
        {.threads = 1, .deadline = kPatience, .backend = Backend::cuda, .stream = stream.get()});
    const auto meet = [&] { (void)comm->all_gather({}, Clock::now() + kPatience); };
    const auto time = [&](const auto& call) {
      call();  // warms up
      attention.settle();
      meet();
      const auto start = Clock::now();
      for (int n = 0; n < calls; ++n) call();
      attention.settle();
      meet();
      return std::chrono::duration<double>(Clock::now() - start).count() / calls;
    };
    const double forward = time([&] { mine.forward(attention); });
    const double backward = time([&] { mine.backward(attention); });
    if (comm->rank() == 0) seconds = {.forward = forward, .backward = backward};
  });
  return seconds;
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

RingCase timing_case(bool causal, const Size& size, int ranks) {
  Mask mask = causal ? Mask::causal(size.seqlen, size.seqlen) : Mask::full(size.seqlen, size.seqlen);
  KernelCase whole{
      .name = "bf16 head_dim 128, " + std::to_string(size.heads) + " heads, " + std::to_string(size.seqlen) +
              " " + mask.name(),
      .shape = {.num_heads = size.heads, .num_heads_kv = size.heads, .head_dim = 128, .head_dim_v = 128},
      .dtype = DType::bf16,
      .q_rows = size.seqlen,
      .k_rows = size.seqlen,
      .tiles = {mask.tiles().begin(), mask.tiles().end()},
      .blocks = {{0, size.seqlen}}};
  return {.whole = std::move(whole),
          .mask = std::move(mask),
          .layout = causal ? LayoutKind::zigzag : LayoutKind::contiguous,
          .ranks = ranks};
}

// The longest sequence whose forward and backward take a third of a second together, and calls enough for a
// tenth: cost grows with the square of the length.
Size size_for_a_gpu(bool causal, const OnRanks& on_ranks) {
  Size size{.seqlen = 4096, .heads = 8, .calls = 1, .rounds = 5};
  const RingCase short_one = timing_case(causal, size, 1);
  const Seconds seconds = timed(short_one, timing_inputs(short_one.whole), 3, on_ranks);
  double both = seconds.forward + seconds.backward;
  for (; size.seqlen < 32768 && 4 * both < 0.33; both *= 4) size.seqlen *= 2;
  size.calls = std::clamp(static_cast<int>(0.1 / both), 1, 10);
  return size;
}

void time_case(bool causal, bool tiny, const OnRanks& on_ranks, Lines& lines) {
  Check result{.part = "rings", .name = "time of 4 logical ranks over 1"};
  try {
    const Size size =
        tiny ? Size{.seqlen = 17, .heads = 1, .calls = 1, .rounds = 1} : size_for_a_gpu(causal, on_ranks);
    const RingCase one = timing_case(causal, size, 1), four = timing_case(causal, size, 4);
    result.name += ", " + one.whole.name;
    const Inputs inputs = timing_inputs(one.whole);
    std::array<std::vector<double>, 4> seconds;  // forward and backward of one rank, then of four
    for (int round = 0; round < size.rounds; ++round) {
      const Seconds alone = timed(one, inputs, size.calls, on_ranks);
      const Seconds together = timed(four, inputs, size.calls, on_ranks);
      seconds[0].push_back(alone.forward);
      seconds[1].push_back(alone.backward);
      seconds[2].push_back(together.forward);
      seconds[3].push_back(together.backward);
    }
    result.status = Status::measured;
    result.numbers = {{"forward ms, 1 rank", 1e3 * median(seconds[0])},
                      {"backward ms, 1 rank", 1e3 * median(seconds[1])},
                      {"forward ms, 4 ranks", 1e3 * median(seconds[2])},
                      {"backward ms, 4 ranks", 1e3 * median(seconds[3])},
                      {"forward ratio", median(seconds[2]) / median(seconds[0])},
                      {"backward ratio", median(seconds[3]) / median(seconds[1])},
                      {"target", kTarget}};
  } catch (const std::exception& error) {
    result.status = Status::failed;
    result.detail = error.what();
  }
  lines.write(result);
}

}  // namespace

void time_rings(Extent extent, const OnRanks& on_ranks, Lines& lines) {
  if (extent == Extent::small) return;  // under compute-sanitizer a time says nothing
  for (const bool causal : {true, false}) time_case(causal, extent == Extent::tiny, on_ranks, lines);
}

}  // namespace ringattn::acceptance
