# A message of a program's own, in which a tensorpull reference stands for a model.
@0x8ac2869d3d79200b;

using Cxx = import "/capnp/c++.capnp";
using Tensorpull = import "/tensorpull/framing/protocol.capnp";
$Cxx.namespace("hospital");

struct Task {
  round @0 :UInt32;
  site @1 :Text;
  model @2 :Tensorpull.Reference;  # 32 bytes, whatever the model's size
}
