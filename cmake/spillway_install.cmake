# cmake --install: the command, the library with its headers, and the CMake package `spillway` with target
# spillway::spillway.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

if(TARGET spillway)
  install(TARGETS spillway RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(TARGETS spillway_library EXPORT spillway LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
foreach(header spillway.h base/dtype.h base/error.h machine/rates.h session/options.h session/run_control.h session/session.h telemetry/events.h
        telemetry/live.h telemetry/observer.h telemetry/record.h)
  get_filename_component(folder ${header} DIRECTORY)
  install(FILES src/${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/spillway/${folder})
endforeach()
install(EXPORT spillway NAMESPACE spillway:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/spillway
        FILE spillway-targets.cmake)
file(WRITE ${CMAKE_BINARY_DIR}/spillway-config.cmake
     "include(CMakeFindDependencyMacro)\nfind_dependency(fmt)\ninclude(\${CMAKE_CURRENT_LIST_DIR}/spillway-targets.cmake)\n")
write_basic_package_version_file(${CMAKE_BINARY_DIR}/spillway-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/spillway-config.cmake ${CMAKE_BINARY_DIR}/spillway-config-version.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/spillway)
install(FILES LICENSE NOTICE README.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES ${CMAKE_BINARY_DIR}/report_page/uPlot.LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} OPTIONAL)
