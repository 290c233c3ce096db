"""The codes of errors, each with its cause and what to do."""

from __future__ import annotations

import enum
import textwrap
from typing import Dict, Tuple

from ._native import error_codes

#: Of each code the cause, and what helps.
_KNOWN: Dict[str, Tuple[str, str]] = {
    # arguments and tensors of this program
    "invalid_argument": ("An argument has the right type and cannot be meant: a weight of 0, a pattern that chooses nothing, an ID that is no hexadecimal number.", "Correct the argument that `message` and `name` state."),
    "size_overflow": ("The shapes that a tensor or a file states multiply to more than 64 bits can count.", "Look at the shape: it is damaged, or made up by whoever sent it."),
    "unsupported_dtype": ("The tensor's elements are of a kind that safetensors has not, or that has no mean.", "Convert the tensor `name`, or leave it out."),
    "unsupported_layout": ("The tensor is sparse, quantised, masked, read-only, a subclass, or the same memory as another one that is landed in.", "Make a plain tensor of it: `.to_dense()`, `.contiguous()`, `.copy()`."),
    "duplicate_name": ("Two leaves of a tree, or two tensors of a file, have one dotted name.", "Rename one of them."),
    "reserved_name": ("A tensor is named `__metadata__`, which a safetensors file keeps for its texts.", "Rename the tensor."),
    "too_many_tensors": ("A file of NumPy's has more members than are read.", "Divide it into several files."),
    "table_full": ("The owner was made for fewer references or recipients, or an average for fewer peers, than are there now.", "Raise `max_references`, `max_recipients`, `max_peers` or `max_updates`, or withdraw what is no longer needed."),
    "out_of_memory": ("The system gives no more memory.", "Lower `max_references`, `max_recipients` or `chunk_size`, pull into `out`, or pull to a file."),
    "does_not_fit": ("One frame cannot hold it: a message above 64 KiB, an image that is asked for in one chunk, names that are longer than a datagram.", "Send less at a time; leave `chunk_size` at its default; use a stream for long names."),
    "out_of_range": ("More bytes are read or written than the image has.", "Compare `offset` with `nbytes`."),
    # frames of the other side
    "bad_frame": ("The other side sent bytes that follow no rule of the protocol, or its metadata contradicts its tensors.", "Check that the port is tensorpull's and both versions are the same; do not trust that peer."),
    "too_large": ("What is published is above a limit of this side: `max_bytes`, `max_header_bytes`, `max_tensors`, or a frame's own.", "Raise that limit, if you expected so much; otherwise do not trust the owner."),
    "unexpected_frame": ("The other side sent a frame that is right elsewhere and not here.", "Check that it is an owner's port, and that both versions are the same."),
    "wrong_payload": ("The answer is not the range that was asked for.", "Try again; if it stays so, the owner or a cache on the way is at fault."),
    # what a request was answered
    "unknown_reference": ("The owner never had this reference, has forgotten it, or `authorise` has refused.", "Compare the digits and the address; ask the owner to publish again."),
    "withdrawn": ("The owner has withdrawn what was published.", "Ask for the reference of what it publishes now."),
    "ended": ("Everybody who was expected has ended, or nobody has asked for `transaction_idle_timeout`.", "Have it published again, with more `recipients` or a longer time."),
    "unreadable": ("The owner's file was removed or shortened, or its disk fails.", "Look at the owner's log; have it published again."),
    "stale_version": ("The reference means an earlier version than the one that is published under its ID.", "Ask for the new reference, or pull by the first 32 digits to have the newest."),
    "busy": ("The owner has as many connections or recipients as it takes.", "Try again later; raise `max_connections` or `retries`."),
    "bad_request": ("The other side could not make sense of the request, for example a tensor that it has not published.", "Compare with `list_tensors`; check that both versions are the same."),
    "unsupported_request": ("This link or this owner cannot do that: a relay over datagrams, a transaction over NATS.", "Use another link, as the documentation of the call says."),
    "already_final": ("This recipient has completed or given up this publication before.", "Nothing, if it has the tensors; otherwise ask for a new publication."),
    # what was agreed on and what was received
    "schema_mismatch": ("Names, dtypes, shapes or ties of `out` are not those that are published.", "Make `out` as `list_tensors` shows, choose some tensors with `subset=True`, or leave `out` away."),
    "digest_mismatch": ("The bytes are not those whose digest was published: the owner's tensors have changed since, or they were damaged on the way.", "Publish with `copy=True`, or do not train while it is published; then pull again."),
    "chunk_digest_mismatch": ("A chunk was damaged on the way, again and again.", "Look for what changes bytes between the two: a proxy, a cable, memory."),
    "not_verifiable": ("What is published has no digest, and this recipient wants one.", "Give `digest=`, or take it with `unverified=True`."),
    "version_required": ("Over NATS anybody who is let in can answer first, and only 32 digits were given.", "Give all 48 digits, or `believe=True`."),
    "cancelled_by_peer": ("The other side has given up.", "Look at its log; pull again."),
    "not_delivered": ("It has settled, and fewer recipients than were expected have it.", "Look at `outcome(ref).recipients` or `counts`, and publish again for those that have it not."),
    "cancelled": ("`abort` was true, or a callback has ended the round.", "Nothing: this program wanted it."),
    # averages
    "too_many_partial_updates": ("More updates have stopped half-way than an average remembers.", 'Use `partial="staged"`, which adds none by half.'),
    "partial_update": ("An update has stopped half-way, and a part of it is in the sums.", 'Pull it again until it completes, or use `partial="staged"`.'),
    "no_updates": ("There is nothing to average.", "Pull at least one update before `result()`."),
    "update_under_way": ("Another pull adds an update of the same peer.", "Wait for that one."),
    "update_changed": ("The peer has published another update since a part of the first was added.", 'Begin the round anew with `reset()`, or use `partial="staged"`.'),
    # sessions and shared memory
    "unread_messages": ("The other end has sent messages that nobody has received.", "Call `receive()` until they are read, and then this again."),
    "memory_not_shared": ("The owner had no room for a copy in shared memory.", "Enlarge /dev/shm (in containers `--shm-size`), or use `download_tensors`."),
    "memory_not_sealed": ("The owner's memory could be changed or shortened by others.", "Do not trust that owner, unless it is a program of yours that is meant to go on writing."),
    "bad_shared_memory": ("The index of the owner's shared memory contradicts itself.", "Do not trust that owner; check that both versions are the same."),
    # message structs
    "missing_field": ("The other program's struct has a field fewer.", "Use one definition of the struct at both ends."),
    "unknown_field": ("The other program's struct has a field more.", "Use one definition of the struct at both ends."),
    "wrong_kind": ("A field is of another kind than its member, for example text in place of a number.", "Use one definition of the struct at both ends."),
    "value_out_of_range": ("A number does not fit its member, or an update has a NaN or an infinity.", "Leave that peer out, or allow it (`refuse_no_numbers=False`)."),
    # files
    "bad_file": ("It is no safetensors file, or none of NumPy's.", "Check what `name` is: a page of a web server, a pickle, a pointer of Git LFS?"),
    "misplaced_tensor": ("Two tensors of a file overlap or leave a gap, or a length contradicts a shape.", "Write the file again with safetensors' own library."),
    "trailing_bytes": ("Something was appended to the file, or its header is damaged.", "Fetch or write the file again."),
    "cut_file": ("The file was not written or fetched to its end.", "Fetch or write the file again."),
    "io": ("The operating system refused something; `system` is its errno, and `filename` the path.", "As the built-in exception (FileNotFoundError, PermissionError, ...) suggests."),
    "disk_full": ("The file system has no room for the file.", "Make room and call again: what is there is gone on with."),
    # links
    "bad_address": ("The text is no address, or of a link that this build or this call has not.", "Write it as in `host:port`, `tls://host:port`, `unix:path`; install what `message` names."),
    "unknown_host": ("No name server knows the host, at least not yet.", "Check the name; raise `retries` or `wait` if the other program starts later."),
    "connection_failed": ("Nobody listens there, or something on the way refuses.", "Check address, port and firewall, and that the owner runs; raise `retries` if it starts later."),
    "connection_lost": ("The other program has ended, or the line has.", "Pull again, with `cursor=` from where it stopped; dial a lost session anew."),
    "timed_out": ("Nothing came for `per_request_timeout`, or `wait` or `timeout` was over.", "Check that the owner serves (`start()`, `serve()`) and nothing on the way is silent; allow more time."),
    "truncated": ("TLS ended without its notice, so bytes may be missing.", "Pull again; look at what is on the way."),
    "not_authenticated": ("A certificate is missing, has expired, is for another name, or of an authority that is not trusted.", "Set `TLS(ca_file=...)`, and `cert_file` and `key_file` where the other side wants them; dial the name that is in the certificate."),
    "handshake_failed": ("One side speaks TLS and the other does not, or they have no version in common.", "Use `tls://` at both ends or at neither."),
    "proxy_refused": ("The proxy of the environment (`https_proxy`) wants a password or refuses the host.", "Set `no_proxy`, or the proxy's user and password in its URL."),
    "not_permitted": ("A server has answered that this user may not have it.", "Give `bearer=`, or have the NATS user allowed what `message` names."),
    "owner_lost": ("Behind a server or a replica, the owner that published it has ended.", "Start the owner again and have it publish anew."),
}


class ErrorCode(str, enum.Enum):
    """What went wrong: the `code` of an `Error` is the text of one of these, `if e.code == tensorpull.ErrorCode.timed_out` is `if e.code == "timed_out"`.

    `ErrorCode(e.code)` has a `sentence`, by which the error begins if nothing more is known, a `cause` and a `remedy`:
    """

    # arguments and tensors of this program
    invalid_argument = "invalid_argument"
    size_overflow = "size_overflow"
    unsupported_dtype = "unsupported_dtype"
    unsupported_layout = "unsupported_layout"
    duplicate_name = "duplicate_name"
    reserved_name = "reserved_name"
    too_many_tensors = "too_many_tensors"
    table_full = "table_full"
    out_of_memory = "out_of_memory"
    does_not_fit = "does_not_fit"
    out_of_range = "out_of_range"

    # frames of the other side
    bad_frame = "bad_frame"
    too_large = "too_large"
    unexpected_frame = "unexpected_frame"
    wrong_payload = "wrong_payload"

    # what a request was answered
    unknown_reference = "unknown_reference"
    withdrawn = "withdrawn"
    ended = "ended"
    unreadable = "unreadable"
    stale_version = "stale_version"
    busy = "busy"
    bad_request = "bad_request"
    unsupported_request = "unsupported_request"
    already_final = "already_final"

    # what was agreed on and what was received
    schema_mismatch = "schema_mismatch"
    digest_mismatch = "digest_mismatch"
    chunk_digest_mismatch = "chunk_digest_mismatch"
    not_verifiable = "not_verifiable"
    version_required = "version_required"
    cancelled_by_peer = "cancelled_by_peer"
    not_delivered = "not_delivered"
    cancelled = "cancelled"

    # averages
    too_many_partial_updates = "too_many_partial_updates"
    partial_update = "partial_update"
    no_updates = "no_updates"
    update_under_way = "update_under_way"
    update_changed = "update_changed"

    # sessions and shared memory
    unread_messages = "unread_messages"
    memory_not_shared = "memory_not_shared"
    memory_not_sealed = "memory_not_sealed"
    bad_shared_memory = "bad_shared_memory"

    # message structs
    missing_field = "missing_field"
    unknown_field = "unknown_field"
    wrong_kind = "wrong_kind"
    value_out_of_range = "value_out_of_range"

    # files
    bad_file = "bad_file"
    misplaced_tensor = "misplaced_tensor"
    trailing_bytes = "trailing_bytes"
    cut_file = "cut_file"
    io = "io"
    disk_full = "disk_full"

    # links
    bad_address = "bad_address"
    unknown_host = "unknown_host"
    connection_failed = "connection_failed"
    connection_lost = "connection_lost"
    timed_out = "timed_out"
    truncated = "truncated"
    not_authenticated = "not_authenticated"
    handshake_failed = "handshake_failed"
    proxy_refused = "proxy_refused"
    not_permitted = "not_permitted"
    owner_lost = "owner_lost"

    def __str__(self) -> str:
        return str.__str__(self)

    @property
    def sentence(self) -> str:
        """What an error of this code begins with if nothing more is known."""
        return error_codes[self.value]

    @property
    def cause(self) -> str:
        """What it usually comes of."""
        return _KNOWN[self.value][0]

    @property
    def remedy(self) -> str:
        """What helps."""
        return _KNOWN[self.value][1]


ErrorCode.__doc__ = f"{ErrorCode.__doc__}\n" + "\n".join(
    f"      {code.value}\n" + textwrap.indent("\n".join(textwrap.wrap(f"{code.cause} {code.remedy}", 150)), " " * 10) for code in ErrorCode
)
