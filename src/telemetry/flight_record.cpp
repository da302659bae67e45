#include "telemetry/flight_record.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <new>

#include "base/bytes.h"
#include "base/error.h"

namespace spillway {
namespace {

constexpr std::array<char, 8> magic{'S', 'P', 'I', 'L', 'L', 'F', 'L', 'T'};
static_assert(sizeof(FlightHeader) <= FlightFile::header_bytes);

std::int64_t wall_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

DeviceError failure(const std::filesystem::path& path) {
  return DeviceError("{}: cannot be written ({})", path.string(), errno_text(errno));
}

// A file mapped for reading as it was at the time of the call.
class Mapped {
 public:
  explicit Mapped(const std::filesystem::path& path) {
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0)
      throw UserError("{}: cannot be read ({}); name the output folder of a run", path.string(), errno_text(errno));
    struct stat status {};
    if (::fstat(descriptor, &status) == 0) bytes = status.st_size;
    if (bytes > 0) {
      void* at = ::mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ, MAP_SHARED, descriptor, 0);
      if (at != MAP_FAILED) data = static_cast<std::byte*>(at);
    }
    ::close(descriptor);
  }
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;
  ~Mapped() {
    if (data != nullptr) ::munmap(data, static_cast<std::size_t>(bytes));
  }

  std::byte* data = nullptr;
  std::int64_t bytes = 0;
};

void check_rings(const Mapped& file, const FlightHeader& header, const std::filesystem::path& path) {
  const std::int64_t room = file.bytes - FlightFile::header_bytes;
  bool sound = header.rings_bytes >= ring_heads_bytes && header.rings_bytes <= room && header.catalog_bytes >= 0 &&
               header.catalog_bytes <= room - header.rings_bytes;
  RingCapacities capacities{};
  for (std::size_t source = 0; sound && source < event_source_count; ++source) {
    const auto* heads = reinterpret_cast<const EventRing::Head*>(file.data + FlightFile::header_bytes);
    sound = heads[source].capacity > 0 && heads[source].capacity <= static_cast<std::uint64_t>(room);
    capacities[source] = static_cast<std::int64_t>(heads[source].capacity);
  }
  if (!sound || ring_bytes_for(capacities) != header.rings_bytes)
    throw UserError("{}: is damaged; its rings do not fit in the file", path.string());
}

// Of a file from anywhere: what sums and differences are made of cannot overflow.
constexpr std::int64_t most_ns = std::int64_t{1} << 61;
constexpr std::int64_t most_move_bytes = std::int64_t{1} << 46;

bool is_sound(const Event& e) {
  const bool counts_bytes =
      e.kind == EventKind::move_submit || e.kind == EventKind::move_complete || e.kind == EventKind::stay_begin;
  return e.kind != EventKind::none && static_cast<std::size_t>(e.kind) < event_kind_count &&
         static_cast<std::size_t>(e.lane) < event_lane_count && e.time_ns >= 0 && e.time_ns < most_ns &&
         (!counts_bytes || (e.value >= 0 && e.value <= most_move_bytes));
}

void check_times(const FlightHeader& header, const std::filesystem::path& path) {
  for (const std::int64_t time : {header.start_wall_ns, header.start_ns, header.committed_ns.load()}) {
    if (time < 0 || time >= most_ns) throw UserError("{}: is damaged; it gives a time of {} ns", path.string(), time);
  }
}

}  // namespace

FlightFile::FlightFile(const std::filesystem::path& path, const RingCapacities& capacities)
    : path_(path), bytes_(header_bytes + ring_bytes_for(capacities)) {
  descriptor_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (descriptor_ < 0) throw failure(path_);
  // Allocated now: a full disk must not be a bus error in the middle of a step.
  const int full = ::posix_fallocate(descriptor_, 0, bytes_);
  errno = full;
  void* at =
      full != 0 ? MAP_FAILED
                : ::mmap(nullptr, static_cast<std::size_t>(bytes_), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, 0);
  if (at == MAP_FAILED) {
    const DeviceError error = failure(path_);
    ::close(descriptor_);
    throw error;
  }
  memory_ = static_cast<std::byte*>(at);
  FlightHeader& h = *new (memory_) FlightHeader();
  h.version = event_version;
  h.event_bytes = sizeof(Event);
  h.process = ::getpid();
  h.start_wall_ns = std::clamp<std::int64_t>(wall_ns(), 0, most_ns - 1);  // a wrong clock is not damage
  h.start_ns = monotonic_ns();
  h.rings_bytes = ring_bytes_for(capacities);
  recorder_ = std::make_unique<EventRecorder>(memory_ + header_bytes, capacities);
  h.magic = magic;
}

FlightFile::~FlightFile() {
  recorder_.reset();
  ::munmap(memory_, static_cast<std::size_t>(bytes_));
  ::close(descriptor_);
}

void FlightFile::describe(const Catalog& catalog) {
  const std::string text = json_of(catalog);
  std::int64_t done = 0;
  while (done < std::ssize(text)) {
    const ssize_t written =
        ::pwrite(descriptor_, text.data() + done, text.size() - static_cast<std::size_t>(done), bytes_ + done);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) throw failure(path_);
    done += written;
  }
  header().catalog_bytes = done;
}

void FlightFile::step_done(std::int64_t step, std::int64_t total_steps) {
  header().steps_done = step;
  header().total_steps = total_steps;
}

void FlightFile::committed(std::int64_t step) {
  header().committed_ns = monotonic_ns();
  header().committed_step = step;
}

void FlightFile::keep_steps() const {
  std::error_code ignored;  // a report then has what is left in the rings
  std::filesystem::copy_file(path_, path_.parent_path() / steps_file_name,
                             std::filesystem::copy_options::overwrite_existing, ignored);
}

FlightRecord read_flight(const std::filesystem::path& given) {
  const std::filesystem::path path = std::filesystem::is_directory(given) ? given / flight_file_name : given;
  const Mapped file(path);
  if (file.data == nullptr || file.bytes < FlightFile::header_bytes)
    throw UserError("{}: is no flight record; it has {} bytes", path.string(), file.bytes);
  const auto& header = *reinterpret_cast<const FlightHeader*>(file.data);
  if (header.magic != magic) throw UserError("{}: is no flight record", path.string());
  if (header.version != event_version || header.event_bytes != sizeof(Event))
    throw UserError("{}: has version {}, this spillway reads {}", path.string(), header.version, event_version);
  check_rings(file, header, path);
  check_times(header, path);

  FlightRecord record;
  record.process = header.process;
  record.start_wall_ns = header.start_wall_ns;
  record.start_ns = header.start_ns;
  record.end = header.end;
  record.process_alive = header.process > 0 && (::kill(static_cast<pid_t>(header.process), 0) == 0 || errno == EPERM);
  record.steps_done = header.steps_done;
  record.total_steps = header.total_steps;
  record.committed_step = header.committed_step;
  record.committed_ns = header.committed_ns;
  const EventRecorder rings = EventRecorder::over(file.data + FlightFile::header_bytes);
  for (std::size_t source = 0; source < event_source_count; ++source) {
    rings.ring(static_cast<EventSource>(source)).read(0, record.events);
  }
  std::erase_if(record.events, [](const Event& event) { return !is_sound(event); });
  std::stable_sort(record.events.begin(), record.events.end(),
                   [](const Event& a, const Event& b) { return a.time_ns < b.time_ns; });
  if (header.catalog_bytes > 0) {
    const auto* text = reinterpret_cast<const char*>(file.data + FlightFile::header_bytes + header.rings_bytes);
    record.catalog = catalog_from_json({text, static_cast<std::size_t>(header.catalog_bytes)});
  }
  return record;
}

}  // namespace spillway
