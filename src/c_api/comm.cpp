#include "comm/communicator.h"

#include "comm/self.h"
#include "comm/threads.h"
#include "src/c_api/handles.h"

using namespace ringattn;
using namespace ringattn::c_api;

ringattn_status ringattn_comm_create_self(ringattn_comm** comm) {
  return guarded([&] {
    require_pointer(comm, "comm");
    *comm = nullptr;
    *comm = handle_of<ringattn_comm>(make_self_communicator());
  });
}

ringattn_status ringattn_comm_create_threads(int32_t size, ringattn_comm** comms) {
  return guarded([&] {
    require_pointer(comms, "comms");
    auto communicators = make_thread_communicators(size);
    std::fill_n(comms, communicators.size(), nullptr);
    std::vector<ringattn_comm*> handles;
    try {
      for (auto& communicator : communicators)
        handles.push_back(handle_of<ringattn_comm>(std::move(communicator)));
    } catch (...) {  // no memory: all of them or none
      for (ringattn_comm* handle : handles) destroy(handle, "comms");
      throw;
    }
    std::ranges::copy(handles, comms);
  });
}

ringattn_status ringattn_comm_rank(const ringattn_comm* comm, int32_t* rank) {
  return guarded([&] {
    const auto communicator = object_of(comm, "comm");
    require_pointer(rank, "rank");
    *rank = communicator->rank();
  });
}

ringattn_status ringattn_comm_size(const ringattn_comm* comm, int32_t* size) {
  return guarded([&] {
    const auto communicator = object_of(comm, "comm");
    require_pointer(size, "size");
    *size = communicator->size();
  });
}

ringattn_status ringattn_comm_abort(ringattn_comm* comm, int32_t exit_code, const char* why) {
  return guarded([&] {
    const auto communicator = object_of(comm, "comm");
    require_pointer(why, "why");
    communicator->abort(exit_code, why);
  });
}

ringattn_status ringattn_comm_destroy(ringattn_comm* comm) { return destroy(comm, "comm"); }
