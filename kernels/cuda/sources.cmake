# Sources of the CUDA kernels in this folder: those of the host, and those that nvcc compiles, small, so that they
# compile side by side. Tests compile the same ones for their harness.
set(ringattn_cuda_host_sources
  chapters.cpp cuda.cpp device_stream.cpp devices.cpp gradients.cpp memory.cpp schedule.cpp sent.cpp split.cpp split_attend.cpp
  stream.cpp tensor_map.cpp turns.cpp)
set(ringattn_cuda_kernel_sources
  attend_bf16.cu attend_f16.cu attend_f32.cu backward_bf16.cu backward_f16.cu backward_f32.cu launches.cu plain.cu
  sm_80.cu sm80/attend_bf16.cu sm80/attend_f16.cu sm80/query_gradients_bf16.cu sm80/query_gradients_f16.cu
  sm80/key_gradients_bf16.cu sm80/key_gradients_f16.cu)
# Of sm_90a alone: no other architecture has their instructions.
set(ringattn_cuda_sm90_sources
  sm_90a.cu sm90/attend_bf16.cu sm90/attend_f16.cu sm90/backward_bf16.cu sm90/backward_f16.cu)
