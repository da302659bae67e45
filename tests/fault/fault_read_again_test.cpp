// A disk that fails for a moment: a read is tried once more, and neither a second time nor is any write. The calls by
// which threads transfer are taken from the C library, failed for one place of a slot file, or passed on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>

#include "base/error.h"
#include "golden/model_folder.h"
#include "one_choice.h"
#include "recording_observer.h"
#include "scratch_folder.h"
#include "session/session.h"

namespace {

struct Fault {
  std::int64_t after = -1;  // transfers, the place of the next one fails; below 0: none does
  int times = 0;            // that it is to fail
  off_t place = -1;
};

std::mutex mutex;
Fault read_fault;
Fault write_fault;

bool is_slot_file(int descriptor) {
  std::error_code error;
  const auto path = std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(descriptor), error);
  return path.extension() == ".slots";
}

bool fails(Fault& fault, int descriptor, off_t offset) {
  if (!is_slot_file(descriptor)) return false;
  const std::lock_guard lock(mutex);
  if (fault.after-- == 0) fault.place = offset;
  return offset == fault.place && fault.times-- > 0;
}

}  // namespace

extern "C" ssize_t pread(int descriptor, void* into, size_t bytes, off_t offset) {
  if (!fails(read_fault, descriptor, offset)) return ::syscall(SYS_pread64, descriptor, into, bytes, offset);
  errno = EIO;
  return -1;
}

extern "C" ssize_t pwrite(int descriptor, const void* from, size_t bytes, off_t offset) {
  if (!fails(write_fault, descriptor, offset)) return ::syscall(SYS_pwrite64, descriptor, from, bytes, offset);
  errno = EIO;
  return -1;
}

namespace spillway {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// Well after the files were made and tried, and well before the end of a run.
constexpr std::int64_t in_the_midst = 20;

class FaultReadAgain : public testing::Test {
 protected:
  void SetUp() override {
    golden::write_model(scratch_ / "model", golden::llama_of(2, 64, 600), "");
    golden::write_tokens(scratch_ / "tokens.npy", 600, 600);
    options_.model = (scratch_ / "model").string();
    options_.data = {(scratch_ / "tokens.npy").string()};
    options_.max_steps = 2;
    options_.per_device_train_batch_size = 2;
    options_.max_seq_len = 32;
    options_.dtype = "f32";
    leave_one_choice_under_sanitizer(options_);
    options_.threads = 2;
    options_.page_size_bytes = 4096;
    options_.allow_uring = false;
    options_.memory_bytes = run_plan(options_).min_memory_bytes;
    read_fault = write_fault = {};
  }

  std::string weights(const std::string& output) {
    options_.output_dir = (scratch_ / output).string();
    RecordingObserver observer;
    run_train(options_, observer);
    return scratch_.text_of(output + "/model.safetensors");
  }

  std::string failure(const std::string& output) {
    try {
      weights(output);
    } catch (const DeviceError& error) {
      EXPECT_FALSE(std::filesystem::exists(scratch_ / output / "model.safetensors"));
      return error.what();
    }
    return "nothing failed";
  }

  auto names(const std::string& verb) const {
    return AllOf(HasSubstr(verb), HasSubstr(options_.output_dir), HasSubstr(".slots"), HasSubstr("Input/output error"),
                 Not(HasSubstr("\n")));
  }

  ScratchFolder scratch_;
  TrainOptions options_;
};

TEST_F(FaultReadAgain, AReadThatFailsOnceChangesNothing) {
  const std::string expected = weights("whole");
  EXPECT_FALSE(expected.empty());
  read_fault = {.after = in_the_midst, .times = 1};
  EXPECT_TRUE(weights("once") == expected);
  EXPECT_LT(read_fault.times, 1) << "no read failed";
}

TEST_F(FaultReadAgain, AReadThatFailsTwiceIsOneSentence) {
  read_fault = {.after = in_the_midst, .times = 2};
  const std::string sentence = failure("twice");
  EXPECT_THAT(sentence, names("reading"));
}

TEST_F(FaultReadAgain, AWriteThatFailsOnceIsOneSentence) {
  write_fault = {.after = in_the_midst, .times = 1};
  const std::string sentence = failure("once");
  EXPECT_THAT(sentence, names("writing"));
}

}  // namespace
}  // namespace spillway
