import threading

from context import model, tensorpull, torch

# SNIPPET 1
door = tensorpull.Listener("127.0.0.1:0")


def one_end(session):
    # SNIPPET 2
    assert [session.status(ref).completed for ref in sent] == [1] * len(sent)


def dial():
    with tensorpull.Session(door.address) as session:
        one_end(session)


other = threading.Thread(target=dial)
other.start()
session = door.accept()
# SNIPPET 3
other.join()
assert kind == 1 and task["round"] == 7 and task["metrics"] == {"loss": 0.25}
assert torch.equal(state["weight"], model.weight)
