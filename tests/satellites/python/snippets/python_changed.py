from context import model, server, tensorpull, torch

model = torch.nn.Sequential(torch.nn.Linear(300, 40), torch.nn.Linear(40, 3))
last_round = {name: tensor.clone() for name, tensor in model.state_dict().items()}
mine = {name: tensor.clone() for name, tensor in last_round.items()}
owner = server
with torch.no_grad():
    model[1].bias += 1

# SNIPPET

assert state.receipt.bytes == 12 and state.receipt.kept_bytes == 4 * (300 * 40 + 40 + 40 * 3)
assert all(torch.equal(tensor, got[name]) for got in (state, mine) for name, tensor in model.state_dict().items())
assert state["0.weight"] is last_round["0.weight"]
server.close()
