from context import model, server, tensorpull, torch

model = torch.nn.Sequential(torch.nn.Linear(300, 40), torch.nn.Linear(40, 3))
shared = {name: tensor.clone() for name, tensor in model.state_dict().items()}
mine = {name: tensor.clone() for name, tensor in shared.items()}
owner = server
with torch.no_grad():
    for parameter in model.parameters():
        parameter += 1e-3 * torch.randn(parameter.shape)

# SNIPPET

assert all(torch.equal(tensor, shared[name]) and torch.allclose(tensor, model.state_dict()[name], atol=3e-5) for name, tensor in mine.items())
assert state.receipt.bytes < 14_000  # of 48,652, with the step's header
server.close()
