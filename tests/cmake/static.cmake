# Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
# static/*.cpp passes by compiling. fail/*.cpp holds cases that must not: a line `// CASE n: regex` declares one, the
# code under `#if CASE == n` is it, and the compiler's message must match. CASE 0 needs no line and must compile.
file(GLOB_RECURSE sources CONFIGURE_DEPENDS static/*.cpp)
if(sources)
  add_library(posenc_static OBJECT ${sources})
  posenc_test_target(posenc_static "${posenc_level}")
endif()

# What the compiler is told about include directories, for tests that call it themselves: the libraries' as system
# directories, so that their warnings are theirs, and none that the compiler searches anyway.
set(posenc_include_flags -I${PROJECT_SOURCE_DIR}/include -I${PROJECT_SOURCE_DIR}/tests)
set(directories ${POSENC_XSIMD_INCLUDE_DIR})
foreach(library IN ITEMS Eigen3::Eigen Catch2::Catch2 nlohmann_json::nlohmann_json)
  get_target_property(library_directories ${library} INTERFACE_INCLUDE_DIRECTORIES)
  if(library_directories)
    list(APPEND directories ${library_directories})
  endif()
endforeach()
list(REMOVE_ITEM directories ${CMAKE_CXX_IMPLICIT_INCLUDE_DIRECTORIES})
list(REMOVE_DUPLICATES directories)
list(TRANSFORM directories PREPEND -isystem)
list(APPEND posenc_include_flags ${directories})

file(GLOB_RECURSE sources CONFIGURE_DEPENDS fail/*.cpp)
foreach(source IN LISTS sources)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${source})
  cmake_path(GET source STEM stem)
  file(STRINGS ${source} cases REGEX "^// CASE [0-9]+: ")
  list(TRANSFORM cases REPLACE "^// CASE ([0-9]+): .*" "\\1")
  foreach(case IN ITEMS 0 LISTS cases)
    add_test(
      NAME fail.${stem}.${case}
      COMMAND
        ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/scripts/compile_fail.py ${source} ${case} --
        ${CMAKE_CXX_COMPILER} -std=c++20 -fsyntax-only ${posenc_include_flags})
    # Messages differ per compiler, so the stage of the sanitizers, which has the second one, runs these too.
    set_tests_properties(fail.${stem}.${case} PROPERTIES LABELS "compile;slow;sanitize" TIMEOUT 300)
  endforeach()
endforeach()
