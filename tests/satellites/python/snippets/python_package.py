from context import model, publish, server, torch

# SNIPPET 1
# SNIPPET 2

ref_id = publish()
ref_1 = ref_2 = ref_id
# SNIPPET 3-5
assert torch.equal(state["weight"], model.weight)
assert torch.allclose(torch.as_tensor(mean["weight"]), model.weight)
server.close()
