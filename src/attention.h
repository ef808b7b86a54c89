// The public object: exact attention over a sequence that is spread over the ranks of a communicator.
#pragma once
#include <chrono>
#include <memory>
#include <span>

#include "comm/communicator.h"
#include "src/agreement.h"
#include "src/backend.h"
#include "src/executor.h"
#include "src/plan.h"
#include "src/problem.h"

namespace ringattn {

struct RingOptions {
  int threads = 0;                              // OpenMP threads of this rank; 0 = every CPU it may run on
  std::chrono::milliseconds deadline{300'000};  // longest that one wait for a peer may take
  Mode mode = Mode::overlap;
  std::string isa = "auto";  // CPU instruction set, see kernels/cpu/cpu.h; chapter, see kernels/cuda/cuda.h
  // cuda: every tensor of every call is memory of the GPU that is current at construction and in each call
  // (MemorySpace::cuda), and the communicator is a DeviceCommunicator of the same stream (comm/nccl.h,
  // comm/staged.h, comm/device_ranks.h), or any of one rank.
  Backend backend = Backend::cpu;
  // With cuda the cudaStream_t that all work is queued on, not null; it outlives the object.
  void* stream = nullptr;
};

// Threads that an object with these options uses. Throws UsageError if options.threads is negative.
int thread_count(const RingOptions& options);

// RoPE positions of this rank's own rows, where they are not the global ones. Empty = global positions;
// queries stand beside the key they are aligned with (Problem::query_position). Rope::position_offset is
// added to both.
struct Positions {
  std::span<const index_t> q{}, k{};
};

// What backward() reads: the tensors that forward() was given and gave, and the gradient of the loss with
// respect to out. Shapes as in forward(), dout as out.
struct BackwardInputs {
  ConstTensorView dout, q, k, v, out;
  ConstLseView lse;
};
// What it writes: shapes of q, k and v.
struct Gradients {
  TensorView dq, dk, dv;
};

// Bytes one rank holds beyond the caller's tensors; known before anything is allocated.
struct Workspace {
  std::size_t kernel = 0;     // packed queries, softmax state; in backward dq and what belongs to it
  std::size_t slots = 0;      // two blocks of keys and values
  std::size_t gradients = 0;  // two blocks of dK and dV in fp32; 0 in forward
  std::size_t total() const { return kernel + slots + gradients; }
};
// Pass::backward: what an object holds from its first backward() on.
Workspace workspace(const Problem& problem, const Sharding& sharding, int rank, int threads,
                    Pass pass = Pass::forward, Backend backend = Backend::cpu);

// With Backend::cuda forward() and backward() return when their work is in the stream: inputs may still be
// under way there when they are called, and are to stay what they are, and outputs are there, when the stream
// has passed the call. The host meets the other ranks' hosts, and allocates in the constructor and the first
// backward(), but never waits for the device. Errors of the device come up in a later call or in settle().
// Timing then says how long the host took to queue; the device's own time lies between two events that the
// caller records on the stream before and after the call.
class RingAttention {
 public:
  // Collective: every rank of `comm` constructs with the same problem and sharding. Ranks compare them first;
  // if they differ every rank throws the same UsageError naming rank, field and values. If one rank cannot go
  // on (a wrong argument, no memory, no GPU), every rank throws the same error.
  RingAttention(std::shared_ptr<Communicator> comm, Problem problem, Sharding sharding,
                RingOptions options = {});
  ~RingAttention();
  RingAttention(RingAttention&&) noexcept;
  RingAttention& operator=(RingAttention&&) noexcept;

  // Collective. This rank's rows, in the order of its segments:
  //   q [batch, q_rows, num_heads, head_dim], k [batch, k_rows, num_heads_kv, head_dim],
  //   v [batch, k_rows, num_heads_kv, head_dim_v] -> out [batch, q_rows, num_heads, head_dim_v],
  //   lse [batch, num_heads, q_rows] (natural logarithm, fp32; may be null).
  // Element type as in the problem, last stride 1, other strides free. Inputs are only read; out and lse are
  // written last and may not overlap them. A row that sees no key: out 0, lse -inf. Deterministic to the bit
  // for the same ranks and layout. Throws UsageError (the same on every rank, before any byte moves) naming
  // the tensor, and CommError. Ranks that call different functions, or the same one of objects with different
  // problems, all throw the same UsageError naming both. After a CommError the object and its communicator
  // are of no further use.
  Timing forward(const ConstTensorView& q, const ConstTensorView& k, const ConstTensorView& v,
                 const TensorView& out, const LseView& lse = {}, const Positions& positions = {});

  // Collective. Gradients of a loss with respect to q, k and v (before RoPE turned them), given its gradient
  // dout with respect to out; out and lse as forward() gave them for the same q, k, v and positions. dk and
  // dv are sums over all queries of all ranks and over the query heads that read a KV head. Sums are fp32,
  // rounded once to the dtype. A row that sees no key has dq 0 and adds nothing; a key that no query sees has
  // dk = dv = 0. A NaN in q or dout of a row reaches its own dq and dk, dv of the keys that it sees; one in k
  // or v reaches the rows that see it, and through their dq and ds the dk of all that they see (from k dv,
  // too). Everything else keeps its bits. p_ij is taken from lse, so it carries lse's rounding: a relative
  // error of |lse| * 2^-24. Inputs are only read and may have any strides but the last, 0 included. The first
  // call allocates what backward needs (see workspace). Deterministic, and throws, as forward().
  Timing backward(const BackwardInputs& in, const Gradients& gradients, const Positions& positions = {});

  // Waits on the host until everything that was queued on the stream has ended, with the deadline of the
  // options. Not collective; with Backend::cpu nothing is left to wait for. Throws CommError as
  // DeviceCommunicator::settle, and DeviceError.
  void settle();

  const Plan& plan() const;
  const Problem& problem() const;
  Workspace workspace() const;  // as of now
  std::string backend() const;  // the kernel's name, "cpu/AVX3", "cuda/plain"
  int threads() const;

  // What this rank tells the others when it is constructed, and when forward() or backward() is called. A
  // binding whose own arguments are wrong tells them with agree_all_well(), instead of letting them wait.
  static Operation construction();
  Operation operation(const char* call) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ringattn
