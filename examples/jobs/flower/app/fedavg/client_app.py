"""A node of FedAvg. Nothing but the import is about transfers."""

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict

from fedavg.task import accuracy, step

try:
    from tensorpull.flower import ClientApp
except ImportError:  # a node without it gets Flower's own records
    from flwr.clientapp import ClientApp

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    arrays = {name: array.numpy() for name, array in message.content["arrays"].items()}
    new = step(arrays, int(context.node_config["partition-id"]))
    content = RecordDict({"arrays": ArrayRecord({name: Array(np.asarray(a)) for name, a in new.items()}), "metrics": MetricRecord({"num-examples": 500})})
    return Message(content, reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    arrays = {name: message.content["arrays"][name].numpy() for name in ("weight", "bias")}
    return Message(RecordDict({"metrics": MetricRecord({"num-examples": 1000, "accuracy": accuracy(arrays)})}), reply_to=message)
