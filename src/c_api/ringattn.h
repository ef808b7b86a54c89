/* The C interface of ringattn: exact attention over a sequence that is spread over the ranks of a ring.
 * C99, no header of MPI or of an accelerator; ringattn_mpi.h adds the communicator over MPI. Streams and
 * communicators of CUDA and NCCL are void*. The header is the same in every build; one without CUDA or NCCL
 * answers what needs them with RINGATTN_DEVICE and the reason.
 *
 * Functions return a status. On an error, ringattn_last_error() says what was wrong, by name and value;
 * no C++ exception leaves the library, and nothing but the outputs named here is written.
 *
 * Handles (ringattn_comm*, ringattn_mask*, ...) are made by ..._create functions and released by ..._destroy.
 * They are numbers in the shape of pointers, never used twice, and looked up at every call: a null, foreign
 * or destroyed handle is RINGATTN_USAGE and never undefined behaviour. What was made from a handle does not
 * need it any more: a mask may be destroyed once the attention is there. A ..._create that fails sets its
 * handle to null.
 *
 * Structs that may grow begin with struct_size. Their ..._init function takes the size that the caller was
 * compiled with and sets every default, so a program that was built against an older header keeps working:
 * fields that it does not know keep their defaults. One that was built against a newer header works with an
 * older library as long as the bytes that this library does not know are zero, which new fields will mean by
 * default; otherwise it is told so. ringattn_tensor, ringattn_lse, ringattn_segment, ringattn_tile and
 * ringattn_hop never change.
 *
 * Threads: handles may be used from any thread; a communicator, and an attention with it, by one thread at a
 * time. "Collective" functions are called by every rank of the communicator, in the same order. If the
 * arguments of one rank are wrong, the call fails on every rank with the same text, and the handles stay
 * usable; but a rank whose communicator or attention handle itself is wrong cannot tell the others, which
 * then fail at their deadline. */
#ifndef RINGATTN_H
#define RINGATTN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- status and version */

typedef int32_t ringattn_status;
enum {
  RINGATTN_OK = 0,
  RINGATTN_USAGE = 2,    /* a wrong argument, or ranks that were given different ones */
  RINGATTN_DATA = 3,     /* input data that cannot be used */
  RINGATTN_COMM = 4,     /* a peer that is late, lost or sent the wrong size; handles are of no further use */
  RINGATTN_DEVICE = 5,   /* an accelerator that is absent or failed */
  RINGATTN_MEMORY = 6,   /* out of memory */
  RINGATTN_INTERNAL = 70 /* a bug of ringattn */
};
/* "ok", "usage", "data", "comm", "device", "memory", "internal"; "unknown" for any other number. */
const char* ringattn_status_name(ringattn_status status);
/* What the last failed call of this thread said; "" if none has failed. A call that succeeds leaves it alone.
 * Valid until the next call of this thread that fails. */
const char* ringattn_last_error(void);

#define RINGATTN_VERSION_MAJOR 0
#define RINGATTN_VERSION_MINOR 1
#define RINGATTN_VERSION_PATCH 0
/* Of the library that runs, which may be another than the header's: "0.1.0" and 10000 major + 100 minor +
 * patch. */
const char* ringattn_version(void);
int32_t ringattn_version_number(void);

/* ---- communicators: the ring that blocks of keys and values travel round */

typedef struct ringattn_comm ringattn_comm;
/* A ring of one rank. */
ringattn_status ringattn_comm_create_self(ringattn_comm** comm);
/* `size` ranks as threads of this process: fills comms[0 .. size), where comms[r] is for the thread of rank
 * r. */
ringattn_status ringattn_comm_create_threads(int32_t size, ringattn_comm** comms);
/* Collective: communicators whose blocks lie in the memory of NVIDIA GPUs, made from one of the host, which
 * carries agreements and errors and may be destroyed once they are there. stream: the cudaStream_t of the
 * attention that will use it, not null (that of the default stream is cudaStreamLegacy); its device is
 * current, here and in every call. Arguments are wrong on every rank or on none: a rank that is refused
 * cannot tell the others, which then fail at their deadline.
 *
 * NCCL. nccl_comm: an ncclComm_t of the caller with the same ranks in the same order, which is left alone
 * (one of our own is split off it), or null: one is made over `host`. patience_ms: longest that making it,
 * connecting to a peer and ending may take, 1 to 10^12. */
ringattn_status ringattn_comm_create_nccl(ringattn_comm* host, void* stream, void* nccl_comm,
                                          int64_t patience_ms, ringattn_comm** comm);
/* By way of pinned host memory and `host`, MPI say. */
ringattn_status ringattn_comm_create_staged(ringattn_comm* host, void* stream, ringattn_comm** comm);
/* Ranks that are threads of this process (`threads` is of ringattn_comm_create_threads), with a device each
 * or several on one. */
ringattn_status ringattn_comm_create_device_ranks(ringattn_comm* threads, void* stream, ringattn_comm** comm);
ringattn_status ringattn_comm_rank(const ringattn_comm* comm, int32_t* rank);
ringattn_status ringattn_comm_size(const ringattn_comm* comm, int32_t* size);
/* Tells every rank that this one cannot go on. self and threads: operations that wait, and all later ones,
 * fail with `why`. MPI: prints `why` and ends the job with that exit code; does not return. */
ringattn_status ringattn_comm_abort(ringattn_comm* comm, int32_t exit_code, const char* why);
ringattn_status ringattn_comm_destroy(ringattn_comm* comm);

/* ---- masks: which keys each query sees. Lengths are 0 to 2^58 */

typedef struct ringattn_mask ringattn_mask;
/* Key j is visible to query i of the tile iff q_begin <= i < q_end, k_begin <= j < k_end and
 * band_lo <= j - i <= band_hi. RINGATTN_UNBOUNDED stands for no bound (negated for band_lo). */
#define RINGATTN_UNBOUNDED (INT64_C(1) << 60)
typedef struct ringattn_tile {
  int64_t q_begin, q_end, k_begin, k_end, band_lo, band_hi;
} ringattn_tile;

ringattn_status ringattn_mask_create_full(int64_t seqlen_q, int64_t seqlen_k, ringattn_mask** mask);
/* Query i sees the keys up to i + seqlen_k - seqlen_q: aligned at the end where the lengths differ. */
ringattn_status ringattn_mask_create_causal(int64_t seqlen_q, int64_t seqlen_k, ringattn_mask** mask);
/* left and right: keys seen on each side besides the query's own, inclusive; -1 = no limit. */
ringattn_status ringattn_mask_create_window(int64_t seqlen_q, int64_t seqlen_k, int64_t left, int64_t right,
                                            ringattn_mask** mask);
/* Packed documents: document d is queries [cu_seqlens_q[d], cu_seqlens_q[d + 1]) and likewise keys, and sees
 * only itself, through the window (left, right) aligned at its own end; causal is (-1, 0). Both lists hold
 * documents + 1 offsets, from 0, that do not fall. */
ringattn_status ringattn_mask_create_documents(int64_t seqlen_q, int64_t seqlen_k,
                                               const int64_t* cu_seqlens_q, const int64_t* cu_seqlens_k,
                                               size_t documents, int64_t left, int64_t right,
                                               ringattn_mask** mask);
/* Any tiles that are disjoint and inside [0, seqlen_q) x [0, seqlen_k). */
ringattn_status ringattn_mask_create_tiles(int64_t seqlen_q, int64_t seqlen_k, const ringattn_tile* tiles,
                                           size_t count, ringattn_mask** mask);
/* Exact number of visible (query, key) pairs of one head. */
ringattn_status ringattn_mask_pairs(const ringattn_mask* mask, int64_t* pairs);
ringattn_status ringattn_mask_destroy(ringattn_mask* mask);

/* ---- layouts: which positions of the query and of the key sequence each rank holds */

typedef struct ringattn_layout ringattn_layout;
typedef int32_t ringattn_layout_kind;
enum {
  RINGATTN_CONTIGUOUS = 0, /* rank r holds chunk r of P */
  RINGATTN_ZIGZAG = 1,     /* chunks r and 2P-1-r of 2P: balances causal masks */
  RINGATTN_STRIPED = 2     /* positions r, r + P, r + 2P, ... */
};
typedef int32_t ringattn_side;
enum { RINGATTN_QUERIES = 0, RINGATTN_KEYS = 1 };
/* `count` rows; row t of the segment is position begin + t * stride. */
typedef struct ringattn_segment {
  int64_t begin, count, stride;
} ringattn_segment;

/* Any length on any number of ranks: nothing must divide, a shard may be empty. */
ringattn_status ringattn_layout_create(ringattn_layout_kind kind, int64_t seqlen_q, int64_t seqlen_k,
                                       int32_t ranks, ringattn_layout** layout);
/* The caller's segments: q_counts[r] of them are rank r's, one rank after the other in q_segments; keys
 * likewise. Every position is held exactly once. */
ringattn_status ringattn_layout_create_custom(int32_t ranks, int64_t seqlen_q,
                                              const ringattn_segment* q_segments, const size_t* q_counts,
                                              int64_t seqlen_k, const ringattn_segment* k_segments,
                                              const size_t* k_counts, ringattn_layout** layout);
ringattn_status ringattn_layout_ranks(const ringattn_layout* layout, int32_t* ranks);
/* Rows of a rank's shard. */
ringattn_status ringattn_layout_rows(const ringattn_layout* layout, ringattn_side side, int32_t rank,
                                     int64_t* rows);
/* Lists are written whole or, where `capacity` is too small, not at all (RINGATTN_USAGE); *count is set in
 * both cases, so capacity 0 with a null list asks for it (RINGATTN_OK). Global positions of a rank's rows: */
ringattn_status ringattn_layout_positions(const ringattn_layout* layout, ringattn_side side, int32_t rank,
                                          int64_t* positions, size_t capacity, size_t* count);
ringattn_status ringattn_layout_segments(const ringattn_layout* layout, ringattn_side side, int32_t rank,
                                         ringattn_segment* segments, size_t capacity, size_t* count);
ringattn_status ringattn_layout_destroy(ringattn_layout* layout);

/* ---- the problem: the same on every rank, and checked to be */

typedef int32_t ringattn_dtype;
enum { RINGATTN_F32 = 0, RINGATTN_BF16 = 1, RINGATTN_F16 = 2 };
typedef int32_t ringattn_pairing;
enum {
  RINGATTN_ROPE_NONE = 0,
  RINGATTN_ROPE_HALF = 1,       /* element e turns with e + dim/2 (Llama) */
  RINGATTN_ROPE_INTERLEAVED = 2 /* element 2e turns with 2e + 1 (GPT-J) */
};
typedef struct ringattn_problem { /* comments begin with the default */
  size_t struct_size;
  int64_t batch;                 /* 1 */
  int64_t num_heads;             /* 1; a multiple of num_heads_kv */
  int64_t num_heads_kv;          /* 1; query head h reads KV head h / (num_heads / num_heads_kv) */
  int64_t head_dim;              /* 0, to be set by the caller; 1 to 512 */
  int64_t head_dim_v;            /* 0; 0 = head_dim */
  ringattn_dtype dtype;          /* RINGATTN_F32; of all tensors but lse */
  ringattn_pairing rope_pairing; /* RINGATTN_ROPE_NONE */
  double rope_base;              /* 10000 */
  int64_t rope_dim;              /* 0; leading elements that turn, 0 = head_dim */
  int64_t rope_position_offset;  /* 0; added to every position */
  double softmax_scale;          /* NaN, which stands for 1/sqrt(head_dim) */
} ringattn_problem;
ringattn_status ringattn_problem_init(ringattn_problem* problem, size_t struct_size);

typedef int32_t ringattn_mode;
enum {
  RINGATTN_OVERLAP = 0,      /* a transfer runs while its hop is computed */
  RINGATTN_BLOCKING = 1,     /* a transfer ends before its hop is computed: same bits */
  RINGATTN_COMPUTE_ONLY = 2, /* for measurements: no transfers, wrong numbers */
  RINGATTN_COMM_ONLY = 3     /* for measurements: no arithmetic, wrong numbers */
};
typedef int32_t ringattn_backend;
enum {
  RINGATTN_CPU = 0,
  RINGATTN_CUDA = 1 /* NVIDIA GPUs */
};
typedef struct ringattn_options {
  size_t struct_size;
  int64_t deadline_ms; /* 300000; longest that one wait for a peer may take, 1 to 10^12 */
  int32_t threads;     /* 0 = every CPU this rank may run on */
  ringattn_mode mode;  /* RINGATTN_OVERLAP */
  const char* isa;     /* null = the best instruction set this machine runs; else its name, e.g. "AVX2". With
                        * RINGATTN_CUDA kernels: "plain", "sm_80", "sm_90a" */
  /* added after the first release, so an older caller does not have it */
  ringattn_backend backend; /* RINGATTN_CPU. RINGATTN_CUDA: tensors are device memory, and the communicator is
                             * one of device memory on the same stream, or any of one rank */
  void* stream;             /* null; with RINGATTN_CUDA a cudaStream_t of the current device, which outlives
                             * the attention */
} ringattn_options;
ringattn_status ringattn_options_init(ringattn_options* options, size_t struct_size);

/* ---- plans: what a rank will do, as data. Any rank of any number of ranks can be planned without a
 * communicator */

typedef struct ringattn_plan ringattn_plan;
typedef int32_t ringattn_pass;
enum { RINGATTN_FORWARD = 0, RINGATTN_BACKWARD = 1 };
typedef struct ringattn_hop {
  int64_t owner;  /* rank whose keys and values are at hand */
  int64_t k_rows; /* rows of that block */
  int64_t pairs;  /* visible pairs of this rank at this hop, one head */
  int64_t tiles;
} ringattn_hop;
typedef struct ringattn_cost {
  size_t struct_size;
  double flops; /* of this rank, all heads: exact pairs x 2 (head_dim + head_dim_v) forward, 2 (3 head_dim + 2
                 * head_dim_v) backward, which is 2.5 times as much where the two are equal */
  uint64_t bytes_sent;    /* by this rank to others */
  uint64_t messages_sent; /* blocks; empty ones are not sent */
} ringattn_cost;
/* What a rank holds beyond the caller's tensors, in bytes. */
typedef struct ringattn_workspace {
  size_t struct_size;
  uint64_t kernel;    /* packed queries, softmax state; in backward dq and what belongs to it */
  uint64_t slots;     /* two blocks of keys and values */
  uint64_t gradients; /* two blocks of dK and dV in fp32; 0 in forward */
  uint64_t total;
} ringattn_workspace;

ringattn_status ringattn_plan_create(const ringattn_problem* problem, const ringattn_mask* mask,
                                     const ringattn_layout* layout, int32_t rank, ringattn_plan** plan);
/* The same for a backend, which decides how many bytes a block has and what a rank holds. */
ringattn_status ringattn_plan_create_for(const ringattn_problem* problem, const ringattn_mask* mask,
                                         const ringattn_layout* layout, int32_t rank,
                                         ringattn_backend backend, ringattn_plan** plan);
/* Rows of this rank's shards. */
ringattn_status ringattn_plan_rows(const ringattn_plan* plan, ringattn_side side, int64_t* rows);
ringattn_status ringattn_plan_pairs(const ringattn_plan* plan, int64_t* pairs); /* over all hops, one head */
ringattn_status ringattn_plan_hop_count(const ringattn_plan* plan, size_t* hops);
ringattn_status ringattn_plan_hop(const ringattn_plan* plan, size_t index, ringattn_hop* hop);
/* Tiles of a hop in local rows; a list as above. */
ringattn_status ringattn_plan_tiles(const ringattn_plan* plan, size_t hop, ringattn_tile* tiles,
                                    size_t capacity, size_t* count);
/* cost->struct_size and workspace->struct_size are set by the caller to the size of its struct. */
ringattn_status ringattn_plan_cost(const ringattn_plan* plan, ringattn_pass pass, ringattn_cost* cost);
/* What an attention with that many threads (0 = every CPU of this machine) will hold. */
ringattn_status ringattn_plan_workspace(const ringattn_plan* plan, int32_t threads, ringattn_pass pass,
                                        ringattn_workspace* workspace);
ringattn_status ringattn_plan_destroy(ringattn_plan* plan);

/* ---- attention */

typedef struct ringattn_attention ringattn_attention;
/* A view of the caller's memory: [batch, rows, heads, dim], strides in elements; the last stride is 1, the
 * others are free. Inputs are only read. */
typedef struct ringattn_tensor {
  void* data;
  ringattn_dtype dtype;
  int64_t shape[4], stride[4];
} ringattn_tensor;
/* Natural logarithm of each row's sum of exponentials: [batch, num_heads, rows], fp32, last stride 1. */
typedef struct ringattn_lse {
  float* data;
  int64_t shape[3], stride[3];
} ringattn_lse;
/* Dense views. What is wrong with them is said by the call that uses them. */
ringattn_tensor ringattn_tensor_dense(void* data, ringattn_dtype dtype, int64_t batch, int64_t rows,
                                      int64_t heads, int64_t dim);
ringattn_lse ringattn_lse_dense(float* data, int64_t batch, int64_t num_heads, int64_t rows);

/* Where tensors lie. */
typedef int32_t ringattn_space;
enum { RINGATTN_HOST_MEMORY = 0, RINGATTN_CUDA_MEMORY = 1 };

/* Where the time of a call went on this rank, in seconds: of its host. Work of a GPU is queued in that time
 * and runs later; what it takes lies between two events that the caller records on the stream. */
typedef struct ringattn_timing {
  size_t struct_size;
  double load;    /* rotating and packing */
  double compute; /* inside the kernel */
  double wait;    /* for a transfer, with nothing to compute */
  double finish;  /* unpacking and rounding */
} ringattn_timing;

/* Collective. options may be null: defaults. Ranks compare their problems first; if they differ, every rank
 * fails with the same text, which names rank, field and values. */
ringattn_status ringattn_attention_create(ringattn_comm* comm, const ringattn_problem* problem,
                                          const ringattn_mask* mask, const ringattn_layout* layout,
                                          const ringattn_options* options, ringattn_attention** attention);

typedef struct ringattn_forward_args {
  size_t struct_size;
  ringattn_tensor q;   /* [batch, q_rows, num_heads, head_dim]; rows in the order of the rank's segments */
  ringattn_tensor k;   /* [batch, k_rows, num_heads_kv, head_dim] */
  ringattn_tensor v;   /* [batch, k_rows, num_heads_kv, head_dim_v] */
  ringattn_tensor out; /* written: [batch, q_rows, num_heads, head_dim_v]; rows that see nothing are 0 */
  ringattn_lse lse;    /* written: [batch, num_heads, q_rows]; data null = not wanted */
  const int64_t* q_positions; /* null, or the caller's RoPE positions of this rank's rows */
  const int64_t* k_positions;
  ringattn_timing* timing; /* null, or written; its struct_size is set by the caller */
  /* added after the first release, so an older caller does not have it */
  ringattn_space space; /* RINGATTN_HOST_MEMORY; of all tensors and lse. Positions are always the host's */
} ringattn_forward_args;
ringattn_status ringattn_forward_args_init(ringattn_forward_args* args, size_t struct_size);
/* Collective. args is only read. The same input, ranks and layout give the same bits. With RINGATTN_CUDA it
 * returns when the work is in the stream: inputs may still be under way there, and are to stay what they are,
 * and outputs are there, when the stream has passed the call. */
ringattn_status ringattn_forward(ringattn_attention* attention, const ringattn_forward_args* args);

typedef struct ringattn_backward_args {
  size_t struct_size;
  ringattn_tensor dout;         /* gradient of the loss with respect to out */
  ringattn_tensor q, k, v, out; /* as forward was given them and gave them */
  ringattn_lse lse;             /* as forward gave it */
  ringattn_tensor dq, dk, dv;   /* written: shapes of q, k and v; before RoPE turned them */
  const int64_t* q_positions;   /* as in forward */
  const int64_t* k_positions;
  ringattn_timing* timing;
  /* added after the first release, so an older caller does not have it */
  ringattn_space space; /* as in forward */
} ringattn_backward_args;
ringattn_status ringattn_backward_args_init(ringattn_backward_args* args, size_t struct_size);
/* Collective. The first call allocates what backward needs, see ringattn_plan_workspace. */
ringattn_status ringattn_backward(ringattn_attention* attention, const ringattn_backward_args* args);

/* Waits on the host until everything that was queued on the stream has ended, as long as deadline_ms; tells
 * errors of the device and of peers. Not collective. With RINGATTN_CPU nothing is left to wait for. */
ringattn_status ringattn_settle(ringattn_attention* attention);

/* What it holds now. */
ringattn_status ringattn_attention_workspace(const ringattn_attention* attention,
                                             ringattn_workspace* workspace);
/* This rank's plan, as a handle of its own. */
ringattn_status ringattn_attention_plan(const ringattn_attention* attention, ringattn_plan** plan);
ringattn_status ringattn_attention_threads(const ringattn_attention* attention, int32_t* threads);
/* The kernel's name, "cpu/AVX3" or "cuda/plain": written with its NUL, or RINGATTN_USAGE if `capacity` is too
 * small. */
ringattn_status ringattn_attention_backend(const ringattn_attention* attention, char* name, size_t capacity);
/* Not collective. */
ringattn_status ringattn_attention_destroy(ringattn_attention* attention);

#ifdef __cplusplus
}
#endif
#endif
