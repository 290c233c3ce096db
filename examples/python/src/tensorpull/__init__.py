"""Moves a model's tensors by pull, one chunk at a time: torch's and NumPy's, without a copy.

    owner = tensorpull.Downloader("0.0.0.0:8002").start()
    ref_id = owner.add_tensors(model.state_dict(), recipients=2)
    ...
    state = tensorpull.download_tensors("server:8002", ref_id, framework="torch")
"""

from ._average import WeightedAverage, weighted_average
from ._download import download_tensors
from ._downloader import Downloader
from ._errors import Error
from ._native import error_codes as ERROR_CODES
from ._options import recipient_named
from ._types import Outcome, Progress, Receipt, Reference, Status, TensorDict, Update

__all__ = [
    "ERROR_CODES", "Downloader", "Error", "Outcome", "Progress", "Receipt", "Reference", "Status", "TensorDict", "Update", "WeightedAverage",
    "download_tensors", "recipient_named", "weighted_average",
]  # fmt: skip
__version__ = "0.1.0"
