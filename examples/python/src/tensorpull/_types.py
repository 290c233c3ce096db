"""What the functions of this package take and give: references, events, outcomes."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, List, Literal, Mapping, NamedTuple, Optional, Protocol, Tuple, TypedDict, Union

#: Whose tensors new ones are.
Framework = Literal["numpy", "torch"]

from . import _native

if TYPE_CHECKING:
    from ._tls import TLS
if sys.version_info >= (3, 11):
    from typing import Unpack as Unpack
elif TYPE_CHECKING:
    from typing_extensions import Unpack as Unpack
else:  # typing.get_type_hints wants a name that can be followed by [...]
    Unpack = List


class Event(Protocol):
    """A threading.Event, or what has the same."""

    def is_set(self) -> bool: ...


class Signal(Protocol):
    """An object with `triggered`, as NVIDIA FLARE's signals are."""

    @property
    def triggered(self) -> bool: ...


class Bar(Protocol):
    """tqdm's bar, or what has the same."""

    total: Any

    def update(self, n: Any, /) -> Any: ...


#: What ends a call.
Abort = Union[Event, Signal, Callable[[], object], None]
#: The end of a wait: of a reference, of several, or something that becomes true.
Until = Union[str, Iterable[str], Event, Signal, Callable[[], object], None]


class LookOptions(TypedDict, total=False):
    """Options of `list_tensors` over a session."""

    version: Optional[int]
    recipient: Optional[str]
    retries: int


class PullOptions(LookOptions, total=False):
    """Options of `download_tensors`, wherever it pulls from."""

    framework: Optional[Framework]
    out: Any
    subset: bool
    names: Optional[Iterable[str]]
    matching: Optional[Iterable[str]]
    max_bytes: Optional[int]
    max_header_bytes: int
    max_tensors: int
    progress_interval: float
    window: int
    unverified: bool
    believe: bool
    base: Optional[Mapping[str, Any]]
    timeout: Optional[float]
    wait: Optional[float]
    atomic: bool
    cursor: Optional[_native.Cursor]
    adapt: bool


class FileOptions(LookOptions, total=False):
    """Options of `download_file` over a session."""

    resume: bool
    overwrite: bool
    max_bytes: Optional[int]
    per_request_timeout: Optional[float]
    chunk_size: Optional[int]
    progress: Tell
    abort: Abort
    progress_interval: float
    window: int
    unverified: bool
    believe: bool
    timeout: Optional[float]
    wait: Optional[float]


class TransferOptions(LookOptions, total=False):
    """Those of every pull that is not the first argument of its call."""

    per_request_timeout: Optional[float]
    progress: Tell
    progress_interval: float
    abort: Abort
    window: int
    believe: bool
    timeout: Optional[float]
    wait: Optional[float]
    ssl: Optional[TLS]


class SetOptions(TransferOptions, total=False):
    """Options of `messages.TensorSet.download_tensors`."""

    chunk_size: Optional[int]
    max_bytes: Optional[int]
    max_header_bytes: int
    max_tensors: int
    unverified: bool
    atomic: bool
    connections: int


class AverageOptions(TransferOptions, total=False):
    """Options of `WeightedAverage.pull`."""

    narrowed: bool


class Reference(str):
    """A reference: 48 hexadecimal digits, so it can be sent in every way in which a str can. The first 32 are its ID (`id`), by which it is found; the others are its `version`, the
    digest of what was published. A recipient that has all of them gets these bytes or an error, whoever sends them. One that has the ID alone, or asks for some of the tensors only, believes
    whoever answers (`Receipt.believed`).

    The object also knows what its text does not: `fingerprint` (of names, dtypes and shapes), `nbytes` (of the image) and
    `chunk_size` (what the owner suggests; the recipient decides). It can be pickled. Sent as JSON it becomes the text alone.
    Anyone who has the ID can pull: treat it as a secret.
    """

    version: int
    fingerprint: int
    nbytes: int
    chunk_size: int
    _beside = ""  # the IDs of differences that are published beside it
    root = ""  #: of what was published with `proofs=True`: the BLAKE3, as `b3sum` prints it
    _tree = ""  # of the tree that proves it

    def __new__(cls, text: str, version: int = 0, fingerprint: int = 0, nbytes: int = 0, chunk_size: int = 2097152) -> "Reference":
        if version and len(text) == 32:
            text = f"{text}{version:016x}"
        made = super().__new__(cls, text)
        made.version = _native.version_of(text) or version
        made.fingerprint = fingerprint
        made.nbytes = nbytes
        made.chunk_size = chunk_size
        return made

    def __reduce__(self) -> Tuple[Any, ...]:
        proved = {"root": self.root, "_tree": self._tree} if self.root else None
        return type(self), (str(self), self.version, self.fingerprint, self.nbytes, self.chunk_size), proved

    def __str__(self) -> str:
        return str.__str__(self)

    @property
    def id(self) -> str:
        """The first 32 digits: what events call it, and the key of HTTP."""
        return self[:32]


class PartReference(Reference):
    """The reference of tensors that are a part of a set: it came with a message struct, which has the others (`tensorpull.messages`). Nothing is pulled by it alone,
    since its owner would take the whole set for received."""


class OfOneProcess:
    """What holds connections or threads, which neither a copy nor another process would have."""

    def __reduce__(self) -> Any:
        raise TypeError(f"a {type(self).__name__} belongs to the process that made it, and cannot be pickled or copied")


class Progress(NamedTuple):
    """How far a transfer is. `phase`: "started", "active", "completed", "failed" or "aborted"; bytes never go back."""

    phase: str
    ref_id: str  #: the ID: the first 32 digits of the reference
    recipient: int  #: see `recipient_named`; 0: it has no name
    bytes_done: int
    bytes_total: int
    tensors_done: int
    tensors_total: int
    sequence: int
    code: str  #: of what failed, otherwise "". "schema_mismatch" or "unsupported_request" of what is published: the recipient cannot take it, and may come again
    name: str = ""  #: the recipient's, if it is one of those that the publication was given


#: It is told how far a transfer is.
Tell = Union[Callable[[Progress], object], Bar, None]


class Receipt(NamedTuple):
    """How a download ended. `outcome`: "completed" (these are the published bytes: the digest agrees) or "completed_unverified" (nobody
    compared a digest of the whole). `confirmed` says whether the owner is known to have recorded it. `believed`: nothing that was given beforehand
    said which bytes these had to be (a reference's version, `version`, or `digest` of a URL), so whoever answered was believed; of a subset always."""

    outcome: str
    bytes: int  #: that came, those of a difference that could not be used among them; not those of an earlier call, nor of a look at the header
    chunks: int
    damaged: int  #: chunks that came with wrong bytes and were fetched again
    version: int  #: of what is published there. If `believed`, as whoever answered says: of a subset no byte was compared with it
    fingerprint: int
    digest: int  #: XXH3-64 of what came; 0 if none was computed, as of what is proved and comes over several connections
    confirmed: bool
    unconfirmed_because: str  #: one of `ErrorCode`, such as "timed_out", if it is not confirmed; otherwise ""
    believed: bool
    kept_bytes: int = 0  #: how many bytes fewer came than all tensors have, since `base` was there


class Update(NamedTuple):
    """What has become of a client's update in an average. `state`: "counted" or "told" (it counts, and the client was not told yet, or was),
    "under_way", "stopped" (it does not count as a whole), or "spoiled" (all of it was added, and together it was not what was published)."""

    peer: str
    state: str
    weight: float
    added_bytes: int  #: of the data, from the first on, that are in the sums
    version: int  #: of what is in the sums
    norm: float = 0.0  #: of its difference to `base` as it came, if `longest` was given
    refused: str = ""  #: the tensor whose NaN or infinity has ended it

    @property
    def counts(self) -> bool:
        """Whether the whole update is in the average."""
        return self.state in ("counted", "told")


class Access(NamedTuple):
    """What somebody asks for, and who it is as far as the link has proved it: the question to `Downloader(authorise=)` and `Listener(authorise=)`."""

    peer: str  #: over tls:// the common name in its certificate, "" if it has shown none or nobody knows
    alternatives: Tuple[str, ...]  #: the certificate's other names, as "DNS:site-1"
    user: Optional[int]  #: over unix: and shm: the number of the user
    ref_id: str  #: the ID of what is asked for, which need not be published
    recipient: int  #: the number of the name that it gives itself (`recipient_named`), or one of its own if it gives none: nobody has proved it


class Status(NamedTuple):
    """Counts of one publication's recipients."""

    acquired: int  #: have asked
    completed: int  #: confirmed with the published digest
    completed_unverified: int
    failed: int
    cancelled: int
    vanished: int  #: dropped by `recipient_idle_timeout`
    absent: int  #: expected by name and never seen
    unfinished: int  #: under way when it ended
    unlisted: int  #: asked without being expected
    lost: int  #: connections that ended before a confirmation
    bytes_sent: int  #: of the difference beside it too, and of looks at the header, which no receipt has


class Outcome(NamedTuple):
    """How a publication ended. `verdict`: "open" (it has not), "completed", "completed_unverified", "quorum", "failed",
    "uncertified" (the number of recipients was not known) or "withdrawn"."""

    verdict: str
    references: int
    expected: int
    counts: Status
    milliseconds: int
    recipients: Dict[str, str] = {}  #: of each that was expected by name how it has ended, as `Downloader.recipient_state` says it; empty once the downloader is closed
    reasons: Dict[str, str] = {}  #: why those who came last without completing it did not: codes, as of `Progress`, by name or, without one, by what the log calls them


class TensorDict(Dict[str, Any]):
    """A dict of tensors; `receipt` says how they came, `metadata` is what the owner sent with them. `structure` is that of a tree, for `unflatten`."""

    receipt: Optional[Receipt] = None
    structure: Optional[str] = None
    metadata: Dict[str, str]

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.metadata = {}


class Downloaded(TensorDict):
    """A dict of tensors that a download has filled."""

    receipt: Receipt
    _published: Optional[str] = None

    @property
    def leaves(self) -> Dict[str, Any]:
        """The numbers and texts of the tree that was published, by dotted names: those of the owner, also where `out` has its own. Error("bad_frame"): its structure is none."""
        from ._trees import leaves

        return {} if self._published is None else leaves(self._published)


class TensorView(Downloaded):
    """A dict of tensors over shared memory. `owner_can_write`: its owner has the model itself there, and may go on writing to it."""

    owner_can_write: bool = False
