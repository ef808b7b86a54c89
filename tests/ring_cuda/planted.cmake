# Faults planted in the ring, its kernel and its communicators: each is a copy of one source with a piece of it
# replaced, linked with the others as they are, and must be found in every seed.
add_library(ringattn_ring_planted_main OBJECT planted.cpp)
target_link_libraries(ringattn_ring_planted_main PUBLIC ringattn_device_rings GTest::gtest)

add_executable(ring_cuda_planted_none)
target_link_libraries(ring_cuda_planted_none PRIVATE ringattn_ring_planted_main ${harness})
foreach(carrier nccl staged direct device_ranks one_device)
  add_test(NAME ring_cuda_planted.nothing_in_${carrier} COMMAND ring_cuda_planted_none ${carrier} nothing)
  set_tests_properties(ring_cuda_planted.nothing_in_${carrier} PROPERTIES TIMEOUT 120 LABELS in_process)
endforeach()

# plant(NAME CARRIER EXPECTED FILE OLD NEW): FILE with OLD, which must be there, as NEW.
function(plant_in_ring name carrier expected file old new)
  set(source ${PROJECT_SOURCE_DIR}/${file})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${source})
  file(READ ${source} text)
  string(REPLACE "${old}" "${new}" planted "${text}")
  if(planted STREQUAL text)
    message(FATAL_ERROR "ring_cuda_planted.${name}: ${file} does not have '${old}'")
  endif()
  get_filename_component(base ${file} NAME)
  set(copy ${CMAKE_CURRENT_BINARY_DIR}/planted/${name}/${base})
  file(GENERATE OUTPUT ${copy} CONTENT "${planted}")
  # Objects of the same file stay out. The copy's own come first, so the library's are not asked for.
  string(REPLACE "." "[.]" pattern "/${file}.o$")
  add_executable(ring_cuda_planted_${name} ${copy}
    $<FILTER:$<TARGET_OBJECTS:ringattn_cuda_on_harness>,EXCLUDE,${pattern}>)
  get_target_property(comm ringattn_comm_simt INTERFACE_SOURCES)
  foreach(object ${comm})
    target_sources(ring_cuda_planted_${name} PRIVATE $<FILTER:${object},EXCLUDE,${pattern}>)
  endforeach()
  target_link_libraries(ring_cuda_planted_${name} PRIVATE ringattn_ring_planted_main OpenMP::OpenMP_CXX)
  add_test(NAME ring_cuda_planted.${name} COMMAND ring_cuda_planted_${name} ${carrier} ${expected})
  set_tests_properties(ring_cuda_planted.${name} PROPERTIES TIMEOUT 120 LABELS in_process)
endfunction()

# ---- the ring loops: slots, and who waits for what
plant_in_ring(wrong_block_slot device_ranks something src/executor.cpp
  "slots.block[s % 2]" "slots.block[(s + s / 2) % 2]")
plant_in_ring(wrong_gradient_slot device_ranks something src/executor.cpp
  "slots.gradient[(hops.size() - turn) % 2]" "slots.gradient[turn / 2 % 2]")
plant_in_ring(next_block_is_read_before_it_is_waited_for one_device something src/executor.cpp
  "    blocks.wait();
    timing.hops[s].wait += watch.lap();" "    timing.hops[s].wait += watch.lap();")
plant_in_ring(own_block_is_not_loaded_again nccl "wrong numbers" src/executor.cpp
  "if (own && last >= 2) rows.load_block(block_at(0));" "")
# ---- the kernel: streams, uploads and the life of memory
plant_in_ring(gradients_cleared_on_another_stream nccl race kernels/cuda/cuda.cpp
  "check_cuda(cudaMemsetAsync(gradients.data(), 0, gradients.size(), stream_), \"cudaMemsetAsync\");"
  "cudaStream_t other = nullptr;
    cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking);
    check_cuda(cudaMemsetAsync(gradients.data(), 0, gradients.size(), other), \"cudaMemsetAsync\");
    cudaStreamDestroy(other);")
plant_in_ring(sums_added_to_before_they_have_come device_ranks race kernels/cuda/gradients.cpp
  "while (call.gradients.arrived() < call.gradients.bytes.size())" "while (false)")
plant_in_ring(upload_read_before_it_is_copied nccl something kernels/cuda/memory.cpp
  "  check_cuda(cudaMemcpyAsync(memory.data(), slot.data.get(), bytes_, cudaMemcpyHostToDevice, stream_),"
  "  cudaStream_t other = nullptr;
  cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking);
  const std::shared_ptr<void> end(nullptr, [=](void*) { cudaStreamDestroy(other); });
  check_cuda(cudaMemcpyAsync(memory.data(), slot.data.get(), bytes_, cudaMemcpyHostToDevice, other),")
plant_in_ring(upload_refilled_before_it_is_copied nccl something kernels/cuda/memory.cpp
  "return !slot.used || cudaEventQuery(slot.copied.get()) == cudaSuccess;" "return slot.size > 0;")
plant_in_ring(schedule_freed_before_it_is_read staged something kernels/cuda/gradients.cpp
  "  if (params.walk.count > 0) call.chapter.key_gradients("
  "  { [[maybe_unused]] const DeviceMemory gone(std::move(const_cast<SentWalk&>(keys).memory)); }
  if (params.walk.count > 0) call.chapter.key_gradients(")
# ---- the communicators: an event either way
plant_in_ring(nccl_starts_before_the_stream_has_come nccl race comm/nccl_endpoint.cpp
  "transfer->ready.hold_back(transfers_.get());" "")
plant_in_ring(stream_goes_on_before_nccl_has_ended nccl race comm/nccl.cpp
  "if (!held_back_) transfer_->done.hold_back(end_->compute);" "")
plant_in_ring(registration_is_forgotten nccl usage comm/nccl_memory.cpp
  "  if (handle_ != nullptr) end_->deregister_memory(handle_);" "")
plant_in_ring(copy_before_the_slot_is_free device_ranks race comm/device_ranks.cpp
  "    ready_->hold_back(copies);" "")
plant_in_ring(copy_before_the_block_is_complete one_device race comm/device_ranks.cpp
  "    offer->ready->hold_back(copies);" "")
plant_in_ring(stream_goes_on_before_the_peers_copy device_ranks race comm/device_ranks.cpp
  "{copied_, peers_copy_}" "{copied_, copied_}")
plant_in_ring(copy_to_the_host_too_early staged race comm/staged.cpp
  "    ready.hold_back(end_->down.get());" "")
plant_in_ring(stream_goes_on_before_the_last_chunk staged race comm/staged.cpp
  "    landed_->hold_back(end_->compute);" "")
plant_in_ring(block_given_to_mpi_before_it_is_complete direct race comm/mpi_device.cpp
  "if (!ready_.passed()) return false;" "")
