import threading

from context import model, torch

# SNIPPET 1

# both ends are in this program: the client waits on a thread of its own until the door is open
opened, door_is_open = tensorpull.Listener, threading.Event()


class Listener(opened):
    def __init__(self, listen):
        super().__init__("127.0.0.1:0")
        Listener.where = self.address
        door_is_open.set()


tensorpull.Listener = Listener
dial = tensorpull.Session


def connect(address):
    assert door_is_open.wait(10)
    return dial(Listener.where)


tensorpull.Session = connect


def client():
    # SNIPPET 2
    pass


other = threading.Thread(target=client)
other.start()
# SNIPPET 3
other.join()
assert message.body == b"600 images"
assert (torch.as_tensor(update["weight"]) == model.weight).all()
