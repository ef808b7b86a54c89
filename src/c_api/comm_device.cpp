#include "comm/device_ranks.h"
#include "comm/nccl.h"
#include "comm/staged.h"
#include "src/c_api/convert.h"
#include "src/c_api/handles.h"

using namespace ringattn;
using namespace ringattn::c_api;

namespace {

// `make` gets the host's communicator, which the new one keeps.
template <class Make>
ringattn_status create_from(ringattn_comm* host, const char* name, ringattn_comm** comm,
                            Make&& make) noexcept {
  return guarded([&] {
    require_pointer(comm, "comm");
    *comm = nullptr;
    *comm = handle_of<ringattn_comm>(make(object_of(host, name)));
  });
}

}  // namespace

ringattn_status ringattn_comm_create_nccl(ringattn_comm* host, void* stream, void* nccl_comm,
                                          int64_t patience_ms, ringattn_comm** comm) {
  return create_from(host, "host", comm, [&](std::shared_ptr<Communicator> bootstrap) {
    return make_nccl_communicator(
        std::move(bootstrap), stream,
        {.comm = nccl_comm, .patience = milliseconds_of("patience_ms", patience_ms)});
  });
}

ringattn_status ringattn_comm_create_staged(ringattn_comm* host, void* stream, ringattn_comm** comm) {
  return create_from(host, "host", comm, [&](std::shared_ptr<Communicator> carrier) {
    return make_staged(std::move(carrier), stream);
  });
}

ringattn_status ringattn_comm_create_device_ranks(ringattn_comm* threads, void* stream,
                                                  ringattn_comm** comm) {
  return create_from(threads, "threads", comm, [&](std::shared_ptr<Communicator> ranks) {
    return make_device_ranks(std::move(ranks), stream);
  });
}
