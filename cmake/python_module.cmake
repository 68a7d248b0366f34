# SPDX-License-Identifier: Apache-2.0
# horovod._native: the fast calls of the Python package. One file for every Python from 3.10 on
# (limited API). It shares libhorovod.so with everything else in the process, because the engine
# instance lives there.
file(GLOB HVD_PYTHON_SOURCES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/bindings/python/*.c)
if(HVD_PYTHON_SOURCES)
    find_package(Python 3.10 REQUIRED COMPONENTS Interpreter Development.Module)
    Python_add_library(_native MODULE ${HVD_PYTHON_SOURCES})
    target_compile_definitions(_native PRIVATE Py_LIMITED_API=0x030A0000)
    target_link_libraries(_native PRIVATE hvd_flags horovod)
    set_target_properties(_native PROPERTIES
        PREFIX "" SUFFIX ".abi3.so"
        BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "$ORIGIN/lib")
endif()
