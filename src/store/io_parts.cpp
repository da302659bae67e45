#include "store/io_parts.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/error.h"
#include "store/aligned_buffer.h"

namespace spillway {
int IoFiles::add(int descriptor) {
  const int flags = fcntl(descriptor, F_GETFL);
  SPILLWAY_CHECK(flags >= 0, "descriptor {}", descriptor);
  files_.push_back({descriptor, (flags & O_DIRECT) != 0});
  return static_cast<int>(files_.size()) - 1;
}

const IoFiles::File& IoFiles::at(int number) const {
  SPILLWAY_CHECK(number >= 0 && static_cast<std::size_t>(number) < files_.size(), "file {} of {}", number,
                 files_.size());
  return files_[static_cast<std::size_t>(number)];
}

int IoFiles::flush(int number) const { return fdatasync(at(number).descriptor) == 0 ? 0 : errno; }

IoParts::IoParts(int depth, std::int64_t request_bytes) : request_bytes_(request_bytes) {
  SPILLWAY_CHECK(depth >= 1, "depth {}", depth);
  SPILLWAY_CHECK(request_bytes >= direct_alignment && request_bytes % direct_alignment == 0, "requests of {} bytes",
                 request_bytes);
  parts_.resize(static_cast<std::size_t>(depth));
  again_.reserve(parts_.size());
  for (int i = depth; i > 0; --i) free_parts_.push_back(i - 1);
}

void IoParts::add(const IoRequest& request, bool direct) {
  SPILLWAY_CHECK(request.bytes >= 1 && request.offset_bytes >= 0, "{} bytes at offset {}", request.bytes,
                 request.offset_bytes);
  if (free_actives_.empty()) {
    free_actives_.push_back(actives_.size());
    actives_.emplace_back();
  }
  const std::size_t active = free_actives_.back();
  free_actives_.pop_back();
  actives_[active] = {};
  actives_[active].request = request;
  actives_[active].direct = direct;
  queues_[index_of(request.kind)].push_back(active);
}

std::deque<std::size_t>& IoParts::next_queue() {
  auto& [reads, writes] = queues_;
  if (reads.empty() || writes.empty()) return reads.empty() ? writes : reads;
  const bool reads_are_next = under_way_[0] == under_way_[1] ? !last_was_read_ : under_way_[0] < under_way_[1];
  return reads_are_next ? reads : writes;
}

int IoParts::start() {
  int number = -1;
  if (!again_.empty()) {
    number = again_.back();
    again_.pop_back();
  } else {
    std::deque<std::size_t>& queue = next_queue();
    if (queue.empty() || free_parts_.empty()) return -1;
    number = free_parts_.back();
    free_parts_.pop_back();
    Active& active = actives_[queue.front()];
    Part& part = parts_[static_cast<std::size_t>(number)];
    part = {};
    part.active = queue.front();
    part.begin_bytes = active.cut_bytes;
    part.bytes = std::min(request_bytes_, active.request.bytes - active.cut_bytes);
    active.cut_bytes += part.bytes;
    ++active.parts;
    last_was_read_ = active.request.kind == IoRequest::Kind::read;
    if (active.cut_bytes == active.request.bytes) queue.pop_front();
  }
  ++under_way_[index_of(transfer(number).kind)];
  return number;
}

IoParts::Transfer IoParts::transfer(int number) const {
  const Part& part = parts_[static_cast<std::size_t>(number)];
  const IoRequest& request = actives_[part.active].request;
  const std::int64_t begin = part.begin_bytes + part.from_bytes;
  return {request.kind, request.file, request.offset_bytes + begin, request.data + begin, part.bytes - part.from_bytes};
}

void IoParts::finish(int number, std::int64_t result, std::vector<IoCompletion>& done) {
  Part& part = parts_[static_cast<std::size_t>(number)];
  Active& active = actives_[part.active];
  --under_way_[index_of(active.request.kind)];
  if (!advance(part, active, result) && active.error == 0) {
    again_.push_back(number);
    return;
  }
  release(number);
  if (active.error != 0 || active.at_end) abandon_rest(part.active);
  if (active.parts > 0 || active.cut_bytes < active.request.bytes) return;
  done.push_back({active.request.tag, active.done_bytes, active.error, active.request.bytes});
  free_actives_.push_back(part.active);
}

void IoParts::release(int number) {
  const Part& part = parts_[static_cast<std::size_t>(number)];
  actives_[part.active].done_bytes += part.done_bytes;
  --actives_[part.active].parts;
  free_parts_.push_back(number);
}

// No new parts. Those under way are waited for, since they use the request's memory; those to be continued lie before
// the end of the file or will meet it, so only an error ends them.
void IoParts::abandon_rest(std::size_t number) {
  Active& active = actives_[number];
  if (active.cut_bytes < active.request.bytes) {
    active.cut_bytes = active.request.bytes;
    queues_[index_of(active.request.kind)].pop_front();
  }
  if (active.error == 0) return;
  std::erase_if(again_, [this, number](int waiting) {
    if (parts_[static_cast<std::size_t>(waiting)].active != number) return false;
    release(waiting);
    return true;
  });
}

// A direct transfer that fell short is continued from the last aligned byte. One that gains nothing then has met the
// end of the file. A part of a read that failed is tried once more: disks, and networks before them, fail for a moment.
// A write is not: what lies on the disk after its failure is not known, and a second one that succeeds would hide that.
bool IoParts::advance(Part& part, Active& active, std::int64_t result) {
  if ((result == -EINTR || result == -EAGAIN) && ++part.interruptions < most_interruptions) return false;
  if (result < 0) {
    const bool is_first = !std::exchange(part.has_failed, true);
    if (is_first && active.request.kind == IoRequest::Kind::read) return false;
    if (active.error == 0) active.error = static_cast<int>(-result);
    return true;
  }
  const std::int64_t reached = part.from_bytes + result;
  if (reached > part.done_bytes) {
    part.interruptions = 0;
    part.done_bytes = reached;
    part.from_bytes = active.direct ? reached / direct_alignment * direct_alignment : reached;
    return part.done_bytes == part.bytes;
  }
  if (active.request.kind == IoRequest::Kind::read) {
    active.at_end = true;
  } else if (active.error == 0) {
    active.error = EIO;
  }
  return true;
}

}  // namespace spillway
