"""Python imports this when it begins: a process of the site that TENSORPULL_NOT_AT names finds no tensorpull."""

import os
import sys

site = os.environ.get("TENSORPULL_NOT_AT")
if site and any(site in word.split("/") for word in sys.orig_argv):
    sys.modules["tensorpull"] = None
