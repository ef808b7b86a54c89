#include "tests/simt/wgmma.h"

#include <bit>
#include <cstring>
#include <string>

#include "tests/simt/memory.h"
#include "tests/simt/stats.h"

namespace simt {
namespace {

// A signalling NaN: arithmetic on it gives a quiet one, so a mere `x *= y` leaves a trace. (A quiet NaN would
// come out of the multiplication with all its bits.)
constexpr std::uint32_t kInFlight = 0xFFBF9A11;

std::uint16_t element_at(const Block& b, std::uint32_t address) {
  std::uint16_t bits;
  std::memcpy(&bits, b.shared.data() + (b.shared.offset(address)), 2);
  return bits;
}

// Where register i of a 64-row accumulator lies, for thread `lane` of the warpgroup (PTX manual, wgmma,
// "Matrix D").
struct Place {
  unsigned row, column;
};
Place place_of(unsigned lane, unsigned i) {
  return {lane / 32 * 16 + lane % 32 / 4 + i / 2 % 2 * 8, i / 4 * 8 + lane % 4 * 2 + i % 2};
}

}  // namespace

void Wgmma::check_untouched(Thread& t, const float* d, const Where& where) {
  PerThread& mine = threads_[t.linear];
  const auto it = mine.accumulators.find(d);
  if (it == mine.accumulators.end()) return;
  for (std::size_t i = 0; i < it->second.value.size(); ++i) {
    std::uint32_t bits;
    std::memcpy(&bits, &d[i], 4);
    if (bits != kInFlight)
      raise(FaultKind::race,
            "accumulator register " + std::to_string(i) + " was written while a wgmma on it is in flight",
            where);
  }
}

void Wgmma::register_checks(Block& b) {
  if (registered_) return;
  registered_ = true;
  b.final_checks.push_back([this] {
    for (auto& [id, thread] : threads_)
      if (thread.retired != thread.issued)
        throw Fault(FaultKind::race, "the block ended with a wgmma that nobody waited for");
  });
}

void Wgmma::issue(Thread& t, const WgmmaCall& call, const Where& where) {
  register_checks(*t.block);
  PerThread& mine = threads_[t.linear];
  if (!mine.fenced) raise(FaultKind::usage, "wgmma without wgmma.fence since the last wait", where);
  const unsigned registers = call.n / 2;

  check_untouched(t, call.d, where);
  const auto [it, fresh] = mine.accumulators.try_emplace(call.d);
  InFlight& acc = it->second;
  if (fresh) {
    acc.value.assign(call.d, call.d + registers);
    for (unsigned i = 0; i < registers; ++i) std::memcpy(&call.d[i], &kInFlight, 4);
  } else if (acc.value.size() != registers) {
    raise(FaultKind::usage, "accumulator reused in flight with another shape", where);
  }
  ++acc.operations;
  mine.calls.push_back(call);

  Warpgroup& group = groups_[t.linear / 128];
  if (mine.issued == group.operations.size()) group.operations.push_back(std::make_unique<Operation>());
  join_operation(t, *group.operations[mine.issued++], call, where);
}

void Wgmma::join_operation(Thread& t, Operation& op, const WgmmaCall& call, const Where& where) {
  const unsigned lane = t.linear % 128, warp = lane / 32;
  if (op.joined == 0) {
    op.call = call;
    op.where = where;
    const SmemOperand b(call.b, call.b_major, where);
    for (unsigned w = 0; w < 4; ++w) {
      op.chunks[w] = b.chunks(0, call.n);
      if (call.a_registers) continue;
      for (const std::uint32_t c : SmemOperand(call.a, call.a_major, where).chunks(16 * w, 16))
        op.chunks[w].push_back(c);
    }
  } else if (!op.call.agrees_with(call)) {
    raise(FaultKind::divergence,
          "threads of a warpgroup issue different wgmma (the others: " + at(op.where) + ")", where);
  }
  if (op.joined_of_warp[warp]++ == 0) read_operands(t, op, warp, where, true);
  if (call.a_registers) std::memcpy(op.a_registers[lane].data(), call.a_registers, 16);
  if (++op.joined == 128) compute(*t.block, op);
}

// `first`: at the issue, keeps what is read. Otherwise: at the wait, it must still be the same.
void Wgmma::read_operands(Thread& t, Operation& op, unsigned warp, const Where& where, bool first) {
  Block& b = *t.block;
  std::vector<unsigned char>& kept = op.contents[warp];
  if (first) kept.resize(op.chunks[warp].size() * 16);
  for (std::size_t i = 0; i < op.chunks[warp].size(); ++i) {
    const std::uint32_t address = op.chunks[warp][i];
    const unsigned char* p = b.shared.checked(address, 16, 16, where);
    if (config().race_check) b.race.async_read(t.warp, b.shared.offset(address), 16, where);
    if (first) {
      std::memcpy(&kept[i * 16], p, 16);
    } else if (std::memcmp(&kept[i * 16], p, 16) != 0) {
      raise(FaultKind::race,
            "shared operand replaced while the wgmma issued at " + at(op.where) + " was reading it", where);
    }
  }
}

void Wgmma::compute(const Block& block, Operation& op) {
  const WgmmaCall& call = op.call;
  const unsigned n = call.n;
  std::vector<float> a(64 * 16), b(16 * n);
  const SmemOperand b_operand(call.b, call.b_major, op.where);
  for (unsigned x = 0; x < n; ++x)
    for (unsigned k = 0; k < 16; ++k)
      b[k * n + x] = to_float(call.element, element_at(block, b_operand.address(x, k)));
  if (call.a_registers) {
    for (unsigned lane = 0; lane < 128; ++lane)
      for (unsigned r = 0; r < 4; ++r) {
        const unsigned row = lane / 32 * 16 + lane % 32 / 4 + r % 2 * 8, k = lane % 4 * 2 + r / 2 * 8;
        a[row * 16 + k] = low_of(call.element, op.a_registers[lane][r]);
        a[row * 16 + k + 1] = high_of(call.element, op.a_registers[lane][r]);
      }
  } else {
    const SmemOperand a_operand(call.a, call.a_major, op.where);
    for (unsigned row = 0; row < 64; ++row)
      for (unsigned k = 0; k < 16; ++k)
        a[row * 16 + k] = to_float(call.element, element_at(block, a_operand.address(row, k)));
  }
  ++stats().wgmma;
  op.product.assign(64 * n, 0.f);
  for (unsigned row = 0; row < 64; ++row)
    for (unsigned k = 0; k < 16; ++k)
      for (unsigned x = 0; x < n; ++x) op.product[row * n + x] += a[row * 16 + k] * b[k * n + x];
}

void Wgmma::commit(Thread& t) {
  PerThread& mine = threads_[t.linear];
  mine.groups.push_back(mine.issued);
}

void Wgmma::wait(Thread& t, unsigned groups_left, const Where& where) {
  PerThread& mine = threads_[t.linear];
  Warpgroup& group = groups_[t.linear / 128];
  while (mine.groups.size() > groups_left) {
    for (const std::size_t end = mine.groups.front(); mine.retired < end; ++mine.retired) {
      Operation& op = *group.operations[mine.retired];
      t.block->wait_until(
          t, "the other warps of the warpgroup at a wgmma", [&] { return op.joined == 128; }, where);
      retire(t, mine, op, where);
    }
    mine.groups.pop_front();
  }
  mine.fenced = false;  // registers may be used from here on, so the next wgmma needs a fence again
}

void Wgmma::retire(Thread& t, PerThread& mine, Operation& op, const Where& where) {
  const unsigned lane = t.linear % 128, warp = lane / 32, n = op.call.n;
  const WgmmaCall call = mine.calls.front();
  mine.calls.pop_front();
  if (op.retired_of_warp[warp]++ == 0) read_operands(t, op, warp, where, false);
  if (call.a_registers && std::memcmp(call.a_registers, op.a_registers[lane].data(), 16) != 0)
    raise(FaultKind::race,
          "A registers changed while the wgmma issued at " + at(op.where) + " was reading them", where);
  check_untouched(t, call.d, where);

  InFlight& acc = mine.accumulators.at(call.d);
  for (unsigned i = 0; i < n / 2; ++i) {
    const Place p = place_of(lane, i);
    acc.value[i] = (call.accumulate ? acc.value[i] : 0.f) + op.product[p.row * n + p.column];
  }
  if (--acc.operations == 0) {
    std::memcpy(call.d, acc.value.data(), n / 2 * sizeof(float));
    mine.accumulators.erase(call.d);
  }
  if (++op.retired == 128) {  // keep the slot, drop the weight
    op.product = {};
    for (unsigned w = 0; w < 4; ++w) op.chunks[w] = {}, op.contents[w] = {};
  }
}

}  // namespace simt
