#include "launch/files/tensor_file.h"
