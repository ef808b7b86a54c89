// What MPI says of itself and of device memory.
#pragma once

namespace ringattn {

// Whether the MPI of this process claims to carry device memory of NVIDIA GPUs (MPIX_Query_cuda_support of
// Open MPI and MVAPICH, MPIX_GPU_query_support of MPICH). Only a claim, which make_mpi_device puts to the
// test: it may be built in and not work between these two machines. But without it nothing is tried, since an
// MPI that takes the pointer for one of the host ends the process.
//
// The environment variable RINGATTN_MPI_DEVICE=off makes it false: for an MPI that claims more than is true.
// Throws UsageError naming any other value but "auto", which is what is meant when it is not set.
bool mpi_claims_device_memory();

}  // namespace ringattn
