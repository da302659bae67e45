# The page of `spillway report`: web/report and the chart library of its lockfile, as a source file of room report. Looked
# at in every build, so that a page that could not be made for want of npm or a network is made as soon as it can be.
set(SPILLWAY_REPORT_PAGE ${CMAKE_BINARY_DIR}/report_page/page_text.cpp)
add_custom_target(report_page
  COMMAND ${CMAKE_SOURCE_DIR}/scripts/report-page ${CMAKE_BINARY_DIR}/report_page
  BYPRODUCTS ${SPILLWAY_REPORT_PAGE}
  COMMENT "Looking at the page of spillway report" VERBATIM)
set_source_files_properties(${SPILLWAY_REPORT_PAGE} PROPERTIES GENERATED TRUE)
target_sources(spillway_report PRIVATE ${SPILLWAY_REPORT_PAGE})
add_dependencies(spillway_report report_page)
