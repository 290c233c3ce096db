# A message struct taken apart: the body of an application message, in Cap'n Proto's standard stream framing, one segment.
# Decode a recorded body with: capnp decode include/tensorpull/messages/decomposed.capnp Decomposed < body
#
# References do not lie in the body: they are in the application message's own list, and fields name them by their index there.

@0xc2f81d5a97e3406b;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("tensorpull::wire");

struct Decomposed {
  fields @0 :List(Field);     # the struct's members in their order; those of a nested struct in its place
}

struct Field {
  name @0 :Text;              # a nested struct's members: "outer.inner"
  union {
    boolean @1 :Bool;
    signed @2 :Int64;         # also enumerations, by their value
    unsigned @3 :UInt64;
    floating @4 :Float64;
    text @5 :Text;
    numbers @6 :Numbers;
    tensors @7 :Tensors;
    locator @8 :Locator;
    nothing @9 :Void;         # an optional member that holds nothing; one that holds something is that
    items @10 :List(Field);   # a list of anything but numbers: the elements, without names
    entries @11 :List(Field); # a map: the names are its keys. Or a struct in a list, a map or an optional: its members
  }
}

struct Numbers {
  dtype @0 :Text;             # as safetensors spells it
  elements @1 :Data;          # little-endian, without gaps
}

struct Tensors {
  fingerprint @0 :UInt64;     # XXH3-64 of the schema of the whole set: names, dtypes, shapes
  inlineUpTo @1 :UInt64;      # tensors of at most so many bytes are in `inlined`, all others behind `reference`
  digest @2 :UInt64;          # XXH3-64 of `inlined`
  reference @3 :UInt16;       # index in the application message's list; 65535: every tensor is in `inlined`
  inlined @4 :Data;           # a safetensors file that holds the small tensors; empty where there are none
  addresses @5 :List(Text);   # where the owner of the reference listens; empty: it is the sender of this message
}

struct Locator {
  reference @0 :UInt16;       # index in the application message's list; 65535: none
  addresses @1 :List(Text);
}
