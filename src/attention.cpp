#include "src/attention.h"

#include <algorithm>
#include <sstream>

#include "comm/device.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cuda/stream.h"
#include "src/agreement.h"
#include "src/error.h"
#include "src/refuse.h"
#include "src/slots.h"
#include "src/view_checks.h"

namespace ringattn {
namespace {

KernelConfig kernel_config(const Problem& problem, const Sharding& sharding, int rank, int threads,
                           const std::string& isa) {
  return {.shape = problem.heads(),
          .dtype = problem.dtype,
          .softmax_scale = problem.scale(),
          .q_rows = sharding.q.rows(rank),
          .threads = threads,
          .isa = isa};
}

std::string address_text(const void* pointer) {
  std::ostringstream text;
  text << pointer;
  return text.str();
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The second slot is where the next rank's block arrives: with one hop nothing does.
std::size_t slot_count(const Problem& problem, const Sharding& sharding) {
  return needed_hops(problem.mask, sharding) > 1 ? 2 : 1;
}

void check_positions(const char* name, std::span<const index_t> positions, index_t rows,
                     const Problem& problem) {
  if (positions.empty()) return;
  if (problem.rope.pairing == Rope::Pairing::none)
    throw UsageError(std::string(name) + " is given, but the problem has no rope");
  if (std::ssize(positions) != rows)
    throw UsageError(std::string(name) + " has " + std::to_string(positions.size()) +
                     " entries, this rank has " + std::to_string(rows) + " rows");
}

}  // namespace

// Members end in reverse order. On a device the slots go first, in the order of the stream, which stands
// behind every transfer that was waited for or given up (see Slots), or, where they are the communicator's
// memory, when the stream has come there; then the kernel, which waits for its own copies; the communicator
// last.
struct RingAttention::Impl {
  std::shared_ptr<Communicator> comm;
  Problem problem;
  Sharding sharding;
  RingOptions options;
  int threads = 1;
  int device = 0;                         // of the stream, with Backend::cuda
  DeviceCommunicator* settles = nullptr;  // `comm`, where its transfers run on a stream
  std::unique_ptr<Plan> plan{};
  std::unique_ptr<Kernel> kernel{};
  Slots slots{};
  bool has_gradient_slots = false;  // the same on every rank
  std::string digest{};             // of the problem, once the ranks have agreed on it

  Deadline deadline() const { return Clock::now() + options.deadline; }
  std::span<std::byte> own_block() const {
    return slots.block[0].bytes().first(kernel->block_bytes(plan->k_rows()));
  }
  bool on_device() const { return options.backend == Backend::cuda; }
  void check_arguments();
  void check_backend();
  void check_tensor(const char* name, const ConstTensorView& view, const std::array<index_t, 4>& shape) const;
  void check_lse(const ConstLseView& lse) const;
  void check_device() const;
  void allocate();
  void make_gradient_slots(const Operation& operation);
  void check_inputs(const ConstTensorView& q, const ConstTensorView& k, const ConstTensorView& v,
                    const Positions& positions) const;
  void check_forward(const TensorView& out, const LseView& lse) const;
  void check_backward(const BackwardInputs& in, const Gradients& gradients) const;
  Rotation q_rotation(const Positions& positions) const {
    return rotation(positions.q, sharding.q, problem.query_position(0));
  }
  Rotation k_rotation(const Positions& positions) const { return rotation(positions.k, sharding.k, 0); }
  Rotation rotation(std::span<const index_t> own, const Layout& layout, index_t shift) const;
};

void RingAttention::Impl::check_arguments() {
  validate(problem, sharding);
  if (sharding.ranks() != comm->size())
    throw UsageError("sharding is for " + std::to_string(sharding.ranks()) + " ranks, the communicator has " +
                     std::to_string(comm->size()));
  if (options.deadline <= std::chrono::milliseconds(0))
    throw UsageError("deadline is " + std::to_string(options.deadline.count()) +
                     " ms, allowed is more than 0");
  check_backend();
}

// A ring of one rank sends nothing, so there any communicator will do.
void RingAttention::Impl::check_backend() {
  auto* const moves_device_memory = dynamic_cast<DeviceCommunicator*>(comm.get());
  if (!on_device()) {
    if (options.stream != nullptr)
      refuse("options.stream", address_text(options.stream), "allowed with backend cpu is null");
    if (comm->size() > 1 && moves_device_memory != nullptr)
      throw UsageError("the communicator " + comm->name() +
                       " moves device memory, and the backend is cpu: give it the one of the host");
    return;
  }
  device = current_cuda_device();  // first: there may be none
  if (options.stream == nullptr)
    refuse("options.stream", "null",
           "backend cuda needs a cudaStream_t; that of the default stream is cudaStreamLegacy (1)");
  if (comm->size() == 1) return;
  if (moves_device_memory == nullptr)
    throw UsageError("the communicator " + comm->name() +
                     " moves host memory, and the backend is cuda: make one for the stream out of it with "
                     "make_nccl_communicator, make_staged or make_device_ranks");
  if (moves_device_memory->stream() != options.stream)
    refuse("options.stream", address_text(options.stream),
           "the communicator " + comm->name() + " is bound to the stream " +
               address_text(moves_device_memory->stream()));
  settles = moves_device_memory;
}

void RingAttention::Impl::allocate() {
  threads = thread_count(options);
  plan = std::make_unique<Plan>(problem, sharding, comm->rank());
  kernel = make_kernel(options.backend, kernel_config(problem, sharding, comm->rank(), threads, options.isa),
                       options.stream);
}

// Once: they serve all later calls.
void RingAttention::Impl::make_gradient_slots(const Operation& operation) {
  if (has_gradient_slots) return;
  make_slots(slots.gradient, slot_count(problem, sharding), kernel->gradient_bytes(sharding.k.max_rows()),
             *kernel, *comm, deadline(), operation);
  has_gradient_slots = true;
}

void RingAttention::Impl::check_tensor(const char* name, const ConstTensorView& view,
                                       const std::array<index_t, 4>& shape) const {
  check_view(name, view, shape, {.dtype = problem.dtype, .space = space_of(options.backend)});
  const bool empty = std::ranges::find(shape, 0) != shape.end();
  if (on_device() && !empty) check_cuda_memory(name, view.data, device);
}

void RingAttention::Impl::check_lse(const ConstLseView& lse) const {
  const HeadShape s = problem.heads();
  check_lse_view(lse, {s.batch, s.num_heads, plan->q_rows()}, space_of(options.backend));
  if (on_device() && lse.data != nullptr && plan->q_rows() > 0) check_cuda_memory("lse", lse.data, device);
}

// Streams, events and memory are those of the current device, which the caller may have changed meanwhile.
void RingAttention::Impl::check_device() const {
  if (!on_device()) return;
  const int current = current_cuda_device();
  if (current != device)
    throw UsageError("the current device is " + std::to_string(current) +
                     ", when this object was made it was " + std::to_string(device));
}

void RingAttention::Impl::check_forward(const TensorView& out, const LseView& lse) const {
  const HeadShape s = problem.heads();
  check_tensor("out", as_const(out), {s.batch, plan->q_rows(), s.num_heads, s.head_dim_v});
  check_writable("out", out);
  if (lse.data == nullptr) return;
  check_lse(as_const(lse));
  check_writable("lse", lse);
}

void RingAttention::Impl::check_backward(const BackwardInputs& in, const Gradients& gradients) const {
  const HeadShape s = problem.heads();
  const index_t q_rows = plan->q_rows(), k_rows = plan->k_rows();
  check_tensor("dout", in.dout, {s.batch, q_rows, s.num_heads, s.head_dim_v});
  check_tensor("out", in.out, {s.batch, q_rows, s.num_heads, s.head_dim_v});
  check_lse(in.lse);
  if (in.lse.data == nullptr && q_rows > 0) throw UsageError("lse has no data (null pointer)");
  const auto check_gradient = [&](const char* name, const TensorView& view,
                                  const std::array<index_t, 4>& shape) {
    check_tensor(name, as_const(view), shape);
    check_writable(name, view);
  };
  check_gradient("dq", gradients.dq, {s.batch, q_rows, s.num_heads, s.head_dim});
  check_gradient("dk", gradients.dk, {s.batch, k_rows, s.num_heads_kv, s.head_dim});
  check_gradient("dv", gradients.dv, {s.batch, k_rows, s.num_heads_kv, s.head_dim_v});
}

void RingAttention::Impl::check_inputs(const ConstTensorView& q, const ConstTensorView& k,
                                       const ConstTensorView& v, const Positions& positions) const {
  const HeadShape s = problem.heads();
  const index_t q_rows = plan->q_rows(), k_rows = plan->k_rows();
  check_device();
  check_tensor("q", q, {s.batch, q_rows, s.num_heads, s.head_dim});
  check_tensor("k", k, {s.batch, k_rows, s.num_heads_kv, s.head_dim});
  check_tensor("v", v, {s.batch, k_rows, s.num_heads_kv, s.head_dim_v});
  check_positions("positions.q", positions.q, q_rows, problem);
  check_positions("positions.k", positions.k, k_rows, problem);
  if (problem.rope.pairing != Rope::Pairing::none && !problem.mask.positions_align() &&
      ((positions.q.empty() && q_rows > 0) || (positions.k.empty() && k_rows > 0)))
    throw UsageError(
        "rope with mask " + problem.mask.name() +
        " needs the caller's positions: its documents are packed at different offsets in q and k");
}

// Positions are the caller's own, or those of the layout plus `shift`.
Rotation RingAttention::Impl::rotation(std::span<const index_t> own, const Layout& layout,
                                       index_t shift) const {
  if (problem.rope.pairing == Rope::Pairing::none) return {};
  const RotaryAngles angles(problem.rope, problem.shape.head_dim);
  const int rank = comm->rank();
  return {.dim = rotary_dim(problem.rope, problem.shape.head_dim),
          .interleaved = problem.rope.pairing == Rope::Pairing::interleaved,
          .angles = [=, &layout](index_t row, std::span<float> cos, std::span<float> sin) {
            const index_t position =
                own.empty() ? layout.position(rank, row) + shift : own[static_cast<std::size_t>(row)];
            angles.at(position, cos, sin);
          }};
}

RingAttention::RingAttention(std::shared_ptr<Communicator> comm, Problem problem, Sharding sharding,
                             RingOptions options)
    : impl_(new Impl{.comm = std::move(comm),
                     .problem = std::move(problem),
                     .sharding = std::move(sharding),
                     .options = std::move(options)}) {
  Impl& self = *impl_;
  const Deadline deadline = self.deadline();
  together(*self.comm, deadline, construction(), [&] { self.check_arguments(); });
  std::vector<Field> fields = fingerprint(self.problem, self.sharding);
  fields.push_back({"backend", std::string(name_of(self.options.backend))});  // blocks differ in their layout
  agree_on_fields(*self.comm, fields, deadline);
  together(*self.comm, deadline, construction(), [&] { self.allocate(); });
  make_slots(self.slots.block, slot_count(self.problem, self.sharding),
             self.kernel->block_bytes(self.sharding.k.max_rows()), *self.kernel, *self.comm, deadline,
             construction());
  self.digest = ringattn::digest(self.problem, self.sharding);
}

RingAttention::~RingAttention() = default;
RingAttention::RingAttention(RingAttention&&) noexcept = default;
RingAttention& RingAttention::operator=(RingAttention&&) noexcept = default;

Timing RingAttention::forward(const ConstTensorView& q, const ConstTensorView& k, const ConstTensorView& v,
                              const TensorView& out, const LseView& lse, const Positions& positions) {
  Impl& self = *impl_;
  together(*self.comm, self.deadline(), operation("forward"), [&] {
    self.check_inputs(q, k, v, positions);
    self.check_forward(out, lse);
  });

  Timing timing;
  const auto start = Clock::now();
  if (self.options.mode != Mode::comm_only) self.kernel->load_queries(q, self.q_rotation(positions));
  self.kernel->load_block(k, v, self.k_rotation(positions), self.own_block());
  timing.load = seconds_since(start);

  run_forward(*self.plan, *self.kernel, *self.comm, self.slots, out, lse, self.options.mode,
              self.options.deadline, timing);
  return timing;
}

Timing RingAttention::backward(const BackwardInputs& in, const Gradients& gradients,
                               const Positions& positions) {
  Impl& self = *impl_;
  together(*self.comm, self.deadline(), operation("backward"), [&] {
    self.check_inputs(in.q, in.k, in.v, positions);
    self.check_backward(in, gradients);
    self.kernel->reserve(Pass::backward);
  });
  self.make_gradient_slots(operation("backward"));

  const bool computes = self.options.mode != Mode::comm_only;
  const Rotation q_rotation = self.q_rotation(positions), k_rotation = self.k_rotation(positions);
  const BackwardRows rows{
      .load_rows =
          [&](const Poll& poll) {
            if (computes) self.kernel->load_rows(in.q, q_rotation, in.dout, in.out, in.lse, poll);
          },
      .load_block =
          [&](std::span<std::byte> block) { self.kernel->load_block(in.k, in.v, k_rotation, block); }};
  Timing timing;
  auto start = Clock::now();
  rows.load_block(self.own_block());
  timing.load = seconds_since(start);

  const std::span<const std::byte> own = run_backward(*self.plan, *self.kernel, *self.comm, self.slots, rows,
                                                      self.options.mode, self.options.deadline, timing);

  start = Clock::now();
  if (computes) {
    self.kernel->finish_rows(gradients.dq, q_rotation);
    self.kernel->finish_gradients(own, gradients.dk, gradients.dv, k_rotation);
  }
  timing.finish = seconds_since(start);
  return timing;
}

void RingAttention::settle() {
  const Impl& self = *impl_;
  if (!self.on_device()) return;
  self.check_device();
  const Deadline deadline = self.deadline();
  if (self.settles != nullptr) self.settles->settle(deadline);
  await_cuda_stream(self.options.stream, deadline);
}

int thread_count(const RingOptions& options) {
  if (options.threads < 0)
    throw UsageError("threads is " + std::to_string(options.threads) +
                     ", allowed are 1 and more, or 0 for all CPUs");
  if (options.threads > 0) return options.threads;
  return static_cast<int>(allowed_cpus().size());
}

Operation RingAttention::construction() { return {.call = "construction", .problem = ""}; }

Operation RingAttention::operation(const char* call) const {
  return {.call = call, .problem = impl_->digest};
}

const Plan& RingAttention::plan() const { return *impl_->plan; }
const Problem& RingAttention::problem() const { return impl_->problem; }
std::string RingAttention::backend() const { return impl_->kernel->name(); }
int RingAttention::threads() const { return impl_->threads; }

Workspace RingAttention::workspace() const {
  const Slots& slots = impl_->slots;
  return {.kernel = impl_->kernel->workspace_bytes(),
          .slots = slots.block[0].size + slots.block[1].size,
          .gradients = slots.gradient[0].size + slots.gradient[1].size};
}

Workspace workspace(const Problem& problem, const Sharding& sharding, int rank, int threads, Pass pass,
                    Backend backend) {
  validate(problem, sharding);
  const KernelConfig config = kernel_config(problem, sharding, rank, threads, "auto");
  const std::size_t slots = slot_count(problem, sharding);
  const index_t rows = sharding.k.max_rows();
  const std::size_t gradient = pass == Pass::backward ? gradient_bytes(backend, config, rows) : 0;
  return {.kernel = workspace_bytes(backend, config, pass),
          .slots = slots * block_bytes(backend, config, rows),
          .gradients = slots * gradient};
}

}  // namespace ringattn
