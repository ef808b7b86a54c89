/* A C program without MPI: case A9 on one rank, and on ranks that are threads of this process. */
#include <pthread.h>
#include <stdio.h>

#include "ring_case.h"

enum { kMostRanks = 5 };

struct rank_thread {
  pthread_t thread;
  ringattn_comm* comm;
  const struct ring_case* c;
  struct answer* answer;
  int failed;
};

static void* rank_main(void* argument) {
  struct rank_thread* rank = argument;
  rank->failed = run_rank(rank->comm, rank->c, rank->answer);
  if (rank->failed)
    ringattn_comm_abort(rank->comm, 1, "a rank of this test failed"); /* nobody waits for it */
  return NULL;
}

static int on_threads(const struct ring_case* c, int32_t ranks, const char* where) {
  static const struct answer kEmpty;
  struct answer answer = kEmpty;
  ringattn_comm* comms[kMostRanks];
  if (ringattn_comm_create_threads(ranks, comms) != RINGATTN_OK) {
    fprintf(stderr, "%s: %s\n", where, ringattn_last_error());
    return 1;
  }
  struct rank_thread threads[kMostRanks];
  int failed = 0;
  for (int32_t r = 0; r < ranks; ++r) {
    threads[r] = (struct rank_thread){.comm = comms[r], .c = c, .answer = &answer};
    if (pthread_create(&threads[r].thread, NULL, rank_main, &threads[r]) != 0) {
      perror("pthread_create");
      return 1;
    }
  }
  for (int32_t r = 0; r < ranks; ++r) {
    pthread_join(threads[r].thread, NULL);
    failed |= threads[r].failed;
    failed |= ringattn_comm_destroy(comms[r]) != RINGATTN_OK;
  }
  return failed || check_a9(c, &answer, where);
}

static int on_self(const struct ring_case* c) {
  static const struct answer kEmpty;
  struct answer answer = kEmpty;
  ringattn_comm* comm = NULL;
  if (ringattn_comm_create_self(&comm) != RINGATTN_OK) return 1;
  if (run_rank(comm, c, &answer)) return 1;
  return ringattn_comm_destroy(comm) != RINGATTN_OK || check_a9(c, &answer, "self");
}

int main(void) {
  static struct ring_case cases[2];
  int failed = 0, runs = 0;
  for (ringattn_layout_kind layout = RINGATTN_CONTIGUOUS; layout <= RINGATTN_STRIPED; ++layout) {
    make_case(&cases[0], 16, 0, layout);
    make_case(&cases[1], 12, 1, layout);
    for (int i = 0; i < 2; ++i) {
      failed |= on_self(&cases[i]);
      ++runs;
      for (int32_t ranks = 1; ranks <= kMostRanks; ++ranks) {
        char where[64];
        snprintf(where, sizeof where, "%d threads, layout %d", (int)ranks, (int)layout);
        failed |= on_threads(&cases[i], ranks, where);
        ++runs;
      }
    }
  }
  printf("ringattn %s: %d runs, %s\n", ringattn_version(), runs, failed ? "FAILED" : "passed");
  return failed;
}
