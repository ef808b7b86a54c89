# Faults planted in comm/: each is a copy of one source with a piece of it replaced, linked with the others as they
# are, and must be found by the harness in every seed.
add_library(ringattn_comm_planted_main OBJECT planted.cpp)
target_link_libraries(ringattn_comm_planted_main PUBLIC ringattn_comm_cuda_checks)

foreach(carrier nccl nccl_early nccl_refusing staged direct device_ranks device_ranks_apart)
  if(NOT TARGET comm_cuda_planted_none)
    add_executable(comm_cuda_planted_none)
    target_link_libraries(comm_cuda_planted_none PRIVATE ringattn_comm_planted_main ringattn_comm_simt)
  endif()
  add_test(NAME comm_cuda_planted.nothing_in_${carrier} COMMAND comm_cuda_planted_none ${carrier} nothing)
  set_tests_properties(comm_cuda_planted.nothing_in_${carrier} PROPERTIES TIMEOUT 120 LABELS in_process)
endforeach()

# plant(NAME CARRIER EXPECTED FILE OLD NEW): comm/FILE with OLD, which must be there, as NEW.
function(plant name carrier expected file old new)
  set(source ${PROJECT_SOURCE_DIR}/comm/${file})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${source})
  file(READ ${source} text)
  string(REPLACE "${old}" "${new}" planted "${text}")
  if(planted STREQUAL text)
    message(FATAL_ERROR "comm_cuda_planted.${name}: comm/${file} does not have '${old}'")
  endif()
  set(copy ${CMAKE_CURRENT_BINARY_DIR}/planted/${name}/${file})
  file(GENERATE OUTPUT ${copy} CONTENT "${planted}")
  set(others ${comm_sources})
  list(REMOVE_ITEM others ${source})
  set(objects "")
  foreach(other ${others})
    get_filename_component(stem ${other} NAME_WE)
    list(APPEND objects $<TARGET_OBJECTS:ringattn_comm_simt_${stem}>)
  endforeach()
  add_executable(comm_cuda_planted_${name} ${copy} ${objects})
  target_link_libraries(comm_cuda_planted_${name} PRIVATE ringattn_comm_planted_main)
  add_test(NAME comm_cuda_planted.${name} COMMAND comm_cuda_planted_${name} ${carrier} ${expected})
  set_tests_properties(comm_cuda_planted.${name} PROPERTIES TIMEOUT 120 LABELS in_process)
endfunction()

plant(nccl_starts_before_the_stream_has_come nccl race nccl_endpoint.cpp
  [[transfer->ready.hold_back(transfers_.get());]] "")
plant(stream_goes_on_before_nccl_has_ended nccl race nccl.cpp
  [[if (!held_back_) transfer_->done.hold_back(end_->compute);]] "")
plant(event_before_nccl_has_issued nccl race nccl_endpoint.cpp
  [[  comm_->await_issue(where);]] "")
plant(send_and_receive_without_a_group nccl deadlock nccl_endpoint.cpp
  [[    if (receive) {]] [[    group.end();
    comm_->await_issue(where);
    Group second(where, comm);
    if (receive) {]])
plant(registration_is_forgotten nccl usage nccl_memory.cpp
  [[  if (handle_ != nullptr) end_->deregister_memory(handle_);]] "")
plant(registration_is_ended_twice nccl usage nccl_memory.cpp
  [[  if (handle_ != nullptr) end_->deregister_memory(handle_);]] [[  end_->deregister_memory(handle_);
  end_->deregister_memory(handle_);]])
plant(memory_goes_before_the_stream_has_come nccl_early race nccl_memory.cpp
  "used_ && !stream_is_here()" "false")
plant(memory_of_one_rank_alone nccl_refusing usage nccl.cpp
  "if (std::ranges::any_of(all, [](const auto& blob) { return blob.at(0) == std::byte{0}; })) return blocks;" "")
plant(copy_that_needs_a_way_between_the_devices device_ranks_apart usage device_ranks.cpp
  "if (here == there) {" "if (here >= 0) {")
plant(copy_before_the_slot_is_free device_ranks race device_ranks.cpp
  [[    ready_->hold_back(copies);]] "")
plant(copy_before_the_block_is_complete device_ranks race device_ranks.cpp
  [[    offer->ready->hold_back(copies);]] "")
plant(stream_goes_on_before_its_copy device_ranks race device_ranks.cpp
  "{copied_, peers_copy_}" "{peers_copy_, peers_copy_}")
plant(stream_goes_on_before_the_peers_copy device_ranks race device_ranks.cpp
  "{copied_, peers_copy_}" "{copied_, copied_}")
plant(copy_to_the_host_too_early staged race staged.cpp
  [[    ready.hold_back(end_->down.get());]] "")
plant(copy_to_the_device_too_early staged race staged.cpp
  [[    ready.hold_back(end_->up.get());]] "")
plant(stream_goes_on_before_the_last_chunk staged race staged.cpp
  [[    landed_->hold_back(end_->compute);]] "")
plant(chunk_sent_before_it_is_there staged something staged.cpp
  [[    if (c < out_.count() && !out.copied.passed()) return false;]] "")
plant(buffer_filled_before_it_is_empty staged something staged.cpp
  [[    if (c < in_.count() && !in.copied.passed()) return false;]] "")
plant(block_given_to_mpi_before_it_is_complete direct something mpi_device.cpp
  [[if (!ready_.passed()) return false;]] "")
