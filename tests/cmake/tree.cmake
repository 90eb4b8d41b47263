# Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
# Checks of the source tree itself, in Python with its standard library only.
foreach(script IN ITEMS layers format snippets words)
  add_test(NAME tree.${script} COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/scripts/${script}.py
                                       ${PROJECT_SOURCE_DIR})
  set_tests_properties(tree.${script} PROPERTIES LABELS "tree;fast" TIMEOUT 120 SKIP_REGULAR_EXPRESSION "^skipped: ")
endforeach()
