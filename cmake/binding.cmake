# SPDX-License-Identifier: Apache-2.0
# hvd_add_binding(NAME): libhorovod_NAME.so from the sources of this folder and of bindings/common. It
# needs no framework to build; it lies beside libhorovod.so, because both must share the one engine
# instance.
function(hvd_add_binding name)
    file(GLOB sources CONFIGURE_DEPENDS
        ${CMAKE_CURRENT_SOURCE_DIR}/*.c ${PROJECT_SOURCE_DIR}/bindings/common/*.c)
    add_library(horovod_${name} MODULE ${sources})
    target_link_libraries(horovod_${name} PRIVATE hvd_flags horovod)
    set_target_properties(horovod_${name} PROPERTIES
        LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}
        BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "$ORIGIN")
    install(TARGETS horovod_${name} LIBRARY DESTINATION ${HVD_LIB_DIR})
endfunction()
