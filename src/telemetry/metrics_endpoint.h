// HTTP for Prometheus: /metrics has the numbers of a run, /healthz says whether it is well.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "telemetry/run_gauges.h"

struct mg_context;
struct mg_connection;

namespace spillway {

struct ListenAddress {
  std::string host;  // an IPv4 or IPv6 address
  std::int64_t port = 0;
  std::string text() const;  // "127.0.0.1:9400", "[::1]:9400"
};

// "127.0.0.1:9400", "[::1]:9400", "localhost:9400"; without a host, as ":9400" or "9400", the loopback. Port 0: any
// that is free. Throws UserError.
ListenAddress parse_listen_address(std::string_view text);

// Serves from construction to destruction, on threads of its own that read `gauges`, which outlive it.
class MetricsEndpoint {
 public:
  // Throws UserError when it cannot listen there.
  MetricsEndpoint(const ListenAddress& address, const RunGauges& gauges);
  MetricsEndpoint(const MetricsEndpoint&) = delete;
  MetricsEndpoint& operator=(const MetricsEndpoint&) = delete;
  ~MetricsEndpoint();

  const ListenAddress& address() const { return address_; }  // with the port it has
  std::string url() const { return "http://" + address_.text() + "/metrics"; }

 private:
  static int answer(mg_connection* connection);

  ListenAddress address_;
  const RunGauges& gauges_;
  mg_context* server_ = nullptr;
};

}  // namespace spillway
