#include "comm/mpi.h"

#include "src/c_api/handles.h"
#include "src/c_api/ringattn_mpi.h"

using namespace ringattn;
using namespace ringattn::c_api;

ringattn_status ringattn_comm_create_mpi(MPI_Comm mpi_comm, ringattn_comm** comm) {
  return guarded([&] {
    require_pointer(comm, "comm");
    *comm = nullptr;
    *comm = handle_of<ringattn_comm>(make_mpi_communicator(mpi_comm));
  });
}
