// The public object for Python: arrays in, the library's views on, errors told to every rank.
#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include "arrays.h"
#include "communicator.h"
#include "module.h"
#include "problem.h"
#include "src/agreement.h"
#include "src/error.h"

namespace ringattn::python {

namespace nb = nanobind;

namespace {

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
}

class Attention {
 public:
  Attention(std::shared_ptr<RankCommunicator> comm, const Configuration& configuration, int threads,
            double deadline, const std::string& isa, const std::string& backend, std::uintptr_t stream)
      : comm_(std::move(comm)),
        patience_(milliseconds(deadline)),
        backend_(backend_from_name(backend)),
        stream_(reinterpret_cast<void*>(stream)) {
    const Claim claim(comm_);
    const nb::gil_scoped_release release;
    ring_ = std::make_unique<RingAttention>(
        comm_->ring, configuration.problem, configuration.sharding,
        RingOptions{
            .threads = threads, .deadline = patience_, .isa = isa, .backend = backend_, .stream = stream_});
  }

  Seconds forward(nb::handle q, nb::handle k, nb::handle v, nb::handle out, nb::handle lse,
                  nb::handle positions_q, nb::handle positions_k) {
    struct {
      ConstTensorView q, k, v;
      TensorView out;
      LseView lse;
      Positions positions;
    } call;
    Arrays arrays(space_of(backend_), stream_);
    const Claim claim(comm_);
    translate("forward", [&] {
      call = {.q = arrays.tensor(q, "q"),
              .k = arrays.tensor(k, "k"),
              .v = arrays.tensor(v, "v"),
              .out = arrays.writable_tensor(out, "out"),
              .lse = arrays.writable_lse(lse, "lse"),
              .positions = {arrays.positions(positions_q, "positions_q"),
                            arrays.positions(positions_k, "positions_k")}};
    });
    return timed([&] { return ring_->forward(call.q, call.k, call.v, call.out, call.lse, call.positions); });
  }

  Seconds backward(nb::handle dout, nb::handle q, nb::handle k, nb::handle v, nb::handle out, nb::handle lse,
                   nb::handle dq, nb::handle dk, nb::handle dv, nb::handle positions_q,
                   nb::handle positions_k) {
    BackwardInputs in;
    Gradients gradients;
    Positions positions;
    Arrays arrays(space_of(backend_), stream_);
    const Claim claim(comm_);
    translate("backward", [&] {
      in = {.dout = arrays.tensor(dout, "dout"),
            .q = arrays.tensor(q, "q"),
            .k = arrays.tensor(k, "k"),
            .v = arrays.tensor(v, "v"),
            .out = arrays.tensor(out, "out"),
            .lse = arrays.lse(lse, "lse")};
      gradients = {.dq = arrays.writable_tensor(dq, "dq"),
                   .dk = arrays.writable_tensor(dk, "dk"),
                   .dv = arrays.writable_tensor(dv, "dv")};
      positions = {arrays.positions(positions_q, "positions_q"),
                   arrays.positions(positions_k, "positions_k")};
    });
    return timed([&] { return ring_->backward(in, gradients, positions); });
  }

  // For an error of this rank in Python itself, before the call.
  void refuse(const std::string& call, const std::string& text) {
    const Claim claim(comm_);
    translate(call.c_str(), [&] { throw UsageError(text); });
  }

  void settle() {
    const Claim claim(comm_);
    const nb::gil_scoped_release release;
    ring_->settle();
  }

  Counts workspace() const {
    const Workspace bytes = ring_->workspace();
    nb::dict data;
    data["kernel"] = bytes.kernel;
    data["slots"] = bytes.slots;
    data["gradients"] = bytes.gradients;
    data["total"] = bytes.total();
    return data;
  }

  const RingAttention& ring() const { return *ring_; }

 private:
  // If this rank's arrays are wrong, the others are already in the agreement that begins the call: they are
  // told, so that every rank fails with the same text.
  template <class Body>
  void translate(const char* call, Body&& body) {
    try {
      body();
    } catch (...) {
      const std::exception_ptr error = std::current_exception();
      const nb::gil_scoped_release release;
      agree_all_well(*comm_->ring, error, Clock::now() + patience_, ring_->operation(call));
      throw;
    }
  }

  template <class Call>
  static Seconds timed(Call&& call) {
    Timing timing;
    {
      const nb::gil_scoped_release release;
      timing = call();
    }
    nb::dict seconds;
    seconds["load"] = timing.load;
    seconds["compute"] = timing.compute();
    seconds["wait"] = timing.wait();
    seconds["finish"] = timing.finish;
    return seconds;
  }

  std::shared_ptr<RankCommunicator> comm_;
  std::chrono::milliseconds patience_;
  Backend backend_;
  void* stream_;
  std::unique_ptr<RingAttention> ring_;
};

}  // namespace

void bind_attention(nb::module_& module) {
  using namespace nb::literals;
  nb::class_<Attention>(module, "RingAttention")
      .def(nb::init<std::shared_ptr<RankCommunicator>, const Configuration&, int, double, const std::string&,
                    const std::string&, std::uintptr_t>(),
           "comm"_a, "configuration"_a, "threads"_a, "deadline"_a, "isa"_a, "backend"_a, "stream"_a)
      .def("forward", &Attention::forward, "q"_a, "k"_a, "v"_a, "out"_a, "lse"_a.none(),
           "positions_q"_a.none(), "positions_k"_a.none())
      .def("backward", &Attention::backward, "dout"_a, "q"_a, "k"_a, "v"_a, "out"_a, "lse"_a, "dq"_a, "dk"_a,
           "dv"_a, "positions_q"_a.none(), "positions_k"_a.none())
      .def("refuse", &Attention::refuse, "call"_a, "text"_a)
      .def("settle", &Attention::settle)
      .def("workspace", &Attention::workspace)
      .def_prop_ro("backend", [](const Attention& a) { return a.ring().backend(); })
      .def_prop_ro("threads", [](const Attention& a) { return a.ring().threads(); })
      .def_prop_ro("q_rows", [](const Attention& a) { return a.ring().plan().q_rows(); })
      .def_prop_ro("k_rows", [](const Attention& a) { return a.ring().plan().k_rows(); });
}

}  // namespace ringattn::python
