# Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
# Runs PROGRAM over $POSENC_TEST_DATA/golden; the variable is read when the test runs, not when it is configured.
set(golden "$ENV{POSENC_TEST_DATA}/golden")
if("$ENV{POSENC_TEST_DATA}" STREQUAL "" OR NOT IS_DIRECTORY "${golden}")
  execute_process(COMMAND ${CMAKE_COMMAND} -E echo "skipped: conformance.data: POSENC_TEST_DATA names no folder with golden/")
  return()
endif()
execute_process(COMMAND ${PROGRAM} ${golden} RESULT_VARIABLE code)
if(NOT code EQUAL 0)
  message(FATAL_ERROR "posenc_conformance ${golden}: exit code ${code}")
endif()
