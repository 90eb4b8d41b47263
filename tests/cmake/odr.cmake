# Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
# Two translation units of one program, built with different -march. Both include every public header, so a function
# that lacks `inline` is a duplicate symbol; both call kernels and must agree; and no weak symbol that both define may
# hold instructions of one level only. -fno-inline keeps functions that the optimizer would hide.
set(odr_base "")
set(odr_high "")
set(odr_runs TRUE)
if(posenc_is_x86)
  set(odr_base x86-64)
  set(odr_high x86-64-v3)
  posenc_level_runs(odr_runs x86-64-v3)
endif()
set(odr_flags_inlined -O2 -fno-tree-vectorize -fno-tree-slp-vectorize)
set(odr_flags_outlined -O0 -fno-inline)
foreach(variant IN ITEMS inlined outlined)
  foreach(unit IN ITEMS base high)
    add_library(odr_${variant}_${unit} OBJECT odr/unit.cpp)
    posenc_developer_target(odr_${variant}_${unit} "${odr_${unit}}")
    target_include_directories(odr_${variant}_${unit} PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/generated)
    target_compile_definitions(odr_${variant}_${unit} PRIVATE POSENC_ODR_UNIT=${unit})
    target_compile_options(odr_${variant}_${unit} PRIVATE ${odr_flags_${variant}} -g0)
  endforeach()
  # Linked in both orders: the linker keeps the first copy of a weak symbol.
  foreach(order IN ITEMS "base high" "high base")
    string(REPLACE " " ";" units ${order})
    list(GET units 0 first)
    list(GET units 1 second)
    set(program odr_${variant}_${first}_first)
    add_executable(${program} odr/main.cpp $<TARGET_OBJECTS:odr_${variant}_${first}> $<TARGET_OBJECTS:odr_${variant}_${second}>)
    target_compile_features(${program} PRIVATE cxx_std_20)
    target_include_directories(${program} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
    if(odr_runs)
      add_test(NAME odr.${variant}.${first}_first COMMAND ${program})
      set_tests_properties(odr.${variant}.${first}_first PROPERTIES LABELS "odr;fast" TIMEOUT 300)
    endif()
  endforeach()
  if(posenc_is_x86 AND CMAKE_NM AND CMAKE_OBJDUMP AND CMAKE_LINKER
     AND NOT "${CMAKE_CXX_FLAGS_RELWITHDEBINFO}" MATCHES "-fsanitize")
    add_test(
      NAME odr.${variant}.symbols
      COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/scripts/odr_symbols.py ${CMAKE_NM} ${CMAKE_OBJDUMP}
              ${CMAKE_LINKER} $<TARGET_OBJECTS:odr_${variant}_base> $<TARGET_OBJECTS:odr_${variant}_high>)
    set_tests_properties(odr.${variant}.symbols PROPERTIES LABELS "odr;fast" TIMEOUT 300)
  endif()
endforeach()
