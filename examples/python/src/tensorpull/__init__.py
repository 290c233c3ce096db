"""Moves a model's tensors by pull, one chunk at a time: torch's and NumPy's, without a copy.

    owner = tensorpull.Downloader("0.0.0.0:8002").start()
    ref_id = owner.add_tensors(model.state_dict(), recipients=2)
    ...
    state = tensorpull.download_tensors("server:8002", ref_id, framework="torch")
"""

from . import _interpreter  # noqa: F401: first
from ._average import WeightedAverage, weighted_average
from ._difference import ErrorFeedback, narrowed
from ._download import download_tensors
from ._downloader import Downloader
from ._errors import Error
from ._file import download_file
from ._images import Landing, PublishedImage, read_header
from ._listing import Listing, list_tensors
from ._native import error_codes as ERROR_CODES
from ._options import recipient_named
from ._session import Listener, Message, Relayed, Session
from ._tls import TLS
from ._trees import FlatTree, flatten, local_shards, unflatten
from ._types import Access, Outcome, Progress, Receipt, Reference, Status, TensorDict, TensorView, Update
from ._view import view_tensors
from ._weighing import Differences, Weighing, clip_norms

__all__ = [
    "Access", "ERROR_CODES", "Differences", "Downloader", "Error", "FlatTree", "Landing", "Listener", "Listing", "Message", "Outcome", "Progress", "PublishedImage", "Receipt", "Reference", "Relayed",
    "Session", "Status", "TLS", "TensorDict", "TensorView", "Update", "WeightedAverage", "Weighing", "clip_norms", "download_file", "download_tensors", "flatten", "list_tensors", "local_shards", "narrowed", "read_header",
    "recipient_named", "unflatten", "view_tensors", "weighted_average",
]  # fmt: skip
__version__ = "0.1.0"
