# SPDX-License-Identifier: Apache-2.0
# embed.cmake - cmake -DIN=FILE -DOUT=FILE.c -DNAME=x -P embed.cmake: a file as a C array x and its
# length x_bytes.
file(READ ${IN} hex HEX)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
string(REGEX REPLACE "(................................................................................)" "\\1\n" bytes "${bytes}")
file(WRITE ${OUT} "#include <stddef.h>\nextern const unsigned char ${NAME}[];\nextern const size_t ${NAME}_bytes;\n"
    "const unsigned char ${NAME}[] = {\n${bytes}\n};\nconst size_t ${NAME}_bytes = sizeof ${NAME};\n")
