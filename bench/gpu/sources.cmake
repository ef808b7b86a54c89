# Sources of the program in this folder. Tests compile the same ones for their harness, with a main and ranks of its
# own.
set(gpu_acceptance_host_sources command.cpp device.cpp kernel_cases.cpp kernel_part.cpp lines.cpp naive.cpp problem.cpp
  ring_part.cpp ring_tensors.cpp ring_time.cpp tensor_map.cpp units.cpp)
set(gpu_acceptance_kernel_sources units_async.cu units_warp.cu units_wgmma.cu)
