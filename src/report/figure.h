// A figure for a paper: memory and link traffic of one step over time with its phases, drawn by gnuplot.
#pragma once

#include <filesystem>
#include <string>

#include "report/report_data.h"

namespace spillway {

// What gnuplot is told, ending in the data; pure. The figure goes to `path`.
std::string figure_script(const ReportedRun& run, const std::filesystem::path& path);

// Throws UserError when the run has no timeline or gnuplot is not there, DeviceError when the file cannot be written.
void write_figure(const ReportedRun& run, const std::filesystem::path& path);

}  // namespace spillway
