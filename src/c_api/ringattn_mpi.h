/* The communicator of ringattn.h over MPI. The only C header of ringattn that includes mpi.h. */
#ifndef RINGATTN_MPI_H
#define RINGATTN_MPI_H

#include <mpi.h>

#include "ringattn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Collective over `mpi_comm`, which is duplicated: the caller's own traffic and error handler are left alone,
 * and any intracommunicator will do. MPI must be initialised with at least MPI_THREAD_FUNNELED, and the
 * handle and what was made from it destroyed before MPI_Finalize. */
ringattn_status ringattn_comm_create_mpi(MPI_Comm mpi_comm, ringattn_comm** comm);

#ifdef __cplusplus
}
#endif
#endif
