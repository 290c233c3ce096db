"""References that a key has signed, and downloads whose bytes are proved by them."""

from __future__ import annotations

import datetime
import functools
import os
import time
from typing import Any, Callable, List, NamedTuple, Optional, Tuple, TypeVar, Union

from . import _native
from ._errors import Error
from ._log import attempts, logger, place
from ._options import PublishSettings, Throughout, text, whole
from ._route import MOST_AT_ONCE, Addresses, HttpSettings, addresses_of, is_url
from ._tls import TLS, native
from ._types import Reference

#: A str is the text itself, and a path the name of a file that has it.
TextOrFile = Union[str, "os.PathLike[str]"]
_Result = TypeVar("_Result")
_LONGEST_KEYS = 2 << 20
_LONGEST_REFERENCE = 4096


class SignedReference(NamedTuple):
    """The content of a signed reference, once it is verified: `download_tensors` and `download_file` take it in place of a reference. One that came by a channel that is trusted can be made by hand."""

    reference: str  #: of the model, 48 digits
    fingerprint: int  #: of its names, dtypes and shapes; 0: not known, and whoever sends it is believed about the names that `out` has
    tree: str  #: of the tree of its proofs; "": the root proves it alone
    root: str  #: the BLAKE3 of the model as a safetensors file, as `b3sum` prints it
    nbytes: int  #: the length of that file
    federation: str
    round: int
    expires: int  #: Unix time
    note: str


def need_proofs() -> None:
    if not _native.has_proofs:
        raise Error("unsupported_request", "this build of tensorpull has no proofs: it was built without OpenSSL")


def _words(given: TextOrFile, what: str, most: int) -> str:
    if not isinstance(given, os.PathLike):
        return text(given, what, "text, or a path (pathlib.Path) of a file that has it")
    try:
        with open(given, "rb") as file:
            read = file.read(most + 1)
    except OSError as e:
        raise Error("io", "the file cannot be read", os.fsdecode(given), system=e.errno or 0) from None
    if len(read) > most:
        raise Error("too_large", f"{what} is too long", os.fsdecode(given), at=len(read))
    return read.decode("latin-1")  # what is no ASCII is refused where it is read


def sign_reference(ref: Reference, key: TextOrFile, *, federation: str, expires: Union[float, datetime.datetime], round: int = 0, note: str = "") -> str:
    """The text by which a key vouches for what is published: which bytes these are, for whom, in which round, and until when. A recipient that trusts the key needs no secure channel to hear of a model.

      ref         what `add_tensors(..., proofs=True)` has returned
      key         a private key of Ed25519 (`openssl genpkey -algorithm ed25519`): a path, or its PEM as a str
      federation  for whom: 1 to 255 visible characters of ASCII
      expires     seconds from now, or a `datetime` with a time zone
      round       counts up: a recipient does not take an earlier one again (`verify_reference(least_round=)`)
      note        the application's own: up to 1,024 printable characters of ASCII

    The text has the reference, so whoever reads it can pull. Raises `Error`: "bad_file" (no such key), "io", "unsupported_request" (this build has no OpenSSL); ValueError.
    """
    need_proofs()
    if not isinstance(ref, Reference) or not ref.root:
        raise ValueError("what is signed was published with add_tensors(..., proofs=True): ref is what that has returned, in this process")
    if isinstance(expires, datetime.datetime):
        if expires.tzinfo is None:
            raise ValueError("expires has a time zone, as datetime.datetime.now(datetime.timezone.utc) has")
        until = int(expires.timestamp())
    else:
        if isinstance(expires, bool) or not isinstance(expires, (int, float)):
            raise TypeError(f"expires is seconds from now, or a datetime; not {expires!r}")
        if not 0 < expires <= 1e10:
            raise ValueError(f"expires is seconds from now; not {expires!r}")
        until = int(time.time() + expires)
    name, words = text(federation, "federation", "a name"), text(note, "note", "text")
    for what, given, longest, first in (("federation", name, 255, "!"), ("note", words, 1024, " ")):
        if len(given) > longest or any(not first <= c <= "~" for c in given) or (what == "federation" and not given):
            raise ValueError(f"{what} is {'1 to' if what == 'federation' else 'up to'} {longest} printable characters of ASCII{' without spaces' if what == 'federation' else ''}; not {given!r}")
    file = os.fsdecode(key) if isinstance(key, os.PathLike) else ""
    pem = "" if file else text(key, "key", "a private key in PEM, or a path (pathlib.Path) of a file that has it")
    return _native.sign_reference(str(ref), ref.fingerprint, ref._tree, ref.root, ref.nbytes, pem, file, name, whole(round, "round", 2**64 - 1), whole(until, "expires", 2**63 - 1), words)


def signer(key: TextOrFile, federation: str) -> Callable[..., str]:
    """`sign_reference` with this key, which is tried first. It is read for each signature, so a file of another key may take its place at any time."""
    probe = Reference("0" * 31 + "1", 1)
    probe.root = "0" * 64
    made = functools.partial(sign_reference, key=key, federation=federation)
    made(probe, expires=1)
    return made


def verify_reference(signed: TextOrFile, keys: TextOrFile, *, federation: Optional[str] = None, least_round: int = 0) -> SignedReference:
    """The content of a signed reference, if a trusted key has signed exactly this text, and it has not expired.

      signed       the text, or a path of a file that has it
      keys         text, or a path: lines of a federation's name, a space, and the public key's line of `openssl pkey -pubout`; " revoked" behind it takes the key back.
                   Of one federation several may be there, while one replaces another
      federation   only what is for this one; None: that of the key
      least_round  no earlier round than this: keep the last one that you had

    Raises `Error`: "not_authenticated", whose `name` is "signature" (no trusted key has signed it) or "revoked"; "not_permitted", whose `name` is "federation", "round" or "expires"; "bad_file" (no such text, or a line of the keys that is
    none), "io", "too_large", "unsupported_request" (this build has no OpenSSL).
    """
    need_proofs()
    wanted = "" if federation is None else text(federation, "federation", "a name")
    if federation == "":
        raise ValueError("federation is empty; None is that of the key")
    words = _words(signed, "signed", _LONGEST_REFERENCE)
    return SignedReference(*_native.verify_reference(words, _words(keys, "keys", _LONGEST_KEYS), wanted, whole(least_round, "least_round", 2**64 - 1)))


def publish_tree(owner: Any, made: Reference, tree: Any) -> None:
    """Publishes the tree of a model beside it, if there is one, and notes both in the reference."""
    if not tree.is_root_alone:
        how = PublishSettings()
        how.id, how.beside = _native.proof_tree_id(str(made)), made.id
        how.recipient_idle_ms = how.transaction_idle_ms = 0
        digits, version, _, _ = owner.add_held(tree, how)
        made._tree = str(Reference(digits, version))
    made.root = tree.root


def only_for_all(address: Addresses, **given: Any) -> None:
    """Refuses what asks for less than all that is signed, or believes somebody. `given`: arguments as they are, and as they are usually."""
    need_proofs()
    if any(map(is_url, addresses_of(address))):
        raise ValueError("a SignedReference is for owners: a web server has no proofs beside a file")
    for what, (value, usual) in given.items():
        if value is not usual and (usual is None or value != usual):
            raise ValueError(f"{what} has no meaning for a SignedReference: all of it is pulled, and each group of bytes is proved as it lands")


def over_proved(address: Addresses, ssl: Optional[TLS], of: SignedReference, call: Callable[[Any], _Result], progress: Any, connections: int = 1) -> Tuple[_Result, str]:
    """Calls `call(source)`, which pulls from all addresses at once if they are of one kind of link, and otherwise from one after the other. Returns its result, and where it came from. Those that lie are named in the log."""
    listed = addresses_of(address)
    tls = native(ssl)
    secure = [each for each in listed if each.startswith("tls://")]

    def route(members: List[str]) -> Any:
        return _native.Route(members, tls if not secure or members[0] in secure else None, attempts(members), HttpSettings())

    routes, at_once = tuple(route([each]) for each in listed), None
    if (len(listed) > 1 or connections > 1) and len(listed) <= MOST_AT_ONCE and _native.one_route(listed):
        at_once = route(listed)
        at_once.use_connections(connections if connections > 1 else 0)
    elif connections > 1:
        raise ValueError(f"with a SignedReference, connections is for up to {MOST_AT_ONCE} addresses of one kind")
    try:
        source = _native.ProvedSource(routes, at_once, of.reference, whole(of.fingerprint, "fingerprint", 2**64 - 1), of.tree, of.root, whole(of.nbytes, "nbytes", 2**64 - 1))
        try:
            got = call(source)
            wrong = source.wrong
            return got, listed[source.current] if at_once is None else ", ".join(place(each) for i, each in enumerate(listed) if i not in wrong)
        except Error as e:
            if e.code == "digest_mismatch":
                raise e.saying("no address has the bytes that were signed") from None
            raise
        finally:
            for i in source.wrong:
                logger.warning("%s gave other bytes than those that were signed", place(listed[i]))
    except BaseException:
        if isinstance(progress, Throughout):
            progress.fail()
        raise


def has_it(path: Any, of: SignedReference) -> bool:
    """Whether a file is there that has these bytes."""
    return os.path.isfile(path) and not os.path.islink(path) and os.path.getsize(path) == of.nbytes and _native.blake3_of_file(os.fsencode(path)) == of.root
