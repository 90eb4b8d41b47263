# Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
# Two consumers build and run one program: find_package of an installed copy, and add_subdirectory of the source tree.
set(stage ${CMAKE_CURRENT_BINARY_DIR}/stage)
add_test(NAME package.clean COMMAND ${CMAKE_COMMAND} -E rm -rf ${stage} ${CMAKE_CURRENT_BINARY_DIR}/package)
add_test(NAME package.install COMMAND ${CMAKE_COMMAND} --install ${PROJECT_BINARY_DIR} --prefix ${stage})
set_tests_properties(package.install PROPERTIES DEPENDS package.clean)
set_tests_properties(package.clean package.install PROPERTIES FIXTURES_SETUP stage LABELS "package;fast")

function(posenc_consumer name)
  add_test(
    NAME package.${name}
    COMMAND
      ${CMAKE_CTEST_COMMAND} --build-and-test ${CMAKE_CURRENT_SOURCE_DIR}/package
      ${CMAKE_CURRENT_BINARY_DIR}/package/${name} --build-generator ${CMAKE_GENERATOR} --build-options
      -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_COMPILER=${CMAKE_CXX_COMPILER} ${ARGN} --test-command
      ${CMAKE_CURRENT_BINARY_DIR}/package/${name}/consumer)
  set_tests_properties(package.${name} PROPERTIES FIXTURES_REQUIRED stage LABELS "package;slow" TIMEOUT 600)
endfunction()

posenc_consumer(find_package -DCMAKE_PREFIX_PATH=${stage} -DEigen3_DIR=${Eigen3_DIR}
                -DPOSENC_EXPECTED_VERSION=${PROJECT_VERSION})
posenc_consumer(add_subdirectory -DPOSENC_SOURCE_DIR=${PROJECT_SOURCE_DIR} -DEigen3_DIR=${Eigen3_DIR}
                -DPOSENC_EXPECTED_VERSION=${PROJECT_VERSION})
