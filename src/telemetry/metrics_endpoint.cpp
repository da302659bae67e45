#include "telemetry/metrics_endpoint.h"

#include <arpa/inet.h>
#include <civetweb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <optional>

#include "base/error.h"

namespace spillway {
namespace {

constexpr std::string_view key = "metrics_address";
constexpr std::string_view plain_text = "text/plain; charset=utf-8";
constexpr std::string_view exposition_text = "text/plain; version=0.0.4; charset=utf-8";

// The address as bind takes it.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t bytes = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

std::optional<SocketAddress> socket_address(const ListenAddress& address) {
  SocketAddress result;
  const auto port = htons(static_cast<std::uint16_t>(address.port));
  auto* const v4 = reinterpret_cast<sockaddr_in*>(&result.storage);
  if (inet_pton(AF_INET, address.host.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = port;
    result.bytes = sizeof *v4;
    return result;
  }
  auto* const v6 = reinterpret_cast<sockaddr_in6*>(&result.storage);
  if (inet_pton(AF_INET6, address.host.c_str(), &v6->sin6_addr) != 1) return std::nullopt;
  v6->sin6_family = AF_INET6;
  v6->sin6_port = port;
  result.bytes = sizeof *v6;
  return result;
}

std::string why_not(int error, std::int64_t port) {
  switch (error) {
    case EADDRINUSE: return "another process listens there; name another port";
    case EADDRNOTAVAIL: return "this machine has no such address; name one of its own, as 127.0.0.1";
    case EAFNOSUPPORT: return "this machine has no IPv6; give an IPv4 address, as 127.0.0.1:9400";
    case EACCES: return fmt::format("port {} is for the administrator; name one above 1023", port);
    default: return errno_text(error);
  }
}

// Asks the system, for the reason that civetweb keeps to itself.
void require_free(const ListenAddress& address) {
  const SocketAddress at = socket_address(address).value();
  if (at.storage.ss_family == AF_INET6 && mg_check_feature(MG_FEATURES_IPV6) == 0)
    throw UserError("{}: cannot listen on {}: civetweb was built without IPv6; give an IPv4 address, as 127.0.0.1:9400",
                    key, address.text());
  const int socket = ::socket(at.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int yes = 1;
  int error = socket < 0 ? errno : 0;
  if (socket >= 0) {
    ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (::bind(socket, at.get(), at.bytes) != 0 || ::listen(socket, 1) != 0) error = errno;
    ::close(socket);
  }
  if (error != 0) throw UserError("{}: cannot listen on {}: {}", key, address.text(), why_not(error, address.port));
}

struct Answer {
  int status = 200;
  const char* reason = "OK";
  std::string body;
  std::string_view type = plain_text;
};

Answer answer_to(std::string_view method, std::string_view path, const RunGauges& gauges) {
  if (method != "GET" && method != "HEAD") return {405, "Method Not Allowed", "GET only\n"};
  if (path == "/metrics") return {200, "OK", gauges.text(), exposition_text};
  if (path != "/healthz") return {404, "Not Found", "/metrics and /healthz are here\n"};
  const RunGauges::Health health = gauges.health();
  if (health.well) return {200, "OK", health.sentence + '\n'};
  return {503, "Service Unavailable", health.sentence + '\n'};
}

int stay_silent(const mg_connection*, const char*) { return 1; }

}  // namespace

std::string ListenAddress::text() const {
  return host.find(':') == host.npos ? fmt::format("{}:{}", host, port) : fmt::format("[{}]:{}", host, port);
}

ListenAddress parse_listen_address(std::string_view text) {
  ListenAddress address;
  const std::size_t colon = text.rfind(':');
  std::string_view host = colon == text.npos ? std::string_view() : text.substr(0, colon);
  const std::string_view port = colon == text.npos ? text : text.substr(colon + 1);
  if (host.starts_with('[') && host.ends_with(']') && host.find(':') != host.npos)
    host = host.substr(1, host.size() - 2);
  else if (host.starts_with('[') && text.ends_with(']'))
    throw UserError("{} is '{}'; give it a port, as {}:9400", key, text, text);
  else if (host.find(':') != host.npos)
    throw UserError("{} is '{}'; write an IPv6 address in brackets, as [::1]:9400", key, text);
  address.host = host.empty() || host == "localhost" ? "127.0.0.1" : std::string(host);
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), address.port);
  if (error != std::errc() || end != port.data() + port.size() || address.port < 0 || address.port > 65535)
    throw UserError("{} is '{}'; it must be ADDRESS:PORT, as 127.0.0.1:9400", key, text);
  if (!socket_address(address))
    throw UserError("{} is '{}'; {} is no IP address, give one as 127.0.0.1:9400", key, text, address.host);
  return address;
}

MetricsEndpoint::MetricsEndpoint(const ListenAddress& address, const RunGauges& gauges)
    : address_(address), gauges_(gauges) {
  require_free(address_);
  mg_init_library(MG_FEATURES_DEFAULT);
  mg_callbacks callbacks{};
  callbacks.begin_request = &MetricsEndpoint::answer;
  callbacks.log_message = stay_silent;
  callbacks.log_access = stay_silent;
  const std::string listen = address_.text();
  std::array<const char*, 9> options{
      "listening_ports",   listen.c_str(), "num_threads", "2", "request_timeout_ms", "5000",
      "enable_keep_alive", "no",           nullptr};
  server_ = mg_start(&callbacks, this, options.data());
  if (server_ == nullptr) {
    mg_exit_library();
    throw UserError("{}: cannot listen on {}; name another port", key, listen);
  }
  mg_server_port port{};
  if (mg_get_server_ports(server_, 1, &port) == 1) address_.port = port.port;
}

MetricsEndpoint::~MetricsEndpoint() {
  mg_stop(server_);
  mg_exit_library();
}

int MetricsEndpoint::answer(mg_connection* connection) {
  const mg_request_info* const request = mg_get_request_info(connection);
  const auto* const self = static_cast<const MetricsEndpoint*>(request->user_data);
  const char* const path = request->local_uri == nullptr ? "" : request->local_uri;
  const std::string_view method = request->request_method;
  const Answer answer = answer_to(method, path, self->gauges_);
  const std::string head = fmt::format(
      "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nCache-Control: no-store\r\nConnection: "
      "close\r\n\r\n",
      answer.status, answer.reason, answer.type, answer.body.size());
  mg_write(connection, head.data(), head.size());
  if (method != "HEAD") mg_write(connection, answer.body.data(), answer.body.size());
  return answer.status;
}

}  // namespace spillway
