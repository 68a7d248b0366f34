# SPDX-License-Identifier: Apache-2.0
# What is installed where. In a wheel everything lies inside the package folder `horovod`, and the
# launcher among the environment's scripts; elsewhere the usual bin, lib and include.
if(SKBUILD)
    set(HVD_LIB_DIR horovod/lib)
    set(HVD_INCLUDE_DIR horovod/include)
    set(HVD_BIN_DIR ${SKBUILD_SCRIPTS_DIR})
    if(TARGET _native)
        install(TARGETS _native LIBRARY DESTINATION horovod)
    endif()
else()
    set(HVD_LIB_DIR ${CMAKE_INSTALL_LIBDIR})
    set(HVD_INCLUDE_DIR ${CMAKE_INSTALL_INCLUDEDIR})
    set(HVD_BIN_DIR ${CMAKE_INSTALL_BINDIR})
endif()

install(TARGETS horovod LIBRARY DESTINATION ${HVD_LIB_DIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/horovod DESTINATION ${HVD_INCLUDE_DIR}
    FILES_MATCHING PATTERN "*.h")
if(TARGET horovodrun)
    install(TARGETS horovodrun RUNTIME DESTINATION ${HVD_BIN_DIR})
endif()
if(NOT SKBUILD)
    install(FILES ${PROJECT_SOURCE_DIR}/docs/man/hvd.3 DESTINATION ${CMAKE_INSTALL_MANDIR}/man3)
endif()
