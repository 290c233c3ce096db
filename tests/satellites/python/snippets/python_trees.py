from context import model, server, torch

optimizer = torch.optim.Adam(model.parameters())
model(torch.ones(1, 3)).sum().backward()
optimizer.step()
owner = server

# SNIPPET

assert list(state)[:3] == ["model.weight", "model.bias", "optimizer.state.0.step"] and checkpoint["epoch"] == 7
assert checkpoint["optimizer"]["param_groups"] == optimizer.state_dict()["param_groups"]
assert torch.equal(checkpoint["optimizer"]["state"][0]["exp_avg"], optimizer.state_dict()["state"][0]["exp_avg"]) and mine["epoch"] == 0
server.close()
