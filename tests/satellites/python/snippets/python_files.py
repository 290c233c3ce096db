import asyncio
import os
import tempfile

from context import server, tensorpull, torch
from tensorpull import aio

model = torch.nn.Module()
model.encoder, model.head = torch.nn.Linear(300, 40), torch.nn.Linear(40, 3)
os.chdir(tempfile.mkdtemp())
to_file, awaited = tensorpull.download_file, aio.download_tensors
tensorpull.download_file = lambda addresses, *rest, **options: to_file([owner.address for _ in addresses], *rest, **options)
aio.download_tensors = lambda address, *rest, **options: awaited(owner.address, *rest, **options)

# SNIPPET

state = asyncio.run(pull())
assert torch.equal(state["weight"], model.head.weight) and os.path.exists("encoder.safetensors")
owner.close()
server.close()
