# The wire protocol: every frame on a connection is one Frame in Cap'n Proto's standard stream framing.
# Decode a recorded frame with: capnp decode include/tensorpull/framing/protocol.capnp Frame < frame
#
# A frame that carries tensor bytes (chunk) is a single segment whose payload is its last object, so the frame is a prefix of
# ten words followed by the bytes themselves, padded to a word. Every other frame is at most 4 KiB (an application message: its
# own limit) and is accepted in any valid layout.

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
  alreadyFinal @11;        # this transfer was confirmed, failed or cancelled before
}

struct Frame {
  id @0 :UInt32;           # chosen by the requester, repeated in the reply

  union {
    nothing @1 :Void;

    describe :group {      # asks for a Description
      refHigh @2 :UInt64;
      refLow @3 :UInt64;
    }
    pull :group {          # asks for the image's bytes [offset, offset + length)
      refHigh @4 :UInt64;
      refLow @5 :UInt64;
      version @6 :UInt64;       # 0: the one that is published now
      offset @7 :UInt64;
      fingerprint @8 :UInt64;   # 0: any; otherwise the owner refuses before data moves if its own differs
      length @9 :UInt32;
      digestWanted @10 :Bool;   # the chunk shall carry the XXH3-64 of its payload
    }
    chunk :group {         # the answer to a pull; shorter than asked at the image's end or above the owner's cap
      refHigh @11 :UInt64;
      refLow @12 :UInt64;
      version @13 :UInt64;
      offset @14 :UInt64;
      nonce @15 :UInt64;        # names this serve; a confirmation repeats it
      digest @16 :UInt64;       # XXH3-64 of the payload where the pull asked for it, otherwise 0
      payload @17 :Data;
    }
    end :group {           # the answer to a pull at the image's end
      refHigh @18 :UInt64;
      refLow @19 :UInt64;
      version @20 :UInt64;
      imageBytes @21 :UInt64;
      nonce @22 :UInt64;
    }
    confirm :group {       # the recipient holds the bytes
      refHigh @23 :UInt64;
      refLow @24 :UInt64;
      version @25 :UInt64;
      nonce @26 :UInt64;
      digest @27 :UInt64;       # XXH3-64 of what was received, in image order
      verified @28 :Bool;       # false: the recipient computed no digest
    }
    confirmed :group {     # the owner has recorded it
      refHigh @29 :UInt64;
      refLow @30 :UInt64;
      version @31 :UInt64;
      nonce @32 :UInt64;
      status @33 :Status;
    }
    cancel :group {        # the recipient gives up; not answered
      refHigh @34 :UInt64;
      refLow @35 :UInt64;
      version @36 :UInt64;
      nonce @37 :UInt64;
    }
    refused :group {       # the answer to a request that cannot be served
      refHigh @38 :UInt64;
      refLow @39 :UInt64;
      version @40 :UInt64;
      offset @41 :UInt64;
      status @42 :Status;
      delayMs @43 :UInt32;
    }
    schema :group {        # asks for a SchemaPage
      refHigh @44 :UInt64;
      refLow @45 :UInt64;
      version @46 :UInt64;
      first @47 :UInt64;        # index of the page's first tensor, in image order
    }

    description @48 :Description;
    schemaPage @49 :SchemaPage;
    locate @50 :Locate;
    located @51 :Located;
    application @52 :Application;
  }
}

struct Description {       # what is published under a reference
  refHigh @0 :UInt64;
  refLow @1 :UInt64;
  version @2 :UInt64;      # XXH3-64 of the image, or random where `verifiable` is false
  fingerprint @3 :UInt64;  # XXH3-64 of the schema: names, dtypes, shapes
  imageBytes @4 :UInt64;
  dataStart @5 :UInt64;    # length of the image's header
  nonce @6 :UInt64;
  chunkCap @7 :UInt32;     # the longest payload that the owner sends
  tensors @8 :UInt32;
  window @9 :UInt16;       # requests that the owner lets one connection have in flight
  verifiable @10 :Bool;
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

struct Locate {            # asks where the named tensors are, and for one digest of them all
  refHigh @0 :UInt64;
  refLow @1 :UInt64;
  version @2 :UInt64;      # 0: the one that is published now
  names @3 :List(Text);
}

struct Located {
  refHigh @0 :UInt64;
  refLow @1 :UInt64;
  version @2 :UInt64;
  nonce @3 :UInt64;
  digest @4 :UInt64;       # XXH3-64 over the ranges, in image order
  fingerprint @5 :UInt64;  # of the schema that holds the named tensors alone
  ranges @6 :List(Range);  # byte ranges of the image in image order, one for each tensor
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
