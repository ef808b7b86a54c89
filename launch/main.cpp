#include "launch/program.h"

int main(int argc, char** argv) {
  return static_cast<int>(ringattn::launch::program({argv + 1, argv + argc}));
}
