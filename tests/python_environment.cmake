# cmake -DPYTHON= -DENVIRONMENT= -DPACKAGES=a|b -P python_environment.cmake: a virtual environment with the packages, made once.

string(REPLACE "|" ";" packages "${PACKAGES}")
set(stamp "${ENVIRONMENT}/packages.txt")
if(EXISTS "${stamp}")
  file(READ "${stamp}" present)
  if(present STREQUAL PACKAGES)
    return()
  endif()
endif()
execute_process(COMMAND "${PYTHON}" -m venv --clear "${ENVIRONMENT}" COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND "${ENVIRONMENT}/bin/python" -m pip install --quiet --disable-pip-version-check
  --retries 10 --timeout 60 ${packages}
  COMMAND_ERROR_IS_FATAL ANY)
file(WRITE "${stamp}" "${PACKAGES}")
