from context import Downloader, model, publish, server, tensorpull, torch

owner = Downloader()
owner.start()
real = tensorpull.download_tensors
tensorpull.download_tensors = lambda address, ref, **options: real(address, publish(), **options)
# SNIPPET
assert torch.equal(state["weight"], model.weight)
owner.close()
server.close()
