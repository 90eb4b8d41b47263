# Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
# Every public header, all in one translation unit, under flags that users build with.
set(all_headers_lines "#pragma once\n")
foreach(header IN LISTS posenc_headers)
  cmake_path(RELATIVE_PATH header BASE_DIRECTORY ${PROJECT_SOURCE_DIR}/include OUTPUT_VARIABLE name)
  string(APPEND all_headers_lines "#include <${name}>\n")
endforeach()
file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/generated/all_headers.hpp CONTENT "${all_headers_lines}")
file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/generated/all_headers.cpp CONTENT "#include \"all_headers.hpp\"\n")

# A list of flags is written with + between them, because ; separates the entries. Eigen refuses AVX-512 without FMA.
set(flag_sets none -march=native -fno-exceptions -fno-rtti -O0+-fno-inline)
if(posenc_is_x86)
  list(APPEND flag_sets -msse4.2 -mavx -mavx2+-mfma -mavx512f+-mfma -march=skylake-avx512)
endif()
foreach(set IN LISTS flag_sets)
  string(REPLACE "+" ";" flags "${set}")
  if(set STREQUAL "none")
    set(flags "")
  endif()
  add_test(
    NAME flags.${set}
    COMMAND ${CMAKE_CXX_COMPILER} -std=c++20 -fsyntax-only ${posenc_warnings} ${posenc_include_flags} ${flags}
            ${CMAKE_CURRENT_BINARY_DIR}/generated/all_headers.cpp)
  set_tests_properties(flags.${set} PROPERTIES LABELS "compile;slow" TIMEOUT 300)
endforeach()

# Flags that break exact angles and masks are refused, with a sentence that says so.
foreach(flag IN ITEMS -ffast-math -ffinite-math-only)
  add_test(
    NAME flags.refused${flag}
    COMMAND ${CMAKE_CXX_COMPILER} -std=c++20 -fsyntax-only -O2 ${posenc_include_flags} ${flag}
            ${CMAKE_CURRENT_BINARY_DIR}/generated/all_headers.cpp)
  set_tests_properties(flags.refused${flag} PROPERTIES LABELS "compile;slow" TIMEOUT 300
                       PASS_REGULAR_EXPRESSION "error: .*posenc: .*no -ffast-math")
endforeach()
