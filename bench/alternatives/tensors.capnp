# A model behind a remote call that reads a range of it.
@0xd1f0a6f8f3b0c7a5;

interface Model {
  read @0 (offset :UInt64, length :UInt64) -> (data :Data);
}
