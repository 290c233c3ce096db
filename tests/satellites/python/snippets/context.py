"""What the programs around the READMEs' Python share: a model, and machines named server, site-1 and site-2 that are all this one."""

import threading

import tensorpull
import torch


class Downloader(tensorpull.Downloader):
    """Listens on a free port whatever it is told; whom it publishes for, it makes and starts."""

    def __init__(self, listen="127.0.0.1:0", **options):
        super().__init__("127.0.0.1:0", **options)

    def add_tensors(self, tensors, recipients=0, **options):
        ref = super().add_tensors(tensors, recipients=recipients, **options)
        for _ in range(recipients):
            threading.Thread(target=download_tensors, args=(self.address, ref)).start()
        return ref


download_tensors, weighted_average = tensorpull.download_tensors, tensorpull.weighted_average
model = torch.nn.Linear(3, 2)
server = tensorpull.Downloader()
server.start()


def publish(tensors=None):
    return server.add_tensors(tensors if tensors is not None else model.state_dict())


tensorpull.Downloader = Downloader
tensorpull.download_tensors = lambda address, *rest, **options: download_tensors(server.address, *rest, **options)
tensorpull.weighted_average = lambda updates, **options: weighted_average([(server.address, *rest) for _, *rest in updates], **options)
