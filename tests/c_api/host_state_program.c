/* The library leaves the host alone: loading it, and calling it from several threads, changes neither the
 * floating-point control state (also where it is not the usual one) nor any signal's action. */
#define _POSIX_C_SOURCE 200809L
#include <dlfcn.h>
#include <fenv.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include "ring_case.h"

enum { kRanks = 3, kSignals = 65 };

struct float_state {
  int rounding;
  unsigned control; /* MXCSR without its sticky exception flags, which any arithmetic sets */
};

static struct float_state float_state(void) {
  struct float_state s = {.rounding = fegetround(), .control = 0};
#if defined(__SSE__)
  s.control = _mm_getcsr() & ~0x3fu;
#endif
  return s;
}

static int float_state_differs(struct float_state before, const char* where) {
  const struct float_state now = float_state();
  if (now.rounding == before.rounding && now.control == before.control) return 0;
  fprintf(stderr, "%s: rounding %#x -> %#x, MXCSR %#x -> %#x\n", where, (unsigned)before.rounding,
          (unsigned)now.rounding, before.control, now.control);
  return 1;
}

static int signals_differ(const struct sigaction* before, const char* where) {
  int wrong = 0;
  for (int s = 1; s < kSignals; ++s) {
    struct sigaction now;
    memset(&now, 0, sizeof now);
    if (sigaction(s, NULL, &now) != 0) continue; /* a number that is no signal, or the C library's own */
    if (now.sa_handler != before[s].sa_handler || now.sa_flags != before[s].sa_flags) {
      fprintf(stderr, "%s: the action of signal %d has changed\n", where, s);
      ++wrong;
    }
  }
  return wrong > 0;
}

struct rank_thread {
  pthread_t thread;
  ringattn_comm* comm;
  struct ring_case c;
  struct answer* answer;
  int unusual, failed;
};

/* A host may well round upwards and flush denormals to zero. All ranks do the same: the default softmax scale
 * is computed from head_dim, and ranks that round it in different ways would rightly disagree. */
static void be_unusual(void) {
  fesetround(FE_UPWARD);
#if defined(__SSE__)
  _mm_setcsr(_mm_getcsr() | 0x8040u);
#endif
}

static void* rank_main(void* argument) {
  struct rank_thread* me = argument;
  if (me->unusual) be_unusual();
  const struct float_state before = float_state();
  me->failed = run_rank(me->comm, &me->c, me->answer);
  me->failed |= float_state_differs(before, "after forward and backward");
  return NULL;
}

static int on_threads(int unusual) {
  static struct answer answer;
  static struct rank_thread threads[kRanks];
  ringattn_comm* comms[kRanks];
  if (ringattn_comm_create_threads(kRanks, comms) != RINGATTN_OK) return 1;
  for (int r = 0; r < kRanks; ++r) {
    threads[r].comm = comms[r];
    threads[r].answer = &answer;
    threads[r].unusual = unusual;
    make_case(&threads[r].c, 12, 1, RINGATTN_ZIGZAG);
    if (pthread_create(&threads[r].thread, NULL, rank_main, &threads[r]) != 0) return 1;
  }
  int failed = 0;
  for (int r = 0; r < kRanks; ++r) {
    pthread_join(threads[r].thread, NULL);
    failed |= threads[r].failed | (ringattn_comm_destroy(comms[r]) != RINGATTN_OK);
  }
  return failed;
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  struct sigaction actions[kSignals];
  memset(actions, 0, sizeof actions);
  for (int s = 1; s < kSignals; ++s) sigaction(s, NULL, &actions[s]);
  const struct float_state before = float_state();

  /* A copy of the library, so that it is loaded now and its start-up code runs now. */
  void* loaded = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (loaded == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  int failed = float_state_differs(before, "after dlopen") | signals_differ(actions, "after dlopen");

  for (int unusual = 0; unusual < 2; ++unusual) failed |= on_threads(unusual);
  failed |= float_state_differs(before, "the main thread") | signals_differ(actions, "after the calls");
  printf("host state: %s\n", failed ? "CHANGED" : "unchanged");
  return failed;
}
