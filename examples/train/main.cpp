// Trains a model folder from C++: train MODEL_DIR TEXT_FILE OUTPUT_DIR MEMORY_MIB
#include <spillway.h>

#include <cstdio>
#include <cstdlib>

struct Printer : spillway::TrainObserver {
  void note(std::string_view) override {}
  void started(const spillway::RunSummary& run) override { std::printf("%ld steps\n", long(run.total_steps)); }
  void step(const spillway::StepRecord& record) override {
    std::printf("step %ld loss %.4f\n", long(record.step), double(record.loss));
  }
  void finished(const spillway::RunEnd& end) override { std::printf("wrote %s\n", end.output_dir.c_str()); }
};

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  spillway::TrainOptions options;
  options.model = argv[1];
  options.data = {argv[2]};
  options.output_dir = argv[3];
  options.memory_bytes = std::atoll(argv[4]) << 20;
  options.max_steps = 5;
  options.max_seq_len = 64;
  options.per_device_train_batch_size = 2;
  Printer printer;
  try {
    spillway::run_train(options, printer);
  } catch (const spillway::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(error.code());
  }
}
