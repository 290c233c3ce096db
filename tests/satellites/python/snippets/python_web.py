import os
import tempfile

from context import download_tensors, server, tensorpull, torch

model = torch.nn.Linear(300, 40)
os.chdir(tempfile.mkdtemp())
opened = tensorpull.Downloader
tensorpull.download_tensors = download_tensors  # from the URL that is asked for
tensorpull.Downloader = lambda listen, http: opened("127.0.0.1:0", http="127.0.0.1:0")

# SNIPPET

assert torch.equal(state["weight"], model.weight) and os.path.exists("model.safetensors")
owner.close()
server.close()
