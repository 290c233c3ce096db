"""Python imports this when it begins: a process of the site that TENSORPULL_NOT_AT names lacks what TENSORPULL_LACKS names, or the whole package, as does a trainer with TENSORPULL_NOT_IN_TRAINERS.
With TENSORPULL_NO_MEMORY the system gives no memory without a name, as in a sandbox."""

import os
import sys

site = os.environ.get("TENSORPULL_NOT_AT")
if site and any(site in word.split("/") for word in sys.orig_argv) or os.environ.get("TENSORPULL_NOT_IN_TRAINERS") and "NVFLARE_CLIENT_API_BOOTSTRAP" in os.environ:
    sys.modules[os.environ.get("TENSORPULL_LACKS", "tensorpull")] = None


def refused(*_):
    raise PermissionError("Operation not permitted")


if os.environ.get("TENSORPULL_NO_MEMORY"):
    os.memfd_create = refused
