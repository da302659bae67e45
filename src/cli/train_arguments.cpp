#include "cli/train_arguments.h"

#include "cli/config_file.h"

namespace spillway {

TrainArguments::TrainArguments(CLI::App& app) : flags_(app, options_of(options_)) {
  app.add_option("run.yaml", config_path_,
                 "file of `key: value` lines; a key learning_rate is the flag --learning-rate")
      ->type_name("");
  app.add_flag("--print-config", print_config_, "print the effective values as YAML and stop");
}

const TrainOptions& TrainArguments::read() {
  if (!config_path_.empty()) load_config(config_path_, flags_.rows());
  flags_.apply();
  return options_;
}

std::string TrainArguments::config_text() const {
  TrainOptions defaults;
  return print_config(flags_.rows(), options_of(defaults));
}

}  // namespace spillway
