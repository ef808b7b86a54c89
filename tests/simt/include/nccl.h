// Stand-in for nccl.h: point-to-point between ranks that are threads of one process. What is not here does
// not compile under the harness, on purpose.
#pragma once
#include <cuda_runtime.h>

#include <cstddef>

#define NCCL_VERSION(X, Y, Z) ((X)*10000 + (Y)*100 + (Z))
#define NCCL_VERSION_CODE NCCL_VERSION(2, 28, 9)

enum ncclResult_t {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInternalError = 3,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
  ncclInProgress = 7
};
enum ncclDataType_t { ncclInt8 = 0, ncclChar = 0, ncclUint8 = 1 };  // blocks are bytes

inline constexpr int NCCL_UNIQUE_ID_BYTES = 128;
struct ncclUniqueId {
  char internal[NCCL_UNIQUE_ID_BYTES];
};
struct ncclConfig_t {
  int blocking = 1;
};
#define NCCL_CONFIG_INITIALIZER \
  {}

namespace simt {
struct NcclComm;
}
using ncclComm_t = simt::NcclComm*;

const char* ncclGetErrorString(ncclResult_t result);
const char* ncclGetLastError(ncclComm_t comm);

ncclResult_t ncclGetVersion(int* version);
ncclResult_t ncclGetUniqueId(ncclUniqueId* id);
// A communicator that does not block is in progress until every rank has come.
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config);
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* part, ncclConfig_t* config);
// Ends when every rank has come to it and has nothing queued: the strictest reading of the manual.
ncclResult_t ncclCommFinalize(ncclComm_t comm);
ncclResult_t ncclCommDestroy(ncclComm_t comm);
// What is queued ends, and what it should have received stays poison. Peers are not told.
ncclResult_t ncclCommAbort(ncclComm_t comm);
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* result);
ncclResult_t ncclCommCount(ncclComm_t comm, int* count);
ncclResult_t ncclCommUserRank(ncclComm_t comm, int* rank);

ncclResult_t ncclGroupStart();
// Of a communicator that does not block: the operations reach their streams some questions for its state
// later. An event recorded before that is passed before them.
ncclResult_t ncclGroupEnd();
ncclResult_t ncclSend(const void* from, std::size_t n, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t s, SIMT_WHERE);
ncclResult_t ncclRecv(void* to, std::size_t n, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t s,
                      SIMT_WHERE);

// Since 2.19.1. A message whose two ends are not both registered, or both not, is a fault (NCCL: undefined
// behaviour), and so is memory that is freed while it is registered or before the host knows that all work on
// it has ended, a handle that is not one any more, and a registration that is left when the communicator is
// destroyed. An abort ends those of its communicator, as NCCL's does, once its kernels have stopped.
ncclResult_t ncclMemAlloc(void** p, std::size_t bytes);
ncclResult_t ncclMemFree(void* p, SIMT_WHERE);
ncclResult_t ncclCommRegister(const ncclComm_t comm, void* data, std::size_t bytes, void** handle);
ncclResult_t ncclCommDeregister(const ncclComm_t comm, void* handle);

namespace simt {
// For tests: what a peer's death looks like to this rank. Operations never complete from then on.
void nccl_inject_error(ncclComm_t comm, ncclResult_t error);
// The same for the communicator that this host thread has made last.
void nccl_inject_error(ncclResult_t error);
// Communicators that nobody has destroyed or aborted yet.
int nccl_alive();

// What ncclGetVersion says; before 2.19.1 a call of the functions that came with it is a fault.
inline int nccl_version = NCCL_VERSION_CODE;
// What this host thread's calls of ncclCommRegister and ncclMemAlloc meet from now on.
enum class NcclRefusal { none, error, no_handle, no_memory };
void nccl_refuse(NcclRefusal refusal);
// Since the start of the process, of all communicators.
struct NcclCounts {
  int registrations = 0;  // made
  int registered = 0;     // of these still there
  int messages = 0;       // that have met their receiver
  int zero_copy = 0;      // of these between registered memory
};
NcclCounts nccl_counts();
}  // namespace simt
