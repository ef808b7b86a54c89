# Faults planted in chapter 3's backward, where blocks of threads add to the same rows of dq: each is a copy of one
# source or header with a piece of it replaced, and must be found under every seed.
add_library(ringattn_cuda_planted_main OBJECT planted.cpp)
target_link_libraries(ringattn_cuda_planted_main PUBLIC ringattn_cuda_test_support)
add_executable(cuda_planted_none)
target_link_libraries(cuda_planted_none PRIVATE
  ringattn_cuda_planted_main ringattn_cuda_on_harness OpenMP::OpenMP_CXX)
add_test(NAME cuda_planted.nothing COMMAND cuda_planted_none nothing)
set_tests_properties(cuda_planted.nothing PROPERTIES TIMEOUT 120 LABELS in_process)

# plant_in_kernel(NAME EXPECTED FILE SOURCE OLD NEW): FILE with OLD, which must be there, as NEW; SOURCE includes it.
function(plant_in_kernel name expected file source old new)
  set(original ${PROJECT_SOURCE_DIR}/${file})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${original})
  file(READ ${original} text)
  string(REPLACE "${old}" "${new}" planted "${text}")
  if(planted STREQUAL text)
    message(FATAL_ERROR "cuda_planted.${name}: ${file} does not have '${old}'")
  endif()
  set(root ${CMAKE_CURRENT_BINARY_DIR}/planted/${name})
  file(GENERATE OUTPUT ${root}/${file} CONTENT "${planted}")
  # The source is compiled as a copy of its own, which finds the copy of the header first.
  get_filename_component(base ${source} NAME)
  if(file STREQUAL source)
    set(copy ${root}/${file})
  else()
    set(copy ${root}/${base})
    file(GENERATE OUTPUT ${copy} INPUT ${PROJECT_SOURCE_DIR}/${source})
  endif()
  string(REPLACE "." "[.]" pattern "/${source}.o$")
  add_executable(cuda_planted_${name} $<FILTER:$<TARGET_OBJECTS:ringattn_cuda_on_harness>,EXCLUDE,${pattern}>)
  ringattn_simt_sources(cuda_planted_${name} ${copy})
  set_source_files_properties(${copy} PROPERTIES COMPILE_OPTIONS "-x;c++;-Wno-psabi" GENERATED TRUE)
  target_include_directories(cuda_planted_${name} BEFORE PRIVATE ${root})
  target_link_libraries(cuda_planted_${name} PRIVATE ringattn_cuda_planted_main OpenMP::OpenMP_CXX)
  add_test(NAME cuda_planted.${name} COMMAND cuda_planted_${name} ${expected})
  set_tests_properties(cuda_planted.${name} PROPERTIES TIMEOUT 120 LABELS in_process)
endfunction()

set(sums kernels/cuda/sm90/query_sums.h)
set(kernel kernels/cuda/sm90/backward_bf16.cu)
plant_in_kernel(adds_before_its_turn race ${sums} ${kernel}
  "if (lane == 0) ptx::wait_global(done, run.turn);" "")
plant_in_kernel(waited_for_is_not_fenced_for_copies race ${sums} ${kernel}
  "ptx::fence_proxy_async_global();" "")
plant_in_kernel(hands_over_before_the_sum_has_landed race ${sums} ${kernel} "ptx::bulk_wait<0>();" "")
plant_in_kernel(hands_over_without_a_fence race ${sums} ${kernel} "ptx::fence_global();" "")
plant_in_kernel(never_hands_over deadlock ${sums} ${kernel} "ptx::atomic_add_global(done, 1);" "")
plant_in_kernel(place_is_filled_before_it_is_free something ${sums} ${kernel}
  "ptx::mbarrier_wait(&shared.dq_empty, static_cast<std::uint32_t>(tile) % 2 ^ 1);" "static_cast<void>(tile);")
plant_in_kernel(sum_is_not_fenced_for_the_copy race ${sums} ${kernel}
  "    ptx::fence_proxy_async();
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(&shared.dq_full);"
  "    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(&shared.dq_full);")
plant_in_kernel(only_the_first_run_is_walked something ${sums} ${kernel} "i < first_run(1)" "i < first_run(0) + 1")
plant_in_kernel(one_buffer_of_score_gradients race kernels/cuda/sm90/backward.h ${kernel} "return tile & 1;" "return 0;")
plant_in_kernel(score_gradients_are_not_fenced race kernels/cuda/sm90/backward.h ${kernel}
  "    ptx::fence_proxy_async();
    ptx::named_barrier_sync(1 + S::kConsumers" "    ptx::named_barrier_sync(1 + S::kConsumers")
plant_in_kernel(block_is_taken_from_its_index deadlock kernels/cuda/sm90/backward.h ${kernel}
  "= ptx::atomic_add_global(x.a.turns.ticket, 1)" "= static_cast<int>(blockIdx.x)")
plant_in_kernel(turns_count_from_the_first_piece "wrong numbers" kernels/cuda/turns.cpp kernels/cuda/turns.cpp
  "index_t p = group.first_piece + group.pieces - 1; p >= group.first_piece; --p"
  "index_t p = group.first_piece; p < group.first_piece + group.pieces; ++p")
plant_in_kernel(turns_of_two_groups_are_the_same deadlock kernels/cuda/turns.cpp kernels/cuda/turns.cpp
  "visits[static_cast<std::size_t>(block)]++" "visits[static_cast<std::size_t>(block)]++ / 2")
