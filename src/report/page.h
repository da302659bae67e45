// The page of a report: one file of HTML that holds its charts, its style and its data, and asks the network for
// nothing. What it is made of is in web/report; the build puts it into this program.
#pragma once

#include <string>
#include <string_view>

namespace spillway {

// `data` is that of report_data.h. Throws UserError when this build has no page, saying why and how to get one.
std::string page_with(std::string_view data);

// Made by the build (scripts/report-page): the page with a place for the data, or why there is none.
extern const std::string_view report_page_text;
extern const std::string_view report_page_missing;

}  // namespace spillway
