// A regular file, open for reading or writing at offsets. Every failure is a DataError that begins with the
// path.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace ringattn {

class FileHandle {
 public:
  // Anything but a regular file (a folder, a pipe without a writer, a device) is refused, and without
  // waiting.
  static FileHandle open_to_read(const std::string& path);
  static FileHandle open_to_write(const std::string& path);  // an existing file, contents kept
  // Creates the file with mode 0644 less the umask; nullopt if the path is taken. Errors call it `name`:
  // whoever reads them knows the output by its final name.
  static std::optional<FileHandle> create_new(const std::string& path, const std::string& name);

  ~FileHandle();
  FileHandle(FileHandle&& other) noexcept;
  FileHandle& operator=(FileHandle&& other) noexcept;

  const std::string& name() const { return name_; }
  std::uint64_t size() const;

  // All of `to`, or a DataError that says where the file ended. Safe from several threads.
  void read(std::uint64_t offset, std::span<std::byte> to) const;
  void write(std::uint64_t offset, std::span<const std::byte> from);
  // Makes the file `bytes` long with its blocks set aside, so that a full disk is an error here and not in
  // the middle of a run. Where the file system cannot set blocks aside the length alone is set.
  void reserve(std::uint64_t bytes);
  void flush_to_disk();

 private:
  FileHandle(std::string name, int descriptor) : name_(std::move(name)), descriptor_(descriptor) {}
  static FileHandle open_regular(const std::string& path, int flags);
  [[noreturn]] void fail(const std::string& what) const;  // with the text of errno

  std::string name_;
  int descriptor_ = -1;
};

// Makes the names in a folder durable: after a rename.
void flush_folder_to_disk(const std::string& folder);

// "No such file or directory" and the like.
std::string system_error_text(int error);

}  // namespace ringattn
