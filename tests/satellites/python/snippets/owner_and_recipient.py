from context import download_tensors, model, server, tensorpull, torch

tensorpull.Downloader = lambda listen: type(server)("127.0.0.1:0")
tensorpull.download_tensors = lambda address, ref, **options: download_tensors(owner.address, ref, **options)
# SNIPPET
assert torch.equal(state["weight"], model.weight)
owner.close()
server.close()
