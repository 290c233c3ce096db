# cmake -DTOOLS=a;b -DTO=FOLDER -P copy_tools.cmake: the programs behind python -m tensorpull, where an installed package has them.
file(COPY ${TOOLS} DESTINATION "${TO}")
