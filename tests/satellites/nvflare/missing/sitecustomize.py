"""Python imports this when it begins: a process of the site that TENSORPULL_NOT_AT names lacks what TENSORPULL_LACKS names, or the whole package."""

import os
import sys

site = os.environ.get("TENSORPULL_NOT_AT")
if site and any(site in word.split("/") for word in sys.orig_argv):
    sys.modules[os.environ.get("TENSORPULL_LACKS", "tensorpull")] = None
