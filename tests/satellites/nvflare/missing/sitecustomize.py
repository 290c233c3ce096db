"""Python imports this when it begins: a process of the site that TENSORPULL_NOT_AT names finds no tensorpull, nor does a trainer with TENSORPULL_NOT_IN_TRAINERS."""

import os
import sys

site = os.environ.get("TENSORPULL_NOT_AT")
if site and any(site in word.split("/") for word in sys.orig_argv) or os.environ.get("TENSORPULL_NOT_IN_TRAINERS") and "NVFLARE_CLIENT_API_BOOTSTRAP" in os.environ:
    sys.modules["tensorpull"] = None
