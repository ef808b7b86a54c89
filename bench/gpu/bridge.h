/* A chapter of the CUDA kernels as a few C functions on device pointers, for Python to time beside PyTorch.
 *
 * Not the C interface of the library: that one runs a whole RingAttention, which chooses the chapter itself
 * and agrees with its peers on the host in every call. Here one kernel is timed, and can be chosen by name.
 */
#ifndef RINGATTN_GPU_BRIDGE_H
#define RINGATTN_GPU_BRIDGE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ringattn_bridge ringattn_bridge;

typedef struct {
  int64_t batch, seqlen_q, seqlen_k, num_heads, num_heads_kv, head_dim, head_dim_v;
  int64_t window_left, window_right; /* -1: no limit; causal is -1, 0 */
  int32_t dtype;                     /* 0 f32, 1 bf16, 2 f16 */
  int32_t backward;                  /* whether backward will be called */
} ringattn_bridge_shape;

/* A kernel of that chapter ("plain", "sm_80", "sm_90a", "auto") whose work goes to `stream`, a cudaStream_t.
 * Null, with the reason in `why` (cut to `why_size` bytes, always ended by 0), where it refuses. */
ringattn_bridge* ringattn_bridge_open(const char* chapter, const ringattn_bridge_shape* shape, void* stream,
                                      char* why, int64_t why_size);
const char* ringattn_bridge_name(const ringattn_bridge* bridge); /* "cuda/sm_80" */
int64_t ringattn_bridge_pairs(const ringattn_bridge* bridge);    /* visible (query, key) pairs */

/* Dense device memory, [batch, seqlen, heads, dim]; lse [batch, num_heads, seqlen_q] fp32. All that a call of
 * the library does for one rank: loading, attending, writing. 0 when the work is in the stream; otherwise
 * not, and ringattn_bridge_error says why. */
int ringattn_bridge_forward(ringattn_bridge* bridge, const void* q, const void* k, const void* v, void* out,
                            float* lse);
int ringattn_bridge_backward(ringattn_bridge* bridge, const void* dout, const void* q, const void* k,
                             const void* v, const void* out, const float* lse, void* dq, void* dk, void* dv);
const char* ringattn_bridge_error(const ringattn_bridge* bridge);
void ringattn_bridge_close(ringattn_bridge* bridge); /* null is allowed */

#ifdef __cplusplus
}
#endif
#endif
