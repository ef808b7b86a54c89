#include "launch/files/file_handle.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "src/error.h"

namespace ringattn {
namespace {

// One call moves at most this much; Linux itself stops a little below 2 GiB.
constexpr std::size_t kLongestTransfer = std::size_t{1} << 30;

struct ::stat status_of(const std::string& name, int descriptor) {
  struct ::stat status {};
  if (::fstat(descriptor, &status) != 0) throw DataError(name + ": " + system_error_text(errno));
  return status;
}

}  // namespace

std::string system_error_text(int error) { return std::generic_category().message(error); }

void FileHandle::fail(const std::string& what) const {
  throw DataError(name_ + ": " + what + ": " + system_error_text(errno));
}

FileHandle FileHandle::open_regular(const std::string& path, int flags) {
  // Without O_NONBLOCK a pipe that nobody writes to would be waited for; for regular files it means nothing.
  const int descriptor = ::open(path.c_str(), flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (descriptor < 0) throw DataError(path + ": " + system_error_text(errno));
  // Asked of the open file and not of the name, which may point to something else by now.
  FileHandle file(path, descriptor);
  const auto mode = status_of(path, descriptor).st_mode;
  if (S_ISDIR(mode)) throw DataError(path + ": is a folder, not a file");
  if (!S_ISREG(mode)) throw DataError(path + ": is not a regular file");
  return file;
}

FileHandle FileHandle::open_to_read(const std::string& path) { return open_regular(path, O_RDONLY); }

FileHandle FileHandle::open_to_write(const std::string& path) { return open_regular(path, O_RDWR); }

std::optional<FileHandle> FileHandle::create_new(const std::string& path, const std::string& name) {
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (descriptor >= 0) return FileHandle(name, descriptor);
  if (errno == EEXIST) return std::nullopt;
  throw DataError(name + ": cannot be created: " + system_error_text(errno));
}

FileHandle::~FileHandle() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

FileHandle::FileHandle(FileHandle&& other) noexcept
    : name_(std::move(other.name_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

FileHandle& FileHandle::operator=(FileHandle&& other) noexcept {
  std::swap(name_, other.name_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

std::uint64_t FileHandle::size() const {
  return static_cast<std::uint64_t>(status_of(name_, descriptor_).st_size);
}

void FileHandle::read(std::uint64_t offset, std::span<std::byte> to) const {
  // A call may deliver less than was asked for, or be interrupted by a signal.
  while (!to.empty()) {
    const ssize_t got =
        ::pread(descriptor_, to.data(), std::min(to.size(), kLongestTransfer), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("reading at byte " + std::to_string(offset));
    // The size was checked against the header when the file was opened.
    if (got == 0) {
      throw DataError(name_ + ": ends at byte " + std::to_string(size()) + " while bytes " +
                      std::to_string(offset) + " to " + std::to_string(offset + to.size()) +
                      " are read; it became shorter after it was opened");
    }
    offset += static_cast<std::uint64_t>(got);
    to = to.subspan(static_cast<std::size_t>(got));
  }
}

void FileHandle::write(std::uint64_t offset, std::span<const std::byte> from) {
  while (!from.empty()) {
    const ssize_t put = ::pwrite(descriptor_, from.data(), std::min(from.size(), kLongestTransfer),
                                 static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) fail("writing at byte " + std::to_string(offset));
    offset += static_cast<std::uint64_t>(put);
    from = from.subspan(static_cast<std::size_t>(put));
  }
}

void FileHandle::reserve(std::uint64_t bytes) {
  if (bytes == 0) return;
  const std::string what = "reserving " + std::to_string(bytes) + " bytes";
  // Asked first, because an allocation that cannot succeed may still fill the disk before it fails.
  struct ::statvfs disk {};
  if (::fstatvfs(descriptor_, &disk) == 0 && disk.f_blocks > 0 && bytes / disk.f_frsize > disk.f_bavail) {
    errno = ENOSPC;
    fail(what);
  }
  int result;
  do {
    result = ::fallocate(descriptor_, 0, 0, static_cast<off_t>(bytes));
  } while (result != 0 && errno == EINTR);
  // Not posix_fallocate: where the file system cannot do it, that one writes a zero to every block instead.
  if (result != 0 && errno != EOPNOTSUPP && errno != ENOSYS) fail(what);
  if (::ftruncate(descriptor_, static_cast<off_t>(bytes)) != 0) fail(what);
}

void FileHandle::flush_to_disk() {
  if (::fsync(descriptor_) != 0) fail("flushing to disk");
}

void flush_folder_to_disk(const std::string& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) throw DataError(folder + ": " + system_error_text(errno));
  const int result = ::fsync(descriptor);
  const int error = errno;
  ::close(descriptor);
  // Some file systems cannot flush a folder and say EINVAL; their renames are durable or not without our
  // doing.
  if (result != 0 && error != EINVAL)
    throw DataError(folder + ": flushing to disk: " + system_error_text(error));
}

}  // namespace ringattn
