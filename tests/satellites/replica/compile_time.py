"""Programs whose compile time is measured and bounded, as in bench/compile_time/sources.py."""

OWNERS = {
    "replica_of, owner": ("satellites/replica/replica_owner.hpp", "tcp", 'tensorpull::replica_of<net0>::open("0.0.0.0:8002", "coordinator:8002")', "o->add_tensors(m, {.id = id})"),
}
BOUNDS = {
    "g++ 12": {"replica_of, owner": 48_050},
    "clang 14": {"replica_of, owner": 12_610},
}
