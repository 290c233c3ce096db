"""Moves a model's tensors by pull, one chunk at a time: torch's and NumPy's, without a copy.

    owner = tensorpull.Downloader("0.0.0.0:8002").start()
    ref_id = owner.add_tensors(model.state_dict(), recipients=2)
    ...
    state = tensorpull.download_tensors("server:8002", ref_id, framework="torch")

`help(tensorpull.download_tensors)` has its arguments and errors; the same of each name here:

  Downloader                         publishes dicts of tensors, and serves them
  download_tensors, download_file    pull into tensors, or into a file; Downloaded, Receipt, Cursor
  download_directory                 makes a directory again, such as a checkpoint with its tokenizer
  stream                             tensors one by one, as they arrive: TensorStream
  list_tensors, view_tensors         what is published; tensors in memory that is shared: Listing, TensorView
  Session, Listener                  both directions over one connection; Message, Relayed, Tunnelled
  WeightedAverage, weighted_average  federated averaging while updates arrive; Update
  Weighing, clip_norms               updates are compared before they are weighed; Differences
  narrowed, ErrorFeedback            a step in 8 or 4 bits
  flatten, unflatten, local_shards   trees of tensors: FlatTree, TensorDict
  PublishedImage, Landing, read_header  ranges, over a transport of your own
  Reference, Progress, Outcome, Status, Access, recipient_named  what an owner tells and is told
  Error, ErrorCode                   what went wrong: help(tensorpull.ErrorCode) has each code with its cause and what to do
  sign_reference, verify_reference   models that a key vouches for: SignedReference
  TLS                                certificates, and how to make them
  aio, messages, nvflare, flower     modules: asyncio, message structs of C++, NVIDIA FLARE, Flower
"""

# Each name is given twice, as type checkers want it. There is no __all__: with one, help(tensorpull) would be the help of every class.
from . import _interpreter  # noqa: F401: first
from ._average import WeightedAverage as WeightedAverage, weighted_average as weighted_average
from ._difference import ErrorFeedback as ErrorFeedback, narrowed as narrowed
from ._directory import download_directory as download_directory
from ._download import download_tensors as download_tensors
from ._downloader import Downloader as Downloader
from ._codes import ErrorCode as ErrorCode
from ._errors import Error as Error
from ._file import download_file as download_file
from ._images import Landing as Landing, PublishedImage as PublishedImage, read_header as read_header
from ._listing import Listing as Listing, list_tensors as list_tensors
from ._native import Cursor as Cursor
from ._options import recipient_named as recipient_named
from ._session import Listener as Listener, Message as Message, Relayed as Relayed, Session as Session, Tunnelled as Tunnelled
from ._proofs import SignedReference as SignedReference, sign_reference as sign_reference, verify_reference as verify_reference
from ._stream import TensorStream as TensorStream, stream as stream
from ._tls import TLS as TLS
from ._trees import FlatTree as FlatTree, flatten as flatten, local_shards as local_shards, unflatten as unflatten
from ._types import Access as Access, Downloaded as Downloaded, Outcome as Outcome, Progress as Progress, Receipt as Receipt, Reference as Reference, Status as Status, TensorDict as TensorDict, TensorView as TensorView, Update as Update
from ._view import view_tensors as view_tensors
from ._weighing import Differences as Differences, Weighing as Weighing, clip_norms as clip_norms

__version__ = "0.1.0"
