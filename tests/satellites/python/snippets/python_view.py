import os

import tensorpull

# both ends are in this program, at an address that no other program uses; the owner is made before `context` gives all of them a port
address = f"shm:@tensorpull-snippet-{os.getpid()}"
owner = tensorpull.Downloader(address).start()

from context import model, server

ref = owner.add_tensors(model.state_dict())
view = tensorpull.view_tensors
tensorpull.view_tensors = lambda path, ref, **more: view(address, ref, **more)

# SNIPPET

owner.close()
assert (state["weight"] == model.weight).all() and (weights["weight"] == model.weight.detach().numpy()).all()
server.close()
