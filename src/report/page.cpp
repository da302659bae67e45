#include "report/page.h"

#include "base/error.h"

namespace spillway {

std::string page_with(std::string_view data) {
  constexpr std::string_view place = "@REPORT_DATA@";
  const std::size_t at = report_page_text.find(place);
  if (at == std::string_view::npos)
    throw UserError(
        "report: this spillway was built without its page, since {}; with npm and a network, build it again",
        report_page_missing);
  std::string page;
  page.reserve(report_page_text.size() + data.size());
  page += report_page_text.substr(0, at);
  page += data;
  page += report_page_text.substr(at + place.size());
  return page;
}

}  // namespace spillway
