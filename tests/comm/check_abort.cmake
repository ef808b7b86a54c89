# cmake -D LOCAL=launch/local -D PROGRAM=... -P check_abort.cmake: the job must end with the exit code that was
# given to abort(), soon, and say why in one line that names the rank.
execute_process(COMMAND ${LOCAL} -n 3 --timeout 30 -- ${PROGRAM}
  RESULT_VARIABLE code OUTPUT_VARIABLE out ERROR_VARIABLE err TIMEOUT 20)
if(NOT code EQUAL 3)
  message(FATAL_ERROR "exit code ${code}, expected 3; stderr: ${err}")
endif()
if(NOT err MATCHES "(^|\n)ringattn: rank 2: k.npy: no such file\n")
  message(FATAL_ERROR "no line 'ringattn: rank 2: k.npy: no such file' in: ${err}")
endif()
