# Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
# posenc_conformance evaluates golden files through the public API: those of the tree, and where the environment
# variable POSENC_TEST_DATA names a folder, those of its folder golden/.
file(GLOB_RECURSE sources CONFIGURE_DEPENDS conformance/*.cpp)
if(sources)
  add_executable(posenc_conformance ${sources})
  posenc_test_target(posenc_conformance "${posenc_level}")
  # The optimizer may fuse and narrow what float32 modes round step by step: these cases are run on what it makes.
  target_compile_options(posenc_conformance PRIVATE -O2)
  add_test(NAME conformance.golden COMMAND posenc_conformance ${CMAKE_CURRENT_SOURCE_DIR}/golden)
  add_test(NAME conformance.data COMMAND ${CMAKE_COMMAND} -DPROGRAM=$<TARGET_FILE:posenc_conformance>
                                         -P ${CMAKE_CURRENT_SOURCE_DIR}/cmake/conformance_data.cmake)
  # That the program can fail: every expected value moved out of tolerance is reported.
  add_test(NAME conformance.moved COMMAND Python3::Interpreter ${CMAKE_CURRENT_SOURCE_DIR}/conformance/moved.py
           $<TARGET_FILE:posenc_conformance> ${CMAKE_CURRENT_SOURCE_DIR}/golden)
  set_tests_properties(conformance.golden conformance.data conformance.moved PROPERTIES LABELS "conformance;fast" TIMEOUT 900
                       SKIP_REGULAR_EXPRESSION "^skipped: conformance")
endif()
