from context import model, server, torch

offset = 0
# SNIPPET 1-2
nbytes, version = image.nbytes, image.version
# SNIPPET 3
assert torch.equal(state["weight"], model.weight)
server.close()
