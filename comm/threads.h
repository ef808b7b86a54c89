// Ranks as threads of one process: the ring without a launcher, and the one that ThreadSanitizer sees.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "comm/communicator.h"

namespace ringattn {

// One communicator a rank; each is to be used by one thread at a time.
std::vector<std::unique_ptr<Communicator>> make_thread_communicators(int size);

// Runs body(communicator) on `size` threads, rank 0 on the calling one. If a rank throws, the others'
// operations throw CommError; when all have ended the first exception of the rank that failed first is
// rethrown.
void run_thread_ranks(int size, const std::function<void(std::shared_ptr<Communicator>)>& body);

}  // namespace ringattn
