// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// The main of every Catch2 program; compiled once, because Catch2 2.13 takes half a minute here.
#if __has_include(<catch2/catch_session.hpp>)
#include <catch2/catch_session.hpp>
int main(int argc, char** argv) { return Catch::Session().run(argc, argv); }
#else
#define CATCH_CONFIG_MAIN
#include <catch2/catch.hpp>
#endif
