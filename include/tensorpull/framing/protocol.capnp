# The wire protocol: every frame on a connection is one Frame in Cap'n Proto's standard stream framing.
# Decode a recorded frame with: capnp decode include/tensorpull/framing/protocol.capnp Frame < frame
#
# A frame that carries tensor bytes (chunk) is a single segment whose payload is its last object, so the frame is a prefix of
# ten words followed by the bytes themselves, padded to a word. Every other frame is at most 4 KiB (an application message: its
# own limit) and is accepted in any valid layout, of at most 16 segments.
#
# An answer repeats the id and the reference of its request. Over a stream, answers have the order of their requests, of which
# a recipient has several in flight: pulls may be sent before the description has arrived.
#
# A newer version may add kinds of requests. An owner that does not know one refuses it as `unsupported`, with its id and no
# reference; one of a small machine (embedded) is silent. A recipient takes an unknown kind for a wrong answer, so requests of
# today are answered as today.

@0xd3a1c6f0b27e4985;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("tensorpull::wire");

enum Status {
  ok @0;
  unknownReference @1;     # never published here, or published by somebody else: the same answer, by intent
  withdrawn @2;
  stale @3;                # another version is published now; `version` of the refusal says which
  outOfRange @4;
  busy @5;                 # ask again after `delayMs`
  badRequest @6;
  unsupported @7;
  schemaMismatch @8;       # the fingerprint in the request is not the published one
  digestMismatch @9;
  cancelled @10;
  alreadyFinal @11;        # this recipient has ended this transfer before
  unreadable @12;          # the owner cannot read what it published any more
  ownerLost @13;           # said by a replica: the owner that coordinates is gone
  looked @14;              # in a cancellation alone: it wanted to know what is there. An owner that does not know this counts a recipient that gave up
  ended @15;               # it has settled, and nobody withdrew it. A recipient that does not know this reads `unsupported`
}

struct Frame {
  id @0 :UInt32;           # chosen by the requester, repeated in the reply

  union {
    nothing @1 :Void;

    describe :group {      # asks for a Description
      refHigh @2 :UInt64;
      refLow @3 :UInt64;
      recipient @4 :UInt64;   # who asks, the same over reconnections; 0: this connection and nobody else
      memory @58 :Bool;       # the recipient would rather read the memory in which the image lies, if the transport can pass it on
    }
    pull :group {          # asks for the image's bytes [offset, offset + length)
      refHigh @5 :UInt64;
      refLow @6 :UInt64;
      version @7 :UInt64;       # 0: the one that is published now
      offset @8 :UInt64;
      fingerprint @9 :UInt64;   # 0: any; otherwise the owner refuses before data moves if its own differs. runs: the bytes of one << 32, and how
                                # many bytes after its first one the next one's is
      length @10 :UInt32;       # 0xffffffff and no digest: all that is left in one chunk, even above the usual cap of 64 MiB
      digestKind @11 :UInt8;    # of its payload, that the chunk shall carry: 0 none, 1 XXH3-64, 2 CRC32C; 128 to 255 are private
      runs @67 :Bool;           # of named tensors: runs of bytes from `offset` on, `length` bytes in all, which are whole runs; without a digest
    }
    chunk :group {         # the answer to a pull: as many bytes as the least of its length, the owner's cap and what is left. Of runs all
      refHigh @12 :UInt64;
      refLow @13 :UInt64;
      version @14 :UInt64;
      offset @15 :UInt64;
      nonce @16 :UInt64;        # names this serve, as in its description; a confirmation repeats it
      digest @17 :UInt64;       # of the payload, of the kind that the pull asked for, otherwise 0
      payload @18 :Data;
    }
    end :group {           # the answer to a pull at the image's end
      refHigh @19 :UInt64;
      refLow @20 :UInt64;
      version @21 :UInt64;
      imageBytes @22 :UInt64;
      nonce @23 :UInt64;
    }
    confirm :group {       # the recipient holds the bytes; refused as badRequest before their end was sent
      refHigh @24 :UInt64;
      refLow @25 :UInt64;
      version @26 :UInt64;
      nonce @27 :UInt64;
      digest @28 :UInt64;       # XXH3-64 of what was received, in image order
      recipient @29 :UInt64;   # as in describe: a repeated confirmation may come over another connection
      verified @30 :Bool;       # false: the recipient computed no digest
    }
    confirmed :group {     # the owner has recorded it
      refHigh @31 :UInt64;
      refLow @32 :UInt64;
      version @33 :UInt64;
      nonce @34 :UInt64;
      status @35 :Status;
    }
    cancel :group {        # the recipient gives up; not answered
      refHigh @36 :UInt64;
      refLow @37 :UInt64;
      version @38 :UInt64;
      nonce @39 :UInt64;
      recipient @40 :UInt64;
      reason @41 :UInt32;      # the application's own
      status @57 :Status;      # digestMismatch: what came is not what was published; looked: forget that I asked; schemaMismatch, unsupported: the same,
                               # and the owner's program is told that this recipient cannot take what is published
    }
    refused :group {       # the answer to a request that cannot be served
      refHigh @42 :UInt64;
      refLow @43 :UInt64;
      version @44 :UInt64;
      offset @45 :UInt64;
      status @46 :Status;
      delayMs @47 :UInt32;      # withdrawn: why, the application's own number instead of a delay; 0: none
    }
    schema :group {        # asks for a SchemaPage; an owner may refuse this as unsupported, and `locate`
      refHigh @48 :UInt64;
      refLow @49 :UInt64;
      version @50 :UInt64;
      first @51 :UInt64;        # index of the page's first tensor, in image order
    }

    description @52 :Description;
    schemaPage @53 :SchemaPage;
    locate @54 :Locate;
    located @55 :Located;
    application @56 :Application;

    piece :group {         # over datagrams: a part of a frame that is longer than one, or of a message
      sender @59 :UInt64;       # a random number of the end that sends it: another one means that it was started again
      number @60 :UInt32;       # of the whole frame, in the order in which this end sends them
      offset @61 :UInt32;       # where the part begins
      total @62 :UInt32;        # bytes of the whole frame
      payload @63 :Data;
    }
    taken :group {         # over datagrams: all frames before `number` have come in pieces, and of that one the first `offset` bytes
      sender @64 :UInt64;       # as the pieces have it
      number @65 :UInt32;
      offset @66 :UInt32;
    }
  }
}

struct Description {       # what is published under a reference
  refHigh @0 :UInt64;
  refLow @1 :UInt64;
  version @2 :UInt64;      # XXH3-64 of the image, or random where `verifiable` is false
  fingerprint @3 :UInt64;  # XXH3-64 of the schema. For each tensor in image order: the bytes of its name (UInt32), the name, its dtype's position in the
                           # list of core/dtype.hpp (UInt8), its dimensions (UInt16), each of them (UInt64); little-endian, without padding
  imageBytes @4 :UInt64;   # the image is what safetensors.save writes: its tensors lie by dtype, the last of the list first, then by name
  dataStart @5 :UInt64;    # length of the image's header
  nonce @6 :UInt64;
  chunkCap @7 :UInt32;     # the longest payload that the owner sends
  tensors @8 :UInt32;
  window @9 :UInt16;       # requests that the owner lets one connection have in flight
  verifiable @10 :Bool;
  requestWords @12 :UInt16;  # of 8 bytes: of the longest request that the owner takes. Of a Locate that is four words and the text for each name, and 24 words for
                           # each slice. 0: not stated
  memory @11 :Bool;        # the memory in which the image lies comes with this frame (transports/over/shared_memory); nothing else does
}

struct SchemaPage {        # a part of the schema, as much as fits one frame
  refHigh @0 :UInt64;
  refLow @1 :UInt64;
  version @2 :UInt64;
  first @3 :UInt64;
  total @4 :UInt64;
  tensors @5 :List(Tensor);
}

struct Tensor {
  name @0 :Text;
  dtype @1 :Text;          # as safetensors spells it
  shape @2 :List(UInt64);
}

struct Locate {            # asks where the named tensors are, or slices of them, and for one digest of them all
  refHigh @0 :UInt64;
  refLow @1 :UInt64;
  version @2 :UInt64;      # 0: the one that is published now
  names @3 :List(Wanted);  # a List(Text) reads the same, and is sent where no slice is wanted. An owner that knows no slices locates
                           # whole tensors: the fingerprint of its answer tells. More than an owner has room for are a badRequest with the offset 0, as
                           # the first of them is if it is not there: ask for fewer. None are a badRequest, too: over datagrams that tells, in a short
                           # request, an owner that knows names from a small machine's, which hears no request in pieces
}

struct Wanted {            # a tensor, or a slice of it
  name @0 :Text;
  begin @1 :UInt64;        # of a dimension the indices [begin, end); both 0: all of it
  end @2 :UInt64;
  dimension @3 :UInt16;    # which; 0: the outermost. An owner that knows that one alone locates a slice of it: the fingerprint tells
}

struct Located {
  refHigh @0 :UInt64;
  refLow @1 :UInt64;
  version @2 :UInt64;
  nonce @3 :UInt64;
  digest @4 :UInt64;       # XXH3-64 over the ranges, in image order
  fingerprint @5 :UInt64;  # of the schema that holds the named tensors alone, and slices as tensors of their own shapes
  ranges @6 :List(Range);  # byte ranges of the image in image order, one for each tensor. A slice of a later dimension is runs of bytes, one for each
                           # index of the dimensions before it: its range begins with the first and ends with the last, and the digest is of the runs
}

struct Range {
  begin @0 :UInt64;
  end @1 :UInt64;
}

struct Reference {
  refHigh @0 :UInt64;
  refLow @1 :UInt64;
  version @2 :UInt64;
  fingerprint @3 :UInt64;
}

struct Application {       # a task, a result: what the two programs say to each other
  kind @0 :UInt32;         # the application's own
  references @1 :List(Reference);
  body @2 :Data;
}
