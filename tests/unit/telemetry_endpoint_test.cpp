// The endpoint as a scraper sees it, and when a run counts as unwell.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "base/error.h"
#include "http_get.h"
#include "scratch_folder.h"
#include "telemetry/metrics_endpoint.h"

namespace spillway {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

std::int64_t now_ns = 0;
std::int64_t test_clock() { return now_ns; }
void pass(double seconds) { now_ns += static_cast<std::int64_t>(seconds * 1e9); }

RunSummary summary() {
  RunSummary run;
  run.model = "a \"quoted\" \\ model";
  run.total_steps = 20;
  run.budget_bytes = 1000;
  return run;
}

StepRecord record(std::int64_t step, double seconds = 2) {
  StepRecord r;
  r.step = step;
  r.total_steps = 20;
  r.loss = 1.5F;
  r.tokens = 100;
  r.step_seconds = seconds;
  r.disk_read_bytes = 10;
  StepTotals& totals = r.totals.emplace();
  totals.read_bytes = {1, 2, 3, 4, 0};
  totals.wait_seconds = {0.5, 0, 0, 0, 0.25};
  r.stall_seconds = 0.75;
  return r;
}

// Samples by name with labels; fails on what is not the text format.
std::map<std::string, double> samples_of(const std::string& text) {
  std::map<std::string, double> samples;
  std::map<std::string, std::string> types;
  std::set<std::string> explained;
  const std::regex comment(R"(# (HELP|TYPE) ([a-z_]+) (.+))");
  const std::regex sample(R"re(([a-z_]+)(\{([a-z_]+="([^"\\]|\\.)*",?)+\})? (\S+))re");
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::smatch match;
    if (std::regex_match(line, match, comment)) {
      if (match[1] == "HELP") explained.insert(match[2]);
      if (match[1] == "TYPE") types[match[2]] = match[3];
    } else if (std::regex_match(line, match, sample)) {
      const std::string name = match[1];
      EXPECT_TRUE(explained.contains(name)) << line;
      EXPECT_TRUE(types.contains(name)) << line;
      EXPECT_EQ(types[name] == "counter", name.ends_with("_total")) << line;
      EXPECT_TRUE(samples.emplace(name + match[2].str(), std::stod(match[5])).second) << "twice: " << line;
    } else {
      ADD_FAILURE() << "not the text format: " << line;
    }
  }
  return samples;
}

TEST(RunGauges, TellsTheRunInThePublishedFormat) {
  RunGauges gauges(test_clock);
  samples_of(gauges.text());  // before anything is known
  gauges.started(summary());
  gauges.step(record(1));
  gauges.step(record(2));
  LiveStatus live;
  live.phase = RunPhase::train;
  live.memory_bytes = {5, 6, 7, 8, 9};
  live.rss_bytes = 77;
  gauges.live(live);
  pass(3);
  const std::string text = gauges.text();
  auto samples = samples_of(text);
  EXPECT_EQ(samples["spillway_step"], 2);
  EXPECT_EQ(samples["spillway_steps_planned"], 20);
  EXPECT_EQ(samples["spillway_steps_total"], 2);
  EXPECT_EQ(samples["spillway_tokens_total"], 200);
  EXPECT_EQ(samples["spillway_loss"], 1.5);
  EXPECT_EQ(samples["spillway_step_seconds"], 2);
  EXPECT_EQ(samples["spillway_step_age_seconds"], 3);
  EXPECT_EQ(samples["spillway_disk_read_bytes_total{tag=\"optimizer\"}"], 4);
  EXPECT_EQ(samples["spillway_wait_seconds_total{cause=\"read_weights\"}"], 1);
  EXPECT_EQ(samples["spillway_wait_seconds_total{cause=\"write_weights\"}"], 0.5);
  EXPECT_FALSE(samples.contains("spillway_wait_seconds_total{cause=\"down_weights\"}")) << "there is no device";
  EXPECT_EQ(samples["spillway_stall_seconds_total"], 1.5);
  EXPECT_EQ(samples["spillway_memory_bytes{tag=\"unused\"}"], 9);
  EXPECT_EQ(samples["process_resident_memory_bytes"], 77);
  EXPECT_EQ(samples["spillway_memory_budget_bytes"], 1000);
  EXPECT_EQ(samples["spillway_run_phase{phase=\"train\"}"], 1);
  EXPECT_EQ(samples["spillway_healthy"], 1);
  EXPECT_THAT(text, HasSubstr(R"(model="a \"quoted\" \\ model")"));
  EXPECT_THAT(text, Not(HasSubstr("spillway_eval_loss"))) << "there was no evaluation";
}

TEST(RunGauges, TheAgeOfACommitIsThereOnceThereIsOne) {
  RunGauges gauges(test_clock);
  gauges.started(summary());
  gauges.live({});
  EXPECT_THAT(gauges.text(), Not(HasSubstr("spillway_commit_")));
  LiveStatus live;
  live.committed_step = 7;
  live.seconds_since_commit = 4;
  pass(10);
  gauges.live(live);
  pass(2);
  auto samples = samples_of(gauges.text());
  EXPECT_EQ(samples["spillway_commit_step"], 7);
  EXPECT_EQ(samples["spillway_commit_age_seconds"], 6);
}

TEST(RunGauges, WithoutEventsTheBytesAreUntagged) {
  RunGauges gauges(test_clock);
  gauges.started(summary());
  StepRecord r = record(1);
  r.totals.reset();
  gauges.step(r);
  auto samples = samples_of(gauges.text());
  EXPECT_EQ(samples["spillway_disk_read_bytes_total{tag=\"untagged\"}"], 10);
  EXPECT_EQ(samples["spillway_disk_read_bytes_total{tag=\"weights\"}"], 0);
}

LiveStatus in_phase(RunPhase phase, double share = 0) {
  LiveStatus live;
  live.phase = phase;
  live.share_of_step = share;
  return live;
}

TEST(RunHealth, IsUnwellWhenNoStepEndsForAMultipleOfTheMedian) {
  RunGauges gauges(test_clock);
  pass(1e5);
  EXPECT_TRUE(gauges.health().well) << "loading takes what it takes";
  gauges.started(summary());
  pass(1e5);
  EXPECT_TRUE(gauges.health().well) << "nothing is known of a step";
  for (std::int64_t step = 1; step <= 5; ++step) gauges.step(record(step, 20));
  pass(20 * RunGauges::unwell_factor - 1);
  EXPECT_TRUE(gauges.health().well);
  pass(2);
  EXPECT_FALSE(gauges.health().well);
  EXPECT_THAT(gauges.health().sentence, HasSubstr("no step has ended for 201.0 s; a step takes 20.0 s"));
  EXPECT_EQ(samples_of(gauges.text())["spillway_healthy"], 0);
  gauges.step(record(6, 221));
  EXPECT_TRUE(gauges.health().well);
}

TEST(RunHealth, LeavesShortStepsAMinute) {
  RunGauges gauges(test_clock);
  gauges.started(summary());
  for (std::int64_t step = 1; step <= 5; ++step) gauges.step(record(step, 0.1));
  pass(59);
  EXPECT_TRUE(gauges.health().well);
  pass(2);
  EXPECT_FALSE(gauges.health().well);
}

TEST(RunHealth, AnEvaluationIsWellWhileItsOpsEnd) {
  RunGauges gauges(test_clock);
  gauges.started(summary());
  for (std::int64_t step = 1; step <= 5; ++step) gauges.step(record(step, 1));
  for (int i = 1; i <= 10; ++i) {
    pass(50);
    gauges.live(in_phase(RunPhase::evaluate, 0.05 * i));
    EXPECT_TRUE(gauges.health().well);
  }
  pass(62);
  gauges.live(in_phase(RunPhase::evaluate, 0.5));
  EXPECT_FALSE(gauges.health().well);
  gauges.live(in_phase(RunPhase::train, 0.5));
  EXPECT_TRUE(gauges.health().well) << "the next step begins";
  pass(1e5);
  EXPECT_FALSE(gauges.health().well);
  gauges.live(in_phase(RunPhase::save));
  EXPECT_TRUE(gauges.health().well);
  gauges.live(in_phase(RunPhase::train));
  pass(1e5);
  gauges.finished({});
  EXPECT_TRUE(gauges.health().well);
}

TEST(RunHealth, ThePredictionCountsUntilStepsAreKnown) {
  RunGauges gauges(test_clock);
  gauges.started(summary());
  LiveStatus live = in_phase(RunPhase::train);
  live.expected_step_seconds = 100;
  gauges.live(live);
  pass(999);
  EXPECT_TRUE(gauges.health().well);
  pass(2);
  EXPECT_FALSE(gauges.health().well);
}

TEST(Endpoint, ServesNumbersAndHealth) {
  RunGauges gauges(test_clock);
  gauges.started(summary());
  for (std::int64_t step = 1; step <= 5; ++step) gauges.step(record(step));
  const MetricsEndpoint endpoint(parse_listen_address("127.0.0.1:0"), gauges);
  EXPECT_GT(endpoint.address().port, 0);
  const std::string answer = http_get(endpoint.address().port, "/metrics");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(answer, HasSubstr("Content-Type: text/plain; version=0.0.4"));
  const std::string body = answer.substr(answer.find("\r\n\r\n") + 4);
  EXPECT_EQ(samples_of(body)["spillway_step"], 5);
  const std::string health = http_get(endpoint.address().port, "/healthz");
  EXPECT_THAT(health, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(health, HasSubstr("\r\nContent-Type: text/plain; charset=utf-8\r\n")) << "no samples";
  EXPECT_THAT(http_get(endpoint.address().port, "/"), StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(http_get(endpoint.address().port, "/metrics", "POST"), StartsWith("HTTP/1.1 405 "));
  pass(1e4);
  EXPECT_THAT(http_get(endpoint.address().port, "/healthz"), StartsWith("HTTP/1.1 503 Service Unavailable\r\n"));
}

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const UserError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Endpoint, APortInUseIsRefusedWithTheFix) {
  RunGauges gauges(test_clock);
  const MetricsEndpoint first(parse_listen_address(":0"), gauges);
  const std::string sentence = refusal([&] { const MetricsEndpoint second(first.address(), gauges); });
  EXPECT_THAT(sentence, HasSubstr("metrics_address: cannot listen on " + first.address().text()));
  EXPECT_THAT(sentence, HasSubstr("name another port"));
  EXPECT_THAT(refusal([&] { const MetricsEndpoint other(parse_listen_address("192.0.2.1:0"), gauges); }),
              HasSubstr("this machine has no such address"));
}

// A build of civetweb, or a machine, may be without IPv6; an address that is none of the machine's is refused by all.
TEST(Endpoint, AnIPv6AddressIsRefusedInItsOwnWords) {
  RunGauges gauges(test_clock);
  const std::string own = refusal([&] { const MetricsEndpoint endpoint(parse_listen_address("[::1]:0"), gauges); });
  EXPECT_THAT(own, testing::AnyOf("accepted", HasSubstr("IPv6"), HasSubstr("no such address")));
  const std::string none =
      refusal([&] { const MetricsEndpoint endpoint(parse_listen_address("[2001:db8::1]:9400"), gauges); });
  EXPECT_THAT(none, HasSubstr("cannot listen on [2001:db8::1]:9400: "));
  EXPECT_THAT(none, testing::AnyOf(HasSubstr("IPv6"), HasSubstr("no such address")));
  EXPECT_THAT(refusal([&] { parse_listen_address("[::1]"); }), HasSubstr("give it a port, as [::1]:9400"));
}

TEST(Endpoint, AnAddressIsTheLoopbackUnlessItSaysOtherwise) {
  EXPECT_EQ(parse_listen_address("9400").text(), "127.0.0.1:9400");
  EXPECT_EQ(parse_listen_address(":9400").text(), "127.0.0.1:9400");
  EXPECT_EQ(parse_listen_address("localhost:1").text(), "127.0.0.1:1");
  EXPECT_EQ(parse_listen_address("0.0.0.0:9400").text(), "0.0.0.0:9400");
  EXPECT_EQ(parse_listen_address("[::1]:9400").text(), "[::1]:9400");
  for (const char* text : {"", ":", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:-1", "::1:9400",
                           "host.example:9400", "1.2.3:9400", "127.0.0.1:94x0", "[::1]", "[127.0.0.1]:1"})
    EXPECT_THAT(refusal([&] { parse_listen_address(text); }), HasSubstr("metrics_address is '")) << text;
}

// Debian's own checker, where it is installed.
TEST(Endpoint, PromtoolAgrees) {
  if (std::system("command -v promtool >/dev/null") != 0) GTEST_SKIP() << "no promtool";
  RunGauges gauges(test_clock);
  gauges.started(summary());
  gauges.step(record(1));
  gauges.live(in_phase(RunPhase::train));
  const ScratchFolder scratch;
  const std::string file = scratch.file("metrics", gauges.text()).string();
  EXPECT_EQ(std::system(("promtool check metrics < " + file).c_str()), 0);
  EXPECT_EQ(std::system("promtool check rules " SPILLWAY_SOURCE_DIR "/examples/prometheus/alerts.yml"), 0);
}

}  // namespace
}  // namespace spillway
