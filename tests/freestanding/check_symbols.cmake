# cmake -DNM= -DFILE= [-DALSO=SYMBOL;...] -P check_symbols.cmake: the program has no heap and no exceptions, takes neither time nor random numbers from its
# C++ library, and has none of the other symbols.

execute_process(COMMAND "${NM}" "${FILE}" OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
foreach(forbidden IN ITEMS malloc _malloc_r _Znwj _Znaj __cxa_throw __cxa_allocate_exception __cxa_guard_acquire
    _ZNSt6chrono3_V212steady_clock3nowEv _ZNSt6chrono3_V212system_clock3nowEv clock_gettime gettimeofday rand srand ${ALSO})
  if(symbols MATCHES " ${forbidden}\n")
    message(FATAL_ERROR "the program contains ${forbidden}")
  endif()
endforeach()
