"""The commands of `python -m tensorpull`. Their words, options and exit statuses are those of the C++ tools (examples/tools)."""
