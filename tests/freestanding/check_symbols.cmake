# cmake -DNM= -DFILE= -P check_symbols.cmake: the linked program has no heap and no exceptions.

execute_process(COMMAND "${NM}" "${FILE}" OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
foreach(forbidden IN ITEMS malloc _malloc_r _Znwj _Znaj __cxa_throw __cxa_allocate_exception __cxa_guard_acquire)
  if(symbols MATCHES " ${forbidden}\n")
    message(FATAL_ERROR "the program contains ${forbidden}")
  endif()
endforeach()
