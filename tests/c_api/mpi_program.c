/* A C program under mpirun: case A9 with the rows of each rank gathered on rank 0. */
#include <ringattn_mpi.h>
#include <stdio.h>

#include "ring_case.h"

static int on_ring(ringattn_comm* comm, const struct ring_case* c, const char* where) {
  static const struct answer kEmpty;
  struct answer mine = kEmpty, all = kEmpty;
  int failed = run_rank(comm, c, &mine);
  if (failed) MPI_Abort(MPI_COMM_WORLD, 1); /* the others wait for this rank */
  /* What a rank does not own is zero. */
  MPI_Reduce(&mine, &all, (int)(sizeof all / sizeof(float)), MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD);
  int32_t rank = -1;
  failed |= ringattn_comm_rank(comm, &rank) != RINGATTN_OK;
  if (rank == 0) failed |= check_a9(c, &all, where);
  return failed;
}

int main(int argc, char** argv) {
  int level = MPI_THREAD_SINGLE, size = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  ringattn_comm* comm = NULL;
  if (ringattn_comm_create_mpi(MPI_COMM_WORLD, &comm) != RINGATTN_OK) {
    fprintf(stderr, "%s\n", ringattn_last_error());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  static struct ring_case cases[2];
  int failed = 0;
  for (ringattn_layout_kind layout = RINGATTN_CONTIGUOUS; layout <= RINGATTN_STRIPED; ++layout) {
    char where[64];
    snprintf(where, sizeof where, "%d MPI ranks, layout %d", size, (int)layout);
    make_case(&cases[0], 16, 0, layout);
    make_case(&cases[1], 12, 1, layout);
    for (int i = 0; i < 2; ++i) failed |= on_ring(comm, &cases[i], where);
  }
  failed |= ringattn_comm_destroy(comm) != RINGATTN_OK;

  /* A communicator that is none is a usage error of this rank, before anything collective. */
  failed |= ringattn_comm_create_mpi(MPI_COMM_NULL, &comm) != RINGATTN_USAGE || comm != NULL;
  MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  MPI_Finalize();
  return failed;
}
